"""Pairs of images for cue conflicts: the shape of one and the texture of the other, balanced over classes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from biasbed.data.source import Source
from biasbed.errors import UsageError

FEWEST = 40  # images of each shape, unless `per_class` says how many
MOST = 80  # that many classes get one image of each pair, more classes a part of the pairs


class ShapeAndTexture(NamedTuple):
    """Images that a new one is made of, by row, and its name: `<shape's class>/<texture's class>/<number>`."""

    shape: int
    texture: int
    name: str
    is_conflict: bool  # False: both are of one class


def images_per_class(classes: int) -> int:
    """Return how many images each shape gets by default: as many of each pair of classes, up to `MOST` pairs."""
    return min(MOST, classes * -(-FEWEST // classes))


def pair_images(source: Source, per_class: int, seed: int) -> list[ShapeAndTexture]:
    """Pair images so that each class is the shape of `per_class` new ones, and the texture of as many.

    The textures of a shape go round all classes, its own included, so that their numbers differ by at most one. Each
    class's images take turns in an order drawn by the seed. Raises UsageError for a class with fewer than two images.
    """
    count = len(source.classes)
    generator = np.random.default_rng([seed, 0xC0F])
    rows = [generator.permutation(np.flatnonzero(source.y == label)) for label in range(count)]
    for name, of_class in zip(source.classes, rows, strict=True):
        if len(of_class) < 2:
            raise UsageError(f"class '{name}' of {source.name} has one image: shape and texture need one each")
    pairs = []
    for label, name in enumerate(source.classes):
        for number in range(per_class):
            texture_label = (label + number) % count
            shape = rows[label][number % len(rows[label])]
            texture = rows[texture_label][(number + 1) % len(rows[texture_label])]  # never the shape's image
            new_name = f"{name}/{source.classes[texture_label]}/{number}"
            pairs.append(ShapeAndTexture(int(shape), int(texture), new_name, is_conflict=texture_label != label))
    return pairs
