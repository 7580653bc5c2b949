"""Models as their libraries publish them: with weights, and with the preprocessing that these were trained for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from biasbed.errors import Failure, UsageError, first_line
from biasbed.networks.backbones import USUAL_SIZE, Architecture, Form, create, resolve, timm_tags
from biasbed.networks.network import Network
from biasbed.networks.weights import load_weights, read_file
from biasbed.settings import nearest


@dataclass(frozen=True)
class Published:
    """A library's model with its own weights."""

    network: Network
    outputs: int
    classes: tuple[str, ...] | None  # WordNet ids, where the weights are for a known set of them
    preprocessing: Mapping[str, Any]  # settings by dotted name


def published_weights(name: str) -> tuple[str, ...]:
    """The names of the weights that a library has for a model, none for one of our own or with gates of our own."""
    architecture = resolve(name)
    if architecture.gates:
        return ()
    if architecture.library == "timm":
        return tuple([architecture.tag] if architecture.tag else timm_tags(architecture.name))
    if architecture.library == "own":
        return ()
    from torchvision import models

    return tuple(weights.name for weights in models.get_model_weights(architecture.name))  # without aliases


def fetch(name: str, weights: str) -> Published:
    """The model, built and loaded by its library, which downloads and caches the weights.

    Raises UsageError for weights of that name that there are not, Failure when they can't be downloaded.
    """
    known = published_weights(name)
    if weights not in known:
        raise UsageError(f"weights={weights}: '{name}' has no such published weights{nearest(weights, known)}")
    architecture = resolve(name)
    try:
        of_library = _from_timm if architecture.library == "timm" else _from_torchvision
        return of_library(architecture, weights)
    except UsageError:
        raise
    except Exception as error:  # each library, and each of its versions, has its own for an unreachable hub
        reason = first_line(error)
        raise Failure(f"the weights '{weights}' of {name} can't be fetched ({reason}); give weights=<file>") from error


def from_file(name: str, path: Path) -> Published:
    """The model with the weights of a file, whose classes and preprocessing are not known.

    Images get the usual preprocessing: the short side at 256 pixels and a crop of 224, or in proportion where the
    network takes images of another size only. Raises UsageError where the file does not fit.
    """
    tensors = read_file(path, "weights")
    architecture = resolve(name)
    keys = [key for key in _classifiers(architecture) if key in tensors]
    if not keys:
        raise UsageError(f"weights={path}: holds no classifier of {name} ({_classifiers(architecture)[0]})")
    outputs = len(tensors[keys[0]])
    backbone, mean, std, _ = create(architecture, Form(outputs))
    load_weights(backbone, tensors, f"weights={path}", name)
    return Published(Network(backbone, mean, std), outputs, None, _settings(_input_size(architecture)))


def _from_torchvision(architecture: Architecture, word: str) -> Published:
    from torchvision import models

    weights: Any = models.get_model_weights(architecture.name)[word]
    backbone: nn.Module = models.get_model(architecture.name, weights=weights, progress=False)
    how, outputs = weights.transforms(), len(weights.meta["categories"])
    settings = _settings(how.crop_size[0], how.resize_size[0], how.interpolation.value)
    return Published(Network(backbone, how.mean, how.std), outputs, _wordnet_ids("imagenet-1k", outputs), settings)


def _from_timm(architecture: Architecture, tag: str) -> Published:
    import timm
    from timm.data.config import resolve_model_data_config
    from timm.data.imagenet_info import infer_imagenet_subset

    name = f"{architecture.name}.{tag}"
    backbone: Any = timm.create_model(name, pretrained=True)
    how = resolve_model_data_config(backbone)
    if how["crop_mode"] != "center" or not backbone.num_classes:
        raise UsageError(
            f"timm:{name} can't be tested as it is: crop {how['crop_mode']}, {backbone.num_classes} outputs"
        )
    size = how["input_size"][-1]
    settings = _settings(size, int(size / how["crop_pct"]), how["interpolation"])
    subset, outputs = infer_imagenet_subset(backbone), backbone.num_classes
    classes = _wordnet_ids(subset, outputs) if subset else None
    return Published(Network(backbone, how["mean"], how["std"]), outputs, classes, settings)


def _wordnet_ids(subset: str, outputs: int) -> tuple[str, ...] | None:
    from timm.data.imagenet_info import ImageNetInfo

    names = tuple(ImageNetInfo(subset).label_names())
    return names if len(names) == outputs else None


def _settings(size: int, resize: int | None = None, interpolation: str = "bilinear") -> dict[str, Any]:
    from biasbed.data.transforms import USUAL

    return {
        "image_size": size,
        "preprocess.size": size,
        "preprocess.resize": resize or round(size / USUAL),
        "preprocess.interpolation": "bicubic" if interpolation == "bicubic" else "bilinear",
        "stimuli.interpolation": "bicubic" if interpolation == "bicubic" else "bilinear",
    }


def _classifiers(architecture: Architecture) -> list[str]:
    """Names of the weights whose rows are the outputs."""
    if architecture.library == "timm":
        import timm

        config: Any = timm.models.get_pretrained_cfg(architecture.name)
        named = config.classifier
        return [f"{name}.weight" for name in ([named] if isinstance(named, str) else named or ())]
    from torchvision import models

    with torch.device("meta"):  # nothing is initialised
        modules = models.get_model(architecture.name, weights=None).named_modules()
    return [f"{name}.weight" for name, module in modules if isinstance(module, nn.Linear | nn.Conv2d)][-1:]


def _input_size(architecture: Architecture) -> int:
    """224, unless the network takes images of another size only."""
    if architecture.library == "timm":
        import timm

        config: Any = timm.models.get_pretrained_cfg(architecture.tagged)
        return int(config.input_size[-1]) if config.fixed_input_size else USUAL_SIZE
    return USUAL_SIZE
