"""Rank sets: exactly the ranks that some order has which agrees with all differences that are shown."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pandas as pd
import pytest

from biasbed.analysis.statistics import friedman
from biasbed.analysis.statistics.rank_sets import RankSet, rank_sets, ranks_over_sets

NAMES = ("a", "b", "c", "d", "e")


def some_order_of_pairs(seed: int) -> list[tuple[str, str]]:
    """A random set of differences, with all that follow from them."""
    draw = random.Random(seed)
    order = draw.sample(NAMES, len(NAMES))
    pairs = {pair for pair in itertools.combinations(order, 2) if draw.random() < 0.3}
    for middle, first, last in itertools.product(NAMES, repeat=3):
        if (first, middle) in pairs and (middle, last) in pairs:
            pairs.add((first, last))
    return sorted(pairs)


@pytest.mark.parametrize("seed", range(20))
def test_every_rank_of_the_set_is_that_of_some_agreeing_order_and_no_other_is(seed: int) -> None:
    apart = some_order_of_pairs(seed)
    ranks: dict[str, set[int]] = {name: set() for name in NAMES}
    for order in itertools.permutations(NAMES):
        if all(order.index(better) < order.index(worse) for better, worse in apart):
            for rank, name in enumerate(order, 1):
                ranks[name].add(rank)
    is_shown_better = np.array([[(a, b) in apart for b in NAMES] for a in NAMES])
    for name, (best, worst) in rank_sets(NAMES, is_shown_better).items():
        assert ranks[name] == set(range(best, worst + 1)), (name, apart)


def test_a_rank_set_is_printed_as_a_range_or_a_number() -> None:
    assert [str(RankSet(1, 3)), str(RankSet(2, 2))] == ["1 to 3", "2"]


def test_ranks_over_sets_come_from_the_pairs_that_the_joint_test_tells_apart() -> None:
    """`poor` is worse on all 8 sets, by far; `good` and `fair` differ by chance."""
    draw = np.random.default_rng(3)
    scores = pd.DataFrame(draw.normal(60, 1, (8, 3)), columns=["good", "fair", "poor"])
    scores["poor"] -= 20
    ranks = friedman.rank(scores)
    assert ranks_over_sets(ranks, 0.05) == {"good": RankSet(1, 2), "fair": RankSet(1, 2), "poor": RankSet(3, 3)}
    assert set(ranks_over_sets(ranks.head(4), 0.05).values()) == {RankSet(1, 3)}  # four sets can show nothing
