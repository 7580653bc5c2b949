"""McNemar's test, the paired bootstrap over images, and intervals of a harmonic mean of two accuracies."""

from __future__ import annotations

import math

import numpy as np
import pytest

from biasbed.analysis.statistics import exact
from biasbed.analysis.statistics.over_images import ImageAnswers, compare


def answers(right: np.ndarray, photograph: np.ndarray | None = None, images: str = "x") -> ImageAnswers:
    return ImageAnswers(images, right, photograph)


def drawn(size: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Two models that are mostly right on the same images; the first is 5 points better."""
    generator = np.random.default_rng(seed)
    easy, first, second = generator.random((3, size))
    return (easy < 0.6) | (first < 0.5), (easy < 0.6) | (second < 0.375)


# By hand: 2 x the sum of C(b + c, k) / 2^(b + c) for k up to the smaller of b and c, at most 1.
@pytest.mark.parametrize(
    ("b", "c", "p"), [(10, 2, 158 / 4096), (2, 10, 158 / 4096), (5, 0, 2 / 32), (3, 3, 1.0), (0, 0, 1.0)]
)
def test_mcnemar(b: int, c: int, p: float) -> None:
    first = np.array([True] * b + [False] * c + [True] * 4 + [False])
    second = np.array([False] * b + [True] * c + [True] * 4 + [False])
    comparison = compare(answers(first), answers(second), 0.05, 200)
    assert (comparison.both, comparison.only_a, comparison.only_b, comparison.neither) == (4, b, c, 1)
    assert comparison.p == pytest.approx(p)
    assert comparison.difference == pytest.approx(100 * (b - c) / (b + c + 5))


def test_the_interval_covers_the_difference_about_as_often_as_it_says() -> None:
    covered = 0
    for seed in range(300):
        a, b = drawn(400, seed)
        comparison = compare(answers(a), answers(b), 0.1, 400)
        covered += comparison.low <= 5 <= comparison.high
    assert 0.84 <= covered / 300 <= 0.95


def test_views_of_one_photograph_tell_no_more_than_it() -> None:
    """Each image five times: the interval stays what it is if they are known to be one, and there is no test."""
    a, b = drawn(300)
    once = compare(answers(a), answers(b), 0.05, 2000)
    of = np.repeat(np.arange(300), 5)
    together = compare(answers(a[of], of), answers(b[of], of), 0.05, 2000)
    apart = compare(answers(a[of]), answers(b[of]), 0.05, 2000)
    assert (together.low, together.high, together.difference) == pytest.approx((once.low, once.high, once.difference))
    assert together.high - together.low > 2 * (apart.high - apart.low)
    assert math.isnan(together.p)
    assert not math.isnan(apart.p)
    assert (together.images, together.photographs) == (1500, 300)


def test_unlike_images_are_refused() -> None:
    a, b = drawn(10)
    with pytest.raises(ValueError, match="not tested on the same images"):
        compare(answers(a), answers(b, images="y"), 0.05, 200)


def test_holm_is_over_the_tests_that_there_are() -> None:
    corrected = exact.holm(np.array([0.01, math.nan, 0.04, 0.03]))
    assert corrected[0] == pytest.approx(0.03)
    assert corrected[2:] == pytest.approx([0.06, 0.06])
    assert math.isnan(corrected[1])
