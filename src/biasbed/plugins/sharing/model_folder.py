"""Weights of a run as a folder that timm loads, or, if timm does not have the network, in biasbed's own layout.

timm's layout is `model.safetensors` with the backbone's weights and `config.json` with architecture, classes and
preprocessing. It is taken only if timm's model, loaded from the folder, gives the run's own logits to the bit.

Answers: In which layout are a run's weights exported?
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from biasbed.algorithms.make import Trained, from_checkpoint
from biasbed.compute import checkpoint
from biasbed.data.transforms import USUAL_CROP
from biasbed.errors import Failure, first_line
from biasbed.networks import renaming, resolve
from biasbed.networks.backbones import CONFIG_FILES, RESNETS, Architecture
from biasbed.networks.library import CROPS
from biasbed.networks.network import Network, as_input

log = logging.getLogger(__name__)

TIMM, OWN = "timm", "biasbed"
PROBES = 4  # random images whose logits are compared
# Our ResNets with one block per stage, as arguments of timm's networks with the same blocks.
TIMM_RESNETS = {"BasicBlock": "resnet18", "Bottleneck": "resnet50"}
ONE_BLOCK = {"layers": [1, 1, 1, 1]}
# Fields of timm's configuration of an architecture that hold for other weights, too.
KEPT = ("architecture", "fixed_input_size", "first_conv", "classifier")


@dataclass(frozen=True)
class ModelFolder:
    """Exported model, as its card describes it."""

    layout: str  # TIMM or OWN
    classes: tuple[str, ...]
    architecture: str  # in the names of the layout's library
    image_size: int
    channels: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    preprocessing: Mapping[str, Any]
    remarks: tuple[str, ...] = ()


def write_model(best: Path, folder: Path, where: str, method: str = "auto") -> ModelFolder:
    """Write the model of a checkpoint to a folder, in timm's layout if that gives the same logits, else in ours.

    best: the checkpoint. where: its name in messages. method: the user's own method, `auto` for one of biasbed's.
    """
    trained = from_checkpoint(best, method, where)
    settings = _read_image_settings(trained)
    reason = "the method decides with more than one network that timm has"
    for network in _networks_with_head(trained.algorithm):
        try:
            architecture = _write_timm(trained, network, settings, folder)
            is_equal = _gives_equal_logits(folder, trained)
        except Exception as error:  # timm raises its own for each network that it can't make so
            log.debug("not in timm's layout: %s", first_line(error))
            reason = f"timm does not have this network ({trained.config.backbone})"
            continue
        if is_equal:
            return _describe_model(trained, settings, TIMM, architecture, _crop_remark(settings))
        reason = "timm's network of that name gives other logits"
    for name in (CONFIG_FILES[0], checkpoint.TENSORS_FILE):
        (folder / name).unlink(missing_ok=True)
    state = checkpoint.load(best, where=where)
    try:
        checkpoint.save_folder(folder, state)
    except (TypeError, ValueError) as error:  # a method of the user's, with settings that JSON does not have
        raise Failure(f"{where} can't be written as JSON and safetensors: {first_line(error)}") from None
    remarks = (f"not in timm's layout: {reason}",)
    return _describe_model(trained, settings, OWN, trained.config.backbone, remarks)


def _networks_with_head(algorithm: nn.Module) -> Iterator[Network]:
    """Yield the networks of a method that have a head."""
    for module in algorithm.modules():
        if isinstance(module, Network) and module.head is not None:
            yield module


def _write_timm(trained: Trained, network: Network, settings: Mapping[str, Any], folder: Path) -> str:
    """Write a network's weights as timm's model. Raises any error if timm has no network that takes them."""
    import timm
    from timm.models import save_for_hf

    name, arguments = _timm_arguments(resolve(trained.config.backbone), network)
    outputs = len(trained.classes)
    model: Any = timm.create_model(name, pretrained=False, num_classes=outputs, **arguments)
    renaming.load(model, renaming.translate(model, network.backbone.state_dict()))
    config = {key: value for key, value in model.pretrained_cfg.items() if key in KEPT}
    model.pretrained_cfg = {**config, **_pretrained_config(trained, settings)}
    save_for_hf(
        model.eval(),
        str(folder),
        model_config={"label_names": list(trained.classes)},
        model_args={"num_classes": outputs, **arguments},
        safe_serialization=True,
    )
    # As readable as any other new file: safetensors lets nobody but the owner read its own.
    (folder / checkpoint.TENSORS_FILE).chmod((folder / CONFIG_FILES[0]).stat().st_mode & 0o777)
    return str(config["architecture"])


def _timm_arguments(architecture: Architecture, network: Network) -> tuple[str, dict[str, Any]]:
    """Return timm's name of an architecture, and the arguments with which timm makes it like this network."""
    backbone: Any = network.backbone
    arguments: dict[str, Any] = {}
    if network.channels != 3:
        arguments["in_chans"] = network.channels
    if architecture.library == "timm":
        arguments |= getattr(backbone, "_model_args", {})
        if network.image_size is not None:
            arguments["img_size"] = network.image_size
        for name in ("num_classes", "drop_path_rate"):
            arguments.pop(name, None)
        return str(backbone.pretrained_cfg["architecture"]), arguments
    if architecture.name in RESNETS:
        return TIMM_RESNETS[RESNETS[architecture.name]], {**ONE_BLOCK, **arguments}
    return architecture.name, arguments


