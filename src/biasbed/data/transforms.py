"""Transforms from pictures to network inputs uint8 [C,S,S], and the keyed randomness that they draw from.

Each transform decodes only the part of a picture that it needs, at no larger size than it needs. Resizing is bilinear
with antialiasing, as in torchvision's reference pipelines on PIL images.

Answers: How is an image cropped and resized?
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
USUAL = 224 / 256  # share of the short side that a centre crop keeps
# Test images are decoded at no less than twice their final size, so that pixels differ by at most one level from those
# of a full decoding. Training crops, which are random anyway, are decoded at no less than their final size.
MARGIN = 2
GREY = 128  # level beside an image, timm's for a mean of 0.5
REACH = 3  # coarse pixels beyond the last one that a resize may read, and one for rounding


class Training:
    """Random crop, flip and change of colours, as configured. Without a crop, a plain resize."""

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
        """Numbers of channels that the transform accepts; None for any."""
        return self._colour.channels if self._changes_colour else None

    @property
    def draws(self) -> bool:
        """True if the transform changes images at random; otherwise it only resizes them."""
        return self.augment.crop or self.augment.padding > 0 or self.augment.flip or self._changes_colour


class SquareResize:
    """Resize of square images to another size, without a crop."""

    def __init__(self, size: int, interpolation: Interpolation = "bilinear") -> None:
        self.size, self.interpolation = size, interpolation

    def __call__(self, picture: Picture) -> Tensor:
        image = picture.pixels(_shrink(min(picture.height, picture.width), MARGIN * self.size))
        return _resized(image, [self.size, self.size], self.interpolation)


class Exact:
    """Identity for images that must have an exact size. Raises UnfitImage for any other size."""

    def __init__(self, size: int) -> None:
        self.size = size

    def __call__(self, picture: Picture) -> Tensor:
        if (picture.height, picture.width) != (self.size, self.size):
            where = getattr(picture, "path", "an image")
            should = f"{self.size} x {self.size}"
            raise UnfitImage(f"{where} is {picture.width} x {picture.height} pixels, and its data set's are {should}")
        return picture.pixels()


def make_example(transform: Transform, channels: int) -> Picture:
    """Make a grey picture that the transform accepts."""
    height, width = (transform.size, transform.size) if isinstance(transform, Exact) else (300, 400)
    return Decoded(torch.full((channels, height, width), 128, dtype=torch.uint8))


def make_training_transform(size: int, augment: Augment) -> Training:
    """Make the transform of training images."""
    return Training(size, augment)


def with_size(transform: Transform, size: int) -> Transform:
    """Change the image size of a training transform. Raises UsageError for a suite's own function."""
    if isinstance(transform, Training):
        return Training(size, transform.augment)
    raise UsageError(f"images of {size} pixels are asked for, and this suite makes them of one size")


def is_random(transform: Transform) -> bool:
    """Return True if the transform changes pictures at random."""
    return isinstance(transform, Training) and transform.draws


def is_identity(transform: Transform, height: int, width: int) -> bool:
    """Return True if pictures of this size pass unchanged, so that many can be loaded at once."""
    return (
        isinstance(transform, Training | SquareResize)
        and not is_random(transform)
        and transform.size == height == width
    )


class RandomCrop:
    """Crop of random size and aspect ratio, resized."""

    def __init__(self, size: int, augment: Augment) -> None:
        self.size = size
        self._draw = v2.RandomResizedCrop(size, scale=(augment.crop_scale, 1.0), ratio=augment.crop_ratio)

    def __call__(self, picture: Picture) -> Tensor:
        box = self._draw.make_params([torch.empty((3, picture.height, picture.width), device="meta")])
        return _part(picture, (box["top"], box["left"], box["height"], box["width"]), self.size, "bilinear", 1)


