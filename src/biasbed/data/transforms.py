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
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional
from torchvision.transforms import v2

from biasbed.config import Augment, Interpolation, Preprocess, StimuliPreprocess
from biasbed.data.source import Decoded, Picture
from biasbed.errors import UnfitImage, UsageError

if TYPE_CHECKING:
    from biasbed.data.views import ViewTransform

Transform = Callable[[Picture], Tensor]
USUAL_CROP = 224 / 256  # share of the short side that a centre crop keeps
# Test images are decoded at no less than twice their final size, so that pixels differ by at most one level from those
# of a full decoding. Training crops, which are random anyway, are decoded at no less than their final size.
MARGIN = 2
GREY = 128  # level beside an image, timm's for a mean of 0.5
REACH = 3  # coarse pixels that a resize may read beyond the last one: two, and one for rounding


class TrainingTransform:
    """Random crop, flip and change of colours, as configured. Without a crop, a plain resize."""

    def __init__(self, size: int, augment: Augment) -> None:
        self.size, self.augment = size, augment
        self._crop = RandomCrop(size, augment) if augment.crop else _resize_and_shift(size, augment.padding)
        self._jitter = _make_jitter(augment) if augment.jitter or augment.grey else None

    def __call__(self, picture: Picture) -> Tensor:
        image = self._crop(picture)
        if self.augment.flip and torch.rand(1) < 0.5:
            image = image.flip(-1)
        return image if self._jitter is None else self._jitter(image)

    @property
    def channels(self) -> tuple[int, ...] | None:
        """Numbers of channels that the transform accepts; None for any."""
        return None if self._jitter is None else self._jitter.channels

    @property
    def is_random(self) -> bool:
        """True if the transform changes images at random; otherwise it only resizes them."""
        return self.augment.crop or self.augment.padding > 0 or self.augment.flip or self._jitter is not None


def _make_jitter(augment: Augment) -> ViewTransform:
    """Return the change of colours that the settings ask for."""
    from biasbed.data.views import Jitter

    strengths = dict.fromkeys(("brightness", "contrast", "saturation", "hue"), augment.jitter)
    return Jitter(Jitter.Settings(**strengths, grey=augment.grey))


class SquareResize:
    """Resize of square images to another size, without a crop."""

    def __init__(self, size: int, interpolation: Interpolation = "bilinear") -> None:
        self.size, self.interpolation = size, interpolation

    def __call__(self, picture: Picture) -> Tensor:
        image = picture.pixels(_choose_shrink(min(picture.height, picture.width), MARGIN * self.size))
        return _resize(image, [self.size, self.size], self.interpolation)


class Exact:
    """Identity for images that must have an exact size. Raises UnfitImage for any other size."""

    def __init__(self, size: int) -> None:
        self.size = size

    def __call__(self, picture: Picture) -> Tensor:
        if (picture.height, picture.width) != (self.size, self.size):
            name = getattr(picture, "path", "an image")
            expected = f"{self.size} x {self.size}"
            raise UnfitImage(f"{name} is {picture.width} x {picture.height} pixels, and its data set's are {expected}")
        return picture.pixels()


def make_example(transform: Transform, channels: int) -> Picture:
    """Make a grey picture that the transform accepts: of the exact size if it needs one, else 300 x 400 pixels."""
    height, width = (transform.size, transform.size) if isinstance(transform, Exact) else (300, 400)
    return Decoded(torch.full((channels, height, width), 128, dtype=torch.uint8))


def with_size(transform: Transform, size: int) -> Transform:
    """Return a training transform to images of another size. Raises UsageError for a suite's own function."""
    if isinstance(transform, TrainingTransform):
        return TrainingTransform(size, transform.augment)
    raise UsageError(f"images of {size} pixels are asked for, and this suite makes them of one size")


def is_random(transform: Transform) -> bool:
    """Return True if the transform changes pictures at random."""
    return isinstance(transform, TrainingTransform) and transform.is_random


def is_identity(transform: Transform, height: int, width: int) -> bool:
    """Return True if pictures of this size pass unchanged, so that many can be loaded at once."""
    if not isinstance(transform, TrainingTransform | SquareResize) or is_random(transform):
        return False
    return transform.size == height == width


