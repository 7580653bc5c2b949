"""Blur: defocus, glass, motion, zoom, and Gaussian of the extra four (Hendrycks & Dietterich 2019, appendix A)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

import numpy as np
from scipy import fft, ndimage, sparse

from biasbed.data.corruptions.corruption import (
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

GROUP = "blur"
LANES = 16  # columns that OpenCV with AVX2 filters at a time


def smooth_by_gaussian(values: np.ndarray, sigma: float) -> np.ndarray:
    """Filter the first two axes by a Gaussian, truncated at 4 sigma; the border values are repeated outside."""
    return ndimage.gaussian_filter(values, sigma, mode="nearest", truncate=4, axes=(0, 1))


def gaussian_blur(image: np.ndarray, draws: None, parameters: Constants) -> np.ndarray:
    """Smooth the image by a Gaussian."""
    (sigma,) = parameters
    return levels(smooth_by_gaussian(unit(image), sigma))


# --- defocus ----------------------------------------------------------------------------------------------------------


def defocus_blur(image: np.ndarray, draws: None, parameters: Constants) -> np.ndarray:
    """Blur by a disk with soft edges, like a lens that is out of focus."""
    radius, sigma = parameters
    kernel = make_disk(radius, sigma)
    reach = len(kernel) // 2
    # By FFT, because a direct sum has 289 or 441 terms. The kernel is symmetric and need not be flipped.
    padded = np.pad(unit(image), ((reach, reach), (reach, reach), (0, 0)), mode="reflect")
    height, width, _ = padded.shape
    size = (fft.next_fast_len(height, real=True), fft.next_fast_len(width, real=True))
    planes = np.ascontiguousarray(padded.transpose(2, 0, 1))
    spread = fft.irfft2(fft.rfft2(planes, size) * _spectrum(radius, sigma, size), size)
    return levels(spread[:, 2 * reach : height, 2 * reach : width].transpose(1, 2, 0))


@cache
def make_disk(radius: float, sigma: float) -> np.ndarray:
    """Return the kernel of a defocus blur, float32 [17,17] or larger: a disk that sums to 1, with smoothed edges.

    It is smoothed by 3 or 5 taps of a Gaussian and mirrored at its border, equal to OpenCV's GaussianBlur of the disk
    to the last bit. The sum of the kernel is off 1 by less than 1e-7, and the sign of this error decides whether a flat
    area loses a grey level to truncation.
    """
    reach, taps = (8, 3) if radius <= 8 else (int(radius), 5)
    y, x = np.mgrid[-reach : reach + 1, -reach : reach + 1]
    inside = (x * x + y * y <= radius * radius).astype(np.float32)
    inside /= inside.sum()
    weights = np.exp(-((np.arange(taps) - taps // 2) ** 2) / (2 * sigma * sigma))
    return _smooth_as_opencv(inside, (weights / weights.sum()).astype(np.float32))


def _smooth_as_opencv(plane: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Filter float32 [H,W] along both axes by symmetric weights, in the order in which OpenCV with AVX2 adds.

    Along the rows the inner pair of taps comes first, along the columns the centre. The columns beyond the last whole
    register of 16 are multiplied and added in two roundings, all others in one.
    """
    centre, *pairs = _symmetric_terms(plane, weights, axis=1)
    rows = _sum_fused([pairs[0], centre, *pairs[1:]])
    terms = _symmetric_terms(rows, weights, axis=0)
    smooth = _sum_fused(terms)
    fused_columns = plane.shape[1] // LANES * LANES
    smooth[:, fused_columns:] = _sum_rounded(terms)[:, fused_columns:]
    return smooth


def _symmetric_terms(plane: np.ndarray, weights: np.ndarray, axis: int) -> list[tuple[np.ndarray, np.float32]]:
    """Return (values, weight) of the centre tap, then of each pair of taps from the inner to the outer."""
    reach = len(weights) // 2
    borders = [(0, 0), (0, 0)]
    borders[axis] = (reach, reach)
    padded = np.pad(plane, borders, mode="reflect")
    shifted = [np.take(padded, range(at, at + plane.shape[axis]), axis) for at in range(len(weights))]
    pairs = [(shifted[reach - away] + shifted[reach + away], weights[reach + away]) for away in range(1, reach + 1)]
    return [(plane, weights[reach]), *pairs]


def _sum_fused(terms: Sequence[tuple[np.ndarray, np.float32]]) -> np.ndarray:
    """Add values times weights, each product and its addition rounded once."""
    values, weight = terms[0]
    total: np.ndarray = values * weight
    for values, weight in terms[1:]:
        total = fused(values, weight, total)
    return total


