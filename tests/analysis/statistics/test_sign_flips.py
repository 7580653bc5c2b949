"""Joint tests of all pairs: equal to a count over all sign flips, and the same whatever the order of rows and sets."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from biasbed.analysis.statistics import sign_flips
from biasbed.analysis.statistics.exact import Array


def some_scores(num_sets: int, num_algorithms: int, seed: int = 0) -> Array:
    scores: Array = np.random.default_rng(seed).normal(50, 3, (num_sets, num_algorithms)).round(1)
    return scores


def counted_p(scores: Array, a: int, b: int) -> float:
    """Share of sign flips under which some pair's t is at least that of a and b."""
    num_sets, num_algorithms = scores.shape

    def t(differences: Array) -> float:
        deviation = differences.std(ddof=1)
        return abs(float(differences.mean() / (deviation / num_sets**0.5))) if deviation else 0.0

    pairs = [scores[:, i] - scores[:, j] for i, j in itertools.combinations(range(num_algorithms), 2)]
    observed = t(scores[:, a] - scores[:, b])
    flips = list(itertools.product((1, -1), repeat=num_sets))
    as_large = sum(max(t(np.array(flip) * pair) for pair in pairs) >= observed - 1e-9 for flip in flips)
    return as_large / len(flips)


@pytest.mark.parametrize(("num_sets", "num_algorithms"), [(3, 2), (5, 3), (6, 4)])
def test_p_is_the_share_of_all_sign_flips_with_a_t_as_large(num_sets: int, num_algorithms: int) -> None:
    scores = some_scores(num_sets, num_algorithms)
    p = sign_flips.joint_p(scores)
    for a, b in itertools.combinations(range(num_algorithms), 2):
        ahead = scores[:, a].mean() > scores[:, b].mean()
        first, second = (a, b) if ahead else (b, a)
        assert p[first, second] == pytest.approx(counted_p(scores, a, b))
        assert p[second, first] == 1


def test_no_p_is_smaller_than_that_of_the_pair_alone() -> None:
    scores = some_scores(8, 5)
    p = sign_flips.joint_p(scores)
    for a, b in itertools.permutations(range(5), 2):
        assert p[a, b] >= sign_flips.joint_p(scores[:, [a, b]])[0, 1]


@pytest.mark.parametrize("num_sets", [7, 20])
def test_order_of_algorithms_and_levels_of_sets_change_nothing(num_sets: int) -> None:
    scores = some_scores(num_sets, 4)
    p = sign_flips.joint_p(scores)
    order = [2, 0, 3, 1]
    assert np.array_equal(sign_flips.joint_p(scores[:, order]), p[np.ix_(order, order)])
    assert np.array_equal(sign_flips.joint_p(scores + 10.0 * np.arange(num_sets)[:, None]), p)
    assert np.array_equal(sign_flips.joint_p(scores * 0.5), p)


@pytest.mark.parametrize("num_sets", [2, 6, 13, 14, 30])
def test_the_clearest_outcome_has_the_least_p(num_sets: int) -> None:
    scores = np.stack([np.arange(num_sets) + 1.0, np.arange(num_sets) * 1.0], axis=1)
    p = sign_flips.joint_p(scores)[0, 1]
    assert 0 < sign_flips.least_p(num_sets) <= p <= 4 * sign_flips.least_p(num_sets)
    if num_sets <= 13:  # all sign flips, in place of a sample which may repeat one
        assert p == sign_flips.least_p(num_sets)


def test_equal_algorithms_are_not_told_apart() -> None:
    scores = some_scores(6, 2)[:, [0, 0, 1]]
    p = sign_flips.joint_p(scores)
    assert p[0, 1] == p[1, 0] == 1
    assert np.array_equal(p[0, 2], p[1, 2])


def test_pairs_taken_in_pieces_give_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    scores = some_scores(9, 12)
    at_once = sign_flips.joint_p(scores)
    monkeypatch.setattr(sign_flips, "PAIRS_AT_ONCE", 7)
    assert np.array_equal(sign_flips.joint_p(scores), at_once)
