"""Digital: contrast, elastic transform, pixelate, JPEG; also saturate (extra) and brightness (of the group weather)."""

from __future__ import annotations

from functools import cache
from typing import Literal, NamedTuple

import numpy as np
from PIL import Image
from scipy import ndimage

from biasbed.data.corruptions.corruption import SMALL_SIDE, Constants, Corruption, Rng, Sides, levels, unit
from biasbed.data.corruptions.released import decode, encode

GROUP = "digital"
# The reference computes the constants of the elastic transform for images of 244 pixels, although they have 224.
_MEANT = 244


def brightness(image: np.ndarray, draws: None, parameters: Constants) -> np.ndarray:
    """Add c to HSV's V and keep hue and saturation: multiply a pixel's channels by V'/V; black turns grey."""
    (shift,) = parameters
    nonzero = np.arange(1, 256) / 255
    factors = np.concatenate([[0.0], np.minimum(nonzero + shift, 1) / nonzero])  # V'/V of each of the 256 levels of V
    value = _largest_channel(image)
    brighter = unit(image) * factors[value][..., None]
    brighter[value == 0] = min(shift, 1)
    return levels(brighter)


def saturate(image: np.ndarray, draws: None, parameters: Constants) -> np.ndarray:
    """Change HSV's S to a S + b: scale each channel's distance from V by S'/S. Grey counts as red and turns reddish."""
    gain, shift = parameters
    largest, smallest = _largest_channel(image), 255 - _largest_channel(255 - image)
    value = unit(largest)
    saturation = np.divide(value - unit(smallest), value, out=np.zeros_like(value), where=largest > 0)
    changed = np.clip(saturation * gain + shift, 0, 1)
    factor = np.divide(changed, saturation, out=np.zeros_like(value), where=saturation > 0)
    result = value[..., None] - (value[..., None] - unit(image)) * factor[..., None]
    is_grey = saturation == 0
    result[is_grey] = value[is_grey][:, None] * np.array([1, 1 - min(shift, 1), 1 - min(shift, 1)])
    return levels(result)


def _largest_channel(image: np.ndarray) -> np.ndarray:
    """Return the largest channel [H,W] of each pixel; numpy's max is slow over an axis of three."""
    return np.maximum(np.maximum(image[..., 0], image[..., 1]), image[..., 2])


def contrast(image: np.ndarray, draws: None, parameters: Constants) -> np.ndarray:
    """Move each channel towards its mean."""
    (factor,) = parameters
    x = unit(image)
    mean = image.mean(axis=(0, 1)) / 255  # a sum of integers does not depend on their order
    return levels((x - mean) * factor + mean)


def pixelate(image: np.ndarray, draws: None, parameters: Constants) -> np.ndarray:
    """Shrink and enlarge the image by box filters."""
    (share,) = parameters
    side = len(image)
    small_side = int(side * share)
    small = Image.fromarray(image).resize((small_side, small_side), Image.Resampling.BOX)
    return np.asarray(small.resize((side, side), Image.Resampling.BOX))


def jpeg_compression(image: np.ndarray, draws: None, parameters: Constants) -> np.ndarray:
    """Encode the image as JPEG of a low quality and decode it."""
    (quality,) = parameters
    return decode(encode(image, quality))


# --- elastic transform ------------------------------------------------------------------------------------------------


class ElasticDraws(NamedTuple):
    """Random numbers of an elastic transform."""

    shifts: np.ndarray  # of three corners in pixels [3,2]
    across: np.ndarray  # uniform on [-1,1), before smoothing [H,W]
    down: np.ndarray  # likewise


def draw_elastic(rng: Rng, shape: Sides, parameters: Constants) -> ElasticDraws:
    """Draw the random numbers for an image of this height and width."""
    _, _, jitter = parameters
    return ElasticDraws(rng.uniform(-jitter, jitter, (3, 2)), rng.uniform(-1, 1, shape), rng.uniform(-1, 1, shape))


def elastic_transform(image: np.ndarray, draws: ElasticDraws, parameters: Constants) -> np.ndarray:
    """Apply a random affine map, then displace pixels by a smooth random field (Simard et al. 2003)."""
    strength, sigma, _ = parameters
    shape = image.shape[:2]
    source_y, source_x = _affine_positions(shape, draws.shifts)
    warped = _sample(unit(image, np.float32), source_y, source_x, border="mirror")
    across = (_smooth(draws.across, sigma) * strength).astype(np.float32)
    down = (_smooth(draws.down, sigma) * strength).astype(np.float32)
    y, x = np.indices(shape)
    return levels(_sample(warped, y + down, x + across, border="reflect"))


