"""Colored MNIST of ten classes: digits in a colour that nearly always goes with the digit.

The images follow Nam, Cha, Ahn, Lee and Shin, Learning from Failure, NeurIPS 2020: the digit is coloured on black, in
its colour's mean and some noise, one draw per image. The parts are of the sizes in the Align-Conflict paper: 4,500
images of each class train, 500 are for validation with as many conflicting ones in proportion, and the 10,000 test
digits have every colour alike. Another data set is called Colored MNIST in `datasets/mnist.py`: of two classes.
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
from biasbed.datasets.biased import BiasedData, Division, Wanted, counted, drawn_biases, held_out, refuse_tiny
from biasbed.datasets.mnist import SIZE, Digits, MNISTFiles, pooled

CLASSES = tuple(map(str, range(10)))
SEVERITY = 5.0  # percent, unless told otherwise
PER_CLASS = 5000  # digits of each class in training and validation together
# Mean red, green and blue of each bias value, where full intensity is 1. The usual deviation of the noise around them
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
    """45,000 images to train on, 5,000 for validation, 10,000 for the test."""

    name = "colored_mnist_10"
    bias_type = "colour"
    is_coloured = True
    defaults: ClassVar[Mapping[str, Any]] = {
        **{"backbone": "mlp", "image_size": SIZE, "epochs": 200, "batch_size": 256, "optim.lr": 1e-3},
        **{"augment.crop": False, "augment.padding": 0, "augment.flip": False, "workers": 0, "eval_batch_size": 1000},
        "data.severity": SEVERITY,
    }

    @property
    def num_classes(self) -> int:
        return len(CLASSES)

    def parts(self, data_dir: Path, wanted: Wanted) -> Division:
        share = wanted.severity_or(SEVERITY)
        size = SIZE if SIZE % wanted.image_size else wanted.image_size
        made = functools.partial(_images, self.digits(data_dir), wanted.seed, size, wanted.colour_noise)
        train = made("train", share)
        refuse_tiny(self.name, share, len(train) // len(CLASSES))
        return Division(train, made("val", share), made("test", None), share)

    def contents(self, data_dir: Path) -> Contents:
        found = self.of_files(data_dir, lambda digits: record.digest(digits.sha256))
        made = self.parts(data_dir, Wanted(SEVERITY, 0, SIZE))
        return dataclasses.replace(found, remarks=(*found.remarks, f"at {SEVERITY:g} % trains {counted(made.train)}"))


@functools.lru_cache(maxsize=8)
def _images(digits: Digits, seed: int, size: int, noise: float, part: str, severity: float | None) -> MemorySource:
    """One part, ordered by class; without a severity, with each colour on each class alike."""
    own = _divided(digits, seed)[part]
    y, generator = digits.labels[own], np.random.default_rng([seed, *f"colored_mnist_10 {part}".encode()])
    if severity is None:
        bias = generator.integers(0, len(CLASSES), len(own))
    else:
        bias = drawn_biases(y, severity, len(CLASSES), generator)
    images = colored(digits.images[own], bias, noise * generator.standard_normal((len(own), 3)))
    ids = [digits.name(number) for number in own]
    name = {"train": "colored_mnist_10", "val": "colored_mnist_10_val", "test": "colored_mnist_10_test"}[part]
    return MemorySource(name=name, classes=CLASSES, y=y, ids=ids, bias=bias, images=pooled(images, size))


def _divided(digits: Digits, seed: int) -> dict[str, np.ndarray]:
    """Numbers of the digits of each part, of which the seed draws two; UsageError where a class has too few."""
    first, generator = digits.parts[0], np.random.default_rng([seed, *b"colored_mnist_10 parts"])
    train, validation = held_out(digits.labels[:first], len(CLASSES), PER_CLASS, "MNIST", generator)
    return {"train": train, "val": validation, "test": np.arange(first, len(digits.labels))}


def colored(images: np.ndarray, bias: np.ndarray, noise: np.ndarray) -> np.ndarray:
    """Grey images [n,28,28] in the colours of their bias values [n], uint8 [n,3,28,28].

    noise: [n,3] by which red, green and blue are off the colour's mean, where full intensity is 1.
    """
    colour = np.clip(MEANS[bias] + noise, 0, 1)[:, :, None, None]
    found = np.empty((len(images), 3, *images.shape[1:]), np.uint8)
    for start in range(0, len(images), 1024):  # in blocks, which stay in the cache; what is cut off rounds down
        at = slice(start, start + 1024)
        found[at] = colour[at] * images[at, None]
    return found