def _shifted(size: int, padding: int) -> Transform:
    """Make a resize followed by a random shift of up to `padding` pixels; uncovered pixels are black."""
    fit = SquareResize(size)
    return v2.Compose([fit, v2.RandomCrop(size, padding)]) if padding else fit


class CentreCrop:
    """Resize of the short side (by default to size / `USUAL`), then a centre crop."""

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
        full = _full_size(picture, image, shrink)
        # Pixels below and to the right of the crop that do not contribute to it are neither decoded nor resized.
        bottom, right = _needed(top + size, full[0], target[0]), _needed(left + size, full[1], target[1])
        image = image[..., :bottom, :right]
        return _resized(image, target, self.interpolation, full)[..., top : top + size, left : left + size]


class Squash:
    """Resize of both sides to `resize`, whatever the aspect ratio, then a centre crop. timm's crop mode `squash`."""

    def __init__(self, size: int, resize: int, interpolation: Interpolation = "bilinear") -> None:
        self.size, self.resize, self.interpolation = size, resize, interpolation

    def __call__(self, picture: Picture) -> Tensor:
        image = picture.pixels(_shrink(min(picture.height, picture.width), MARGIN * self.resize))
        start, size = round((self.resize - self.size) / 2), self.size
        image = _resized(image, [self.resize, self.resize], self.interpolation)
        return image[..., start : start + size, start : start + size]


