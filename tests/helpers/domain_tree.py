"""Tiny folders of domains: `<folder>/<domain>/<class>/<n>.png`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from biasbed.datasets.domains import DATA_SETS, DomainDataSet


def data_set(name: str, data_dir: Path) -> DomainDataSet:
    """Return the data set of several domains of this name."""
    data: DomainDataSet = DATA_SETS.make(name, lambda: data_dir)
    return data


def make_domains(
    folder: Path,
    domains: Sequence[str] = ("art", "photo", "sketch"),
    classes: Sequence[str] = ("cat", "dog"),
    images: int = 6,
    size: int = 24,
    seed: int = 0,
) -> Path:
    """Write `images` of `size` x `size` pixels for each class of each domain; the folder.

    A domain has its colour, a class its brightness, and the rest is noise, so that no two images are equal.
    """
    generator = np.random.default_rng(seed)
    for domain in domains:
        colour = generator.integers(0, 60, 3)
        for label, name in enumerate(classes):
            (folder / domain / name).mkdir(parents=True, exist_ok=True)
            base = colour + 40 + 120 * label / max(1, len(classes) - 1)
            for number in range(images):
                pixels = (base + generator.normal(0, 15, (size, size, 3))).clip(0, 255).astype(np.uint8)
                Image.fromarray(pixels).save(folder / domain / name / f"{number}.png", compress_level=1)
    return folder