def _pretrained_config(trained: Trained, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of timm's `pretrained_cfg` that say how images become the network's input."""
    size, short = settings["size"], settings["short"]
    crops = {ours: theirs for theirs, ours in CROPS.items()}
    return {
        "input_size": [settings["channels"], size, size],
        "pool_size": None,
        "mean": list(trained.normalisation.mean),
        "std": list(trained.normalisation.std),
        "interpolation": settings["interpolation"],
        "crop_pct": 1.0 if short is None else crop_share(size, short),
        "crop_mode": "squash" if short is None else crops[settings["crop"]],
    }


def crop_share(size: int, short: int) -> float:
    """Return timm's `crop_pct`, from which it computes the short side of an image again: floor(size / share)."""
    share = size / short
    while int(size / share) < short:
        share = math.nextafter(share, 0)
    return share


def _read_image_settings(trained: Trained) -> dict[str, Any]:
    """Return how images become the network's input, as in the tests of its training, by name of the setting.

    size: of the input; short: the resized image's short side, None if it is squashed; share: crop before resizing, None
    without one; crop, interpolation, channels. They are those of photographs, if the suite has such, else of stimuli.
    """
    values = trained.settings
    group = "preprocess" if "preprocess.size" in values else "stimuli"
    size = values.get(f"{group}.size", "auto")
    size = values["image_size"] if size == "auto" else int(size)
    resize = values.get(f"{group}.resize")
    short, share = resize, None
    if group == "preprocess":
        short = round(size / USUAL_CROP) if resize == "auto" else int(values["preprocess.resize"])
        if values.get("preprocess.crop_first"):
            share = USUAL_CROP if resize == "auto" else size / short
    return {
        "size": size,
        "short": short,
        "share": share,
        "crop": values.get("preprocess.crop", "centre") if group == "preprocess" else "centre",
        "interpolation": values.get(f"{group}.interpolation", "bilinear"),
        "channels": trained.config.network.channels,
    }


def _gives_equal_logits(folder: Path, trained: Trained) -> bool:
    """Return True if timm's model of the folder has the logits of the run's method, to the last bit."""
    images = _probe_images(trained)
    with torch.inference_mode():
        expected = trained.algorithm.predict(as_input(images))
        return bool(torch.equal(timm_logits(folder, trained.normalisation, images), expected))


def _probe_images(trained: Trained) -> Tensor:
    """Return random images [N,C,S,S] of the size that the run was tested on."""
    settings = _read_image_settings(trained)
    generator = torch.Generator().manual_seed(0)
    return torch.rand(PROBES, settings["channels"], settings["size"], settings["size"], generator=generator)


def timm_logits(folder: Path, normalisation: Any, images: Tensor) -> Tensor:
    """Return the logits [N,K] of the folder's model, as timm loads it, on images [N,C,S,S] in [0,1]."""
    import timm

    model = timm.create_model(f"local-dir:{folder}", pretrained=True).eval()
    logits: Tensor = Network(model, normalisation.mean, normalisation.std)(as_input(images))
    return logits


def _crop_remark(settings: Mapping[str, Any]) -> tuple[str, ...]:
    """Return a remark if timm prepares images in another order than the run."""
    if settings["share"] is None:
        return ()
    return (
        "the run crops its test images before it resizes them, and timm after: sizes agree, pixels differ slightly",
    )


def _describe_model(
    trained: Trained, settings: Mapping[str, Any], layout: str, architecture: str, remarks: tuple[str, ...]
) -> ModelFolder:
    """Return the description of a written model."""
    return ModelFolder(
        layout=layout,
        classes=trained.classes,
        architecture=architecture,
        image_size=settings["size"],
        channels=settings["channels"],
        mean=tuple(trained.normalisation.mean),
        std=tuple(trained.normalisation.std),
        preprocessing=settings,
        remarks=remarks,
    )
