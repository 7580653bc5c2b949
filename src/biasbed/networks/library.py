"""Published models of torchvision and timm: their weights and the preprocessing that these were trained with."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor, nn

from biasbed.errors import Failure, UsageError, first_line, listed, shown
from biasbed.networks import model_libraries, renaming
from biasbed.networks.backbones import (
    USUAL_OUTPUTS,
    Architecture,
    create,
    resolve,
    skeleton,
    tag_mean_std,
    timm_config,
)
from biasbed.networks.form import USUAL_SIZE, Form, MeanStd
from biasbed.networks.network import Network
from biasbed.networks.normalisation import Normalisation, choose_normalisation
from biasbed.networks.weights import check_init, fit_file, load_weights, resolve_weights, weight_names
from biasbed.settings import refuse_unknown
from biasbed.system import commands

log = logging.getLogger(__name__)

CROPS = {"center": "centre", "squash": "squash", "border": "border"}  # timm's names -> `preprocess.crop`


@dataclass(frozen=True)
class Published:
    """Library's model with its own weights."""

    network: Network
    outputs: int
    classes: tuple[str, ...] | None  # of its outputs, WordNet ids for ImageNet's; None if the weights don't say
    preprocessing: Mapping[str, Any]  # settings keyed by dotted name
    normalisation: Normalisation


def published_weights(name: str) -> tuple[str, ...]:
    """Return the names of a library's weights for a model; none for our own models or for added gates."""
    architecture = resolve(name)
    if architecture.gates:
        return ()
    has_tag = architecture.library == "timm" and architecture.tag and not architecture.has_own_config
    return (architecture.tag,) if has_tag else tuple(weight_names(architecture))


def fetch(name: str, weights: str, mean_std: MeanStd | None = None) -> Published:
    """Return the model, built and loaded by its library, which downloads and caches the weights.

    mean_std: mean and std that replace the weights' own. Raises UsageError if the model has no weights of that name,
    Failure if they can't be downloaded or read.
    """
    names = published_weights(name)
    refuse_unknown(
        weights, names, f"weights={weights}: there is no such file, and '{name}' has no such published weights"
    )
    architecture = resolve(name)
    if _gives_features_only(architecture):
        raise _no_classifier_error(name, f"named:{weights}")
    if not architecture.has_own_config:
        architecture = replace(architecture, tag=weights)
    loaders = {"timm": _load_from_timm, "torchvision": _load_from_torchvision}
    try:
        load = loaders.get(architecture.library, _load_from_optional)
        loaded = load(architecture)
    except UsageError:
        raise
    except Exception as error:  # each library and version raises its own for an unreachable hub
        reason = first_line(error)
        raise Failure(f"the weights '{weights}' of {name} can't be fetched ({reason}); give weights=<file>") from error
    how = choose_normalisation(architecture, tag_mean_std(architecture), mean_std=mean_std)
    network = Network(loaded.backbone, how.mean, how.std)
    return Published(network, loaded.outputs, loaded.classes, loaded.settings, how)


def from_file(name: str, path: Path, part: str = "", mean_std: MeanStd | None = None) -> Published:
    """Return the model with the weights of a file. Its classes are unknown.

    part: container in the file to take; empty if there is one. mean_std: mean and std that replace the file's own or
    the architecture's. Images get the preprocessing of the tag in the name. Without a tag they get the usual one, a
    short side of 256 pixels and a crop of 224, in proportion if the network takes another size only. Raises UsageError
    if the file does not fit.
    """
    architecture = resolve(name)
    if _gives_features_only(architecture):
        raise _no_classifier_error(name, str(path))
    fitted = fit_file(path, part, architecture, "weights")
    plan = skeleton(architecture)
    tensors = renaming.translate(plan, fitted.tensors)
    outputs = _count_outputs(tensors, architecture, plan, name, path)
    backbone, usual, _ = create(architecture, Form(outputs))
    load_weights(backbone, tensors, f"weights={path}", name)
    how = choose_normalisation(architecture, usual, fitted=fitted, mean_std=mean_std, source=f"weights={path}")
    settings = _published_preprocessing(architecture)
    if not settings:
        settings = _preprocessing_settings(_usual_size(architecture))
        _warn_of_usual_size(architecture, path, settings["image_size"])
    return Published(Network(backbone, how.mean, how.std), outputs, None, settings, how)


def _count_outputs(
    tensors: Mapping[str, Tensor], architecture: Architecture, plan: nn.Module, name: str, path: Path
) -> int:
    """Return the number of outputs of the classifier among a file's tensors.

    It is the usual one for tensors that are not the network's, which are refused in loading. plan: the network, without
    values. Raises UsageError if the tensors are the network's and have no classifier, or one without outputs.
    """
    state, keys = plan.state_dict(), _classifier_keys(architecture, plan)
    key = next((key for key in keys if key in tensors and tensors[key].numel()), None)
    if key is not None:
        return len(tensors[key]) if tensors[key].shape[1:] == state[key].shape[1:] else USUAL_OUTPUTS
    if tensors.keys().isdisjoint(state):
        return USUAL_OUTPUTS
    expected = "".join(f" ({key})" for key in keys[:1])
    others = [shown(key) for key in tensors if key not in state and key.endswith(".weight")]
    instead = f", but {listed(others, 3)}" if others else ""
    raise UsageError(
        f"weights={path}: holds no classifier of {name}{expected}{instead}; if it holds features, train one on "
        f"them: {commands.format_command('train', {'backbone': name, 'init': str(path), 'algorithm': 'probe'})}"
    )


