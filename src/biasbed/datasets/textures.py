"""Procedural textures: families of patterns that differ in local statistics, and random fields of any spectrum.

All lengths are fractions of the image's side. Phase, angle, scale and polarity are random.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from scipy import ndimage

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Family = Callable[[Generator, int, int], Floats]  # (generator, n, size) -> patterns [n,size,size] of any range


def _plane(
    rng: Generator, n: int, size: int, period: float, angle: float = 0.0, spread: float = 8.0
) -> tuple[Floats, Floats]:
    """Draw rotated coordinates (u, v), each [n,size,size], in periods; the angle is `angle` +- `spread` degrees."""
    turn = np.radians(angle + rng.uniform(-spread, spread, (n, 1, 1)))
    scale = 1 / (period * size * rng.uniform(0.9, 1.1, (n, 1, 1)))
    phase = rng.uniform(0, 100, (2, n, 1, 1))
    row, column = np.mgrid[:size, :size].astype(np.float64)
    u = (np.cos(turn) * column + np.sin(turn) * row) * scale + phase[0]
    v = (np.cos(turn) * row - np.sin(turn) * column) * scale + phase[1]
    return u, v


def _soft(x: Floats) -> Floats:
    """Apply a soft threshold at 0: -1 to 1."""
    out: Floats = np.tanh(x)
    return out


def _wave(x: Floats) -> Floats:
    return _soft(3 * np.sin(2 * np.pi * x))


def _off(x: Floats) -> Floats:
    """Return the distance to the nearest integer."""
    return np.abs(x - np.round(x))


def _below(x: Floats, limit: float) -> Floats:
    """Return 1 if x < limit and 0 otherwise, with a soft edge."""
    return np.clip((limit - x) / 0.08 + 0.5, 0, 1)


def _stripes(angle: float) -> Family:
    return lambda rng, n, size: _wave(_plane(rng, n, size, 0.12, angle)[0])


def _checks(rng: Generator, n: int, size: int) -> Floats:
    x, y = _plane(rng, n, size, 0.22)
    return _soft(5 * np.sin(2 * np.pi * x) * np.sin(2 * np.pi * y))


def _dots(rng: Generator, n: int, size: int) -> Floats:
    x, y = _plane(rng, n, size, 0.12, spread=15)
    waves = sum(np.cos(2 * np.pi * (x * np.sin(a) + y * np.cos(a))) for a in np.radians((0, 60, 120)))
    return _soft(2 * (waves - 0.4))


def _grid(rng: Generator, n: int, size: int) -> Floats:
    x, y = _plane(rng, n, size, 0.14)
    return _below(np.minimum(_off(x), _off(y)), 0.15)


def _zigzag(rng: Generator, n: int, size: int) -> Floats:
    x, y = _plane(rng, n, size, 0.13)
    return _wave(y + 1.8 * _off(0.6 * x))


def field(rng: Generator, n: int, size: int, width: float) -> Floats:
    """Draw smooth random fields [n,size,size] of standard deviation 1 and correlation length `width`."""
    noise, sigma = rng.standard_normal((n, size, size)), (0, width * size, width * size)
    smooth: Floats = ndimage.gaussian_filter(noise, sigma, mode="wrap")
    smooth /= smooth.std((1, 2), keepdims=True)
    return smooth


def _grains(width: float) -> Family:
    return lambda rng, n, size: _soft(3 * field(rng, n, size, width))


FAMILIES: Mapping[str, Family] = {  # in the order of CLASSES
    "rows": _stripes(90),
    "columns": _stripes(0),
    "slashes": _stripes(45),
    "backslashes": _stripes(-45),
    "checks": _checks,
    "dots": _dots,
    "grid": _grid,
    "zigzag": _zigzag,
    "blobs": _grains(0.045),
    "speckle": _grains(0.012),
}


def _crosses(rng: Generator, n: int, size: int) -> Floats:
    x, y = _plane(rng, n, size, 0.2)
    return _below(np.minimum(_off(x), _off(y)), 0.13) * _below(np.maximum(_off(x), _off(y)), 0.38)


def _rings(rng: Generator, n: int, size: int) -> Floats:
    x, y = _plane(rng, n, size, 0.3)
    return _wave(2.5 * np.hypot(_off(x), _off(y)))


def _scales(rng: Generator, n: int, size: int) -> Floats:
    x, y = _plane(rng, n, size, 0.2)
    return _below(_off(y + 0.6 * np.sqrt(1 - (2 * _off(x)) ** 2)), 0.15)


def _marble(rng: Generator, n: int, size: int) -> Floats:
    return _wave(_plane(rng, n, size, 0.2, spread=180)[0] + 0.6 * field(rng, n, size, 0.08))


def _bricks(rng: Generator, n: int, size: int) -> Floats:
    x, y = _plane(rng, n, size, 0.15)
    return np.maximum(_below(_off(y), 0.13), _below(1.6 * _off(x / 1.6 + 0.5 * np.floor(y)), 0.13))


def _triangles(rng: Generator, n: int, size: int) -> Floats:
    x, y = _plane(rng, n, size, 0.2, spread=20)
    return _below(2 * _off(x) - np.mod(y, 1), 0)


_unseen = (_crosses, _rings, _scales, _marble, _bricks, _triangles)
UNSEEN: Mapping[str, Family] = {family.__name__.strip("_"): family for family in _unseen}


def paint(rng: Generator, n: int, size: int) -> Floats:
    """Draw random fields, each with its own spectrum (band, width, direction) and pointwise function."""
    fy, fx = np.meshgrid(np.fft.fftfreq(size) * size, np.fft.rfftfreq(size) * size, indexing="ij")
    band = np.exp(rng.uniform(np.log(2), np.log(size / 3), (n, 1, 1)))  # cycles per image
    width = rng.uniform(0.1, 0.6, (n, 1, 1))
    focus = rng.choice((0, 0, 2, 8), (n, 1, 1)) * np.cos(2 * (np.arctan2(fy, fx) - rng.uniform(0, np.pi, (n, 1, 1))))
    gain = np.exp(-(np.log(np.maximum(np.hypot(fx, fy), 0.5) / band) ** 2) / (2 * width**2) + focus)
    waves = np.fft.irfft2(np.fft.rfft2(rng.standard_normal((n, size, size))) * gain, (size, size))
    waves /= waves.std((1, 2), keepdims=True)
    return np.choose(rng.integers(0, 3, (n, 1, 1)), (waves, _soft(3 * waves), np.abs(waves)))


def draw_patterns(rng: Generator, families: Mapping[str, Family], family: Integers, size: int) -> Floats:
    """Draw textures [n,size,size] of mean 0 and deviation 1 (0 if uniform), in either polarity.

    family [n]: number of each image's family.
    """
    out = np.empty((len(family), size, size))
    for number, draw in enumerate(families.values()):
        rows = np.flatnonzero(family == number)
        if len(rows):
            out[rows] = draw(rng, len(rows), size)
    out -= out.mean((1, 2), keepdims=True)
    deviation = out.std((1, 2))  # the lines of a grid may miss all pixels of an 8 x 8 image
    out *= (rng.choice((-1.0, 1.0), len(out)) / np.where(deviation > 0, deviation, 1))[:, None, None]
    return np.clip(out, -2, 2, out=out)