def _affine_positions(shape: Sides, shifts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the source (y, x) of each pixel under the affine map that moves three corners of a square by `shifts`."""
    middle, reach = np.array(shape, np.float32) // 2, min(shape) // 3
    a, b = middle + reach, middle - reach
    before = np.stack([a, [a[0], b[1]], b]).astype(np.float32)  # as (x, y)
    after = before + shifts.astype(np.float32)
    homogeneous = np.hstack([after.astype(np.float64), np.ones((3, 1))])
    back = np.linalg.solve(homogeneous, before.astype(np.float64))  # [3,2]: (x, y, 1) after to (x, y) before
    y, x = np.indices(shape)
    return x * back[0, 1] + y * back[1, 1] + back[2, 1], x * back[0, 0] + y * back[1, 0] + back[2, 0]


def _sample(image: np.ndarray, y: np.ndarray, x: np.ndarray, border: Literal["mirror", "reflect"]) -> np.ndarray:
    """Sample float32 [H,W,3] at fractional positions [H,W], bilinearly."""
    positions = np.stack([y, x])
    channels = [ndimage.map_coordinates(image[..., i], positions, order=1, mode=border) for i in range(3)]
    return np.stack(channels, axis=-1)


def _smooth(field: np.ndarray, sigma: float) -> np.ndarray:
    """Smooth by a Gaussian, as a product of matrices because sigma may be as large as the image."""
    height, width = field.shape
    return _gaussian_matrix(height, sigma) @ field @ _gaussian_matrix(width, sigma).T


@cache
def _gaussian_matrix(side: int, sigma: float) -> np.ndarray:
    """Return the matrix [side,side] of scipy's Gaussian filter, truncated at 3 sigma and reflected at the border."""
    return ndimage.gaussian_filter(np.eye(side), (sigma, 0), mode="reflect", truncate=3)


_ELASTIC = (
    (_MEANT * 2, _MEANT * 0.7, _MEANT * 0.1),
    (_MEANT * 2, _MEANT * 0.08, _MEANT * 0.2),
    (_MEANT * 0.05, _MEANT * 0.01, _MEANT * 0.02),
    (_MEANT * 0.07, _MEANT * 0.01, _MEANT * 0.02),
    (_MEANT * 0.12, _MEANT * 0.01, _MEANT * 0.02),
)
_ELASTIC_32 = (
    (0.0, 0.0, SMALL_SIDE * 0.08),
    (SMALL_SIDE * 0.05, SMALL_SIDE * 0.2, SMALL_SIDE * 0.07),
    (SMALL_SIDE * 0.08, SMALL_SIDE * 0.06, SMALL_SIDE * 0.06),
    (SMALL_SIDE * 0.1, SMALL_SIDE * 0.04, SMALL_SIDE * 0.05),
    (SMALL_SIDE * 0.1, SMALL_SIDE * 0.03, SMALL_SIDE * 0.03),
)
BRIGHTNESS = Corruption(
    "brightness",
    "weather",
    ((0.1,), (0.2,), (0.3,), (0.4,), (0.5,)),
    ((0.05,), (0.1,), (0.15,), (0.2,), (0.3,)),
    brightness,
)
CONTRAST = Corruption(
    "contrast", GROUP, ((0.4,), (0.3,), (0.2,), (0.1,), (0.05,)), ((0.75,), (0.5,), (0.4,), (0.3,), (0.15,)), contrast
)
ELASTIC = Corruption("elastic_transform", GROUP, _ELASTIC, _ELASTIC_32, elastic_transform, draw_elastic)
PIXELATE = Corruption(
    "pixelate",
    GROUP,
    ((0.6,), (0.5,), (0.4,), (0.3,), (0.25,)),
    ((0.95,), (0.9,), (0.85,), (0.75,), (0.65,)),
    pixelate,
    is_sized=True,
)
JPEG = Corruption(
    "jpeg_compression", GROUP, ((25,), (18,), (15,), (10,), (7,)), ((80,), (65,), (58,), (50,), (40,)), jpeg_compression
)
SATURATE = Corruption(
    "saturate",
    GROUP,
    ((0.3, 0), (0.1, 0), (2, 0), (5, 0.1), (20, 0.2)),
    ((0.3, 0), (0.1, 0), (1.5, 0), (2, 0.1), (2.5, 0.2)),
    saturate,
)
