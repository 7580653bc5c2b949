"""Images like photographs, for benchmarks on machines without data sets."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
from PIL import Image

from biasbed.data.folders import FolderSource
from biasbed.datasets.imagenet_c import SIDE

CLASSES, DIFFERENT = 10, 20  # images that differ; the others are links to them


def photograph(number: int) -> np.ndarray:
    """Return uint8 [224,224,3] with structure of every size and noise: as costly to decode as a photograph."""
    generator = np.random.default_rng(number)
    layers = [generator.random((side, side, 3)).astype(np.float32) for side in (7, 28, 112)]
    enlarged = [np.kron(layer, np.ones((SIDE // len(layer), SIDE // len(layer), 1))) for layer in layers]
    image = sum(enlarged) / len(enlarged)
    return np.asarray(image * 220 + generator.normal(0, 8, (SIDE, SIDE, 3))).clip(0, 255).astype(np.uint8)


def write_photographs(root: Path, count: int) -> FolderSource:
    """Write JPEG files into a folder; return their source."""
    names = [f"{number}.jpg" for number in range(count)]
    for number, name in enumerate(names):
        if number < DIFFERENT:
            Image.fromarray(photograph(number)).save(root / name, quality=85)
        else:
            os.link(root / names[number % DIFFERENT], root / name)
    classes = tuple(map(str, range(CLASSES)))
    return FolderSource(name="photographs", classes=classes, y=np.arange(count) % CLASSES, ids=names, root=root)
