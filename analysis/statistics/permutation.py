"""Permutation distribution of Friedman's statistic, for designs too small for an approximation.

If all algorithms are equal, every order of a set's ranks is equally likely (Friedman 1937; Conover 1999, section 5.8).
All orders are enumerated if they are few, else a seeded sample of them.
"""

from __future__ import annotations

import functools
import itertools
import math

import numpy as np

from biasbed.analysis.statistics.exact import Array

RankRows = tuple[tuple[float, ...], ...]  # per set: its ranks, sorted

# On fewer sets than this, F's distribution is off by more than a point (docs/calibration.md).
FEWEST_SETS = 6
LARGEST_EXACT = 60_000  # orders
SAMPLE = 20_000  # orders that are drawn if there are more


def friedman_p(ranks: Array) -> float:
    """Return the share of orders within sets whose rank sums spread at least as far; ranks [sets, algorithms].

    It does not depend on the order of sets and algorithms. A sample includes the observed order, so p is never zero.
    """
    rows = tuple(sorted(map(tuple, np.sort(ranks, axis=1).tolist())))
    return float(_p(ranks.sum(axis=0)[None], rows)[0])


def agreement_p(ranks: Array) -> float:
    """Return the probability that all sets order equal algorithms alike, with the ties of the first set.

    Each further set must hit the same of k!/(t! ...) orders; ranks [sets, algorithms].
    """
    _, ties = np.unique(ranks[0], return_counts=True)
    orders = math.factorial(ranks.shape[1]) / math.prod(math.factorial(number) for number in ties.tolist())
    return float(orders ** (1 - len(ranks)))


def untied_friedman_p(mean_ranks: Array, num_sets: int) -> Array:
    """Return `friedman_p` of many tables at once, from mean ranks (tables x algorithms) without ties."""
    ranks = tuple(range(1, mean_ranks.shape[1] + 1))
    return _p(mean_ranks * num_sets, (ranks,) * num_sets)


def _p(sums: Array, rows: RankRows) -> Array:
    """Return the p-value of each row of rank sums [n, k]."""
    is_exact = math.factorial(len(rows[0])) ** (len(rows) - 1) <= LARGEST_EXACT
    null = _null(rows, is_exact)
    as_far = len(null) - np.searchsorted(null, _spread(sums) - 1e-9)
    result: Array = as_far / len(null) if is_exact else (1 + as_far) / (1 + len(null))
    return result


@functools.lru_cache(maxsize=64)  # most variants of a comparison have the same ties; at most half a megabyte each
def _null(rows: RankRows, is_exact: bool) -> Array:
    """Return the sorted spreads of rank sums of equal algorithms, over all orders within sets or a sample of them."""
    ranks = np.array(rows, dtype="float64")
    num_sets, k = ranks.shape
    if is_exact:
        sums = ranks[:1]
        for row in ranks[1:]:
            orders = np.array(list(itertools.permutations(row)))
            sums = (sums[:, None] + orders[None]).reshape(-1, k)
    else:
        generator = np.random.default_rng(0)
        sums = generator.permuted(np.broadcast_to(ranks, (SAMPLE, num_sets, k)), axis=2).sum(axis=1)
    return np.sort(_spread(sums))


def _spread(sums: Array) -> Array:
    """Return the sum of squared deviations of the rank sums [n, k], which is monotonic in chi-square and in F."""
    spread: Array = ((sums - sums.mean(axis=1, keepdims=True)) ** 2).sum(axis=1)
    return spread