class RandomCrop:
    """Crop of random size and aspect ratio, resized."""

    def __init__(self, size: int, augment: Augment) -> None:
        self.size = size
        self._draw = v2.RandomResizedCrop(size, scale=(augment.crop_scale, 1.0), ratio=augment.crop_ratio)

    def __call__(self, picture: Picture) -> Tensor:
        box = self._draw.make_params([torch.empty((3, picture.height, picture.width), device="meta")])
        return _crop_and_resize(picture, Box(**box), self.size, "bilinear", 1)


def _resize_and_shift(size: int, padding: int) -> Transform:
    """Make a resize followed by a random shift of up to `padding` pixels; uncovered pixels are black."""
    resize = SquareResize(size)
    return v2.Compose([resize, v2.RandomCrop(size, padding)]) if padding else resize


class CentreCrop:
    """Resize of the short side (by default to size / `USUAL_CROP`), then a centre crop."""

    def __init__(self, size: int, resize: int | None = None, interpolation: Interpolation = "bilinear") -> None:
        self.size, self.interpolation = size, interpolation
        self.short_side = resize or round(size / USUAL_CROP)

    def __call__(self, picture: Picture) -> Tensor:
        short_side, size = min(picture.height, picture.width), self.size
        target = [int(self.short_side * side / short_side) for side in (picture.height, picture.width)]
        top, left = (round((side - size) / 2) for side in target)
        # Pixels below and to the right of the crop that do not contribute to it are neither decoded nor resized.
        shrink = _choose_shrink(short_side, MARGIN * self.short_side)
        image = picture.pixels(shrink, _needed_pixels(top + size, picture.height, target[0]))
        height, width = full = _full_size(picture, image, shrink)
        bottom, right = _needed_pixels(top + size, height, target[0]), _needed_pixels(left + size, width, target[1])
        image = _resize(image[..., :bottom, :right], target, self.interpolation, full)
        return image[..., top : top + size, left : left + size]


class Squash:
    """Resize of both sides to `resize`, whatever the aspect ratio, then a centre crop. timm's crop mode `squash`."""

    def __init__(self, size: int, resize: int, interpolation: Interpolation = "bilinear") -> None:
        self.size, self.resize, self.interpolation = size, resize, interpolation

    def __call__(self, picture: Picture) -> Tensor:
        image = picture.pixels(_choose_shrink(min(picture.height, picture.width), MARGIN * self.resize))
        start, size = round((self.resize - self.size) / 2), self.size
        image = _resize(image, [self.resize, self.resize], self.interpolation)
        return image[..., start : start + size, start : start + size]


class Border:
    """Resize of the long side to `resize`, then a centre crop filled up with grey. timm's crop mode `border`."""

    def __init__(self, size: int, resize: int, interpolation: Interpolation = "bilinear") -> None:
        self.size, self.resize, self.interpolation = size, resize, interpolation

    def __call__(self, picture: Picture) -> Tensor:
        ratio = max(picture.height, picture.width) / self.resize
        target = [max(1, round(side / ratio)) for side in (picture.height, picture.width)]
        image = picture.pixels(_choose_shrink(max(picture.height, picture.width), MARGIN * self.resize))
        image = _resize(image, target, self.interpolation)
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
        return _crop_and_resize(picture, Box(top, left, side, side), self.size, self.interpolation, MARGIN)


class DescribedTransform(NamedTuple):
    """Test transform, and its description for records and reports."""

    transform: Transform
    description: str


def make_photo_transform(image_size: int, settings: Preprocess) -> DescribedTransform:
    """Make the test transform of photographs of any size."""
    size = image_size if settings.size == "auto" else int(settings.size)
    resize = round(size / USUAL_CROP) if settings.resize == "auto" else int(settings.resize)
    interpolation = settings.interpolation
    _refuse_padding("preprocess", resize, size)
    if settings.crop_first:
        share = USUAL_CROP if settings.resize == "auto" else size / resize
        description = f"centre {share:.4g} of the short side, resized to {size}, {interpolation}"
        return DescribedTransform(CropThenResize(size, share, interpolation), description)
    if settings.crop == "squash":
        description = f"both sides {resize}, centre {size}, {interpolation}"
        return DescribedTransform(Squash(size, resize, interpolation), description)
    if settings.crop == "border":
        description = f"long side {resize}, centre {size} on grey, {interpolation}"
        return DescribedTransform(Border(size, resize, interpolation), description)
    return _make_centre_crop(size, resize, interpolation)


