"""Exact null distributions of the rank tests, with ties, and Holm's correction.

scipy's exact modes assume that no two values are equal. Here each distribution is built value by value from the
observed ranks, so it is exact with any ties. Friedman's statistic has one by permutation, for designs too small for an
approximation: if all algorithms are equal, every order of a set's ranks is equally likely. All orders are enumerated
if they are few, else a seeded sample of them.

Sources: Wilcoxon 1945; Pratt 1959 (zero differences); Mann and Whitney 1947; Friedman 1937; Conover 1999, section 5.8;
Holm 1979.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[np.float64]]
IntArray = np.ndarray[Any, np.dtype[np.int64]]
RankRows = tuple[tuple[float, ...], ...]  # per set: its ranks, sorted

# Above this many values in both groups the rank-sum distribution is close to normal and slow to build.
LARGEST_EXACT = 60
# On fewer sets than this, F's distribution is off by more than a point (docs/calibration.md).
FEWEST_SETS = 6
LARGEST_ENUMERATED = 60_000  # orders of ranks
SAMPLE = 20_000  # orders that are drawn if there are more
RANKS_AT_ONCE = 2**23  # that are drawn in one piece: 64 MiB


@dataclass(frozen=True)
class SignedRank:
    """Wilcoxon's signed-rank test."""

    plus: float  # sum of the ranks of the positive differences
    minus: float
    p: float  # exact, two-sided

    @property
    def balance(self) -> float:
        """Difference of the rank sums: positive if the positive differences weigh more."""
        return self.plus - self.minus


def wilcoxon(differences: Array) -> SignedRank:
    """Run the exact two-sided signed-rank test. Zeros are ranked and then dropped (Pratt 1959).

    Demsar (2006) splits the ranks of the zeros evenly between the two sums; this moves both sums by the same number
    and gives the same p. If all differences are zero, p is 1.
    """
    return wilcoxon_of_each(differences[None])[0]


def wilcoxon_of_each(differences: Array) -> list[SignedRank]:
    """Run `wilcoxon` on every row of differences (pairs x sets)."""
    doubled = _doubled_ranks(np.abs(differences))
    plus, minus = ((doubled * (sign * differences > 0)).sum(axis=1).tolist() for sign in (1, -1))
    ranks = np.sort(doubled * (differences != 0), axis=1).tolist()  # a rank of 0 changes no sum
    p = [_signed_rank_p(tuple(row), sum_of_row) for row, sum_of_row in zip(ranks, plus, strict=True)]
    return [SignedRank(a / 2, b / 2, value) for a, b, value in zip(plus, minus, p, strict=True)]


@lru_cache(maxsize=10_000)
def _signed_rank_p(doubled: tuple[int, ...], plus: int) -> float:
    """Return the p-value, cached: without ties there are few distinct arguments."""
    return _two_sided(signed_rank_distribution(doubled), plus)


@cache
def signed_rank_distribution(doubled: tuple[int, ...]) -> Array:
    """Return the probability of each sum (0, 1, ...) of the doubled ranks with positive sign.

    Every sign is a fair coin flip.
    """
    probability: Array = np.zeros(sum(doubled) + 1)
    probability[0] = 1.0
    for rank in doubled:
        with_rank = np.zeros_like(probability)
        with_rank[rank:] = probability[: len(probability) - rank]
        probability = (probability + with_rank) / 2
    return probability


@cache
def sign_test(wins: int, losses: int) -> float:
    """Return the exact two-sided p of the sign test, ties left out. It is 1 without wins and losses.

    It is cached: many pairs have the same counts.
    """
    from scipy import stats

    return float(stats.binomtest(wins, wins + losses).pvalue) if wins + losses else 1.0


@dataclass(frozen=True)
class RankSum:
    """Mann-Whitney's rank-sum test."""

    lead: int  # pairs of values in which the first sample's is larger, less those in which it is smaller
    p: float  # two-sided


def rank_sum_of_each(a: Array, b: Array) -> list[RankSum]:
    """Run the two-sided Mann-Whitney test on every row of two tables (pairs x values) of independent samples.

    It is exact, with ties, for up to `LARGEST_EXACT` values in a row of both; above, scipy's normal approximation with
    tie correction.
    """
    from scipy import stats

    values = np.concatenate([a, b], axis=1)
    size_a, size_b = a.shape[1], b.shape[1]
    if size_a + size_b > LARGEST_EXACT:
        tests = stats.mannwhitneyu(a, b, method="asymptotic", axis=1)
        # The statistic counts the pairs that the first sample wins, and half of the ties.
        leads = (2 * tests.statistic - size_a * size_b).tolist()
        p_values = np.where(np.ptp(values, axis=1) > 0, tests.pvalue, 1.0).tolist()
    else:
        doubled = _doubled_ranks(values)
        sums = doubled[:, :size_a].sum(axis=1)
        leads = (sums - size_a * (size_a + size_b + 1)).tolist()
        p_values = []
        for ranks, observed in zip(np.sort(doubled, axis=1).tolist(), sums.tolist(), strict=True):
            p_values.append(_two_sided(rank_sum_distribution(tuple(ranks), size_a), observed))
    return [RankSum(int(lead), p) for lead, p in zip(leads, p_values, strict=True)]


@cache
def rank_sum_distribution(doubled: tuple[int, ...], size: int) -> Array:
    """Return the probability of each sum (0, 1, ...) of the doubled ranks of a group of `size` values.

    Every choice of `size` of the values is equally likely.
    """
    ways = np.zeros((size + 1, sum(doubled) + 1))  # number of chosen values x their sum
    ways[0, 0] = 1.0
    for rank in doubled:
        # NumPy evaluates the right side before it adds, so no value is chosen twice.
        ways[1:, rank:] += ways[:-1, : ways.shape[1] - rank]
    of_size: Array = ways[size]
    return of_size / of_size.sum()


