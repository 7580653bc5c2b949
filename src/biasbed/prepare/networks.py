"""Makers of networks: trained on a suite's own images, or converted from the authors' files."""

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
    """Settings of the training of a network."""

    width: int | Auto = setting("auto", "channels of the first layer of a network that is trained here")
    size: int | Auto = setting("auto", "pixels of the training crops, and of images made with the network")
    steps: int | Auto = setting("auto", "training steps of a network (style_network: of each of its halves)")
    batch_size: int | Auto = setting("auto", "images per training step of a network")

    def __post_init__(self) -> None:
        super().__post_init__()
        self.refuse_below(width=1, size=9, steps=1, batch_size=1)


@dataclass(frozen=True)
class WeightsOptions(NetworkOptions):
    """Settings of a network whose authors published one file."""

    weights: str = setting("none", "file with the authors' weights of the network")


N = TypeVar("N", bound=NetworkOptions)


class NetworkMaker(KeptMaker[N]):
    """Maker of a network of one kind (`networks.frozen`)."""

    Settings = NetworkOptions
    kind: ClassVar[str]
    Training: ClassVar[type[FitOptions]]
    # Options that concern the network only if the network itself is to be made; else they concern images.
    network_options: ClassVar[tuple[str, ...]] = ("size",)

    def train(self, training: FitOptions, tick: Tick, partial: Path) -> PreparedNetwork:
        """Train the network on `self.training_images`.

        partial: file for its state, from which the same command continues.
        """
        raise NotImplementedError

    def training_settings(self) -> dict[str, Any]:
        """Return the settings of the training that the options set."""
        return self._select_options("width", "steps", "batch_size")

    def origin(self) -> dict[str, Any]:
        """Return what else the network was made of, for its file."""
        return {}

    def make(self) -> Path:
        """Make the network unless it exists and return its file.

        Raises UsageError if the existing network was made with other settings.
        """
        path = self.store.network(self.source, self.kind)
        settings = self._list_settings()
        if path.is_file() and not (self.options.overwrite and self._is_product):
            if settings and settings != frozen.origin(path).get("asked"):
                raise UsageError(
                    f"{path} is there, made with other settings: what={self.kind}_network overwrite=true replaces it"
                )
            print(f"{path} is there already", file=sys.stderr)
            return path
        print(f"preparing the network '{self.kind}'", file=sys.stderr)
        partial = path.with_suffix(".partial")
        network, origin = self._make_network(partial)
        origin |= {"asked": settings, "source": self.source.name, "source_fingerprint": self.source.fingerprint()}
        frozen.save(path, self.kind, network, origin)
        partial.unlink(missing_ok=True)
        print(f"done: {path}", file=sys.stderr)
        return path

    @property
    def files(self) -> dict[str, Path]:
        """Authors' files that the options name, by option."""
        files = {}
        for name in frozen.network_class(self.kind).published:
            value = getattr(self.options, name)
            if value != "none":
                files[name] = Path(value).expanduser()
        return files

    @functools.cached_property
    def training_images(self) -> Source:
        """Images to train on: with `corrupt=skip` only those that can be decoded."""
        return _select_readable(self.source) if self.config.corrupt == "skip" else self.source

    def can_train_with(self, files: Mapping[str, Path]) -> bool:
        """Return True if a network can be trained given these of the authors' files, which are not all."""
        return not files

    @property
    def _is_product(self) -> bool:
        """True if the command makes this network, and not images with it."""
        return self.options.what == f"{self.kind}_network"

    def _select_options(self, *names: str) -> dict[str, Any]:
        """Return the options of these names that the user has set: all that are not `auto`."""
        values = {name: getattr(self.options, name) for name in names}
        return {name: value for name, value in values.items() if value != "auto"}

    def _list_settings(self) -> dict[str, Any]:
        """Return the options that are set for the network, files by their checksums; empty if none is set."""
        names = ["width", "steps", "batch_size"]
        if self._is_product:
            names += self.network_options
        return self._select_options(*names) | {name: sha256(path) for name, path in self.files.items()}

    def _make_network(self, partial: Path) -> tuple[PreparedNetwork, dict[str, Any]]:
        """Return the network and its origin: converted from the authors' files if all are named, else trained."""
        files, published = self.files, frozen.network_class(self.kind).published
        if set(files) == set(published):
            network, checksums = frozen.load_published(self.kind, files)
            for option, checksum in checksums.items():
                print(f"{option}={files[option]}: SHA-256 {checksum}")
            return network, {"files": checksums}
        if not self.can_train_with(files):
            raise UsageError(f"{self.kind}_network takes {' and '.join(f'{option}=<file>' for option in published)}")
        if len(self.training_images) < 2:
            raise UsageError(f"{len(self.training_images)} images are too few to train a network on")
        settings = {**self.training_settings(), "size": self._choose_size(), "seed": self.config.seed}
        training = build(self.Training, settings)
        with ProgressBar(training.total, "step") as bar:
            network = self.train(training, bar.tick, partial)
        return network.cpu(), {**self.origin(), "training": repr(training)}

    def _choose_size(self) -> int:
        """Return the size of training crops: the option, else the images' short side up to what a suite crops from."""
        if self.options.size != "auto":
            return int(self.options.size)
        try:
            short = min(self.training_images.load(0).shape[1:])
        except CorruptImage:
            short = self.config.image_size
        return int(min(short, -(-self.config.image_size * 8 // 7)))


def _select_readable(source: Source) -> Source:
    """Return the images that can be decoded."""

    def can_load(row: int) -> bool:
        try:
            source.load(row)
        except CorruptImage:
            return False
        return True

    if not isinstance(source, FolderSource):
        return source
    with ThreadPoolExecutor(8) as pool:
        rows = [row for row, is_readable in enumerate(pool.map(can_load, range(len(source)))) if is_readable]
    return source if len(rows) == len(source) else source.subset(rows, source.name)
