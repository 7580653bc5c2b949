"""Tests from printed means and deviations (Welch 1947), where the runs themselves are not there."""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, NamedTuple

import pandas as pd
from scipy import stats

from biasbed.analysis.statistics.exact import holm

if TYPE_CHECKING:
    from biasbed.analysis.tables.user_scores import UserScores

COLUMNS = (
    *("dataset", "a", "b", "mean_a", "deviation_a", "mean_b", "deviation_b", "num_runs_a", "num_runs_b"),
    *("difference", "low", "high", "t", "degrees_of_freedom", "p", "p_holm", "significant"),
)


class Welch(NamedTuple):
    """Welch's test of two means."""

    t: float
    degrees_of_freedom: float
    p: float
    low: float  # interval of the difference a - b
    high: float


def welch(
    mean_a: float, deviation_a: float, num_a: int, mean_b: float, deviation_b: float, num_b: int, alpha: float
) -> Welch:
    """Return Welch's test of two means with their sample deviations (n - 1).

    Two deviations of 0 give no test: printed digits hide how small they are; p and t are NaN.
    """
    variance_a, variance_b = deviation_a**2 / num_a, deviation_b**2 / num_b
    error = math.sqrt(variance_a + variance_b)
    if error == 0:
        return Welch(math.nan, math.nan, math.nan, math.nan, math.nan)
    freedom = (variance_a + variance_b) ** 2 / (variance_a**2 / (num_a - 1) + variance_b**2 / (num_b - 1))
    difference = mean_a - mean_b
    t = difference / error
    reach = float(stats.t.ppf(1 - alpha / 2, freedom)) * error
    return Welch(t, freedom, float(2 * stats.t.sf(abs(t), freedom)), difference - reach, difference + reach)


def printed_tests(scores: UserScores, alpha: float) -> pd.DataFrame:
    """Return `COLUMNS`: Welch's test of every pair on each data set, with Holm's correction over all of them.

    Means with deviations of at least two runs are tested.
    """
    means: dict[tuple[str, str], float] = {}
    for method, dataset, seed, score in scores.table.itertuples(index=False, name=None):
        if not seed and _num_runs(scores, method, dataset) > 1:
            means[method, dataset] = score
    rows = []
    for dataset in scores.datasets:
        methods = [name for name in scores.methods if (name, dataset) in means]
        for a, b in itertools.combinations(methods, 2):
            mean_a, mean_b = means[a, dataset], means[b, dataset]
            spread_a, spread_b = scores.spreads[a, dataset], scores.spreads[b, dataset]
            test = welch(mean_a, *spread_a, mean_b, *spread_b, alpha)
            printed = (mean_a, spread_a.deviation, mean_b, spread_b.deviation, spread_a.num_runs, spread_b.num_runs)
            result = (mean_a - mean_b, test.low, test.high, test.t, test.degrees_of_freedom, test.p)
            rows.append((dataset, a, b, *printed, *result))
    table = pd.DataFrame(rows, columns=list(COLUMNS[:-2]))
    tested = table["p"].notna()
    table["p_holm"] = math.nan
    if tested.any():
        table.loc[tested, "p_holm"] = holm(table.loc[tested, "p"].to_numpy())
    table["significant"] = table["p_holm"] < alpha
    return table


def _num_runs(scores: UserScores, method: str, dataset: str) -> int:
    """Return the number of runs behind a printed deviation; 0 without a deviation, or if the number is not known."""
    spread = scores.spreads.get((method, dataset))
    return spread.num_runs if spread is not None else 0
