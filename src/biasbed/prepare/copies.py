"""Makers of image copies: one distorted copy of each of a suite's images."""

from __future__ import annotations

import functools
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeVar

from biasbed.data import transforms
from biasbed.data.contact_sheet import save_examples
from biasbed.data.prepared import ImagesManifest
from biasbed.data.source import Source
from biasbed.networks import frozen
from biasbed.prepare.images import Copies, Distortion, PooledOptions, has_missing, make_missing, remove_other_images
from biasbed.prepare.maker import KeptMaker, KeptOptions, load
from biasbed.prepare.networks import NetworkMaker
from biasbed.settings import build, flatten, setting, specs


@dataclass(frozen=True)
class ImagesOptions(PooledOptions, KeptOptions):
    """Settings of makers of images."""

    format: Literal["png", "jpg"] = setting("png", "of the images: png without loss, jpg at quality 95")


M = TypeVar("M", bound=ImagesOptions)


class ImagesMaker(KeptMaker[M]):
    """Maker of a distorted copy of every image. network: the kind of network that it needs; empty: none."""

    Settings = ImagesOptions
    network: ClassVar[str] = ""

    @classmethod
    def distortion(cls, options: M, network: Path | None, material: Source, device: str) -> Distortion:
        """Return the distortion on a device. It is called in each of the processes that make images.

        network: the file of the network. material: images from `material()`.
        """
        raise NotImplementedError

    def material(self) -> Source:
        """Return the images that a distortion draws on, besides the one that is copied."""
        return self.source

    def settings(self) -> dict[str, Any]:
        """Return the settings that the images depend on, besides seed, device and network."""
        return {}

    @property
    def redraw_probability(self) -> float:
        """Probability per image that the distortion of the network is drawn anew."""
        return 0.0

    def make(self) -> Path:
        """Make a copy of every image that has none yet and return their folder."""
        if self.network and self.options.split == "train":
            self._make_network()
        folder = self.store.images(self.source, self.name)
        network = self._find_network() if self.network else None
        manifest, work = self._make_manifest(network), self._make_work(folder, network)
        work.make("cpu")  # refuses options that the network doesn't have before anything is written
        existing = remove_other_images(folder, manifest, self.options.overwrite, ", prepared_dir= elsewhere")
        if existing is not None and existing.complete and not has_missing(work, existing.skipped):
            print(f"{folder} is complete already: {existing.images} images", file=sys.stderr)
            return folder
        processes = self.options.count_processes(self.device)
        count = make_missing(work, manifest, folder, processes, may_skip=self.config.corrupt != "stop").images
        made = self.store.open_images(self.source, self.name, self.source)
        save_examples(folder / "examples.png", made, transforms.CentreCrop(self.config.image_size))
        print(f"done: {count} images in {folder}", file=sys.stderr)
        return folder

    def _make_network(self) -> None:
        """Make the network with those of the options that its maker has, too."""
        cls = load(f"{self.network}_network")
        shared = {name: value for name, value in flatten(self.options).items() if name in specs(cls.Settings)}
        maker = cls(build(cls.Settings, shared), self.config)
        assert isinstance(maker, NetworkMaker)
        maker.suite, maker.source = self.suite, self.source
        maker.make()

    def _find_network(self) -> Path:
        """Return the network of these images, or that of the training images."""
        network = self.store.network(self.source, self.network)
        return network if network.is_file() else self.suite.network(self.network)

    def _make_manifest(self, network: Path | None) -> ImagesManifest:
        """Return the manifest of the copies to be made."""
        settings: dict[str, Any] = {"seed": self.config.seed, "device": self.device, **self.settings()}
        if network is not None:
            settings["network"] = frozen.fingerprint(network)
        source = self.source
        return ImagesManifest(self.name, source.name, source.fingerprint(), len(source), self.options.format, settings)

    def _make_work(self, folder: Path, network: Path | None) -> Copies:
        make = functools.partial(_make_distortion, self.options.what, flatten(self.options), network, self.material())
        seed, form = self.config.seed, self.options.format
        return Copies(self.source, folder / "images", form, seed, self.redraw_probability, make, self.device)


def _make_distortion(
    name: str, options: Mapping[str, Any], network: Path | None, material: Source, device: str
) -> Distortion:
    """Return the distortion of a maker by name: its class may be in a user's file, so it can't be pickled."""
    maker = load(name)
    assert issubclass(maker, ImagesMaker)
    return maker.distortion(build(maker.Settings, options), network, material, device)