def _warn_of_usual_size(architecture: Architecture, path: Path, size: int) -> None:
    """Warn if timm's usual weights of a network expect another size than a file without a tag is tested at."""
    if architecture.library != "timm":
        return
    usual = resolve_weights(architecture, "named:default")
    expected = (_supported_preprocessing(usual) if usual.tag else {}).get("image_size", size)
    if expected != size:
        name = f"timm:{usual.tagged}"
        log.warning("weights=%s: tested at %d pixels; %s expects %d: name it with its tag", path, size, name, expected)


def _gives_features_only(architecture: Architecture) -> bool:
    """Return True for a model of an optional library that gives features and decides nothing."""
    return architecture.is_optional and architecture.optional_library.classes(architecture.name) is None


def _no_classifier_error(name: str, init: str) -> UsageError:
    """Return the error for a model without a classifier. init: the setting that trains one on its features."""
    command = commands.format_command("train", {"backbone": name, "init": init, "algorithm": "probe"})
    return UsageError(
        f"{name} can't be tested as it is: it gives features and has no classifier. Make one: {command} (or knn)"
    )


class _Loaded(NamedTuple):
    """Model as its library loads it, with the preprocessing of its weights as settings."""

    backbone: nn.Module
    outputs: int
    classes: tuple[str, ...] | None
    settings: Mapping[str, Any]


def _load_from_torchvision(architecture: Architecture) -> _Loaded:
    from torchvision import models

    weights: Any = models.get_model_weights(architecture.name)[architecture.tag]
    backbone: nn.Module = models.get_model(architecture.name, weights=weights, progress=False)
    settings, outputs = torchvision_settings(weights.transforms()), len(weights.meta["categories"])
    return _Loaded(backbone, outputs, _wordnet_ids("imagenet-1k", outputs), settings)


def torchvision_settings(preset: Any) -> dict[str, Any]:
    """Return the preprocessing of torchvision's `ImageClassification`, the transforms of its weights, as settings."""
    return _preprocessing_settings(preset.crop_size[0], preset.resize_size[0], preset.interpolation.value)


def _load_from_timm(architecture: Architecture) -> _Loaded:
    import timm
    from timm.data.imagenet_info import infer_imagenet_subset

    settings = _timm_preprocessing(architecture)
    backbone: Any = timm.create_model(architecture.tagged, pretrained=True)
    outputs = backbone.num_classes
    if not outputs:
        raise _no_classifier_error(f"timm:{architecture.name}", f"named:{architecture.tag or 'default'}")
    classes = _label_names(architecture, outputs) if architecture.has_own_config else None
    if classes is None:
        subset = infer_imagenet_subset(backbone)
        classes = _wordnet_ids(subset, outputs) if subset else None
    return _Loaded(backbone, outputs, classes, settings)


def _label_names(architecture: Architecture, outputs: int) -> tuple[str, ...] | None:
    """Return the names of the outputs in the configuration of a hub's or a folder's model; None without usable ones."""
    names: Any = timm_config(architecture.tagged).label_names
    if not isinstance(names, list | tuple) or len(names) != outputs or len(set(map(str, names))) != outputs:
        return None
    return tuple(names) if all(isinstance(name, str) for name in names) else None


def _load_from_optional(architecture: Architecture) -> _Loaded:
    """Return a classifier of an optional library with all its classes."""
    library = architecture.optional_library
    names = library.classes(architecture.name) or []
    settings = _optional_preprocessing(architecture)
    backbone, *_ = create(architecture, Form(len(names), image_size=settings["image_size"]))
    tensors = library.fetch(architecture.name, architecture.tag)
    load_weights(backbone, model_libraries.select_tensors(tensors, backbone), architecture.name, architecture.name)
    is_imagenet = len(names) == USUAL_OUTPUTS and names[0].startswith("tench") and names[-1].startswith("toilet tissue")
    classes = _wordnet_ids("imagenet-1k", len(names)) if is_imagenet else _real_names(names)
    return _Loaded(backbone, len(names), classes, settings)


def _real_names(names: Sequence[str]) -> tuple[str, ...] | None:
    """Return the names of a classifier's outputs. None if they are placeholders, or if two outputs have one name."""
    if len(set(names)) < len(names) or all(re.fullmatch(r"LABEL_\d+", name) for name in names):
        return None
    return tuple(names)


