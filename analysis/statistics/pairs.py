"""Tests and effect sizes of every pair of algorithms, or of every algorithm against a control.

Unlike Nemenyi's test, these tests see only the two algorithms, so their result does not depend on which others are
compared (Benavoli, Corani, Mangili 2016); only Holm's correction depends on the number of pairs. Scores are matrices of
sets x algorithms in which higher is better (`friedman.orient`).

Sources: Demsar 2006, sections 3.1.3 and 3.2.2; Hodges and Lehmann 1963; Hollander, Wolfe and Chicken 2014, section 3.3
(interval by inversion); Kerby 2014 (rank-biserial correlation).
"""

from __future__ import annotations

import itertools
import math
from typing import NamedTuple

import numpy as np
import pandas as pd

from biasbed.analysis.statistics import exact
from biasbed.analysis.statistics.friedman import check_scores, count_wins, differences_of

Pairs = tuple[tuple[str, str], ...]

TEST_COLUMNS = (
    *("a", "b", "num_sets", "wins", "losses", "ties", "rank_sum_a", "rank_sum_b"),
    *("p", "p_holm", "sign_p", "sign_p_holm", "num_tests", "smallest_p"),
)
EFFECT_COLUMNS = (
    *("a", "b", "num_sets", "wins", "losses", "ties", "mean_difference", "median_difference"),
    *("hodges_lehmann", "low", "high", "rank_biserial"),
)


def pairs(algorithms: tuple[str, ...], control: str | None = None) -> Pairs:
    """Return all pairs (a, b) in the order of the algorithms, or every other algorithm paired with the control as b."""
    if control is None:
        return tuple(itertools.combinations(algorithms, 2))
    return tuple((name, control) for name in algorithms if name != control)


def compare_pairs(scores: pd.DataFrame, control: str | None = None) -> pd.DataFrame:
    """Return `TEST_COLUMNS`: exact two-sided Wilcoxon and sign tests of every pair, with Holm's correction.

    smallest_p: the p_holm of the most extreme outcome on this number of sets (2^(1-N) times the number of tests).
    """
    check_scores(scores)
    scores = scores.rename(columns=str)
    family = pairs(tuple(scores.columns), control)
    differences = differences_of(scores, family)
    tests = exact.wilcoxon_of_each(differences)
    rows = []
    for (a, b), d, test in zip(family, differences, tests, strict=True):
        counts = count_wins(d)
        p_values = (test.p, math.nan, exact.sign_test(*counts[:2]), math.nan)
        rows.append((a, b, len(d), *counts, test.plus, test.minus, *p_values))
    frame = pd.DataFrame(rows, columns=list(TEST_COLUMNS[:-2]))
    for name in ("p", "sign_p"):
        frame[f"{name}_holm"] = exact.holm(frame[name].to_numpy(dtype="float64"))
    frame["num_tests"] = len(family)
    frame["smallest_p"] = min(1.0, 2.0 ** (1 - len(scores)) * len(family))
    return frame


def effects(scores: pd.DataFrame, alpha: float, control: str | None = None) -> pd.DataFrame:
    """Return `EFFECT_COLUMNS`: the lead of a over b in the unit of the scores; low, high: `Shift` at 1 - alpha."""
    check_scores(scores)
    scores = scores.rename(columns=str)
    family = pairs(tuple(scores.columns), control)
    differences = differences_of(scores, family)
    shifts = hodges_lehmann_of_each(differences, alpha)
    correlations = rank_biserial_of_each(differences)
    rows = []
    for (a, b), d, shift, correlation in zip(family, differences, shifts, correlations, strict=True):
        size = (float(d.mean()), float(np.median(d)), *shift)
        rows.append((a, b, len(d), *count_wins(d), *size, correlation))
    return pd.DataFrame(rows, columns=list(EFFECT_COLUMNS))


class Shift(NamedTuple):
    """Estimate of the centre of the differences with its interval, infinite if N is too small for the level."""

    estimate: float
    low: float
    high: float


def hodges_lehmann(differences: exact.Array, alpha: float) -> Shift:
    """Return the median of all pairwise means (d_i + d_j) / 2, i <= j, and the shifts that Wilcoxon's test accepts.

    The interval is exact, with coverage of at least 1 - alpha, if the differences are symmetric around their centre;
    with ties it is wider than necessary. It is infinite if 2^(1-N) >= alpha (below six sets for alpha = 0.05).
    """
    return hodges_lehmann_of_each(differences[None], alpha)[0]


def hodges_lehmann_of_each(differences: exact.Array, alpha: float) -> list[Shift]:
    """Return `hodges_lehmann` of every row of differences (pairs x sets)."""
    n = differences.shape[1]
    first, second = np.triu_indices(n)
    means = np.sort((differences[:, first] + differences[:, second]) / 2, axis=1)
    distribution = exact.signed_rank_distribution(tuple(range(2, 2 * n + 1, 2)))[::2]
    # The largest c with P(W < c) <= alpha/2: the c-th pairwise mean from either end bounds the interval.
    c = int(np.searchsorted(np.cumsum(distribution), alpha / 2, side="right"))
    low, high = np.full((2, len(means)), [[-math.inf], [math.inf]])
    if c:
        low, high = means[:, c - 1], means[:, -c]
    estimates = np.median(means, axis=1)
    return list(map(Shift, estimates.tolist(), low.tolist(), high.tolist()))


def rank_biserial_of_each(differences: exact.Array) -> list[float]:
    """Return the matched-pairs rank-biserial correlation of every row of differences (pairs x sets).

    It is (R+ - R-) over the sum of all ranks, from -1 to 1. Sets on which both are equal count for neither, so they
    pull it towards 0.
    """
    n = differences.shape[1]
    return [test.balance / (n * (n + 1) / 2) for test in exact.wilcoxon_of_each(differences)]
