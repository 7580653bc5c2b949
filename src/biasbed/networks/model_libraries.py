"""Optional libraries of models, which plug-ins offer: names such as `open_clip:ViT-B-32`, hub ids and local folders.

Answers: What does a library of models have to offer?
"""

from __future__ import annotations

import importlib
import importlib.metadata
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from torch import Tensor, nn

from biasbed.config import Crop
from biasbed.errors import Failure, UsageError, first_line
from biasbed.registry import Registry

if TYPE_CHECKING:
    from biasbed.networks.form import Backbone, Form

SOURCES = ("hf-hub:", "local-dir:")  # before the names of models that a library does not list


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
    example: ClassVar[str]  # name of a model, without that of the library
    has_names: ClassVar[bool] = True  # lists models, each with weights by name; False: hub ids and folders alone

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


LIBRARIES = Registry("model_library", {})  # all are of plug-ins
_loaded: dict[str, ModelLibrary] = {}


def library(name: str) -> ModelLibrary:
    """Return an optional library. Raises UsageError, which says what to install, if it is not there."""
    if name not in _loaded:
        _loaded[name] = LIBRARIES.load(name)()
    return _loaded[name]


def name_examples() -> list[str]:
    """Return the name of a model of each library."""
    return [f"{name}:{LIBRARIES.declare(name).example}" for name in LIBRARIES]


def is_of_hub(source: str) -> bool:
    """Return True if all models of the library before the colon are hub ids or folders."""
    return source in LIBRARIES and not LIBRARIES.declare(source).has_names


def is_folder(name: str) -> bool:
    """Return True if a model's name is a local folder, not a hub id."""
    return name.startswith(("local-dir:", "/", "./", "../", "~")) or os.path.isdir(name)


def folder_of(name: str) -> Path:
    """Return the folder that a model's name is."""
    return Path(name.removeprefix("local-dir:")).expanduser()


def out_of_reach_error(name: str, error: Exception, folder: str) -> Failure:
    """Return the error for a hub's model that is neither cached nor reached. folder: how a local one is named."""
    return Failure(
        f"{name} is not in this machine's cache and can't be fetched ({first_line(error)}); a local folder is {folder}"
    )


def select_tensors(tensors: Mapping[str, Tensor], module: nn.Module) -> dict[str, Tensor]:
    """Return the tensors whose keys are in a module's state dict."""
    state: Any = module.state_dict()
    return {key: value for key, value in tensors.items() if key in state}
