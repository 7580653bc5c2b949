"""Corrupted CIFAR-10: photographs under a corruption that nearly always goes with their class.

Nam, Cha, Ahn, Lee and Shin, Learning from Failure, NeurIPS 2020, section 4: CIFAR-10's images with the corruptions of
CIFAR-10-C (Hendrycks & Dietterich 2019), class k with the k-th of ten; two such lists. The parts are those of Colored
MNIST in this suite: 4,500 images of each class train, 500 validate with as many conflicting ones in proportion, and the
10,000 test images have every corruption on every class equally often. An image that has the same corruption in two
settings of the severity is the same there.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from biasbed.data.corruptions import corrupt, find
from biasbed.data.source import MemorySource
from biasbed.datasets.base import Contents
from biasbed.datasets.biased import (
    CORRUPTION,
    BiasedData,
    Division,
    Wanted,
    counted,
    drawn_biases,
    held_out,
    refuse_tiny,
)
from biasbed.datasets.cifar import CIFAR10, SIDE, CIFAR10Train
from biasbed.errors import UsageError

SEVERITY = 5.0  # percent, unless told otherwise
PER_CLASS = 5000  # images of each class in training and validation together
ORIGINAL = "original"  # in place of a corruption: the image as it is


@dataclass(frozen=True)
class ByBias:
    """What is done to images: `corruptions` by bias value, how strong they are, and what their draws follow from."""

    corruptions: tuple[str, ...]
    severity: int
    seed: int
    frost: Path  # where its photographs are, if that is one of them

    def shown(self, source: MemorySource, rows: np.ndarray, bias: np.ndarray) -> np.ndarray:
        """uint8 [n,3,32,32]: these rows [n] of a source, each under the corruption of its bias value [n].

        UsageError where a corruption lacks what it needs.
        """
        found = source.images[rows]
        for value in np.unique(bias).tolist():
            name = self.corruptions[value]
            if name == ORIGINAL:
                continue
            corruption = find(name, self.frost)
            for at in np.flatnonzero(bias == value).tolist():
                image = np.ascontiguousarray(found[at].transpose(1, 2, 0))
                made = corrupt(image, corruption, self.severity, self.seed, source.ids[int(rows[at])])
                found[at] = made.transpose(2, 0, 1)
        return found

    def try_out(self) -> None:
        """UsageError where a corruption lacks what it needs, before thousands of images are made."""
        grey = np.full((SIDE, SIDE, 3), 128, np.uint8)
        for name in self.corruptions:
            if name != ORIGINAL:
                corrupt(grey, find(name, self.frost), self.severity, self.seed, "")


class CorruptedCIFAR10(CIFAR10, BiasedData):
    """45,000 images to train on, 5,000 for validation, 10,000 for the test; the authors' type 0."""

    name = "corrupted_cifar10"
    images = 60_000
    batches = (*CIFAR10Train.batches, *CIFAR10.batches)
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

    def parts(self, data_dir: Path, wanted: Wanted) -> Division:
        share, source = wanted.severity_or(SEVERITY), self.open(data_dir)
        recipe = ByBias(self.corruptions, wanted.corruption, wanted.seed, wanted.frost)
        recipe.try_out()
        refuse_tiny(self.name, share, len(drawn(source, wanted.seed, "train", share)[0]) // self.num_classes)
        made = functools.partial(_images, self.name, source, recipe)
        return Division(made("train", share), made("val", share), made("test", None), share)

    def contents(self, data_dir: Path) -> Contents:
        found, source = super().contents(data_dir), self.open(data_dir)
        rows, bias = drawn(source, 0, "train", SEVERITY)
        train = replace(source.subset(rows, self.name), bias=bias)
        remarks = [f"at {SEVERITY:g} % trains {counted(train)}"]
        try:
            ByBias(self.corruptions, CORRUPTION, 0, data_dir / "frost").try_out()
        except UsageError as error:
            remarks.append(f"training on it needs more than there is in {data_dir}: {error}")
        return dataclasses.replace(found, remarks=(*found.remarks, *remarks))


class CorruptedCIFAR10Type1(CorruptedCIFAR10):
    """The same images with noise and blur, and one class as it is: the authors' type 1."""

    name = "corrupted_cifar10_type1"
    corruptions = (
        *("gaussian_noise", "shot_noise", "impulse_noise", "speckle_noise"),
        *("gaussian_blur", "defocus_blur", "glass_blur", "motion_blur", "zoom_blur", ORIGINAL),
    )


# --- what is drawn, and made ------------------------------------------------------------------------------------------


def drawn(source: MemorySource, seed: int, part: str, severity: float | None) -> tuple[np.ndarray, np.ndarray]:
    """(rows [n] of a part, in order of class to train and to validate; the bias value of each [n]).

    Without a severity every class has every bias value as often, up to one. The two types draw alike. UsageError where
    a class has too few images.
    """
    generator = np.random.default_rng([seed, *b"corrupted_cifar10 parts"])
    is_test = np.array([name.startswith(CIFAR10.batches) for name in source.ids])
    tested, others = np.flatnonzero(is_test), np.flatnonzero(~is_test)
    classes = len(source.classes)
    train, validation = (others[own] for own in held_out(source.y[others], classes, PER_CLASS, "CIFAR-10", generator))
    rows = {"train": train, "val": validation, "test": tested}[part]
    generator = np.random.default_rng([seed, *f"corrupted_cifar10 {part}".encode()])
    if severity is not None:
        return rows, drawn_biases(source.y[rows], severity, classes, generator)
    bias = np.empty(len(rows), dtype=np.int64)
    for label in range(classes):
        own = generator.permutation(np.flatnonzero(source.y[rows] == label))
        bias[own] = (label + np.arange(len(own))) % classes
    return rows, bias


@functools.lru_cache(maxsize=3)
def _images(name: str, source: MemorySource, recipe: ByBias, part: str, severity: float | None) -> MemorySource:
    """One part; without a severity the test."""
    rows, bias = drawn(source, recipe.seed, part, severity)
    y = source.y[rows]
    if severity is None:
        images = recipe.shown(source, rows, bias)
    else:  # most are the same at every severity: less than a second, where all take ten
        images = _aligned(source, recipe, part).copy()
        conflicting = np.flatnonzero(bias != y)
        images[conflicting] = recipe.shown(source, rows[conflicting], bias[conflicting])
    called = {"train": name, "val": f"{name}_val", "test": f"{name}_test"}[part]
    return MemorySource(name=called, classes=source.classes, y=y, ids=source.names.at(rows), bias=bias, images=images)


@functools.lru_cache(maxsize=2)
def _aligned(source: MemorySource, recipe: ByBias, part: str) -> np.ndarray:
    """uint8 [n,3,32,32]: the images of a part, as if none were conflicting."""
    rows, _ = drawn(source, recipe.seed, part, 0.0)
    return recipe.shown(source, rows, source.y[rows])
