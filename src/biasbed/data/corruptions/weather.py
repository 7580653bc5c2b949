"""Weather: snow, frost, fog (Hendrycks & Dietterich 2019, appendix A); brightness is in `digital.py`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from biasbed.data.corruptions.blur import enlargement, smear
from biasbed.data.corruptions.corruption import (
    SIDE,
    SMALL_SIDE,
    Constants,
    Corruption,
    Rng,
    Sides,
    fused,
    integers,
    levels,
    unit,
    whole_levels,
)
from biasbed.data.corruptions.frost import SHAPES
from biasbed.errors import UsageError

GROUP = "weather"
GREY = np.array([0.299, 0.587, 0.114], dtype=np.float32)  # of red, green, blue (ITU-R BT.601)


# --- snow -------------------------------------------------------------------------------------------------------------


def draw_flakes(rng: Rng, shape: Sides, parameters: Constants) -> tuple[np.ndarray, float]:
    """Draw (flakes [H,W], direction of fall in degrees)."""
    mean, scale, *_ = parameters
    return rng.normal(mean, scale, shape), float(rng.uniform(-135, -45))


def snow(image: np.ndarray, draws: tuple[np.ndarray, float], parameters: Constants) -> np.ndarray:
    """Whiten the image and add enlarged flakes, smeared along their fall, and the same turned by 180 degrees."""
    _, _, zoom, threshold, radius, sigma, share = parameters
    layer, degrees = draws
    flakes = enlarge_middle(layer, zoom)
    flakes[flakes < threshold] = 0
    fallen = unit(smear(levels(flakes), radius, sigma, degrees))[..., None]
    x = unit(image, np.float32)
    grey = grey_as_opencv(x)[..., None]
    whitish = np.float32(share) * x + np.float32(1 - share) * np.maximum(x, grey * np.float32(1.5) + np.float32(0.5))
    return levels(whitish + fallen + np.rot90(fallen, 2))


def grey_as_opencv(image: np.ndarray) -> np.ndarray:
    """Return the luma [H,W] of float32 [H,W,3], added in the order in which OpenCV with AVX2 adds: green, red, blue."""
    red, green, blue = np.moveaxis(image, 2, 0)
    luma: np.ndarray = green * GREY[1]
    luma = fused(red, GREY[0], luma)
    return fused(blue, GREY[2], luma)


def enlarge_middle(plane: np.ndarray, factor: float) -> np.ndarray:
    """Enlarge the middle of float64 [H,W] to the full size."""
    height, width = plane.shape
    tall = enlargement(height, factor) @ plane
    return np.ascontiguousarray((enlargement(width, factor) @ tall.T).T)


# --- frost ------------------------------------------------------------------------------------------------------------


class FrostCrop(NamedTuple):
    """Place in a photograph of frost."""

    photograph: int  # its number
    row: int
    column: int


def draw_frost_crop(rng: Rng, shape: Sides, parameters: Constants) -> FrostCrop:
    """Draw a photograph and the upper left corner of an image of this height and width in it."""
    photograph = int(integers(rng, 0, len(SHAPES)))
    height, width = (len(range(side)[_used_pixels(shape)]) for side in SHAPES[photograph])
    return FrostCrop(photograph, int(integers(rng, 0, height - shape[0])), int(integers(rng, 0, width - shape[1])))


def frost(photographs: Sequence[np.ndarray], image: np.ndarray, crop: FrostCrop, parameters: Constants) -> np.ndarray:
    """Mix the image with a crop of a photograph of frost; photographs: as `frost.photographs` reads them."""
    image_weight, frost_weight = parameters
    height, width = image.shape[:2]
    used = _used_pixels((height, width))
    photograph = photographs[crop.photograph][used][:, used]
    frozen = photograph[crop.row : crop.row + height, crop.column : crop.column + width]
    return whole_levels(np.clip(image_weight * image + frost_weight * frozen, 0, 255))


def without_photographs(image: np.ndarray, crop: FrostCrop, parameters: Constants) -> np.ndarray:
    """Raise UsageError: stands in for `frost` where no photographs were given."""
    raise UsageError("frost needs its five photographs: name their folder")


def _used_pixels(shape: Sides) -> slice:
    """Return the slice of a photograph's rows, and of its columns, that an image uses; every fifth for 32 pixels.

    That equals the reference's bilinear resizing to a fifth without smoothing: its samples hit pixels exactly.
    """
    return slice(2, None, 5) if shape == (SMALL_SIDE, SMALL_SIDE) else slice(None)


def make_frost(photographs: Sequence[np.ndarray]) -> Corruption:
    """Make the corruption frost from its five photographs uint8 [H,W,3] of the released shapes."""
    return Corruption(
        FROST.name, GROUP, FROST.parameters, FROST.at_32, partial(frost, photographs), draw_frost_crop, is_sized=True
    )


# --- fog --------------------------------------------------------------------------------------------------------------

PLASMA = {SIDE: 256, SMALL_SIDE: 32}  # pixels of the image -> pixels of the map that fog is cropped from


def draw_fog(rng: Rng, shape: Sides, parameters: Constants) -> np.ndarray:
    """Draw a uniform number on [0,1) for each point of the plasma map but one: [65535], or [1023]."""
    return rng.random(PLASMA[shape[0]] ** 2 - 1)


def fog(image: np.ndarray, uniform: np.ndarray, parameters: Constants) -> np.ndarray:
    """Add a plasma map, then darken the result to the image's range."""
    amount, decay = parameters
    x = unit(image)
    brightest = x.max()
    hazy = x + amount * make_plasma(PLASMA[len(image)], decay, uniform)[: image.shape[0], : image.shape[1], None]
    return levels(hazy * brightest / (brightest + amount))


