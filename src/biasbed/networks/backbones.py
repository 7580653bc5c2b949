"""Backbones by name: torchvision's, timm's, and small ResNets made of torchvision's own classes.

`resnet18` and `torchvision:resnet18` are the same; timm's are `timm:resnet50` or, with the tag of a set of weights,
`timm:resnet50.a1_in1k`. The libraries take seconds to import and are imported when a name asks for them.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from torch import nn

from biasbed.errors import UsageError
from biasbed.networks.network import IMAGENET_MEAN, IMAGENET_STD
from biasbed.settings import nearest

Library = Literal["own", "torchvision", "timm"]

# Blocks of ResNets that torchvision has no name for: one per stage, for small images and quick studies.
OWN = {"resnet10": "BasicBlock", "resnet14": "Bottleneck"}
# Stand for all of timm's names in a hint, as listing those takes the import of timm.
TIMM_EXAMPLES = ("timm:resnet18", "timm:resnet50", "timm:resnet50.a1_in1k")


@dataclass(frozen=True)
class Architecture:
    """A resolved name; `tag` names a set of timm weights."""

    library: Library
    name: str
    tag: str = ""

    @property
    def tagged(self) -> str:
        return f"{self.name}.{self.tag}" if self.tag else self.name


def check_name(name: str, resnet: bool = True) -> None:
    """Raise UsageError, with the nearest valid name, for an unknown backbone; builds and loads nothing.

    resnet: only ResNets pass, into which methods can be inserted; False admits every classifier of both libraries.
    """
    resolve(name, resnet)


def resolve(name: str, resnet: bool = True) -> Architecture:
    """The architecture that a name stands for; UsageError as in `check_name`."""
    if name in OWN:
        return Architecture("own", name)
    library, _, rest = name.rpartition(":")
    if library == "timm":
        return _resolve_timm(rest, resnet)
    names = _torchvision_names(resnet)
    if library not in ("", "torchvision") or rest not in names:
        known = [*OWN, *names, *(f"torchvision:{n}" for n in names), *TIMM_EXAMPLES]
        raise UsageError(f"unknown backbone '{name}'{_hint(name, known)}")
    return Architecture("torchvision", rest)


def create(architecture: Architecture, num_outputs: int) -> tuple[nn.Module, Sequence[float], Sequence[float]]:
    """A freshly initialised backbone, and the mean and std of the images it expects."""
    if architecture.library == "timm":
        import timm

        model: Any = timm.create_model(architecture.tagged, pretrained=False, num_classes=num_outputs)
        return model, model.pretrained_cfg["mean"], model.pretrained_cfg["std"]
    import torchvision

    if architecture.library == "own":
        block = getattr(torchvision.models.resnet, OWN[architecture.name])
        return torchvision.models.ResNet(block, [1, 1, 1, 1], num_outputs), IMAGENET_MEAN, IMAGENET_STD
    backbone = torchvision.models.get_model(architecture.name, weights=None, num_classes=num_outputs)
    return backbone, IMAGENET_MEAN, IMAGENET_STD


def timm_tags(name: str) -> list[str]:
    """The tags of the weights that timm has for a model."""
    import timm

    return [full.partition(".")[2] for full in timm.list_models(f"{name}.*", pretrained=True)]


@functools.cache
def _torchvision_names(resnet: bool) -> Sequence[str]:
    from torchvision import models

    names: list[str] = models.list_models(module=models)
    if not resnet:
        return names
    return [name for name in names if models.get_model_builder(name).__module__ == models.resnet.__name__]


def _resolve_timm(name: str, resnet: bool) -> Architecture:
    import timm

    # timm's file `resnet.py` holds its ResNets proper, all of basic and bottleneck blocks; ResNeSt, Res2Net and others
    # have files and blocks of their own.
    module = "resnet" if resnet else ""
    plain, _, tag = name.partition(".")
    if plain not in timm.list_models(module=module):
        raise UsageError(f"unknown backbone 'timm:{name}'{_hint(name, timm.list_models(module=module), 'timm:')}")
    if tag and tag not in timm_tags(plain):
        raise UsageError(f"unknown backbone 'timm:{name}'{_hint(tag, timm_tags(plain), f'timm:{plain}.')}")
    return Architecture("timm", plain, tag)


def _hint(name: str, names: Sequence[str], prefix: str = "") -> str:
    """The nearest valid name, or a list that stays readable."""
    hint = nearest(prefix + name, [prefix + valid for valid in names])
    if not hint.startswith("; valid") or len(names) <= 10:
        return hint
    return f"; valid: {', '.join(prefix + valid for valid in names[:10])}, ... ({len(names)} in all)"
