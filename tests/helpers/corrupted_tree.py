"""Folders in the layouts of ImageNet-C and of the sets beside it, with pictures by formula, as hard links of a few."""

from __future__ import annotations

import io
import os
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from PIL import Image

from biasbed.datasets.classes import imagenet_classes
from biasbed.datasets.imagenet_c import Corrupted

CLASSES = imagenet_classes("r")[:2]
PER_CLASS = 2  # images


def jpeg(number: int, side: int = 224) -> bytes:
    """Return a picture of waves that differ by its number."""
    at = np.arange(side)
    waves = np.add.outer(np.sin(at * (number + 1) / 9), np.cos(at * (number + 2) / 7))
    image = np.stack([np.roll(waves, 20 * channel, axis=0) for channel in range(3)], axis=-1)
    buffer = io.BytesIO()
    Image.fromarray(((image + 2) * 63).astype(np.uint8)).save(buffer, "JPEG", quality=85)
    return buffer.getvalue()


def images_of(classes: Iterable[str] = CLASSES, per_class: int = PER_CLASS) -> list[str]:
    """`<wnid>/<image>`, as ImageNet's validation images are called."""
    pairs = [(wnid, number) for wnid in classes for number in range(per_class)]
    return [f"{wnid}/ILSVRC2012_val_{index + 1:08}.JPEG" for index, (wnid, _) in enumerate(pairs)]


def make_corrupted(folder: Path, data: Corrupted, names: Iterable[str] | None = None) -> Path:
    """Return all conditions of a data set in a folder, each image the same file under all of them."""
    first: dict[str, Path] = {}
    for corruption in data.corruptions:
        for severity_folder in data.severities(corruption):
            for number, name in enumerate(images_of() if names is None else names):
                path = folder / severity_folder / name
                path.parent.mkdir(parents=True, exist_ok=True)
                if name in first:
                    os.link(first[name], path)
                else:
                    path.write_bytes(jpeg(number))
                    first[name] = path
    return folder
