"""Image and text towers, whose features of images and texts are compared (Radford et al., ICML 2021, CLIP).

An image tower is a backbone like any other: a linear head on its features. `open_clip:ViT-B-32` names towers of
open_clip, `transformers:<hub id or folder>` those of transformers, `small_clip` small ones of biasbed.

Answers: How is a text classifier computed, and which libraries have text towers?
"""

from __future__ import annotations

import importlib
import importlib.metadata
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from biasbed.batch import at_least_fp32
from biasbed.config import Crop
from biasbed.errors import Failure, UsageError, first_line
from biasbed.registry import Registry

if TYPE_CHECKING:
    from biasbed.networks.form import Backbone, Form

PART = 256  # texts whose features are computed together
SOURCES = ("hf-hub:", "local-dir:")  # before the names of models that a library does not list


class ImageTower(nn.Module):
    """Image tower with a linear head: images [N,C,H,W] -> logits [N,K]. Features are the inputs of `head`."""

    def __init__(self, num_features: int, outputs: int) -> None:
        super().__init__()
        self.head = nn.Linear(num_features, outputs)

    def embed(self, x: Tensor) -> Tensor:
        """Return features [N,D] that are comparable with those of the text tower, of any length."""
        raise NotImplementedError

    def get_classifier(self) -> nn.Module:
        """Return the head, as timm's networks do."""
        return self.head

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.embed(x))
        return logits


class TextTower(nn.Module):
    """Text tower: tokens [N,L] -> features [N,D], of any length. `model` is the library's own module."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def tokenize(self, texts: Sequence[str]) -> Tensor:
        """Return the tokens [N,L] of texts, on the CPU."""
        raise NotImplementedError

    def forward(self, tokens: Tensor) -> Tensor:
        raise NotImplementedError

    def scale(self) -> Tensor:
        """Return the factor of cosine similarities in logits."""
        return cast(Tensor, self.model.logit_scale).exp().squeeze()

    def bias(self) -> Tensor:
        """Return the summand of logits (SigLIP); 0 for models without one."""
        bias = getattr(self.model, "logit_bias", None)
        return torch.zeros_like(self.scale()) if bias is None else bias.squeeze()


def text_classifier(tower: TextTower, tokens: Tensor) -> Tensor:
    """Return the features [K,D] of classes, of length 1, from the tokens [K,T,L] of T texts for each class.

    A class's features are the mean of the normalised features of its texts, normalised again (Radford et al., ICML
    2021, section 3.1.4).
    """
    parts = [at_least_fp32(tower(part)) for part in tokens.flatten(0, 1).split(PART)]
    features = functional.normalize(torch.cat(parts), dim=1).unflatten(0, tokens.shape[:2])
    return functional.normalize(features.mean(1), dim=1)


class Preprocessing(NamedTuple):
    """Images that a model expects, by its own configuration."""

    mean: tuple[float, ...]
    std: tuple[float, ...]
    size: int  # pixels per side
    interpolation: str
    resize: int  # short side, or both sides with `squash`, before the crop
    crop: Crop | None  # None: in a way that biasbed does not have

    @property
    def text(self) -> str:
        """Size and interpolation as a clause."""
        return f"{self.size} pixels, {self.interpolation} interpolation"


class ModelLibrary:
    """Optional library of models with names of its own, hub ids and local folders."""

    package: ClassVar[str]  # distribution, as pip takes it
    module: ClassVar[str]

    def __init__(self) -> None:
        try:
            importlib.import_module(self.module)
        except ImportError as error:
            raise UsageError(
                f"backbones of {self.module} need a further package ({error}): pip install {self.package}"
            ) from None

    @property
    def version(self) -> str:
        return importlib.metadata.version(self.package)

    def check(self, name: str) -> None:
        """Raise UsageError if there is no model of this name."""
        raise NotImplementedError

    def create(self, name: str, tag: str, form: Form) -> Backbone:
        """Return a fresh image tower or classifier. tag: weights whose variant of the model is needed, or empty."""
        raise NotImplementedError

    def create_text(self, name: str, tag: str) -> TextTower:
        """Return a fresh text tower. Raises UsageError if the model has none."""
        raise NotImplementedError

    def weights(self, name: str) -> list[str]:
        """Return the names of the model's published weights."""
        raise NotImplementedError

    def fetch(self, name: str, tag: str) -> dict[str, Tensor]:
        """Return the tensors of the whole model, both towers, under the library's own names."""
        raise NotImplementedError

    def preprocessing(self, name: str, tag: str) -> Preprocessing:
        """Return the model's own preprocessing of images."""
        raise NotImplementedError

    def classes(self, name: str) -> list[str] | None:
        """Return the names of a classifier's outputs; None if the model has no classifier."""
        raise NotImplementedError

    def file_hint(self, name: str) -> str:
        """Return what a user of a weights file should know about the model of this name; usually empty."""
        return ""

    def resize(self, backbone: nn.Module, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return tensors with position embeddings of the backbone's own image size."""
        return tensors


LIBRARIES = Registry(
    "backbone",
    {
        "open_clip": "biasbed.networks.open_clip_towers:OpenCLIP",
        "transformers": "biasbed.networks.transformers_models:Transformers",
    },
)
_loaded: dict[str, ModelLibrary] = {}


def library(name: str) -> ModelLibrary:
    """Return an optional library. Raises UsageError, which says what to install, if it is not there."""
    if name not in _loaded:
        _loaded[name] = LIBRARIES.load(name)()
    return _loaded[name]


def is_folder(name: str) -> bool:
    """Return True if a model's name is a local folder, not a hub id."""
    return name.startswith(("local-dir:", "/", "./", "../", "~")) or os.path.isdir(name)


def folder_of(name: str) -> Path:
    """Return the folder that a model's name is. Raises UsageError if it does not exist."""
    folder = Path(name.removeprefix("local-dir:")).expanduser()
    if not folder.is_dir():
        raise UsageError(f"backbone={name}: there is no such folder")
    return folder


def out_of_reach_error(name: str, error: Exception, folder: str) -> Failure:
    """Return the error for a hub's model that is neither cached nor reached. folder: how a local one is named."""
    return Failure(
        f"{name} is not in this machine's cache and can't be fetched ({first_line(error)}); a local folder is {folder}"
    )


def no_text_tower_error(name: str) -> UsageError:
    """Return the error for a model of images alone."""
    return UsageError(
        f"{name} has no text tower: take open_clip:<model>, or transformers:<a CLIP or SigLIP model>; probe and knn "
        "use images alone"
    )


def kept(tensors: Mapping[str, Tensor], module: nn.Module) -> dict[str, Tensor]:
    """Return the tensors that a module has."""
    state: Any = module.state_dict()
    return {key: value for key, value in tensors.items() if key in state}
