"""Maker `conflicts`: the shape of one class in the texture of another, from a user's own folders.

As Geirhos et al. (ICLR 2019, section 2.1), with AdaIN (Huang and Belongie 2017) for their style transfer, which
optimises each image.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from biasbed import suites
from biasbed.compute.distributed import Group
from biasbed.config import Auto
from biasbed.data.contact_sheet import save_tiles
from biasbed.data.decoding import open_file
from biasbed.data.source import Source
from biasbed.data.transforms import CentreCrop
from biasbed.errors import UsageError
from biasbed.evaluation import intervals
from biasbed.evaluation.decisions import Decisions
from biasbed.evaluation.evaluate_model import evaluate_in_memory, load, plan
from biasbed.evaluation.evaluator import Evaluator
from biasbed.options import EvaluateOptions
from biasbed.plugins.conflicts.pairing import ShapeAndTexture, images_per_class, pair_images
from biasbed.prepare.copies import ImagesMaker
from biasbed.prepare.images import SingleFiles, make_missing, refuse_foreign_folder, remove_other_images, save_image
from biasbed.prepare.stylize import StylizedImages, StylizedOptions
from biasbed.settings import setting
from biasbed.suites.folders import Folders

SHOWN, TILE = 24, 112  # images of the contact sheet, each beside its originals, and pixels of each tile
STYLIZED, ORIGINALS = "stylized", "originals"  # folders that the classifier decides on


@dataclass(frozen=True)
class ConflictsOptions(StylizedOptions):
    """Settings of the maker of cue conflicts, and of their network if it has to be made first."""

    per_class: int | Auto = setting(
        "auto", "images with the shape of each class (auto: at least 40, of up to 80 classes as many of each pair)"
    )
    model: str = setting("none", "classifier that has to recognise stylized images: checkpoint, timm:<name> ...")
    weights: str = setting("none", "for a library's model: weights file, or name of published weights")
    label_map: str | dict[str, Any] = setting(
        "none", "YAML file that says what the outputs stand for, or its content in braces"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        self.refuse_below(per_class=2)


@dataclass(frozen=True)
class ConflictImages(SingleFiles):
    """Images to be made of pairs of images."""

    source: Source  # of the shapes, and of the textures
    pairs: Sequence[ShapeAndTexture]
    folder: Path
    format: str
    network: Path
    options: StylizedOptions
    device: str

    @property
    def names(self) -> list[str]:
        return [pair.name for pair in self.pairs]

    def path(self, row: int) -> Path:
        return self.folder / f"{self.pairs[row].name}.{self.format}"

    def make_renderer(self) -> Callable[[int], Tensor]:
        stylization = StylizedImages.distortion(self.options, self.network, self.source, self.device)

        def make(row: int) -> Tensor:
            shape, texture = (self.source.load(row).float() / 255 for row in self.pairs[row][:2])
            return stylization.restyle(shape, texture)

        return make


class ConflictsMaker(ImagesMaker[ConflictsOptions]):
    """Maker of `data_dir/<images>_conflicts/<shape>/<texture>/<image>`; `suite=folders` tests it as cue conflicts."""

    Settings = ConflictsOptions
    network = "style"

    def make(self) -> Path:
        """Make the images and return their folder.

        Raises UsageError if the classifier does not recognise stylized images whose shape and texture are of one class.
        """
        suite = suites.make_suite(self.config)
        if not isinstance(suite, Folders):
            raise UsageError(f"what={self.name} takes the images of a user's own folders: suite=folders")
        if self.options.model == "none":
            raise UsageError(
                "say which classifier of these classes has to recognise the images: model=<checkpoint, timm:<name> ...>"
            )
        folder = suite.data_root / f"{self.source.name}_{self.name}"
        refuse_foreign_folder(folder)
        self._make_network()
        work = self._plan_images(folder.with_name(f".{folder.name}.partial"))
        manifest = self._make_manifest(work.network)
        if remove_other_images(folder, manifest, self.options.overwrite) is not None:
            print(f"{folder} is complete already", file=sys.stderr)
            return folder
        if remove_other_images(work.folder, manifest, overwrite=True) is None:
            self._check_recognised(work)
        processes = self.options.count_processes(self.device)
        count = make_missing(work, manifest, work.folder, processes, may_skip=self.config.corrupt != "stop").images
        save_sheet(work, work.folder / "examples.png", self.config.seed)
        work.folder.rename(folder)
        print(f"done: {count} images in {folder}; test them with sets={folder.name}", file=sys.stderr)
        return folder

    def settings(self) -> dict[str, Any]:
        options = self.options
        return {
            "images": self.source.fingerprint(),
            "size": options.size,
            "alpha": options.alpha,
            "per_class": self._per_class,
        }

    @property
    def _per_class(self) -> int:
        if self.options.per_class == "auto":
            return images_per_class(len(self.source.classes))
        return int(self.options.per_class)

    def _plan_images(self, folder: Path) -> ConflictImages:
        """Return the images to be made, in this folder."""
        return ConflictImages(
            source=self.source,
            pairs=pair_images(self.source, self._per_class, self.config.seed),
            folder=folder,
            format=self.options.format,
            network=self.store.network(self.source, self.network),
            options=self.options,
            device=self.device,
        )

    def _check_recognised(self, work: ConflictImages) -> None:
        """Raise UsageError if the classifier is at chance on the images whose shape and texture are of one class."""
        make, classes = work.make_renderer(), self.source.classes
        with tempfile.TemporaryDirectory() as name:
            for row, pair in enumerate(work.pairs):
                if pair.is_conflict:
                    continue
                image = Path(classes[self.source.y[pair.shape]], f"{row}.png")
                save_image(Path(name) / STYLIZED / image, make(row))
                save_image(Path(name) / ORIGINALS / image, self.source.load(pair.shape))
            decided = self._read_decisions(Path(name))
        stylized, originals = decided[STYLIZED], decided[ORIGINALS]
        right = (
            f"{self.options.model} is right on {stylized.right.sum()} of {len(stylized.label)} images whose shape and "
            f"texture are of one class, and on {originals.right.sum()} of their originals"
        )
        chance = 1 / len(classes)
        if intervals.accuracy_interval(stylized)[0] <= chance:
            raise UsageError(
                f"{right}: chance is {100 * chance:.0f} %, so conflicts made like these would show nothing. Train the "
                "style network longer (steps=), give one (encoder=, decoder=), make larger images (size=), or take "
                "alpha=0.5"
            )
        print(right, file=sys.stderr)

    def _read_decisions(self, data_dir: Path) -> dict[str, Decisions]:
        """Return the classifier's decisions on the images of each folder, by its name."""
        options = EvaluateOptions(
            model=self.options.model, weights=self.options.weights, label_map=self.options.label_map
        )
        flags = {"suite": self.config.suite, "data_dir": str(data_dir), "device": self.device}
        evaluation = plan(options, flags, load(options, flags))
        group = Group(device=self.device)
        group.send_module(evaluation.model.module).eval()
        evaluator = Evaluator.from_config(evaluation.suite.testing, evaluation.job.config, group)
        decided = evaluate_in_memory(evaluation, evaluator, silent=True).stored.decisions
        evaluator.close()
        return {decisions.set: decisions for decisions in decided}


def save_sheet(work: ConflictImages, path: Path, seed: int) -> None:
    """Write a PNG of conflicts drawn by the seed, each after the images of its shape and its texture."""
    crop = CentreCrop(TILE)
    rows = [row for row, pair in enumerate(work.pairs) if pair.is_conflict and work.is_there(row)]
    chosen = np.random.default_rng(seed).permutation(rows)[:SHOWN]
    tiles = []
    for row in sorted(chosen):
        shape, texture = work.pairs[row][:2]
        for picture in (work.source.open(shape), work.source.open(texture), open_file(work.path(row))):
            tiles.append(crop(picture))
    save_tiles(path, tiles, columns=9)
