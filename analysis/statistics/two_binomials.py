"""Credible interval of the harmonic mean of two accuracies (the AC score) measured on few images.

Each accuracy is a binomial proportion, and the two are independent given the model since no image is in both. Each has
a posterior under Jeffreys' prior, Beta(n + 1/2, N - n + 1/2) for n right among N (Brown, Cai and DasGupta 2001, section
3.1.3). The interval lies between quantiles of the scores of draws from both posteriors.
"""

from __future__ import annotations

from functools import cache

import numpy as np

SEED, DRAWS = 0, 20_000  # the error of a limit of a wide interval is about a quarter of a point
PRIOR = 0.5


def score(right: tuple[int, int], images: tuple[int, int]) -> float:
    """Return the harmonic mean of the two accuracies. Raises ValueError without images of either kind."""
    if min(images) <= 0:
        raise ValueError(f"the score needs images of both kinds, not {images}")
    return float(_harmonic(*(np.array([r / n]) for r, n in zip(right, images, strict=True)))[0])


@cache
def interval(right: tuple[int, int], images: tuple[int, int], level: float = 0.95) -> tuple[float, float]:
    """Return the interval that holds the score with probability `level`, given the counts of right images and images.

    It contains the observed score; with none or all right, at its edge. Raises ValueError for impossible counts.
    """
    if any(not 0 <= r <= n for r, n in zip(right, images, strict=True)):
        raise ValueError(f"{right} right of {images} images")
    observed, generator = score(right, images), np.random.default_rng(SEED)
    first, second = (generator.beta(r + PRIOR, n - r + PRIOR, DRAWS) for r, n in zip(right, images, strict=True))
    low, high = np.quantile(_harmonic(first, second), [(1 - level) / 2, (1 + level) / 2])
    return min(observed, float(low)), max(observed, float(high))


def grain(right: tuple[int, int], images: tuple[int, int]) -> float:
    """Return the rise of the score if one more image of the second kind is right; if all are, that of the last one."""
    more = min(right[1] + 1, images[1])
    return score((right[0], more), images) - score((right[0], more - 1), images)


def _harmonic(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Return the harmonic mean, elementwise; 0 if both are 0."""
    both = first + second
    result: np.ndarray = 2 * first * second / np.where(both > 0, both, 1.0)
    return result