def make_stimulus_transform(image_size: int, settings: StimuliPreprocess) -> DescribedTransform:
    """Make the test transform of square stimuli."""
    size = image_size if settings.size == "auto" else int(settings.size)
    interpolation = settings.interpolation
    if settings.resize is None:
        description = f"as it is, or resized to {size}, {interpolation}"
        return DescribedTransform(SquareResize(size, interpolation), description)
    _refuse_padding("stimuli", settings.resize, size)
    return _make_centre_crop(size, settings.resize, interpolation)


def _make_centre_crop(size: int, resize: int, interpolation: Interpolation) -> DescribedTransform:
    description = f"short side {resize}, centre {size}, {interpolation}"
    return DescribedTransform(CentreCrop(size, resize, interpolation), description)


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


class Box(NamedTuple):
    """Rectangle of a picture, in pixels."""

    top: int
    left: int
    height: int
    width: int


def _crop_and_resize(picture: Picture, box: Box, size: int, interpolation: Interpolation, margin: int) -> Tensor:
    """Crop a box from a picture and resize it to [C,size,size]. margin: least ratio of decoded sides to `size`."""
    shrink = _choose_shrink(min(box.height, box.width), margin * size)
    image = picture.pixels(shrink, box.top + box.height)
    height, width = _full_size(picture, image, shrink)
    down, across = height / picture.height, width / picture.width  # 1 unless the decoder shrank the picture
    top, left = round(box.top * down), round(box.left * across)
    bottom = max(round((box.top + box.height) * down), top + 1)
    right = max(round((box.left + box.width) * across), left + 1)
    return _resize(image[..., top:bottom, left:right], [size, size], interpolation)


def _full_size(picture: Picture, image: Tensor, shrink: int) -> tuple[int, int]:
    """Return the (height, width) that the full picture has at the scale of its decoded upper part."""
    width = image.shape[-1]
    height = picture.height if width == picture.width else -(-picture.height // shrink)
    return height, width


def _needed_pixels(end: int, sources: int, targets: int) -> int:
    """Return the number of leading pixels of an axis that its first `end` pixels depend on after a resize.

    The resize turns `sources` pixels into `targets`.
    """
    needed = min(sources, math.ceil(end * sources / targets + REACH * max(1, sources / targets)))
    # torch leaves an axis as it is if its length stays the same, at whatever scale
    return sources if targets > sources and needed * targets // sources == needed else needed


def _resize(
    image: Tensor, size: list[int], interpolation: Interpolation, full: tuple[int, int] | None = None
) -> Tensor:
    """Resize an image [C,h,w] to `size`, [height, width].

    full: (height, width) of the complete image if `image` is only its upper left part. `size` is then the size of the
    complete image, and the result is the resized part.
    """
    sides = list(image.shape[-2:]) if full is None else list(full)
    if sides == size:
        return image
    if image.stride(0) == 1:  # channels last, as decoders return it: resizing is fastest if the image is contiguous
        image = image[None].contiguous(memory_format=torch.channels_last)[0]
    target: dict[str, Any] = {"size": size}
    if list(image.shape[-2:]) != sides:  # rounding down then gives at least the requested size
        target = {"scale_factor": [(new + 1e-6) / old for new, old in zip(size, sides, strict=True)]}
    return functional.interpolate(image[None], **target, mode=interpolation, antialias=True)[0]


def _choose_shrink(side: int, least: int) -> int:
    """Return the largest factor (8, 4, 2 or 1) by which a decoder may shrink `side` pixels so that `least` are left."""
    return next((factor for factor in (8, 4, 2) if side // factor >= least), 1)


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
