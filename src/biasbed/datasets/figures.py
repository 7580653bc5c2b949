"""A biased data set that needs no file: the demo's digits, whose texture goes with the class but for a few images.

The figures, their handwritten bitmaps and their textures are those of `datasets/digits.py`; no bitmap is in two parts.
The class is the digit, the bias its texture: each class has a family of its own, and a conflicting image that of
another class. In training and validation a share of each class conflicts, at least one image; in the test every texture
is on every class alike. All follows from the seed.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from biasbed.data.source import MemorySource
from biasbed.datasets.biased import BiasedData, Division, Wanted, drawn_biases, refuse_tiny
from biasbed.datasets.digits import CLASSES, bitmaps, generator, textured

SEVERITY = 5.0  # percent, unless told otherwise
COPIES = 2  # images of each bitmap


class Figures(BiasedData):
    """2,200 images to train on, 560 for validation, 720 for the test; ten classes."""

    name = "figures"
    bias_type = "texture"
    defaults: ClassVar[Mapping[str, Any]] = {
        **{"backbone": "resnet10", "image_size": 40, "epochs": 20, "batch_size": 64, "optim.lr": 1e-3},
        **{"augment.crop": True, "augment.crop_scale": 0.7, "augment.padding": 0},
        **{"augment.flip": False, "workers": 0, "data.severity": SEVERITY},  # a mirrored digit is none
    }

    def parts(self, data_dir: Path, wanted: Wanted) -> Division:
        share = wanted.severity_or(SEVERITY)
        train, validation = (_images(part, share, wanted.seed, wanted.image_size) for part in ("train", "val"))
        refuse_tiny(self.name, share, len(train) // len(CLASSES))
        return Division(train, validation, _images("test", None, wanted.seed, wanted.image_size), share)


@functools.lru_cache(maxsize=8)
def _images(part: str, severity: float | None, seed: int, size: int) -> MemorySource:
    """One part; without a severity, with each texture on each class alike."""
    numbers = np.tile(bitmaps(part, seed), COPIES)
    y = np.indices(numbers.shape)[0]
    if severity is None:
        bias = (y + np.arange(numbers.shape[1])) % len(CLASSES)
    else:
        drawn = drawn_biases(y.ravel(), severity, len(CLASSES), generator(f"biases of {part}", seed))
        bias = drawn.reshape(y.shape)
    found = textured(f"figures {part}", seed, size, numbers, bias)
    return replace(found, name={"train": "figures", "val": "figures_val", "test": "figures_test"}[part])
