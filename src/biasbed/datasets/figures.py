"""Biased data set without files: the demo's digits, with a texture that agrees with the class in most images.

The figures, their handwritten bitmaps and their textures come from `datasets/digits.py`; no bitmap is in two parts. The
class is the digit, the bias is the family of its texture: each class has its own, and a conflicting image has that of
another class. In training and validation a share of each class conflicts, at least one image; in the test each class
has each texture equally often. Everything follows from the seed.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from biasbed.data.source import MemorySource
from biasbed.datasets.biased import BiasedData, Division, DivisionRequest, draw_biases, refuse_tiny_severity
from biasbed.datasets.digits import CLASSES, draw_bitmaps, generator, make_textured

SEVERITY = 5.0  # default, in percent
COPIES = 2  # images of each bitmap


class Figures(BiasedData):
    """Textured digits: 2,200 images train, 560 validate, 720 test; ten classes."""

    name = "figures"
    bias_type = "texture"
    defaults: ClassVar[Mapping[str, Any]] = {
        **{"backbone": "resnet10", "image_size": 40, "epochs": 20, "batch_size": 64, "optim.lr": 1e-3},
        **{"augment.crop": True, "augment.crop_scale": 0.7, "augment.padding": 0},
        **{"augment.flip": False, "workers": 0, "data.severity": SEVERITY},  # a mirrored digit is no digit
    }

    def parts(self, data_dir: Path, request: DivisionRequest) -> Division:
        share = request.severity_or(SEVERITY)
        train, validation = (_make_part(part, share, request.seed, request.image_size) for part in ("train", "val"))
        refuse_tiny_severity(self.name, share, len(train) // len(CLASSES))
        return Division(train, validation, _make_part("test", None, request.seed, request.image_size), share)


@functools.lru_cache(maxsize=8)
def _make_part(part: str, severity: float | None, seed: int, size: int) -> MemorySource:
    """Make the images of one part. severity: None for the test, in which each class has each texture equally often."""
    numbers = np.tile(draw_bitmaps(part, seed), COPIES)
    y = np.indices(numbers.shape)[0]
    if severity is None:
        bias = (y + np.arange(numbers.shape[1])) % len(CLASSES)
    else:
        rng = generator(f"biases of {part}", seed)
        bias = draw_biases(y.ravel(), severity, len(CLASSES), rng).reshape(y.shape)
    source = make_textured(f"figures {part}", seed, size, numbers, bias)
    return replace(source, name={"train": "figures", "val": "figures_val", "test": "figures_test"}[part])