def _sum_rounded(terms: Sequence[tuple[np.ndarray, np.float32]]) -> np.ndarray:
    """Add values times weights, each product and each sum rounded."""
    values, weight = terms[0]
    total: np.ndarray = values * weight
    for values, weight in terms[1:]:
        total = total + values * weight
    return total


@cache
def _spectrum(radius: float, sigma: float, size: Sides) -> np.ndarray:
    """Return the Fourier transform of the kernel for padded images of this size."""
    return fft.rfft2(make_disk(radius, sigma).astype(np.float64), size)


# --- glass ------------------------------------------------------------------------------------------------------------


def draw_offsets(rng: Rng, shape: Sides, parameters: Constants) -> np.ndarray:
    """Draw the offset (x, y) of each visited pixel [passes, (H-2d)(W-2d), 2], each in -d .. d-1 for a reach of d."""
    _, reach, passes = parameters
    count = (shape[0] - 2 * reach) * (shape[1] - 2 * reach)
    return np.stack([integers(rng, -reach, reach, (count, 2)) for _ in range(passes)])


def glass_blur(image: np.ndarray, offsets: np.ndarray, parameters: Constants) -> np.ndarray:
    """Blur, shuffle pixels among their neighbours, blur again."""
    sigma, reach, _ = parameters
    blurred = whole_levels(smooth_by_gaussian(unit(image), sigma) * 255)
    height, width, _ = image.shape
    sources = np.arange(height * width)
    for offsets_of_pass in offsets:
        sources = sources[shuffle_pixels((height, width), reach, offsets_of_pass)]
    shuffled = blurred.reshape(-1, 3)[sources].reshape(image.shape)
    return levels(smooth_by_gaussian(unit(shuffled), sigma))


def shuffle_pixels(shape: Sides, reach: int, offsets: np.ndarray) -> np.ndarray:
    """Return the source pixel [H*W] of each pixel after one pass of shuffling.

    The pass goes from the bottom right to the top left and overwrites each pixel by the pixel at its offset: the
    reference means to swap the two, but loses one. A pixel therefore gets the old value of its source or, if the source
    was visited before it, the source's new value, which comes from another pixel. The chains are followed by doubling.
    """
    height, width = shape
    rows, columns = np.arange(height - reach, reach, -1), np.arange(width - reach, reach, -1)
    targets = (rows[:, None] * width + columns).ravel()
    sources = targets + offsets[:, 1] * width + offsets[:, 0]
    old = np.arange(height * width)
    old[targets] = sources
    is_met = np.zeros(height * width, dtype=bool)
    is_met[targets] = True
    chained = is_met[sources] & (sources > targets)
    follows = np.arange(height * width)
    longer = targets[chained]
    follows[longer] = sources[chained]
    while longer.size:
        near = follows[longer]
        far = follows[near]
        longer, far = longer[far != near], far[far != near]
        follows[longer] = far
    return old[follows]


# --- motion -----------------------------------------------------------------------------------------------------------


def draw_angle(rng: Rng, shape: Sides, parameters: Constants) -> float:
    """Draw the direction of motion in degrees."""
    return float(rng.uniform(-45, 45))


def motion_blur(image: np.ndarray, degrees: float, parameters: Constants) -> np.ndarray:
    """Smear the image along one direction."""
    radius, sigma = parameters
    return smear(image, radius, sigma, degrees)


def smear(image: np.ndarray, radius: int, sigma: float, degrees: float) -> np.ndarray:
    """Smear each pixel of uint8 [H,W,...] to one side, fading: ImageMagick's motion blur in 16 bits.

    The result is rounded to 16 bits, then truncated to 8.
    """
    height, width = image.shape[:2]
    weights, right, down = _motion_taps(radius, sigma, degrees)
    above, below = max(0, -down.min()), max(0, down.max())
    before, after = max(0, -right.min()), max(0, right.max())
    borders = [(above, below), (before, after)] + [(0, 0)] * (image.ndim - 2)
    padded = np.pad(image, borders, mode="edge").astype(np.float64)
    total, weighted = np.zeros(image.shape), np.empty(image.shape)
    for weight, x, y in zip(weights, right + before, down + above, strict=True):
        np.multiply(padded[y : y + height, x : x + width], weight, out=weighted)
        total += weighted
    return (np.floor(total * 257 + 0.5) / 257).astype(np.uint8)


