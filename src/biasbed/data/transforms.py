"""From a picture to the uint8 [C,S,S] that networks are fed; randomness keyed by what is transformed.

Each transform knows which part of a picture it needs at which size, and has it decoded no larger than that. Resizing is
bilinear with antialiasing, as torchvision's reference pipelines do it on PIL images.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import random
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torchvision.transforms import v2

from biasbed.config import Augment, Interpolation, Preprocess, StimuliPreprocess
from biasbed.data.source import Decoded, Picture
from biasbed.data.views import Jitter
from biasbed.errors import UnfitImage, UsageError

Transform = Callable[[Picture], Tensor]
USUAL = 224 / 256  # share of the short side that is left after a centre crop
# A test image is decoded at no less than twice the size it is resized to, which keeps it within a level of what the
# whole would have given; a training crop, which is random anyway, at no less than its size.
MARGIN = 2
REACH = 3  # pixels of the coarser side beyond its last that a resize may look at, and one for rounding


class Training:
    """Random crop, flip and change of colours, as configured; without a crop, a plain resize."""

    def __init__(self, size: int, augment: Augment) -> None:
        self.size, self.augment = size, augment
        self._cut = RandomCrop(size, augment) if augment.crop else _shifted(size, augment.padding)
        change = dict.fromkeys(("brightness", "contrast", "saturation", "hue"), augment.jitter)
        self._colour = Jitter(Jitter.Settings(**change, grey=augment.grey))

    def __call__(self, picture: Picture) -> Tensor:
        image = self._cut(picture)
        image = image.flip(-1) if self.augment.flip and torch.rand(1) < 0.5 else image
        return self._colour(image) if self._changes_colour else image

    @property
    def _changes_colour(self) -> bool:
        return bool(self.augment.jitter or self.augment.grey)

    @property
    def channels(self) -> tuple[int, ...] | None:
        """Of the images that it can change; None: of any."""
        return self._colour.channels if self._changes_colour else None

    @property
    def draws(self) -> bool:
        """Whether it changes images at random; else it only sees to their size."""
        return self.augment.crop or self.augment.padding > 0 or self.augment.flip or self._changes_colour


class SquareResize:
    """For images that are square already: resized only where the size differs, never cropped."""

    def __init__(self, size: int, interpolation: Interpolation = "bilinear") -> None:
        self.size, self.interpolation = size, interpolation

    def __call__(self, picture: Picture) -> Tensor:
        image = picture.pixels(_shrink(min(picture.height, picture.width), MARGIN * self.size))
        return _resized(image, [self.size, self.size], self.interpolation)


class Exact:
    """For images that have their size and must keep it: any other is an `UnfitImage`, and nothing is resized."""

    def __init__(self, size: int) -> None:
        self.size = size

    def __call__(self, picture: Picture) -> Tensor:
        if (picture.height, picture.width) != (self.size, self.size):
            where = getattr(picture, "path", "an image")
            should = f"{self.size} x {self.size}"
            raise UnfitImage(f"{where} is {picture.width} x {picture.height} pixels, and its data set's are {should}")
        return picture.pixels()


def example(transform: Transform, channels: int) -> Picture:
    """A grey picture that the transform takes."""
    height, width = (transform.size, transform.size) if isinstance(transform, Exact) else (300, 400)
    return Decoded(torch.full((channels, height, width), 128, dtype=torch.uint8))


def training(size: int, augment: Augment) -> Training:
    """What is done to images to train on."""
    return Training(size, augment)


def at_size(transform: Transform, size: int) -> Transform:
    """What is done to training images, for another number of pixels; UsageError for a function of a suite's own."""
    if isinstance(transform, Training):
        return Training(size, transform.augment)
    raise UsageError(f"images of {size} pixels are asked for, and this suite makes them of one size")


def draws(transform: Transform) -> bool:
    """Whether it changes pictures at random."""
    return isinstance(transform, Training) and transform.draws


def keeps(transform: Transform, height: int, width: int) -> bool:
    """Whether pictures of this size come out as they are, so that many can be taken at a stroke."""
    return isinstance(transform, Training | SquareResize) and not draws(transform) and transform.size == height == width


class RandomCrop:
    """A part of random size and shape, resized."""

    def __init__(self, size: int, augment: Augment) -> None:
        self.size = size
        self._draw = v2.RandomResizedCrop(size, scale=(augment.crop_scale, 1.0), ratio=augment.crop_ratio)

    def __call__(self, picture: Picture) -> Tensor:
        box = self._draw.make_params([torch.empty((3, picture.height, picture.width), device="meta")])
        return _part(picture, (box["top"], box["left"], box["height"], box["width"]), self.size, "bilinear", 1)


def _shifted(size: int, padding: int) -> Transform:
    """Resized, then moved by up to `padding` pixels each way, with black where nothing is left."""
    fit = SquareResize(size)
    return v2.Compose([fit, v2.RandomCrop(size, padding)]) if padding else fit


