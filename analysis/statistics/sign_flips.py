"""Tests of all pairs at once: Student's statistic of each pair, judged by the largest of any pair under sign flips.

If two algorithms are equal, their differences on the sets are as likely to have the other sign. Turning the signs of
whole sets turns them for all pairs together, and keeps what the pairs have in common. A pair's p is the share of sign
flips under which the largest statistic of any pair is as large as the pair's own. So p is corrected for the number of
pairs by what that number does here: a Bonferroni correction, which must fear unrelated pairs, finds nothing among
many algorithms.

The level holds under any configuration of equal and different pairs, if the differences of all equal pairs together
are distributed symmetrically around zero: the largest statistic of all pairs is at least that of the equal ones.

Sources: Westfall and Young 1993, "Resampling-based multiple testing", section 2.3.1 (one step, largest statistic);
Romano and Wolf 2005, "Exact and approximate stepdown methods for multiple hypothesis testing", JASA 100, section 3;
Fisher 1935, "The design of experiments", section 21 (one pair). How it was chosen among six statistics:
docs/calibration.md.

Answers: Which pairs of many algorithms are told apart?
"""

from __future__ import annotations

import math

import numpy as np

from biasbed.analysis.statistics.exact import Array

MOST_FLIPS = 2**12  # all of 13 sets, a sample on more: p = 0.05 is then known to 0.7 points, in two standard errors
PAIRS_AT_ONCE = 2**11  # times the number of flips: 64 MiB
ROUNDING = 1e-9  # statistics that differ by less are equal


def joint_p(scores: Array) -> Array:
    """Return the p-value of each pair, corrected for all, where the row is ahead of the column; 1 elsewhere [K, K].

    scores [N, K]: of K algorithms on N sets, higher is better, rounded so that ties are exact.
    """
    first, second = np.triu_indices(scores.shape[1], k=1)
    signs = _signs(len(scores))
    largest = np.zeros(len(signs))
    lead = np.zeros(len(first))  # positive where the first of a pair is ahead
    for start in range(0, len(first), PAIRS_AT_ONCE):
        part = slice(start, start + PAIRS_AT_ONCE)
        weights = _of_length_one(scores[:, first[part]] - scores[:, second[part]])
        lead[part] = weights.sum(axis=0)
        np.maximum(largest, np.abs(signs @ weights).max(axis=1), out=largest)
    as_large = len(largest) - np.searchsorted(np.sort(largest), np.abs(lead) - ROUNDING)
    p = np.ones((scores.shape[1],) * 2)
    p[np.where(lead > 0, first, second), np.where(lead > 0, second, first)] = as_large / len(largest)
    return p


def least_p(num_sets: int) -> float:
    """Return the smallest p-value that so many sets can give."""
    return 1 / min(2 ** (num_sets - 1), MOST_FLIPS)


def _of_length_one(differences: Array) -> Array:
    """Return the differences [N, pairs], each column divided by its length; a column of zeros stays zero.

    Its sum under sign flips grows with Student's t, since its length does not change: both make the same test.
    """
    lengths = np.sqrt((differences**2).sum(axis=0))
    result: Array = differences / np.where(lengths > 0, lengths, 1.0)
    return result


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