def find_preprocessing(name: str, init: str) -> Mapping[str, Any]:
    """Return the preprocessing that a backbone's initial weights expect, as settings by dotted name.

    Empty if nothing says which they expect, or if biasbed has no such preprocessing. Reads no weights. Raises
    UsageError for an unknown backbone or unknown weights.
    """
    if init == "scratch":
        return {}
    architecture = resolve(name)
    if init.startswith("named:"):
        check_init(name, init)
        architecture = resolve_weights(architecture, init)
    return _supported_preprocessing(architecture)


def _supported_preprocessing(architecture: Architecture) -> Mapping[str, Any]:
    """Return the preprocessing that a model's tag or configuration says; empty if biasbed does not have it."""
    try:
        return _published_preprocessing(architecture)
    except UsageError:  # images that are not square
        return {}


def _published_preprocessing(architecture: Architecture) -> dict[str, Any]:
    """Return the preprocessing for the weights of the tag, or of the model's own configuration. Empty without either.

    Raises UsageError for one that biasbed does not have.
    """
    if architecture.is_optional:
        return _optional_preprocessing(architecture)
    if architecture.library == "timm" and (architecture.tag or architecture.has_own_config):
        return _timm_preprocessing(architecture)
    if architecture.library == "torchvision" and architecture.tag:
        from torchvision import models

        weights: Any = models.get_model_weights(architecture.name)[architecture.tag]
        return torchvision_settings(weights.transforms())
    return {}


def _optional_preprocessing(architecture: Architecture) -> dict[str, Any]:
    """Return the preprocessing of an optional library's model as settings."""
    how = architecture.optional_library.preprocessing(architecture.name, architecture.tag)
    if how.crop is None:
        name = f"{architecture.library}:{architecture.name}"
        raise UsageError(f"{name} can't be tested as it is: biasbed does not crop images as its configuration says")
    return _preprocessing_settings(how.size, how.resize, how.interpolation) | {"preprocess.crop": how.crop}


def _timm_preprocessing(architecture: Architecture) -> dict[str, Any]:
    """Return timm's preprocessing for the weights that the tag names."""
    config: Any = timm_config(architecture.tagged)
    return timm_settings(config.to_dict(), f"timm:{architecture.tagged}")


def timm_settings(pretrained_cfg: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return the preprocessing of timm's `pretrained_cfg` as settings.

    Raises UsageError for images that are not square, and for a border that is not grey.
    """
    from timm.data.config import resolve_data_config

    how = resolve_data_config(pretrained_cfg=dict(pretrained_cfg))
    height, size = how["input_size"][-2:]
    if height != size:
        raise UsageError(f"{name} can't be tested as it is: its images are {height} x {size} pixels, and not square")
    mode = how["crop_mode"]
    if mode not in CROPS or (mode == "border" and set(how["mean"]) != {0.5}):
        raise UsageError(f"{name} can't be tested as it is: crop {mode}, filled up with its mean")
    settings = _preprocessing_settings(size, int(size / how["crop_pct"]), how["interpolation"])
    return settings | {"preprocess.crop": CROPS[mode]}


def _wordnet_ids(subset: str, outputs: int) -> tuple[str, ...] | None:
    """Return the WordNet ids of a subset of ImageNet's classes. None if their number differs from the outputs'."""
    from timm.data.imagenet_info import ImageNetInfo

    names = tuple(ImageNetInfo(subset).label_names())
    return names if len(names) == outputs else None


def _preprocessing_settings(size: int, resize: int | None = None, interpolation: str = "bilinear") -> dict[str, Any]:
    """Return preprocessing as settings by dotted name. resize: short side before the crop; None: the usual one."""
    from biasbed.data.transforms import USUAL_CROP

    return {
        "image_size": size,
        "preprocess.size": size,
        "preprocess.resize": resize or round(size / USUAL_CROP),
        "preprocess.interpolation": "bicubic" if interpolation == "bicubic" else "bilinear",
        "stimuli.interpolation": "bicubic" if interpolation == "bicubic" else "bilinear",
    }


def _classifier_keys(architecture: Architecture, backbone: nn.Module) -> list[str]:
    """Return the names of the weights whose rows are the outputs."""
    if architecture.library == "timm":
        timm_backbone: Any = backbone
        names = timm_backbone.pretrained_cfg.get("classifier") or ()
        return [f"{name}.weight" for name in ([names] if isinstance(names, str) else names)]
    modules = backbone.named_modules()
    return [f"{name}.weight" for name, module in modules if isinstance(module, nn.Linear | nn.Conv2d)][-1:]


def _usual_size(architecture: Architecture) -> int:
    """Return 224, or the size of the only images that the network takes."""
    if architecture.is_optional:
        return architecture.optional_library.preprocessing(architecture.name, architecture.tag).size
    if architecture.library == "timm":
        config: Any = timm_config(architecture.tagged)
        return int(config.input_size[-1]) if config is not None and config.fixed_input_size else USUAL_SIZE
    return USUAL_SIZE
