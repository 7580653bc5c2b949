"""Exact null distributions of the paired and unpaired rank tests, with ties, and Holm's correction.

scipy's exact modes assume that no two values are equal; here each distribution is built up value by value from the
ranks that were observed, so it is exact whatever the ties are.

Sources: Wilcoxon 1945; Pratt 1959 (zero differences); Mann and Whitney 1947; Holm 1979.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[np.float64]]

# Above this many values in both groups the rank-sum distribution is close to normal and too long to build.
LARGEST_EXACT = 60


@dataclass(frozen=True)
class SignedRank:
    """Wilcoxon's signed-rank test."""

    plus: float  # sum of the ranks of the positive differences
    minus: float
    p: float  # exact, two-sided

    @property
    def balance(self) -> float:
        """Positive where the positive differences weigh more."""
        return self.plus - self.minus


def wilcoxon(differences: Array) -> SignedRank:
    """The signed-rank test, exact and two-sided. Zeros take part in the ranking and then drop out (Pratt 1959).

    Splitting the ranks of the zeros evenly between the two sums, as Demsar (2006) does, moves both sums by the same
    number and gives the same p. Without any difference p is 1.
    """
    return wilcoxon_of_each(differences[None])[0]


def wilcoxon_of_each(differences: Array) -> list[SignedRank]:
    """The same of every row: pairs x sets."""
    doubled = _doubled_ranks(np.abs(differences))
    plus, minus = ((doubled * (sign * differences > 0)).sum(axis=1).tolist() for sign in (1, -1))
    ranks = np.sort(doubled * (differences != 0), axis=1).tolist()  # a rank of nothing changes no sum
    p = [_signed_rank_p(tuple(row), sum_of_row) for row, sum_of_row in zip(ranks, plus, strict=True)]
    return [SignedRank(a / 2, b / 2, value) for a, b, value in zip(plus, minus, p, strict=True)]


@lru_cache(maxsize=10_000)
def _signed_rank_p(doubled: tuple[int, ...], plus: int) -> float:
    """Kept, since without ties there are few."""
    return _two_sided(signed_rank_distribution(doubled), plus)


@cache
def signed_rank_distribution(doubled: tuple[int, ...]) -> Array:
    """P(sum of the doubled ranks with positive sign = 0, 1, ...) if every sign is a fair coin."""
    ways: Array = np.zeros(sum(doubled) + 1)
    ways[0] = 1.0
    for value in doubled:
        shifted = np.zeros_like(ways)
        shifted[value:] = ways[: len(ways) - value]
        ways = (ways + shifted) / 2
    return ways


def sign_test(wins: int, losses: int) -> float:
    """Exact two-sided p of the sign test; ties are left out. Without wins and losses p is 1."""
    from scipy import stats

    return float(stats.binomtest(wins, wins + losses).pvalue) if wins + losses else 1.0


def rank_sum(a: Array, b: Array) -> float:
    """Two-sided p of the Mann-Whitney test of two independent samples.

    Exact with ties up to `LARGEST_EXACT` values in all; beyond that scipy's normal approximation with tie correction.
    """
    from scipy import stats

    values = np.concatenate([a, b])
    if len(values) > LARGEST_EXACT:
        return float(stats.mannwhitneyu(a, b, method="asymptotic").pvalue) if np.ptp(values) else 1.0
    doubled = _doubled_ranks(values)
    distribution = rank_sum_distribution(tuple(sorted(doubled.tolist())), len(a))
    return _two_sided(distribution, int(doubled[: len(a)].sum()))


@cache
def rank_sum_distribution(doubled: tuple[int, ...], size: int) -> Array:
    """P(sum of the doubled ranks of one group = 0, 1, ...) if every choice of `size` of the values is as likely."""
    ways = np.zeros((size + 1, sum(doubled) + 1))
    ways[0, 0] = 1.0
    for value in doubled:
        # numpy computes the right side before it adds, so no value is chosen twice.
        ways[1:, value:] += ways[:-1, : ways.shape[1] - value]
    last: Array = ways[size]
    return last / last.sum()


def holm(p: Array) -> Array:
    """Holm's adjusted p-values along the last axis: reject where they are below alpha, and the family keeps alpha."""
    order = np.argsort(p, axis=-1)
    number = p.shape[-1]
    stepped = np.take_along_axis(p, order, axis=-1) * np.arange(number, 0, -1)
    adjusted = np.minimum(1.0, np.maximum.accumulate(stepped, axis=-1)) if number else stepped
    result: Array = np.empty_like(adjusted)
    np.put_along_axis(result, order, adjusted, axis=-1)
    return result


def _doubled_ranks(values: Array) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Mid-ranks are halves: doubled, they are whole numbers."""
    from scipy import stats

    return np.rint(2 * stats.rankdata(values, axis=-1)).astype(np.int64)


def _two_sided(distribution: Array, observed: int) -> float:
    tail = min(distribution[: observed + 1].sum(), distribution[observed:].sum())
    return float(min(1.0, 2 * tail))
