"""Omnibus tests that use the size of differences between sets: Quade's and the aligned-ranks test.

Friedman's test ranks within each set and forgets by how much sets differ. On few sets this loses power. Quade's test
weights each set by the range of its scores. The aligned-ranks test subtracts each set's mean and ranks all scores
together. Both assume that scores of different sets have one unit. Scores are arrays of sets x algorithms.

If all algorithms are equal, every order of a set's scores is equally likely. So both tests have a p-value by
permutation (`exact.friedman_p`), which decides on few sets.

Sources: Quade 1979; Conover 1999, section 5.8 (F approximation); Hodges and Lehmann 1962; Garcia, Fernandez, Luengo and
Herrera 2010 (both, for algorithms).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pandas as pd

from biasbed.analysis.statistics import exact
from biasbed.analysis.statistics.exact import Array
from biasbed.analysis.statistics.friedman import DIGITS, check_scores, friedman, ranks_of
from biasbed.errors import Failure

COLUMNS = ("test", "num_sets", "num_algorithms", "statistic", "dof", "dof_error", "p_approximate", "p_permutation", "p")


@dataclass(frozen=True)
class OmnibusTest:
    """Result of an omnibus test."""

    statistic: float  # infinite if sets of one range rank alike
    dof: int
    dof_error: float  # of F; NaN for a chi-square
    p_approximate: float  # by F or chi-square
    p_permutation: float | None  # on fewer than `exact.FEWEST_SETS` sets

    @property
    def p(self) -> float:
        """P-value that decides: by permutation if there is one."""
        return self.p_approximate if self.p_permutation is None else self.p_permutation


def quade(scores: Array) -> OmnibusTest:
    """Run Quade's test: ranks within sets, weighted by the rank of each set's range (Conover 1999, section 5.8).

    S_ij = Q_i (r_ij - (k + 1) / 2), F = (n - 1) B / (A - B) with A = sum of S_ij^2 and B = sum of S_j^2 / n.
    """
    from scipy import stats

    n, k = _check_size(scores)
    weighted = quade_scores(scores)
    total = float((weighted**2).sum())
    between = float((weighted.sum(axis=0) ** 2).sum()) / n
    rest = total - between
    f = (n - 1) * between / rest if rest > 1e-9 * total else math.inf
    dof = (k - 1, (k - 1) * (n - 1))
    return OmnibusTest(f, dof[0], dof[1], float(stats.f.sf(f, *dof)), _permutation_p(weighted))


def quade_scores(scores: Array) -> Array:
    """Return the centred ranks within sets times the rank of the set's range, for the last two axes."""
    from scipy import stats

    ranges = np.ptp(scores.round(DIGITS), axis=-1).round(DIGITS)
    centred = stats.rankdata(-scores.round(DIGITS), axis=-1) - (scores.shape[-1] + 1) / 2
    weighted: Array = centred * stats.rankdata(ranges, axis=-1)[..., None]
    return weighted


def aligned_ranks(scores: Array) -> OmnibusTest:
    """Run the aligned-ranks test (Hodges and Lehmann 1962; Garcia et al. 2010).

    T is k - 1 times the squared deviations of the algorithms' rank sums, over the squared deviations of ranks within
    sets. Without ties this is the published form; with ties it keeps T's variance over permutations.
    """
    from scipy import stats

    _, k = _check_size(scores)
    ranks = aligned(scores)
    sums = ranks.sum(axis=0)
    between = float(((sums - sums.mean()) ** 2).sum())
    within = float(((ranks - ranks.mean(axis=1, keepdims=True)) ** 2).sum())
    t = (k - 1) * between / within
    return OmnibusTest(t, k - 1, math.nan, float(stats.chi2.sf(t, k - 1)), _permutation_p(ranks))


def aligned(scores: Array) -> Array:
    """Rank all scores together after each set's mean is subtracted, 1 = best, for the last two axes."""
    from scipy import stats

    residuals = (scores - scores.mean(axis=-1, keepdims=True)).round(DIGITS)
    flat = residuals.reshape(*scores.shape[:-2], -1)
    ranks: Array = stats.rankdata(-flat, axis=-1).reshape(scores.shape)
    return ranks


def compare(scores: pd.DataFrame) -> pd.DataFrame:
    """Return `COLUMNS` for Friedman's, Quade's and the aligned-ranks test; scores: sets x algorithms."""
    check_scores(scores)
    values = scores.to_numpy(dtype="float64")
    test = friedman(ranks_of(values))
    tests = {
        "iman_davenport": OmnibusTest(test.f, test.f_dof[0], test.f_dof[1], test.f_p, test.permutation_p),
        "quade": quade(values),
        "aligned_ranks": aligned_ranks(values),
    }
    rows = []
    for name, result in tests.items():
        p_values = (result.p_approximate, result.p_permutation, result.p)
        rows.append((name, *scores.shape, result.statistic, result.dof, result.dof_error, *p_values))
    return pd.DataFrame(rows, columns=list(COLUMNS)).astype({"p_permutation": "float64"})


def _check_size(scores: Array) -> tuple[int, int]:
    """Return the numbers of sets and algorithms. Raises Failure if they are too few or all scores of each set equal."""
    n, k = scores.shape
    if k < 3 or n < 2:
        raise Failure(f"an omnibus test needs three algorithms and two sets, not {k} and {n}")
    if not np.ptp(scores.round(DIGITS), axis=1).any():
        raise Failure("all algorithms have the same score on every set: there is nothing to test")
    return n, k


def _permutation_p(values: Array) -> float | None:
    return exact.friedman_p(values) if len(values) < exact.FEWEST_SETS else None