def holm(p: Array) -> Array:
    """Return Holm's adjusted p-values along the last axis; rejecting those below alpha keeps the family-wise level.

    NaN is the p of a test that does not exist: it stays NaN, and the family is smaller.
    """
    number = p.shape[-1] - np.isnan(p).sum(axis=-1, keepdims=True)
    return step_down(p, number - np.arange(p.shape[-1]))


def holm_levels(p: Array, alpha: float) -> Array:
    """Return the level at which Holm's procedure decides on each p [N]: alpha by the number of tests still open then.

    All tests that it does not reject share the level of the first of them. A p lies below its level exactly if its
    adjusted p lies below alpha, and so does an interval of that level leave out 0. NaN stays NaN.
    """
    levels = np.full_like(p, math.nan)
    order = np.argsort(p)[: int(np.isfinite(p).sum())]
    number_open = len(order)
    for position, index in enumerate(order):
        levels[order[position:]] = alpha / number_open
        if not p[index] * number_open < alpha:  # as `holm` multiplies
            break
        number_open -= 1
    return levels


def step_down(p: Array, factors: Array) -> Array:
    """Return p-values times the factors of their ranks along the last axis, smallest p first; at most 1 and monotonic.

    NaN stays NaN and counts as the largest.
    """
    order = np.argsort(p, axis=-1)  # NaN last
    stepped = np.take_along_axis(p, order, axis=-1) * factors
    result: Array = np.empty_like(p)
    np.put_along_axis(result, order, np.minimum(1.0, np.maximum.accumulate(stepped, axis=-1)), axis=-1)
    return result


def _doubled_ranks(values: Array) -> IntArray:
    """Return twice the ranks along the last axis: mid-ranks are halves, so these are integers."""
    from scipy import stats

    return np.rint(2 * stats.rankdata(values, axis=-1)).astype(np.int64)


def _two_sided(distribution: Array, observed: int) -> float:
    """Return twice the smaller tail, at most 1. distribution: probability of 0, 1, ..."""
    tail = min(distribution[: observed + 1].sum(), distribution[observed:].sum())
    return float(min(1.0, 2 * tail))


# --- Friedman's statistic, by permutation -----------------------------------------------------------------------------


def friedman_p(ranks: Array) -> float:
    """Return the p-value of Friedman's permutation test. ranks: sets x algorithms.

    That is the share of orders within sets whose rank sums spread at least as far; it does not depend on the order of
    sets and algorithms. A sample of orders includes the observed one, so p is never zero.
    """
    rows = tuple(sorted(map(tuple, np.sort(ranks, axis=1).tolist())))
    return float(_friedman_p(ranks.sum(axis=0)[None], rows)[0])


def agreement_p(ranks: Array) -> float:
    """Return the probability that all sets order equal algorithms alike, with the ties of the first set.

    ranks: sets x algorithms. Each further set must hit the order of the first, one of k!/(t! ...).
    """
    num_sets, k = ranks.shape
    _, ties = np.unique(ranks[0], return_counts=True)
    num_orders = math.factorial(k) // math.prod(math.factorial(number) for number in ties.tolist())
    if (num_sets - 1) * math.log(num_orders) > -math.log(math.ulp(0.0)) + 1:
        return 0.0  # no float is so small
    return 1 / num_orders ** (num_sets - 1)


def untied_friedman_p(mean_ranks: Array, num_sets: int) -> Array:
    """Return `friedman_p` of tables without ties, from their mean ranks (tables x algorithms)."""
    ranks = tuple(range(1, mean_ranks.shape[1] + 1))
    return _friedman_p(mean_ranks * num_sets, (ranks,) * num_sets)


def _friedman_p(sums: Array, rows: RankRows) -> Array:
    """Return the p-value of each row of rank sums [n, k]."""
    exponent = (len(rows) - 1) * math.lgamma(len(rows[0]) + 1)  # of e; more than 700 is no float
    is_exact = exponent < 700 and round(math.exp(exponent)) <= LARGEST_ENUMERATED
    null = _friedman_null(rows, is_exact)
    as_far = len(null) - np.searchsorted(null, _spread(sums) - 1e-9)
    result: Array = as_far / len(null) if is_exact else (1 + as_far) / (1 + len(null))
    return result


@lru_cache(maxsize=64)  # most variants of a comparison have the same ties; at most half a megabyte each
def _friedman_null(rows: RankRows, is_exact: bool) -> Array:
    """Return the sorted spreads of rank sums of equal algorithms, over all orders within sets or a sample of them."""
    ranks = np.array(rows, dtype="float64")
    num_sets, k = ranks.shape
    if is_exact:
        sums = ranks[:1]  # the order of one set may stay, as only the sets' orders relative to it count
        for row in ranks[1:]:
            orders = np.array(list(itertools.permutations(row)))
            sums = (sums[:, None] + orders[None]).reshape(-1, k)
        return np.sort(_spread(sums))
    generator = np.random.default_rng(0)
    at_once = max(1, RANKS_AT_ONCE // ranks.size)
    parts: list[Array] = []
    for start in range(0, SAMPLE, at_once):
        tables = np.broadcast_to(ranks, (min(at_once, SAMPLE - start), num_sets, k))
        parts.append(_spread(generator.permuted(tables, axis=2).sum(axis=1)))
    return np.sort(np.concatenate(parts))


def _spread(sums: Array) -> Array:
    """Return the sum of squared deviations of the rank sums [n, k], which is monotonic in chi-square and in F."""
    spread: Array = ((sums - sums.mean(axis=1, keepdims=True)) ** 2).sum(axis=1)
    return spread
