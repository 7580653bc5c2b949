"""Fewest sets and runs that can show anything, whatever the scores.

Answers: On how few sets is no outcome significant?
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from biasbed.analysis.statistics import nemenyi

DIGITS = 9  # guards against rounding errors next to an integer


@dataclass(frozen=True)
class DesignLimits:
    """Limits that follow from k and N."""

    num_algorithms: int
    num_sets: int
    alpha: float
    smallest_num_sets: int  # below it no outcome can be significant
    critical_difference: float | None = None  # in ranks; None for two algorithms
    largest_difference: float | None = None  # the largest possible difference of average ranks
    noun: str = "set"  # the word for a block

    @property
    def possible(self) -> bool:
        """True if some outcome would have been significant."""
        return self.num_sets >= self.smallest_num_sets

    @property
    def sentence(self) -> str:
        """Sentence for the report that states these limits."""
        k, n = self.num_algorithms, f"{self.num_sets} {self.noun}s"
        few = f"{self.smallest_num_sets} {self.noun}s"
        if self.critical_difference is None:
            limit = f"two algorithms can differ significantly from {few} on"
            verdict = "" if self.possible else ", so no outcome could have been significant"
            return f"{limit}; here there are {self.num_sets}{verdict}"
        text = (
            f"with {k} algorithms on {n}, two average ranks must differ by {self.critical_difference:.2f} to be "
            "told apart"
        )
        largest = f"the largest possible difference, {self.largest_difference:.0f}"
        if not self.possible:
            return f"{text}: more than {largest}, so no pair could have been told apart: that takes at least {few}"
        share = self.critical_difference / (k - 1)
        weak = f", which is {share:.0%} of {largest}" if share > 0.6 else ""
        return f"{text}{weak} (at least {few} are needed to tell any pair of {k} apart)"


def reach(num_algorithms: int, num_sets: int, alpha: float, noun: str = "set") -> DesignLimits:
    """Return the limits of a design under Nemenyi's test; for two algorithms under the exact Wilcoxon and sign tests.

    noun: the word for a block in sentences.
    """
    k = num_algorithms
    if k < 3:
        return DesignLimits(k, num_sets, alpha, smallest_num_sets_wilcoxon(1, alpha), noun=noun)
    smallest = _first_above(nemenyi.quantile(k, alpha) ** 2 * k * (k + 1) / (6 * (k - 1) ** 2))
    return DesignLimits(
        num_algorithms=k,
        num_sets=num_sets,
        alpha=alpha,
        smallest_num_sets=max(2, smallest),
        critical_difference=nemenyi.critical_difference(k, num_sets, alpha),
        largest_difference=float(k - 1),
        noun=noun,
    )


def smallest_num_sets_wilcoxon(num_tests: int, alpha: float) -> int:
    """Return the fewest sets on which exact Wilcoxon tests can reject one of `num_tests` hypotheses under Holm.

    The most extreme outcome, one algorithm ahead on every set, has a two-sided p of 2^(1-N), and Holm's first step
    multiplies it by the number of tests.
    """
    return _first_above(1 + math.log2(num_tests / alpha))


def smallest_num_runs_mann_whitney(num_tests: int, alpha: float) -> int:
    """Return the fewest runs of each of two algorithms with which Mann-Whitney can reject under Holm's correction.

    If all runs of one lie above all runs of the other, the two-sided p is 2 / C(2R, R).
    """
    runs = 2
    while 2 / math.comb(2 * runs, runs) * num_tests >= alpha:
        runs += 1
    return runs


def _first_above(bound: float) -> int:
    """Return the smallest integer above a bound."""
    return math.floor(round(bound, DIGITS)) + 1
