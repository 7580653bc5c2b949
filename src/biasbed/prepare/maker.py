"""Contract of makers, which the command `prepare` runs by name: of networks, of images, or the data check.

A maker is one class in one file, of biasbed or of a user's own. The command takes the settings of its `Settings` only.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

from biasbed.compute.device import choose_device
from biasbed.config import Config
from biasbed.data.prepared import MAKERS, PreparedStore
from biasbed.data.source import Source
from biasbed.errors import Failure, UsageError
from biasbed.options import PrepareOptions
from biasbed.settings import refuse_unknown, setting
from biasbed.suites import open_suite
from biasbed.suites.suite import OpenSuite
from biasbed.tracking.folder import exclusive

P = TypeVar("P", bound=PrepareOptions)


class Maker(Generic[P]):
    """Base of what `prepare` can make.

    Settings: a subclass of `PrepareOptions` with this maker's settings.
    """

    Settings: ClassVar[type[PrepareOptions]] = PrepareOptions

    def __init__(self, options: P, config: Config) -> None:
        """Keep the settings. config: of the suite whose images are meant."""
        self.options, self.config = options, config

    @property
    def name(self) -> str:
        """Name of the product in the names of files."""
        return MAKERS.identifier(self.options.what)

    def run(self) -> Path | None:
        """Run the maker; return the file or folder that it makes. Raises UsageError for settings that don't fit."""
        raise NotImplementedError


def load(name: str) -> type[Maker[Any]]:
    """Return the class of a maker. Raises UsageError for an unknown name."""
    maker: type[Maker[Any]] = MAKERS.load(name)
    return maker


@dataclass(frozen=True)
class WrittenOptions(PrepareOptions):
    """Settings of makers that write files."""

    overwrite: bool = setting(False, "make it anew if it exists with other settings")


@dataclass(frozen=True)
class KeptOptions(WrittenOptions):
    """Settings of makers whose product is kept for a suite's images."""

    split: str = setting("train", "whose images: train, or the name of a validation or evaluation set")


K = TypeVar("K", bound=KeptOptions)


class KeptMaker(Maker[K]):
    """Base of makers whose product is made of a suite's images, where the suite looks for it; it is made only once."""

    Settings = KeptOptions

    @functools.cached_property
    def suite(self) -> OpenSuite:
        return open_suite(self.config)

    @functools.cached_property
    def source(self) -> Source:
        """Images of the split."""
        source = self._open_split(self.options.split)
        if source.channels != 3:
            raise UsageError(f"only images of 3 channels can be prepared: '{source.name}' has {source.channels}")
        return source

    def _open_split(self, split: str) -> Source:
        if split == "train":
            return self.suite.material()
        sets = {evaluation_set.name: evaluation_set.source for evaluation_set in self.suite.tested}
        refuse_unknown(split, ("train", *sets), f"split={split}: '{self.suite.name}' has no such images")
        return sets[split]

    @property
    def store(self) -> PreparedStore:
        return self.suite.store

    @functools.cached_property
    def device(self) -> str:
        return choose_device(self.config.device, 1).device

    def run(self) -> Path:
        """Make the product under a lock on its folder. Raises Failure for images that can't be read."""
        import torch

        with exclusive(self.store.folder(self.source), "prepared"):
            try:
                return self.make()
            except torch.OutOfMemoryError:
                raise Failure("out of GPU memory: device=cpu, or a smaller size= or batch_size=") from None

    def make(self) -> Path:
        """Make the product unless it exists; return its file or folder."""
        raise NotImplementedError
