"""Contact sheets: what the images of every set look like to the network."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torchvision.utils import save_image

from biasbed.data.source import Source
from biasbed.data.transforms import Transform, keyed_randomness
from biasbed.errors import CorruptImage


def save_examples(path: Path, source: Source, transform: Transform, count: int = 24, columns: int = 8) -> None:
    """A PNG of images spread evenly over the source, as they look after the transform."""
    rows = np.unique(np.linspace(0, len(source) - 1, count).round().astype(int))
    images = []
    for row in rows:
        try:
            with keyed_randomness(int(row)):
                images.append(_as_rgb(transform(source.open(int(row))).float() / 255))
        except CorruptImage:  # reported when it is trained or tested on
            continue
    if images:
        path.parent.mkdir(parents=True, exist_ok=True)
        save_image(torch.stack(images), path, nrow=columns, padding=2, pad_value=1.0)


def _as_rgb(image: Tensor) -> Tensor:
    """[C,H,W] -> [3,H,W]: one channel is grey, two are red and green, of more than three the first are shown."""
    channels = len(image)
    if channels == 1:
        return image.expand(3, -1, -1)
    return torch.cat([image, image.new_zeros(1, *image.shape[1:])])[:3] if channels == 2 else image[:3]