class CentreCrop:
    """The short side resized (to size / `USUAL` unless given), then the centre cropped."""

    def __init__(self, size: int, resize: int | None = None, interpolation: Interpolation = "bilinear") -> None:
        self.size, self.interpolation = size, interpolation
        self.short = resize or round(size / USUAL)

    def __call__(self, picture: Picture) -> Tensor:
        least, size = min(picture.height, picture.width), self.size
        target = [int(self.short * side / least) for side in (picture.height, picture.width)]
        top, left = (round((side - size) / 2) for side in target)
        shrink = _shrink(least, MARGIN * self.short)
        rows = _needed(top + size, picture.height, target[0])
        image = picture.pixels(shrink, rows)
        whole = _whole(picture, image, shrink)
        # What lies below and to the right of the crop and has no part in it is neither decoded nor resized.
        needed = [_needed(start + size, *sides) for start, *sides in zip((top, left), whole, target, strict=True)]
        image = image[..., : needed[0], : needed[1]]
        return _resized(image, target, self.interpolation, whole)[..., top : top + size, left : left + size]


class CropThenResize:
    """The centre square of `share` of the short side, resized to `size`: FFCV's order, which BiasBed uses."""

    def __init__(self, size: int, share: float, interpolation: Interpolation = "bilinear") -> None:
        self.size, self.share, self.interpolation = size, share, interpolation

    def __call__(self, picture: Picture) -> Tensor:
        side = int(self.share * min(picture.height, picture.width))
        top, left = (picture.height - side) // 2, (picture.width - side) // 2
        return _part(picture, (top, left, side, side), self.size, self.interpolation, MARGIN)


def natural(image_size: int, how: Preprocess) -> tuple[Transform, str]:
    """(transform of photographs of any size for a test, the same in words)."""
    size = image_size if how.size == "auto" else int(how.size)
    resize = round(size / USUAL) if how.resize == "auto" else int(how.resize)
    _refuse_padding("preprocess", resize, size)
    if how.crop_first:
        share = USUAL if how.resize == "auto" else size / resize
        words = f"centre {share:.4g} of the short side, resized to {size}, {how.interpolation}"
        return CropThenResize(size, share, how.interpolation), words
    return CentreCrop(size, resize, how.interpolation), f"short side {resize}, centre {size}, {how.interpolation}"


def stimulus(image_size: int, how: StimuliPreprocess) -> tuple[Transform, str]:
    """(transform of square stimuli that have their size already, the same in words)."""
    size = image_size if how.size == "auto" else int(how.size)
    if how.resize is None:
        return SquareResize(size, how.interpolation), f"as it is, or resized to {size}, {how.interpolation}"
    _refuse_padding("stimuli", how.resize, size)
    return (
        CentreCrop(size, how.resize, how.interpolation),
        f"short side {how.resize}, centre {size}, {how.interpolation}",
    )


def _refuse_padding(group: str, resize: int, size: int) -> None:
    """UsageError for a crop that is larger than what it is taken from: it would be padded with black."""
    if resize < size:
        raise UsageError(f"{group}.resize={resize} is smaller than the crop of {size} that is taken from it")


def shrunk(image: Tensor, size: int) -> Tensor:
    """The image with its short side at `size`, if that is larger; never enlarged."""
    if min(image.shape[-2:]) <= size:
        return image
    made: Tensor = v2.functional.resize(image, [size], antialias=True)
    return made


def _part(
    picture: Picture, box: tuple[int, int, int, int], size: int, interpolation: Interpolation, margin: int
) -> Tensor:
    """A part of the picture as [C,size,size]; `box` is (top, left, height, width) in the picture's own pixels."""
    top, left, height, width = box
    shrink = _shrink(min(height, width), margin * size)
    image = picture.pixels(shrink, top + height)
    whole = _whole(picture, image, shrink)
    down, across = whole[0] / picture.height, whole[1] / picture.width  # 1, unless it came out smaller
    top, bottom = round(top * down), max(round((top + height) * down), round(top * down) + 1)
    left, right = round(left * across), max(round((left + width) * across), round(left * across) + 1)
    return _resized(image[..., top:bottom, left:right], [size, size], interpolation)


def _whole(picture: Picture, image: Tensor, shrink: int) -> tuple[int, int]:
    """Height and width that all of a picture has at the scale of what was decoded of it."""
    across = image.shape[-1]
    return (picture.height if across == picture.width else -(-picture.height // shrink)), across


def _needed(end: int, have: int, target: int) -> int:
    """How many of `have` pixels the first `end` of `target` are made of, and a few more."""
    return min(have, math.ceil(end * have / target + REACH * max(1, have / target)))


def _resized(
    image: Tensor, size: list[int], interpolation: Interpolation, whole: tuple[int, int] | None = None
) -> Tensor:
    """The image at `size`. whole: of which height and width it is the upper left part; that would have been `size`."""
    sides = list(image.shape[-2:]) if whole is None else list(whole)
    if sides == size:
        return image
    if image.stride(0) == 1:  # as decoders give it: resizing is fastest, and keeps it so, where nothing lies between
        image = image[None].contiguous(memory_format=torch.channels_last)[0]
    to: dict[str, Any] = {"size": size}
    if list(image.shape[-2:]) != sides:  # rounded down, that comes to at least what is asked for
        to = {"scale_factor": [(new + 1e-6) / old for new, old in zip(size, sides, strict=True)]}
    return functional.interpolate(image[None], **to, mode=interpolation, antialias=True)[0]


def _shrink(have: int, need: int) -> int:
    """By how much `have` pixels may come out of a decoder smaller, so that `need` are left to resize from."""
    return next((factor for factor in (8, 4, 2) if have // factor >= need), 1)


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
