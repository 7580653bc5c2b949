"""How far scores of the last epochs lie apart: between runs, and between runs and epochs together.

The ± of every other table is the standard deviation between runs (n - 1). The pooled variance is that between the runs'
means (with n) plus the mean over runs of the variance over their epochs: with as many epochs in each run, the variance
of all epochs of all runs. A review of Kalischek et al. 2023 found the deviations of its table of the last 30
epochs to be formed so; the table's values are not at hand here, and no test compares with them.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence

import pandas as pd

from biasbed import record
from biasbed.analysis.columns import Column, headline
from biasbed.analysis.runs.run import Run
from biasbed.analysis.selection.pools import History
from biasbed.analysis.selection.rules import Rule
from biasbed.analysis.selection.select import Rules
from biasbed.analysis.statistics.friedman import DIGITS

COLUMNS = (
    "algorithm",
    "dataset",
    "mean",
    "std_between_runs",
    "std_over_epochs",
    "std_pooled",
    "num_runs",
    "num_epochs",
)


def table(
    runs: Sequence[Run], histories: Mapping[str, History], columns: Sequence[Column], rules: Rules, n: int
) -> pd.DataFrame:
    """`COLUMNS`, one row per algorithm and set whose runs all have a deviation over epochs; only of `last_n`.

    std_over_epochs: root of the mean over runs of the variance over their epochs; std_pooled: that of all
    epochs of all runs.
    """
    rows: list[tuple[object, ...]] = []
    if any(rule.name != "last_n" for rule in rules.values()):
        return pd.DataFrame(rows, columns=list(COLUMNS))
    cells = [column.cell for column in columns]
    for algorithm in dict.fromkeys(run.algorithm for run in runs):
        for column in columns:
            own = [run for run in runs if run.algorithm == algorithm and column.cell in run.among(cells)]
            found = [
                _of_run(run, histories[run.id].on(column.cell), column.entry, rules.get((run.protocol, column.cell)))
                for run in own
            ]
            known = [pair for pair in found if pair is not None]
            if known and not any(math.isnan(deviation) for _, deviation in known):
                rows.append((algorithm, column.name, *_pooled(known, column.scale), len(known), n))
    return pd.DataFrame(rows, columns=list(COLUMNS)).round(DIGITS)


def _of_run(run: Run, history: History, entry: record.SetRecord, rule: Rule | None) -> tuple[float, float] | None:
    """A run's mean over the epochs and its standard deviation over them (with n); None without a value on the set."""
    curve = history.curve(headline(entry))
    if run.kind == "published" or rule is None:
        deviation = history.curve(record.MetricName("test", "std_over_epochs", entry.name))
        return (list(curve.values())[-1], next(iter(deviation.values()), math.nan)) if curve else None
    values = [curve[step] for step in rule.steps(history, entry)]
    return (
        (math.fsum(values) / len(values), statistics.pstdev(values))
        if all(map(record.is_finite, values)) and values
        else None
    )


def _pooled(runs: Sequence[tuple[float, float]], scale: float) -> tuple[float, ...]:
    means, deviations = [mean for mean, _ in runs], [deviation for _, deviation in runs]
    within = math.fsum(deviation**2 for deviation in deviations) / len(runs)
    between = statistics.stdev(means) if len(runs) > 1 else math.nan
    pooled = math.sqrt(statistics.pvariance(means) + within)
    return tuple(scale * value for value in (math.fsum(means) / len(runs), between, math.sqrt(within), pooled))