class _MotionTaps(NamedTuple):
    """Weights and offsets in pixels of the pixels that are averaged; the first one is the pixel itself."""

    weights: np.ndarray
    right: np.ndarray
    down: np.ndarray


def _motion_taps(radius: int, sigma: float, degrees: float) -> _MotionTaps:
    """Return the taps of a motion blur along a direction, whose weights fall off as a Gaussian and sum to 1."""
    steps = np.arange(2 * math.ceil(radius) + 1)
    weights = np.exp(-(steps**2) / (2.0 * sigma * sigma))
    direction = math.radians(degrees)
    right, down = (np.ceil(steps * part - 0.5).astype(int) for part in (math.cos(direction), math.sin(direction)))
    return _MotionTaps(weights / weights.sum(), right, down)


# --- zoom -------------------------------------------------------------------------------------------------------------


def zoom_blur(image: np.ndarray, draws: None, parameters: Constants) -> np.ndarray:
    """Average the image and its enlargements by all factors."""
    height, width, _ = image.shape
    x = unit(image, np.float32)
    planes = np.ascontiguousarray(x.transpose(0, 2, 1)).reshape(height, -1)
    total = np.zeros((width, 3 * height), dtype=np.float32)  # transposed
    for vertical, horizontal in zip(_enlargements(height, parameters), _enlargements(width, parameters), strict=True):
        tall = (vertical @ planes).reshape(height, 3, width)  # every enlargement is M x M'
        total += horizontal @ np.ascontiguousarray(tall.transpose(2, 1, 0)).reshape(width, -1)
    enlarged = total.reshape(width, 3, height).transpose(2, 0, 1)
    return levels((x + enlarged) / np.float32(len(parameters) + 1))


@cache
def _enlargements(side: int, factors: tuple[float, ...]) -> list[sparse.csr_array]:
    """Return the matrix of `enlargement` for each factor, in float32."""
    return [enlargement(side, factor).astype(np.float32) for factor in factors]


@cache
def enlargement(side: int, factor: float) -> sparse.csr_array:
    """Return the matrix [side,side] that enlarges the middle of a vector by `factor`: linear, with aligned corners."""
    middle = math.ceil(side / factor)  # pixels that are enlarged
    enlarged = round(middle * factor)
    start, cut = (side - middle) // 2, (enlarged - side) // 2
    positions = (np.arange(side) + cut) * (middle - 1) / (enlarged - 1)
    left = np.minimum(positions.astype(int), middle - 2)
    share = positions - left
    rows = np.arange(side)
    values, columns = np.concatenate([1 - share, share]), np.concatenate([left, left + 1]) + start
    return sparse.csr_array((values, (np.concatenate([rows, rows]), columns)), shape=(side, side))


def _factors(count: int, step: float) -> Constants:
    """Return `count` factors of enlargement from 1 on, as 1.0, 1.01, 1.02 for a step of 0.01."""
    return tuple(round(1 + i * step, 2) for i in range(count))


GAUSSIAN = Corruption(
    "gaussian_blur", GROUP, ((1,), (2,), (3,), (4,), (6,)), ((0.4,), (0.6,), (0.7,), (0.8,), (1,)), gaussian_blur
)
DEFOCUS = Corruption(
    "defocus_blur",
    GROUP,
    ((3, 0.1), (4, 0.5), (6, 0.5), (8, 0.5), (10, 0.5)),
    ((0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1, 0.2), (1.5, 0.1)),
    defocus_blur,
)
GLASS = Corruption(
    "glass_blur",
    GROUP,
    ((0.7, 1, 2), (0.9, 2, 1), (1, 2, 3), (1.1, 3, 2), (1.5, 4, 2)),
    ((0.05, 1, 1), (0.25, 1, 1), (0.4, 1, 1), (0.25, 1, 2), (0.4, 1, 2)),
    glass_blur,
    draw_offsets,
    True,
)
MOTION = Corruption(
    "motion_blur",
    GROUP,
    ((10, 3), (15, 5), (15, 8), (15, 12), (20, 15)),
    ((6, 1), (6, 1.5), (6, 2), (8, 2), (9, 2.5)),
    motion_blur,
    draw_angle,
)
ZOOM = Corruption(
    "zoom_blur",
    GROUP,
    (_factors(12, 0.01), _factors(16, 0.01), _factors(11, 0.02), _factors(13, 0.02), _factors(11, 0.03)),
    tuple(tuple(np.arange(1, end, 0.01).tolist()) for end in (1.06, 1.11, 1.16, 1.21, 1.26)),  # 7, 12, 16, 21, 26
    zoom_blur,
)
