"""From a stored image to the uint8 [3,S,S] that networks are fed; randomness keyed by what is transformed."""

from __future__ import annotations

import contextlib
import hashlib
import random
from collections.abc import Callable, Iterator

import torch
from torch import Tensor
from torchvision.transforms import v2

from biasbed.config import Augment

Transform = Callable[[Tensor], Tensor]


def training(size: int, augment: Augment) -> Transform:
    """Random resized crop and flip, as configured; without a crop, a plain resize."""
    steps: list[Transform] = []
    if augment.crop:
        ratio = (1 / augment.crop_ratio, augment.crop_ratio)
        steps.append(v2.RandomResizedCrop(size, scale=(augment.crop_scale, 1.0), ratio=ratio, antialias=True))
    else:
        steps.append(fitted(size))
    if augment.flip:
        steps.append(v2.RandomHorizontalFlip())
    return v2.Compose(steps)


def centre_crop(size: int, resize: int | None = None) -> Transform:
    """The short side resized (to size * 256/224 unless given), then the centre cropped."""
    return v2.Compose([v2.Resize(resize or round(size * 256 / 224), antialias=True), v2.CenterCrop(size)])


def shrunk(image: Tensor, size: int) -> Tensor:
    """The image with its short side at `size`, if that is larger; never enlarged."""
    if min(image.shape[-2:]) <= size:
        return image
    made: Tensor = v2.functional.resize(image, [size], antialias=True)
    return made


def fitted(size: int) -> Transform:
    """For stimuli that are square already: resized only where the size differs, never cropped."""

    def transform(image: Tensor) -> Tensor:
        if image.shape[-2:] == (size, size):
            return image
        return v2.functional.resize(image, [size, size], antialias=True)

    return transform


def key_seed(*key: int) -> int:
    """A seed for one (seed, epoch, index, view): equal keys give equal draws in whatever process."""
    return int.from_bytes(hashlib.blake2b(repr(key).encode(), digest_size=8).digest(), "big") >> 1


@contextlib.contextmanager
def keyed_randomness(*key: int) -> Iterator[None]:
    """Within the block the global generators of torch and Python follow from the key; afterwards they are as before.

    Transforms draw from the global generators, in loader workers and in the main process alike.
    """
    torch_state, python_state = torch.get_rng_state(), random.getstate()
    seed = key_seed(*key)
    torch.default_generator.manual_seed(seed)
    random.seed(seed)
    try:
        yield
    finally:
        torch.set_rng_state(torch_state)
        random.setstate(python_state)
