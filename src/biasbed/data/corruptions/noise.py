"""Noise: Gaussian, shot, impulse, and speckle of the extra four (Hendrycks & Dietterich 2019, appendix A)."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np

from biasbed.data.corruptions.corruption import Constants, Corruption, Rng, Sides, levels, unit

GROUP = "noise"


def draw_normal_noise(rng: Rng, shape: Sides, parameters: Constants) -> np.ndarray:
    """Draw normal noise [H,W,3] of standard deviation 1, for all severities."""
    return rng.standard_normal((*shape, 3))


def gaussian_noise(image: np.ndarray, normal: np.ndarray, parameters: Constants) -> np.ndarray:
    """Compute x + s n."""
    (scale,) = parameters
    return levels(unit(image) + scale * normal)


def speckle_noise(image: np.ndarray, normal: np.ndarray, parameters: Constants) -> np.ndarray:
    """Compute x + x s n: brighter pixels get more noise."""
    (scale,) = parameters
    x = unit(image)
    return levels(x + x * (scale * normal))


def copy_generator(rng: Rng, shape: Sides, parameters: Constants) -> Rng:
    """Return a copy of the generator, because the Poisson draws of shot noise depend on the image."""
    return copy.deepcopy(rng)


def shot_noise(image: np.ndarray, rng: Rng, parameters: Constants) -> np.ndarray:
    """Compute Poisson(c x) / c; the generator is not advanced."""
    (photons,) = parameters
    return levels(copy.deepcopy(rng).poisson(unit(image) * photons) / float(photons))


def draw_impulses(rng: Rng, shape: Sides, parameters: Constants) -> tuple[np.ndarray, np.ndarray]:
    """Draw (hit, white), each [H,W,3] uniform on [0,1): which values change, and which of them turn white."""
    return rng.random((*shape, 3)), rng.random((*shape, 3))


def impulse_noise(image: np.ndarray, draws: tuple[np.ndarray, np.ndarray], parameters: Constants) -> np.ndarray:
    """Turn a share of all values, each channel independently, black or white with equal probability."""
    (share,) = parameters
    hit, white = draws
    return np.where(hit < share, np.where(white < 0.5, 255, 0), image).astype(np.uint8)


def _severities(*values: Any) -> tuple[Constants, ...]:
    return tuple((value,) for value in values)


GAUSSIAN = Corruption(
    "gaussian_noise",
    GROUP,
    _severities(0.08, 0.12, 0.18, 0.26, 0.38),
    _severities(0.04, 0.06, 0.08, 0.09, 0.1),
    gaussian_noise,
    draw_normal_noise,
)
SHOT = Corruption(
    "shot_noise", GROUP, _severities(60, 25, 12, 5, 3), _severities(500, 250, 100, 75, 50), shot_noise, copy_generator
)
IMPULSE = Corruption(
    "impulse_noise",
    GROUP,
    _severities(0.03, 0.06, 0.09, 0.17, 0.27),
    _severities(0.01, 0.02, 0.03, 0.05, 0.07),
    impulse_noise,
    draw_impulses,
)
SPECKLE = Corruption(
    "speckle_noise",
    GROUP,
    _severities(0.15, 0.2, 0.35, 0.45, 0.6),
    _severities(0.06, 0.1, 0.12, 0.16, 0.2),
    speckle_noise,
    draw_normal_noise,
)