def make_plasma(side: int, decay: float, uniform: np.ndarray) -> np.ndarray:
    """Compute a fractal [side,side] in [0,1] by the diamond-square algorithm (Fournier, Fussell & Carpenter 1982).

    side: a power of 2; the map wraps around. uniform: draws [side^2 - 1] on [0,1), used in the order of the updates.
    Each step moves the mean of the four nearest known points by w times a uniform draw from (-w,w), because the
    reference squares the amplitude.
    """
    heights = np.zeros((side, side))
    step, width, used = side, 100.0, 0

    def displaced_mean(sum_of_four: np.ndarray) -> np.ndarray:
        nonlocal used
        drawn = uniform[used : used + sum_of_four.size].reshape(sum_of_four.shape)
        used += sum_of_four.size
        return sum_of_four / 4 + width * (-width + 2 * width * drawn)

    while step >= 2:
        half = step // 2
        corners = heights[::step, ::step]
        pairs = corners + np.roll(corners, -1, 0)
        heights[half::step, half::step] = centres = displaced_mean(pairs + np.roll(pairs, -1, 1))
        vertical = centres + np.roll(centres, 1, 0)  # neighbours above and below a point on a horizontal edge
        heights[::step, half::step] = displaced_mean(vertical + corners + np.roll(corners, -1, 1))
        horizontal = centres + np.roll(centres, 1, 1)
        heights[half::step, ::step] = displaced_mean(horizontal + corners + np.roll(corners, -1, 0))
        step, width = half, width / decay
    heights -= heights.min()
    return heights / heights.max()


_SNOW = (
    (0.1, 0.3, 3, 0.5, 10, 4, 0.8),
    (0.2, 0.3, 2, 0.5, 12, 4, 0.7),
    (0.55, 0.3, 4, 0.9, 12, 8, 0.7),
    (0.55, 0.3, 4.5, 0.85, 12, 8, 0.65),
    (0.55, 0.3, 2.5, 0.85, 12, 12, 0.55),
)
_FROST = ((1, 0.4), (0.8, 0.6), (0.7, 0.7), (0.65, 0.7), (0.6, 0.75))
_FOG = ((1.5, 2), (2, 2), (2.5, 1.7), (2.5, 1.5), (3, 1.4))
_SNOW_32 = (
    (0.1, 0.2, 1, 0.6, 8, 3, 0.95),
    (0.1, 0.2, 1, 0.5, 10, 4, 0.9),
    (0.15, 0.3, 1.75, 0.55, 10, 4, 0.9),
    (0.25, 0.3, 2.25, 0.6, 12, 6, 0.85),
    (0.3, 0.3, 1.25, 0.65, 14, 12, 0.8),
)
_FROST_32 = ((1, 0.2), (1, 0.3), (0.9, 0.4), (0.85, 0.4), (0.75, 0.45))
_FOG_32 = ((0.2, 3), (0.5, 3), (0.75, 2.5), (1, 2), (1.5, 1.75))
SNOW = Corruption("snow", GROUP, _SNOW, _SNOW_32, snow, draw_flakes, is_sized=True)
FROST = Corruption("frost", GROUP, _FROST, _FROST_32, without_photographs, draw_frost_crop, is_sized=True)
FOG = Corruption("fog", GROUP, _FOG, _FOG_32, fog, draw_fog, is_sized=True)
