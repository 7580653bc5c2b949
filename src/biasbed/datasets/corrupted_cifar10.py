"""Corrupted CIFAR-10: a biased data set whose images have a corruption that agrees with the class in most images.

Nam, Cha, Ahn, Lee and Shin, Learning from Failure, NeurIPS 2020, section 4: CIFAR-10's images with the corruptions of
CIFAR-10-C (Hendrycks & Dietterich 2019), class k with the k-th of ten; there are two such lists. The parts are those of
the ten-class Colored MNIST: of each class 4,500 images train and 500 validate, with the same share of conflicting ones;
in the 10,000 test images each class has each corruption equally often. An image with the same corruption at two
settings of the severity has the same pixels.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np

from biasbed.data.corruptions import corrupt, find
from biasbed.data.source import MemorySource
from biasbed.datasets.base import Contents
from biasbed.datasets.biased import (
    CORRUPTION,
    BiasedData,
    Division,
    DivisionRequest,
    describe_counts,
    draw_biases,
    draw_hold_out,
    refuse_tiny_severity,
)
from biasbed.datasets.cifar import CIFAR10, SIDE, CIFAR10Train
from biasbed.errors import UsageError

SEVERITY = 5.0  # default, in percent
PER_CLASS = 5000  # images of each class in training and validation together
ORIGINAL = "original"  # stands for no corruption


@dataclass(frozen=True)
class CorruptionByBias:
    """Corruption of images by their bias value."""

    corruptions: tuple[str, ...]  # one for each bias value
    severity: int
    seed: int  # of the corruptions' draws
    frost: Path  # folder of frost's photographs, if frost is one of the corruptions

    def corrupt(self, source: MemorySource, rows: np.ndarray, bias: np.ndarray) -> np.ndarray:
        """Corrupt the rows [n] of a source by the corruptions of their bias values [n]: uint8 [n,3,32,32].

        Raises UsageError if a corruption lacks its files or packages.
        """
        images = source.images[rows]
        for value in np.unique(bias).tolist():
            name = self.corruptions[value]
            if name == ORIGINAL:
                continue
            corruption = find(name, self.frost)
            for at in np.flatnonzero(bias == value).tolist():
                image = np.ascontiguousarray(images[at].transpose(1, 2, 0))
                corrupted = corrupt(image, corruption, self.severity, self.seed, source.ids[int(rows[at])])
                images[at] = corrupted.transpose(2, 0, 1)
        return images

    def refuse_missing_files(self) -> None:
        """Raise UsageError if a corruption lacks its files or packages, before thousands of images are made."""
        grey = np.full((SIDE, SIDE, 3), 128, np.uint8)
        for name in self.corruptions:
            if name != ORIGINAL:
                corrupt(grey, find(name, self.frost), self.severity, self.seed, "")


class CorruptedCIFAR10(CIFAR10, BiasedData):
    """Corrupted CIFAR-10, the authors' type 0: 45,000 images train, 5,000 validate, 10,000 test."""

    name = "corrupted_cifar10"
    bias_type = "corruption"
    is_corrupted = True
    version_of = "corrupted_cifar10"
    corruptions: tuple[str, ...] = (
        *("snow", "frost", "fog", "brightness", "contrast"),
        *("spatter", "elastic_transform", "jpeg_compression", "pixelate", "saturate"),
    )
    defaults: ClassVar[Mapping[str, Any]] = {
        **{"backbone": "resnet18", "image_size": SIDE, "epochs": 200, "batch_size": 256, "optim.lr": 1e-3},
        **{"augment.crop": False, "augment.padding": 4, "workers": 0, "eval_batch_size": 1000},
        "data.severity": SEVERITY,
    }

    @property
    def batches(self) -> tuple[str, ...]:
        return *CIFAR10Train().batches, *CIFAR10().batches

    def parts(self, data_dir: Path, request: DivisionRequest) -> Division:
        share, source = request.severity_or(SEVERITY), self.open(data_dir)
        recipe = CorruptionByBias(self.corruptions, request.corruption, request.seed, request.frost)
        recipe.refuse_missing_files()
        train_images = len(draw_part(source, request.seed, "train", share).rows)
        refuse_tiny_severity(self.name, share, train_images // len(source.classes))
        make = functools.partial(_make_part, self.name, source, recipe)
        return Division(make("train", share), make("val", share), make("test", None), share)

    def contents(self, data_dir: Path) -> Contents:
        contents, source = super().contents(data_dir), self.open(data_dir)
        rows, bias = draw_part(source, 0, "train", SEVERITY)
        train = replace(source.subset(rows, self.name), bias=bias)
        remarks = [f"at {SEVERITY:g} % trains {describe_counts(train)}"]
        try:
            CorruptionByBias(self.corruptions, CORRUPTION, 0, data_dir / "frost").refuse_missing_files()
        except UsageError as error:
            remarks.append(f"training on it needs more than there is in {data_dir}: {error}")
        return dataclasses.replace(contents, remarks=(*contents.remarks, *remarks))


class CorruptedCIFAR10Type1(CorruptedCIFAR10):
    """Corrupted CIFAR-10, the authors' type 1: noise and blur, and one class without a corruption."""

    name = "corrupted_cifar10_type1"
    corruptions = (
        *("gaussian_noise", "shot_noise", "impulse_noise", "speckle_noise"),
        *("gaussian_blur", "defocus_blur", "glass_blur", "motion_blur", "zoom_blur", ORIGINAL),
    )


# --- draws and images -------------------------------------------------------------------------------------------------


class DrawnPart(NamedTuple):
    """Images of a part and their bias values."""

    rows: np.ndarray  # of the source [n]
    bias: np.ndarray  # [n]


def draw_part(source: MemorySource, seed: int, part: str, severity: float | None) -> DrawnPart:
    """Draw the images of a part (train, val, test); training and validation rows are in the order of the classes.

    Without a severity each class has each bias value equally often, up to one. Both types of the data set have the same
    draws. Raises UsageError if a class has too few images.
    """
    generator = np.random.default_rng([seed, *b"corrupted_cifar10 parts"])
    is_test = np.array([name.startswith(CIFAR10().batches) for name in source.ids])
    test, others = np.flatnonzero(is_test), np.flatnonzero(~is_test)
    classes = len(source.classes)
    train, validation = draw_hold_out(source.y[others], classes, PER_CLASS, "CIFAR-10", generator)
    rows = {"train": others[train], "val": others[validation], "test": test}[part]
    generator = np.random.default_rng([seed, *f"corrupted_cifar10 {part}".encode()])
    if severity is not None:
        return DrawnPart(rows, draw_biases(source.y[rows], severity, classes, generator))
    bias = np.empty(len(rows), dtype=np.int64)
    for label in range(classes):
        members = generator.permutation(np.flatnonzero(source.y[rows] == label))
        bias[members] = (label + np.arange(len(members))) % classes
    return DrawnPart(rows, bias)


@functools.lru_cache(maxsize=3)
def _make_part(
    name: str, source: MemorySource, recipe: CorruptionByBias, part: str, severity: float | None
) -> MemorySource:
    """Make the images of one part. severity: None for the test, in which biases are independent of the class."""
    rows, bias = draw_part(source, recipe.seed, part, severity)
    y = source.y[rows]
    if severity is None:
        images = recipe.corrupt(source, rows, bias)
    else:  # aligned images are the same at every severity: reusing them takes a second instead of ten
        images = _make_aligned(source, recipe, part).copy()
        conflicting = np.flatnonzero(bias != y)
        images[conflicting] = recipe.corrupt(source, rows[conflicting], bias[conflicting])
    part_name = {"train": name, "val": f"{name}_val", "test": f"{name}_test"}[part]
    ids = source.names.at(rows)
    return MemorySource(name=part_name, classes=source.classes, y=y, ids=ids, bias=bias, images=images)


@functools.lru_cache(maxsize=2)
def _make_aligned(source: MemorySource, recipe: CorruptionByBias, part: str) -> np.ndarray:
    """Make the images of a part with all of them aligned: uint8 [n,3,32,32]."""
    rows, _ = draw_part(source, recipe.seed, part, 0.0)
    return recipe.corrupt(source, rows, source.y[rows])
