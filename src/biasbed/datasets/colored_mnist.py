"""Colored MNIST of ten classes: digits in a colour that agrees with the digit in most images.

The images follow Nam, Cha, Ahn, Lee and Shin, Learning from Failure, NeurIPS 2020: the digit is coloured on black, in
the mean of its colour plus noise that is drawn once per image. The sizes are those of the Align-Conflict paper: of each
class 4,500 images train and 500 validate, with the same share of conflicting ones; the 10,000 test digits have random
colours. The Colored MNIST of `datasets/mnist.py` is another data set, of two classes.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from biasbed import record
from biasbed.data.source import MemorySource
from biasbed.datasets.base import Contents
from biasbed.datasets.biased import (
    BiasedData,
    Division,
    DivisionRequest,
    describe_counts,
    draw_biases,
    draw_hold_out,
    refuse_tiny_severity,
)
from biasbed.datasets.mnist import SIZE, Digits, MNISTFiles, shrink_by_means

CLASSES = tuple(map(str, range(10)))
SEVERITY = 5.0  # default, in percent
PER_CLASS = 5000  # digits of each class in training and validation together
# Mean red, green and blue of each bias value, with full intensity 1. The default deviation of the noise around them
# (biased.COLOUR_NOISE) is the largest of those that they have.
MEANS = np.array(
    [
        (0.9836823344230652, 0.31251901388168335, 0.16857534646987915),
        (0.9905296564102173, 0.9156052470207214, 0.35151219367980957),
        (0.6729639768600464, 0.4610704779624939, 0.5798081755638123),
        (0.783251941204071, 0.8315559029579163, 0.6013293862342834),
        (0.08801579475402832, 0.7779633402824402, 0.9818077683448792),
        (0.32139337062835693, 0.9610545635223389, 0.446449875831604),
        (0.024615883827209473, 0.23565047979354858, 0.7586662769317627),
        (0.5552469491958618, 0.10158014297485352, 0.7617631554603577),
        (0.2077232003211975, 0.3929485082626343, 0.018702387809753418),
        (0.8336576223373413, 0.2024092674255371, 0.266943097114563),
    ]
)


class ColoredMNIST10(MNISTFiles, BiasedData):
    """Colored MNIST: 45,000 images train, 5,000 validate, 10,000 test."""

    name = "colored_mnist_10"
    bias_type = "colour"
    is_coloured = True
    defaults: ClassVar[Mapping[str, Any]] = {
        **{"backbone": "mlp", "image_size": SIZE, "epochs": 200, "batch_size": 256, "optim.lr": 1e-3},
        **{"augment.crop": False, "augment.padding": 0, "augment.flip": False, "workers": 0, "eval_batch_size": 1000},
        "data.severity": SEVERITY,
    }

    def parts(self, data_dir: Path, request: DivisionRequest) -> Division:
        share = request.severity_or(SEVERITY)
        size = SIZE if SIZE % request.image_size else request.image_size
        make = functools.partial(_make_part, self.digits(data_dir), request.seed, size, request.colour_noise)
        train = make("train", share)
        refuse_tiny_severity(self.name, share, len(train) // len(CLASSES))
        return Division(train, make("val", share), make("test", None), share)

    def contents(self, data_dir: Path) -> Contents:
        contents = self.file_contents(data_dir, lambda digits: record.digest(digits.sha256))
        parts = self.parts(data_dir, DivisionRequest(SEVERITY, 0, SIZE))
        remark = f"at {SEVERITY:g} % trains {describe_counts(parts.train)}"
        return dataclasses.replace(contents, remarks=(*contents.remarks, remark))


@functools.lru_cache(maxsize=8)
def _make_part(digits: Digits, seed: int, size: int, noise: float, part: str, severity: float | None) -> MemorySource:
    """Make the images of one part, ordered by class.

    severity: None for the test, whose colours are independent of the class.
    """
    rows = _draw_parts(digits, seed)[part]
    y, generator = digits.labels[rows], np.random.default_rng([seed, *f"colored_mnist_10 {part}".encode()])
    if severity is None:
        bias = generator.integers(0, len(CLASSES), len(rows))
    else:
        bias = draw_biases(y, severity, len(CLASSES), generator)
    images = color_digits(digits.images[rows], bias, noise * generator.standard_normal((len(rows), 3)))
    ids = [digits.name(number) for number in rows]
    name = {"train": "colored_mnist_10", "val": "colored_mnist_10_val", "test": "colored_mnist_10_test"}[part]
    return MemorySource(name=name, classes=CLASSES, y=y, ids=ids, bias=bias, images=shrink_by_means(images, size))


def _draw_parts(digits: Digits, seed: int) -> dict[str, np.ndarray]:
    """Return the numbers of the digits in each part; the seed draws train and val. Raises UsageError for too few."""
    training_digits, generator = digits.parts[0], np.random.default_rng([seed, *b"colored_mnist_10 parts"])
    labels = digits.labels[:training_digits]
    train, validation = draw_hold_out(labels, len(CLASSES), PER_CLASS, "MNIST", generator)
    return {"train": train, "val": validation, "test": np.arange(training_digits, len(digits.labels))}


def color_digits(images: np.ndarray, bias: np.ndarray, noise: np.ndarray) -> np.ndarray:
    """Colour grey images [n,28,28] by their bias values [n]: uint8 [n,3,28,28].

    noise: deviation [n,3] of red, green and blue from the colour's mean, with full intensity 1.
    """
    colour = np.clip(MEANS[bias] + noise, 0, 1)[:, :, None, None]
    coloured = np.empty((len(images), 3, *images.shape[1:]), np.uint8)
    for start in range(0, len(images), 1024):  # in blocks that fit the cache; the assignment rounds down
        at = slice(start, start + 1024)
        coloured[at] = colour[at] * images[at, None]
    return coloured
