"""McNemar's test, the paired bootstrap over images, and intervals of a harmonic mean of two accuracies."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest

from biasbed.analysis.statistics import exact, over_images
from biasbed.analysis.statistics.over_images import ImageAnswers, compare, grain, score, score_interval


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
    assert over_images.mcnemar(b, c) == pytest.approx(p, abs=1e-12)
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


# --- two accuracies ---------------------------------------------------------------------------------------------------

COUNTS = [((500, 3), (532, 6)), ((90, 0), (100, 10)), ((100, 30), (100, 30)), ((0, 0), (5, 5)), ((7, 150), (9, 250))]


@pytest.mark.parametrize(("right", "images"), COUNTS)
def test_an_interval_has_its_score_and_stays_within_0_and_1(right: tuple[int, int], images: tuple[int, int]) -> None:
    low, high = score_interval(right, images)
    assert 0 <= low <= score(right, images) <= high <= 1
    assert low < high
    wider = score_interval(right, images, 0.99)
    assert wider[0] <= low < high <= wider[1]


@pytest.mark.parametrize(("right", "images"), [COUNTS[0], COUNTS[4]])
def test_an_interval_is_that_of_a_simulation(right: tuple[int, int], images: tuple[int, int]) -> None:
    """One draw after the other, by another generator."""
    generator, scores = random.Random(3), []
    for _ in range(40_000):
        a, c = (generator.betavariate(r + 0.5, n - r + 0.5) for r, n in zip(right, images, strict=True))
        scores.append(2 / (1 / a + 1 / c))
    scores.sort()
    low, high = score_interval(right, images)
    assert (low, high) == pytest.approx((scores[1_000], scores[39_000]), abs=0.008)


def test_an_interval_covers_the_true_score() -> None:
    """Among validation sets of models whose accuracies are known, drawn as sets are."""
    generator = random.Random(1)
    covered = 0
    for _ in range(400):
        a, c = 0.9, 0.45
        right = tuple(sum(generator.random() < p for _ in range(n)) for p, n in ((a, 60), (c, 20)))
        low, high = score_interval(right, (60, 20))  # type: ignore[arg-type]
        covered += low <= 2 * a * c / (a + c) <= high
    assert 0.92 <= covered / 400 <= 0.985


def test_more_images_narrow_it() -> None:
    widths = [score_interval((9 * n, n), (10 * n, 2 * n)) for n in (3, 12, 48)]
    assert [high - low for low, high in widths] == sorted((high - low for low, high in widths), reverse=True)
    few, many = widths[0], widths[2]
    assert (few[1] - few[0]) / (many[1] - many[0]) == pytest.approx(4, rel=0.25)  # 16 times the images


def test_grain_is_what_one_count_more_changes() -> None:
    assert grain((9, 3), (10, 6)) == pytest.approx(score((9, 4), (10, 6)) - score((9, 3), (10, 6)))
    assert grain((9, 6), (10, 6)) == pytest.approx(score((9, 6), (10, 6)) - score((9, 5), (10, 6)))
    # A = 1: AC = 2C / (1 + C) goes from 2/3 to 4/5 with the fourth of six images, 17 points of C.
    assert grain((10, 3), (10, 6)) == pytest.approx(4 / 5 - 2 / 3)


def test_counts_that_cannot_be_are_refused() -> None:
    for right, images in (((1, 0), (5, 0)), ((6, 1), (5, 2)), ((-1, 1), (5, 2))):
        with pytest.raises(ValueError, match="images"):
            score_interval(right, images)
