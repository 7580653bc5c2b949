"""Contact sheets: images as the network sees them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torchvision.utils import save_image

from biasbed.data.source import Picture, Source
from biasbed.data.transforms import Transform, keyed_randomness
from biasbed.errors import CorruptImage


def save_examples(
    path: Path,
    source: Source,
    transform: Transform,
    count: int = 24,
    columns: int = 8,
    views: Sequence[Callable[[Tensor], Tensor]] = (),
    shared: bool = False,
) -> None:
    """Write a PNG of `count` tiles: images spread evenly over the source, after the transform.

    views: functions that make the copies of each image, shown side by side. shared: make all copies from one crop
    (`streams.Stream`). Images that cannot be decoded are left out.
    """
    each = max(1, len(views))
    rows = np.unique(np.linspace(0, len(source) - 1, max(1, count // each)).round().astype(int))
    images = []
    for row in rows:
        try:
            with keyed_randomness(int(row)):
                images += _copies(source.open(int(row)), transform, views, shared)
        except CorruptImage:  # training and testing report it
            continue
    if images:
        path.parent.mkdir(parents=True, exist_ok=True)
        save_tiles(path, images, max(1, columns // each) * each)


def save_tiles(path: Path, images: Sequence[Tensor], columns: int) -> None:
    """Write a PNG of images [C,H,W] of one size, uint8 or floats in [0,1], row by row."""
    save_image(torch.stack([_as_rgb(image) for image in images]), path, nrow=columns, padding=2, pad_value=1.0)


def _copies(
    picture: Picture, transform: Transform, views: Sequence[Callable[[Tensor], Tensor]], shared: bool
) -> list[Tensor]:
    """Return the views of a picture that training reads; without views, the transformed picture alone."""
    image = transform(picture)
    crops = [image if shared or number == 0 else transform(picture) for number in range(len(views))]
    return [change(crop) for change, crop in zip(views, crops, strict=True)] or [image]


def _as_rgb(image: Tensor) -> Tensor:
    """Convert uint8, or floats in [0,1], to floats [3,H,W].

    One channel becomes grey, two become red and green; of more than three, the first three are shown.
    """
    image = image if image.is_floating_point() else image.float() / 255
    channels = len(image)
    if channels == 1:
        return image.expand(3, -1, -1)
    if channels == 2:
        blue = image.new_zeros(1, *image.shape[1:])
        return torch.cat([image, blue])
    return image[:3]
