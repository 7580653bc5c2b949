"""Correlated t test of two algorithms on one set, over runs that are paired by seed.

If runs share training data, their scores are correlated, and the plain t test takes the mean for more precise than it
is. The test assumes one correlation between any two runs' differences and lengthens the standard error. Of k-fold
cross-validation it is 1/k, the share of data that a run is tested on (Nadeau and Bengio 2003). If all runs share
training and test images, and only seeds differ, it is 0 for statements about other seeds on these images.

Sources: Nadeau and Bengio 2003 (the test); Corani and Benavoli 2015 (the posterior, under a Jeffreys' prior);
Benavoli, Corani, Demsar and Zaffalon 2017, section 3 (with a region of practical equivalence).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import pandas as pd

from biasbed.analysis.statistics import exact
from biasbed.analysis.statistics.exact import Array
from biasbed.analysis.statistics.friedman import DIGITS
from biasbed.analysis.statistics.pairs import Pairs

COLUMNS = (
    *("dataset", "a", "b", "num_runs", "correlation", "mean_difference", "t", "dof", "p", "p_holm"),
    *("rope", "p_a", "p_rope", "p_b"),
)


class CorrelatedT(NamedTuple):
    """Mean difference, its corrected standard error and its test."""

    mean: float
    error: float
    dof: int
    t: float  # infinite if all differences are equal and not zero, 0 if they are zero
    p: float  # two-sided


class Regions(NamedTuple):
    """Posterior probabilities that a is better by more than the rope, both are alike, b is better."""

    a: float
    rope: float
    b: float


def correlated_t(differences: Array, correlation: float) -> CorrelatedT:
    """Run the two-sided test; the variance of the mean is s^2 (1/n + rho/(1 - rho)) (Nadeau and Bengio 2003).

    differences: a - b of runs with the same seed, at least two. Raises ValueError for fewer, or for a correlation that
    is not in [0, 1).
    """
    from scipy import stats

    n = len(differences)
    if n < 2 or not 0 <= correlation < 1:
        raise ValueError(f"needs two differences and a correlation in [0, 1), not {n} and {correlation}")
    mean, deviation = float(differences.mean()), float(differences.std(ddof=1))
    error = deviation * math.sqrt(1 / n + correlation / (1 - correlation))
    if round(deviation, DIGITS) == 0:
        error, t = 0.0, math.copysign(math.inf, mean) if round(mean, DIGITS) else 0.0
    else:
        t = mean / error
    return CorrelatedT(mean, error, n - 1, t, float(2 * stats.t.sf(abs(t), n - 1)))


def posterior(test: CorrelatedT, rope: float) -> Regions:
    """Return the probabilities of the three regions: the mean difference is Student-t around the observed mean."""
    from scipy import stats

    if test.error == 0:
        above, below = float(test.mean > rope), float(test.mean < -rope)
        return Regions(above, 1 - above - below, below)
    above = float(stats.t.sf(rope, test.dof, test.mean, test.error))
    below = float(stats.t.cdf(-rope, test.dof, test.mean, test.error))
    return Regions(above, max(0.0, 1 - above - below), below)


def compare_sets(
    runs: Mapping[str, pd.DataFrame], family: Pairs, sets: list[str], rope: float, correlation: float
) -> pd.DataFrame:
    """Return `COLUMNS`, one row per set and pair, with Holm's correction over the pairs of each set.

    runs: algorithm -> scores, seeds x sets, higher is better. Seeds that both algorithms have are paired; a pair with
    fewer than two is left out.
    """
    frames = []
    for name in sets:
        rows = []
        for a, b in family:
            differences = paired_differences(runs, a, b, name)
            if len(differences) < 2:
                continue
            test = correlated_t(differences, correlation)
            values = (test.mean, test.t, test.dof, test.p, math.nan, rope, *posterior(test, rope))
            rows.append((name, a, b, len(differences), correlation, *values))
        frame = pd.DataFrame(rows, columns=list(COLUMNS))
        frame["p_holm"] = exact.holm(frame["p"].to_numpy(dtype="float64"))
        if len(frame):
            frames.append(frame)
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame(columns=list(COLUMNS))


def paired_differences(runs: Mapping[str, pd.DataFrame], a: str, b: str, name: str) -> Array:
    """Return a - b on one set, one value for each seed that both have."""
    if name not in runs[a] or name not in runs[b]:
        return np.empty(0)
    difference = (runs[a][name] - runs[b][name]).dropna()
    result: Array = difference.to_numpy(dtype="float64")
    return result
