"""Networks that `prepare` makes: trained on a suite's own images, or taken over from the authors' files."""

from __future__ import annotations

import functools
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from biasbed.config import Auto
from biasbed.data.folders import FolderSource
from biasbed.data.source import Source
from biasbed.errors import CorruptImage, UsageError
from biasbed.networks import frozen
from biasbed.networks.frozen import PreparedNetwork
from biasbed.prepare.fit import FitOptions, Tick
from biasbed.prepare.maker import KeptMaker, KeptOptions
from biasbed.settings import build, setting
from biasbed.system.files import sha256
from biasbed.system.terminal import ProgressBar


@dataclass(frozen=True)
class NetworkOptions(KeptOptions):
    """What can be told to the training of a network."""

    width: int | Auto = setting("auto", "channels of the first layer of a network that is trained here")
    size: int | Auto = setting("auto", "pixels of the training crops, and of images made with the network")
    steps: int | Auto = setting("auto", "training steps of a network (style_network: of each of its halves)")
    batch_size: int | Auto = setting("auto", "images per training step of a network")

    def __post_init__(self) -> None:
        super().__post_init__()
        self.refuse_below(width=1, size=9, steps=1, batch_size=1)


@dataclass(frozen=True)
class WeightsOptions(NetworkOptions):
    """What can be told to a network whose authors published one file."""

    weights: str = setting("none", "file with the authors' weights of the network")


N = TypeVar("N", bound=NetworkOptions)


class NetworkMaker(KeptMaker[N]):
    """A network of one kind (`networks.frozen`)."""

    Settings = NetworkOptions
    kind: ClassVar[str]
    Training: ClassVar[type[FitOptions]]
    # Options that say something of the network where it is what was asked for; of images, they say something else.
    of_itself: ClassVar[tuple[str, ...]] = ("size",)

    def train(self, training: FitOptions, tick: Tick, partial: Path) -> PreparedNetwork:
        """Train it on `self.usable`. partial: a file for its state, from which the same command goes on."""
        raise NotImplementedError

    def given(self) -> dict[str, Any]:
        """The settings of the training that the options name."""
        return self._said("width", "steps", "batch_size")

    def origin(self) -> dict[str, Any]:
        """What else it was made of, for its file."""
        return {}

    def make(self) -> Path:
        """The network's file. One that is there is left alone; UsageError where it was made as another command says."""
        path = self.store.network(self.source, self.kind)
        asked = self._asked()
        if path.is_file() and not (self.options.overwrite and self._is_asked_for):
            if asked and asked != frozen.origin(path).get("asked"):
                raise UsageError(
                    f"{path} is there, made with other settings: what={self.kind}_network overwrite=true replaces it"
                )
            print(f"{path} is there already", file=sys.stderr)
            return path
        print(f"preparing the network '{self.kind}'", file=sys.stderr)
        partial = path.with_suffix(".partial")
        network, origin = self._made(partial)
        about = {"asked": asked, "source": self.source.name, "source_fingerprint": self.source.fingerprint()}
        frozen.save(path, self.kind, network, {**origin, **about})
        partial.unlink(missing_ok=True)
        print(f"done: {path}", file=sys.stderr)
        return path

    @property
    def files(self) -> dict[str, Path]:
        """The authors' files that are given, by option; UsageError where one is not there."""
        words = {name: getattr(self.options, name) for name in frozen.network_class(self.kind).published}
        files = {name: Path(word).expanduser() for name, word in words.items() if word != "none"}
        for name, path in files.items():
            if not path.is_file():
                raise UsageError(f"{name}={path}: there is no such file")
        return files

    @functools.cached_property
    def usable(self) -> Source:
        """The images that can be decoded, where `corrupt` lets others out."""
        return _readable(self.source) if self.config.corrupt == "skip" else self.source

    def takes(self, files: Mapping[str, Path]) -> bool:
        """Whether a network can be trained with these files of the authors', which are not all of them."""
        return not files

    @property
    def _is_asked_for(self) -> bool:
        return self.options.what == f"{self.kind}_network"

    def _said(self, *names: str) -> dict[str, Any]:
        return {name: getattr(self.options, name) for name in names if getattr(self.options, name) != "auto"}

    def _asked(self) -> dict[str, Any]:
        """What the options say of the network, files by their checksums; empty where they say nothing."""
        names = ("width", "steps", "batch_size", *(self.of_itself if self._is_asked_for else ()))
        return self._said(*names) | {name: sha256(path) for name, path in self.files.items()}

    def _made(self, partial: Path) -> tuple[PreparedNetwork, dict[str, Any]]:
        """(network, where it comes from): the authors' from the files given, else trained."""
        files, wanted = self.files, frozen.network_class(self.kind).published
        if set(files) == set(wanted):
            network, checksums = frozen.take_over(self.kind, files)
            for option, checksum in checksums.items():
                print(f"{option}={files[option]}: SHA-256 {checksum}")
            return network, {"files": checksums}
        if not self.takes(files):
            raise UsageError(f"{self.kind}_network takes {' and '.join(f'{option}=<file>' for option in wanted)}")
        if len(self.usable) < 2:
            raise UsageError(f"{len(self.usable)} images are too few to train a network on")
        training = build(self.Training, {**self.given(), "size": self._size(), "seed": self.config.seed})
        with ProgressBar(training.total, "step") as bar:
            network = self.train(training, bar.tick, partial)
        return network.cpu(), {**self.origin(), "training": repr(training)}

    def _size(self) -> int:
        """As given, else the short side of the images, at most what training crops from."""
        if self.options.size != "auto":
            return int(self.options.size)
        try:
            short = min(self.usable.load(0).shape[1:])
        except CorruptImage:
            short = self.config.image_size
        return int(min(short, -(-self.config.image_size * 8 // 7)))


def _readable(source: Source) -> Source:
    """The images that can be decoded."""

    def loads(row: int) -> bool:
        try:
            source.load(row)
        except CorruptImage:
            return False
        return True

    if not isinstance(source, FolderSource):
        return source
    with ThreadPoolExecutor(8) as pool:
        rows = [row for row, good in enumerate(pool.map(loads, range(len(source)))) if good]
    return source if len(rows) == len(source) else source.subset(rows, source.name)
