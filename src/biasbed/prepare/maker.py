"""The contract of what `prepare` makes, by name: a network, images, or a look at what is there.

A maker is one class of one file, of biasbed or of a user's own. It brings its `Settings`; the command takes no others.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

from biasbed.compute.device import settle_device
from biasbed.config import Config
from biasbed.data.prepared import MAKERS, PreparedStore
from biasbed.data.source import Source
from biasbed.errors import Failure, UsageError
from biasbed.options import PrepareOptions
from biasbed.settings import nearest, setting
from biasbed.suites import open_suite
from biasbed.suites.suite import OpenSuite
from biasbed.tracking.folder import exclusive

P = TypeVar("P", bound=PrepareOptions)


class Maker(Generic[P]):
    """One thing that `prepare` can be asked for.

    Settings: a subclass of `PrepareOptions` with what this maker alone can be told.
    """

    Settings: ClassVar[type[PrepareOptions]] = PrepareOptions

    def __init__(self, options: P, config: Config) -> None:
        """config: names the images that are meant."""
        self.options, self.config = options, config

    @property
    def name(self) -> str:
        """What is made, as files are called."""
        return MAKERS.identifier(self.options.what)

    def run(self) -> Path | None:
        """Do it; the file or folder, where one is made. UsageError for what can't be meant."""
        raise NotImplementedError


def load(what: str) -> type[Maker[Any]]:
    """The class of a maker; UsageError where there is none of that name."""
    found: type[Maker[Any]] = MAKERS.load(what)
    return found


@dataclass(frozen=True)
class WrittenOptions(PrepareOptions):
    """What can be told to a maker that leaves something behind."""

    overwrite: bool = setting(False, "make it anew where it exists with other settings")


@dataclass(frozen=True)
class KeptOptions(WrittenOptions):
    """What can be told to a maker whose work is kept for a suite's images."""

    split: str = setting("train", "whose images: train, or the name of a validation or evaluation set")


K = TypeVar("K", bound=KeptOptions)


class KeptMaker(Maker[K]):
    """Makes something of a suite's images, where the suite looks for it. What is there already is left alone."""

    Settings = KeptOptions

    @functools.cached_property
    def suite(self) -> OpenSuite:
        return open_suite(self.config)

    @functools.cached_property
    def source(self) -> Source:
        """The images of the split."""
        found = self._of_split(self.options.split)
        if found.channels != 3:
            raise UsageError(f"prepared are images of 3 channels, and those of '{found.name}' have {found.channels}")
        return found

    def _of_split(self, split: str) -> Source:
        if split == "train":
            return self.suite.material()
        sets = {entry.name: entry.source for entry in self.suite.tested}
        if split not in sets:
            raise UsageError(f"split={split}: '{self.suite.name}' has no such images{nearest(split, ['train', *sets])}")
        return sets[split]

    @property
    def store(self) -> PreparedStore:
        return self.suite.store

    @functools.cached_property
    def device(self) -> str:
        return settle_device(self.config.device, 1)[0]

    def run(self) -> Path:
        """Make it, alone in its folder. Failure for images that can't be read, and for what the machine lacks."""
        folder = self.store.folder(self.source)
        with exclusive(folder, "prepared"), failures(folder):
            return self.make()

    def make(self) -> Path:
        """Make it where it is not there; the file or folder."""
        raise NotImplementedError


@contextlib.contextmanager
def failures(folder: Path) -> Iterator[None]:
    """What the machine lacks, in one line; what is made so far stays."""
    import torch

    try:
        yield
    except torch.OutOfMemoryError:
        raise Failure("out of GPU memory: device=cpu, or a smaller size= or batch_size=") from None
    except OSError as error:
        raise Failure(f"can't write to {folder}: {error.strerror or error}; the same command goes on") from None
