"""Joint tests of all pairs: equal to the closed test over all sign flips, without unit, never against dominance."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

import numpy as np
import pytest

from biasbed.analysis.statistics import friedman, sign_flips
from biasbed.analysis.statistics.exact import Array


def some_ranks(num_sets: int, num_algorithms: int, seed: int = 0) -> Array:
    """Ranks of algorithms of which each is better than the one before, on average; some are tied."""
    draw = np.random.default_rng(seed)
    scores = draw.normal(50 + np.arange(num_algorithms), 2, (num_sets, num_algorithms)).round()
    return friedman.ranks_of(scores)


def closed_p(ranks: Array) -> Mapping[tuple[int, int], float]:
    """p of each pair by the closed test: the largest p of all families of pairs that it is in."""
    pairs = list(itertools.combinations(range(ranks.shape[1]), 2))
    differences = np.stack([ranks[:, b] - ranks[:, a] for a, b in pairs], axis=1)
    flips = np.array(list(itertools.product((1, -1), repeat=len(ranks))))
    observed, flipped = np.abs(differences.sum(axis=0)), np.abs(flips @ differences)
    p = dict.fromkeys(pairs, 0.0)
    for size in range(1, len(pairs) + 1):
        for family in itertools.combinations(range(len(pairs)), size):
            columns = list(family)
            p_of_family = float((flipped[:, columns].max(axis=1) >= observed[columns].max()).mean())
            for column in columns:
                p[pairs[column]] = max(p[pairs[column]], p_of_family)
    return p


@pytest.mark.parametrize(("num_sets", "num_algorithms"), [(3, 2), (6, 3), (7, 4)])
@pytest.mark.parametrize("seed", range(3))
def test_p_is_that_of_the_closed_test_over_all_sign_flips(num_sets: int, num_algorithms: int, seed: int) -> None:
    ranks = some_ranks(num_sets, num_algorithms, seed)
    p = sign_flips.joint_p(ranks)
    for (a, b), value in closed_p(ranks).items():
        first, second = (a, b) if ranks[:, a].sum() < ranks[:, b].sum() else (b, a)
        assert p[first, second] == pytest.approx(value)
        assert p[second, first] == 1 or ranks[:, a].sum() == ranks[:, b].sum()


@pytest.mark.parametrize("seed", range(5))
def test_who_is_never_worse_is_shown_better_than_at_least_the_same(seed: int) -> None:
    draw = np.random.default_rng(seed)
    scores = draw.normal(np.arange(6), draw.uniform(0.1, 9, (9, 1)), (9, 6))
    scores[:, 5] = scores[:, 4] + draw.exponential(3, 9)
    p = sign_flips.joint_p(friedman.ranks_of(scores))
    assert (p[5, :4] <= p[4, :4]).all()
    assert (p[:4, 5] >= p[:4, 4]).all()


def test_units_of_sets_change_nothing() -> None:
    scores = np.random.default_rng(0).normal(50 + np.arange(4.0), 2, (9, 4)).round(3)
    p = sign_flips.joint_p(friedman.ranks_of(scores))
    units, shifts = np.geomspace(0.01, 1000, 9)[:, None], np.arange(9.0)[:, None]
    assert p.min() < 0.05
    assert np.array_equal(sign_flips.joint_p(friedman.ranks_of(scores * units + shifts)), p)


@pytest.mark.parametrize("num_sets", [7, 20])
def test_order_of_algorithms_changes_nothing(num_sets: int) -> None:
    ranks = some_ranks(num_sets, 4)
    order = [2, 0, 3, 1]
    assert np.array_equal(sign_flips.joint_p(ranks[:, order]), sign_flips.joint_p(ranks)[np.ix_(order, order)])


def test_pairs_with_larger_differences_cost_nothing() -> None:
    """`c` is far behind on every set: what is shown of `a` and `b` is what is shown without it."""
    apart = some_ranks(8, 2, seed=4)
    ranks = np.hstack([apart, np.full((8, 1), 3.0)])
    assert sign_flips.joint_p(ranks)[:2, :2] == pytest.approx(sign_flips.joint_p(apart))


@pytest.mark.parametrize("num_sets", [2, 6, 13, 14, 30])
def test_the_clearest_outcome_has_the_least_p(num_sets: int) -> None:
    p = sign_flips.joint_p(np.tile([1.0, 2.0], (num_sets, 1)))[0, 1]
    assert 0 < sign_flips.least_p(num_sets) <= p <= 4 * sign_flips.least_p(num_sets)
    if num_sets <= 13:  # all sign flips, in place of a sample which may repeat one
        assert p == sign_flips.least_p(num_sets)


def test_equal_algorithms_are_not_told_apart() -> None:
    ranks = friedman.ranks_of(np.random.default_rng(0).normal(size=(6, 2))[:, [0, 0, 1]])
    p = sign_flips.joint_p(ranks)
    assert p[0, 1] == p[1, 0] == 1
    assert np.array_equal(p[0, 2], p[1, 2])


def test_pairs_taken_in_pieces_give_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    ranks = some_ranks(9, 12)
    at_once = sign_flips.joint_p(ranks)
    monkeypatch.setattr(sign_flips, "PAIRS_AT_ONCE", 2)
    assert np.array_equal(sign_flips.joint_p(ranks), at_once)
