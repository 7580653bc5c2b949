"""What few images leave open of a harmonic mean of two accuracies, as the AC score is: each is a binomial's share.

The two are independent given the model, as no image is in both. Each has its own posterior under Jeffreys' prior,
Beta(n + 1/2, N - n + 1/2) of n right among N (Brown, Cai and DasGupta 2001, section 3.1.3), and the score's interval
lies between quantiles of the scores of draws from both.
"""

from __future__ import annotations

from functools import cache

import numpy as np

SEED, DRAWS = 0, 20_000  # the error of a limit of a wide interval is about a quarter of a point
PRIOR = 0.5


def score(right: tuple[int, int], images: tuple[int, int]) -> float:
    """The harmonic mean of the two shares, 0 where one is; ValueError without images of either kind."""
    if min(images) <= 0:
        raise ValueError("the score of no images")
    return float(_harmonic(*(np.array([r / n]) for r, n in zip(right, images, strict=True)))[0])


@cache
def interval(right: tuple[int, int], images: tuple[int, int], level: float = 0.95) -> tuple[float, float]:
    """Where the score lies with this probability, given how many are right among how many of either kind.

    It has the score itself in it: with none or all right, at its edge. ValueError for counts that can't be.
    """
    if any(not 0 <= r <= n for r, n in zip(right, images, strict=True)):
        raise ValueError(f"{right} right of {images} images")
    observed, generator = score(right, images), np.random.default_rng(SEED)
    first, second = (
        generator.beta(r + PRIOR, n - r + PRIOR, DRAWS) for r, n in zip(right, images, strict=True)
    )  # each with its own draws: the same counts have the same interval wherever they come
    low, high = np.quantile(_harmonic(first, second), [(1 - level) / 2, (1 + level) / 2])
    return min(observed, float(low)), max(observed, float(high))


def grain(right: tuple[int, int], images: tuple[int, int]) -> float:
    """By how much the score rises if one image more of the second kind is right; where all are, the last one's part."""
    more = min(right[1] + 1, images[1])
    return score((right[0], more), images) - score((right[0], more - 1), images)


def _harmonic(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Zero where both are."""
    both = first + second
    result: np.ndarray = 2 * first * second / np.where(both > 0, both, 1.0)
    return result
