"""Tests of all pairs at once: the difference of a pair's average ranks, judged under sign flips of whole sets.

If two algorithms are equal, the difference of their ranks on a set is as likely to have the other sign. Turning the
signs of whole sets turns them for all pairs together, and keeps what the pairs have in common. A pair's p is the share
of sign flips under which some pair with no larger difference reaches the pair's own: the pairs with larger differences
are decided already, and need no correction (step-down). So p is corrected for the number of pairs by what that number
does here; a Bonferroni correction, which must fear unrelated pairs, finds nothing among many algorithms.

Differences of ranks have no unit, so a set whose scores spread widely weighs as much as any other. All pairs are
judged by one scale: an algorithm that is at least as good as another on every set is shown to be better than all that
the other is shown to be better than.

The level holds under any configuration of equal and different pairs, if the differences of all equal pairs together
are distributed symmetrically around zero. Ranks of equal algorithms among different ones are so only nearly;
docs/calibration.md has the coverage, and how this statistic was chosen among four.

Sources: Westfall and Young 1993, "Resampling-based multiple testing", algorithm 4.1 (step-down, largest statistic);
Romano and Wolf 2005, "Exact and approximate stepdown methods for multiple hypothesis testing", JASA 100, section 3;
Fisher 1935, "The design of experiments", section 21 (one pair).

Answers: Which pairs of many algorithms are told apart?
"""

from __future__ import annotations

import math

import numpy as np

from biasbed.analysis.statistics.exact import Array

MOST_FLIPS = 2**12  # all of 13 sets, a sample on more: p = 0.05 is then known to 0.7 points, in two standard errors
PAIRS_AT_ONCE = 2**11  # times the number of flips: 64 MiB


def joint_p(ranks: Array) -> Array:
    """Return the p-value of each pair, corrected for all, where the row is ahead of the column; 1 elsewhere [K, K].

    ranks [N, K]: of K algorithms on N sets, 1 is best.
    """
    signed_sums = _signs(len(ranks)) @ ranks
    first, second = np.triu_indices(ranks.shape[1], k=1)
    leads = (ranks[:, second] - ranks[:, first]).sum(axis=0)  # positive where the first of a pair is ahead
    ascending = np.argsort(np.abs(leads), kind="stable")
    sizes, starts = np.unique(np.abs(leads)[ascending], return_index=True)
    p_of_pairs = np.ones(len(leads))
    largest = np.zeros(len(signed_sums))  # difference of any pair up to this size, under each flip
    for size, pairs in zip(sizes, np.split(ascending, starts[1:]), strict=True):
        for part in np.array_split(pairs, math.ceil(len(pairs) / PAIRS_AT_ONCE)):
            differences = signed_sums[:, second[part]] - signed_sums[:, first[part]]
            np.maximum(largest, np.abs(differences).max(axis=1), out=largest)
        p_of_pairs[pairs] = (largest >= size).mean()
    # No pair is shown before all with larger differences are.
    p_of_pairs[ascending] = np.maximum.accumulate(p_of_pairs[ascending][::-1])[::-1]
    p = np.ones((ranks.shape[1],) * 2)
    p[np.where(leads > 0, first, second), np.where(leads > 0, second, first)] = p_of_pairs
    return p


def least_p(num_sets: int) -> float:
    """Return the smallest p-value that so many sets can give."""
    return 1 / min(2 ** (num_sets - 1), MOST_FLIPS)


def _signs(num_sets: int) -> Array:
    """Return the signs of the sets [flips, N]: all choices, or a sample with the observed one.

    The last set keeps its sign, as turning all signs changes no size of a sum.
    """
    number = num_sets - 1
    if number <= math.log2(MOST_FLIPS):
        bits = np.arange(2**number)[:, None] >> np.arange(number) & 1
    else:
        bits = np.random.default_rng(0).integers(0, 2, (MOST_FLIPS, number))
        bits[0] = 0
    result: Array = np.hstack([1.0 - 2.0 * bits, np.ones((len(bits), 1))])
    return result