class Border:
    """Resize of the long side to `resize`, then a centre crop filled up with grey. timm's crop mode `border`."""

    def __init__(self, size: int, resize: int, interpolation: Interpolation = "bilinear") -> None:
        self.size, self.resize, self.interpolation = size, resize, interpolation

    def __call__(self, picture: Picture) -> Tensor:
        ratio = max(picture.height, picture.width) / self.resize
        target = [max(1, round(side / ratio)) for side in (picture.height, picture.width)]
        image = picture.pixels(_shrink(max(picture.height, picture.width), MARGIN * self.resize))
        image = _resized(image, target, self.interpolation)
        for axis, side in zip((-2, -1), target, strict=True):
            start = round((side - self.size) / 2)
            image = image.narrow(axis, max(start, 0), min(side, self.size))
        top, left = (max((self.size - side) // 2, 0) for side in target)
        result = image.new_full((len(image), self.size, self.size), GREY)
        result[:, top : top + image.shape[-2], left : left + image.shape[-1]] = image
        return result


class CropThenResize:
    """Centre square of `share` of the short side, resized to `size`: the order of FFCV, which BiasBed uses."""

    def __init__(self, size: int, share: float, interpolation: Interpolation = "bilinear") -> None:
        self.size, self.share, self.interpolation = size, share, interpolation

    def __call__(self, picture: Picture) -> Tensor:
        side = int(self.share * min(picture.height, picture.width))
        top, left = (picture.height - side) // 2, (picture.width - side) // 2
        return _part(picture, (top, left, side, side), self.size, self.interpolation, MARGIN)


def make_photo_transform(image_size: int, how: Preprocess) -> tuple[Transform, str]:
    """Return (test transform of photographs of any size, its description)."""
    size = image_size if how.size == "auto" else int(how.size)
    resize = round(size / USUAL) if how.resize == "auto" else int(how.resize)
    _refuse_padding("preprocess", resize, size)
    if how.crop_first:
        share = USUAL if how.resize == "auto" else size / resize
        description = f"centre {share:.4g} of the short side, resized to {size}, {how.interpolation}"
        return CropThenResize(size, share, how.interpolation), description
    if how.crop == "squash":
        return Squash(size, resize, how.interpolation), f"both sides {resize}, centre {size}, {how.interpolation}"
    if how.crop == "border":
        description = f"long side {resize}, centre {size} on grey, {how.interpolation}"
        return Border(size, resize, how.interpolation), description
    return CentreCrop(size, resize, how.interpolation), f"short side {resize}, centre {size}, {how.interpolation}"


def make_stimulus_transform(image_size: int, how: StimuliPreprocess) -> tuple[Transform, str]:
    """Return (test transform of square stimuli, its description)."""
    size = image_size if how.size == "auto" else int(how.size)
    if how.resize is None:
        return SquareResize(size, how.interpolation), f"as it is, or resized to {size}, {how.interpolation}"
    _refuse_padding("stimuli", how.resize, size)
    return (
        CentreCrop(size, how.resize, how.interpolation),
        f"short side {how.resize}, centre {size}, {how.interpolation}",
    )


def _refuse_padding(group: str, resize: int, size: int) -> None:
    """Raise UsageError for a crop larger than the resized image: it would be padded with black."""
    if resize < size:
        raise UsageError(f"{group}.resize={resize} is smaller than the crop of {size} that is taken from it")


def shrink(image: Tensor, size: int) -> Tensor:
    """Shrink an image so that its short side is at most `size`; never enlarge it."""
    if min(image.shape[-2:]) <= size:
        return image
    resized: Tensor = v2.functional.resize(image, [size], antialias=True)
    return resized


def _part(
    picture: Picture, box: tuple[int, int, int, int], size: int, interpolation: Interpolation, margin: int
) -> Tensor:
    """Crop and resize a picture to [C,size,size]; `box` is (top, left, height, width) in the picture's pixels."""
    top, left, height, width = box
    shrink = _shrink(min(height, width), margin * size)
    image = picture.pixels(shrink, top + height)
    full = _full_size(picture, image, shrink)
    down, across = full[0] / picture.height, full[1] / picture.width  # 1 unless the decoder shrank the picture
    top, bottom = round(top * down), max(round((top + height) * down), round(top * down) + 1)
    left, right = round(left * across), max(round((left + width) * across), round(left * across) + 1)
    return _resized(image[..., top:bottom, left:right], [size, size], interpolation)


def _full_size(picture: Picture, image: Tensor, shrink: int) -> tuple[int, int]:
    """Return the (height, width) that the full picture has at the scale of its decoded part."""
    across = image.shape[-1]
    return (picture.height if across == picture.width else -(-picture.height // shrink)), across


def _needed(end: int, have: int, target: int) -> int:
    """Return how many of `have` source pixels the first `end` of `target` pixels need, plus a margin."""
    return min(have, math.ceil(end * have / target + REACH * max(1, have / target)))


def _resized(
    image: Tensor, size: list[int], interpolation: Interpolation, full: tuple[int, int] | None = None
) -> Tensor:
    """Resize an image to `size`.

    full: (height, width) of the complete image, if `image` is only its upper left part; `size` is then that of all.
    """
    sides = list(image.shape[-2:]) if full is None else list(full)
    if sides == size:
        return image
    if image.stride(0) == 1:  # channels last, as decoders return it: resizing is fastest if the image is contiguous
        image = image[None].contiguous(memory_format=torch.channels_last)[0]
    to: dict[str, Any] = {"size": size}
    if list(image.shape[-2:]) != sides:  # rounding down then gives at least the requested size
        to = {"scale_factor": [(new + 1e-6) / old for new, old in zip(size, sides, strict=True)]}
    return functional.interpolate(image[None], **to, mode=interpolation, antialias=True)[0]


def _shrink(have: int, need: int) -> int:
    """Return the factor by which a decoder may shrink `have` pixels so that at least `need` are left."""
    return next((factor for factor in (8, 4, 2) if have // factor >= need), 1)


def key_seed(*key: int) -> int:
    """Hash a key, e.g. (seed, epoch, index, view), to a seed: equal keys give equal draws in any process."""
    return int.from_bytes(hashlib.blake2b(repr(key).encode(), digest_size=8).digest(), "big") >> 1


@contextlib.contextmanager
def keyed_randomness(*key: int) -> Iterator[None]:
    """Seed the global generators of torch and Python by a key within the block, and restore them afterwards.

    Transforms draw from the global generators, in loader processes and in the main process.
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
