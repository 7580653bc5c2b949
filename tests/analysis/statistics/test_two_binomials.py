"""Intervals of a harmonic mean of two accuracies, and what one image is worth."""

from __future__ import annotations

import random

import pytest

from biasbed.analysis.statistics.over_images import grain, score, score_interval

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


def test_the_same_counts_have_the_same_interval() -> None:
    first = score_interval((50, 3), (60, 6))
    score_interval.cache_clear()
    assert score_interval((50, 3), (60, 6)) == first


def test_grain_is_what_one_count_more_changes() -> None:
    assert grain((9, 3), (10, 6)) == pytest.approx(score((9, 4), (10, 6)) - score((9, 3), (10, 6)))
    assert grain((9, 6), (10, 6)) == pytest.approx(score((9, 6), (10, 6)) - score((9, 5), (10, 6)))
    # A = 1: AC = 2C / (1 + C) goes from 2/3 to 4/5 with the fourth of six images, 17 points of C.
    assert grain((10, 3), (10, 6)) == pytest.approx(4 / 5 - 2 / 3)


@pytest.mark.parametrize(("right", "images"), [((1, 0), (5, 0)), ((6, 1), (5, 2)), ((-1, 1), (5, 2))])
def test_counts_that_cant_be_are_refused(right: tuple[int, int], images: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="images"):
        score_interval(right, images)
