"""Deviations of scores of the last epochs: between runs, and between runs and epochs together.

The ± of every other table is the standard deviation between runs (n - 1). The pooled variance is that between the runs'
means (with n) plus the mean over runs of the variance over their epochs: with as many epochs in each run, the variance
of all epochs of all runs. A review of Kalischek et al. 2023 found that the deviations of its table of the last 30
epochs are formed so; the table's values are not at hand here, and no test compares with them.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import pandas as pd

from biasbed import record
from biasbed.analysis.columns import Column, headline
from biasbed.analysis.runs.run import Run
from biasbed.analysis.selection.pools import History
from biasbed.analysis.selection.rules import Rule
from biasbed.analysis.selection.select import Rules
from biasbed.analysis.statistics.friedman import DIGITS

COLUMNS = (
    *("algorithm", "dataset", "mean", "std_between_runs", "std_over_epochs", "std_pooled", "num_runs", "num_epochs"),
)


class EpochScores(NamedTuple):
    """A run's mean over the last epochs, and its standard deviation over them (with n)."""

    mean: float
    std: float


def deviation_table(
    runs: Sequence[Run], histories: Mapping[str, History], columns: Sequence[Column], rules: Rules, n: int
) -> pd.DataFrame:
    """Return `COLUMNS`, one row per algorithm and set whose runs all have a deviation over epochs; only for `last_n`.

    std_over_epochs: root of the mean over runs of the variance over their epochs; std_pooled: that of all epochs of all
    runs.
    """
    rows: list[tuple[object, ...]] = []
    if any(rule.name != "last_n" for rule in rules.values()):
        return pd.DataFrame(rows, columns=list(COLUMNS))
    cells = [column.cell for column in columns]
    for algorithm in dict.fromkeys(run.algorithm for run in runs):
        for column in columns:
            scores = []
            for run in runs:
                if run.algorithm == algorithm and column.cell in run.among(cells):
                    rule = rules.get((run.protocol, column.cell))
                    scores.append(_epoch_scores(run, histories[run.id].on(column.cell), column.set_record, rule))
            complete = [score for score in scores if score is not None]
            if complete and not any(math.isnan(score.std) for score in complete):
                rows.append((algorithm, column.name, *_pool(complete, column.scale), len(complete), n))
    return pd.DataFrame(rows, columns=list(COLUMNS)).round(DIGITS)


def _epoch_scores(run: Run, history: History, tested: record.SetRecord, rule: Rule | None) -> EpochScores | None:
    """Return a run's mean and deviation over the rule's epochs, or as published; None without a value on the set."""
    curve = history.curve(headline(tested))
    if run.kind == "published" or rule is None:
        deviations = history.curve(record.MetricName("test", "std_over_epochs", tested.name))
        if curve:
            return EpochScores(list(curve.values())[-1], next(iter(deviations.values()), math.nan))
        return None
    values = [curve[step] for step in rule.steps(history, tested)]
    if not values or not all(map(record.is_finite, values)):
        return None
    return EpochScores(math.fsum(values) / len(values), statistics.pstdev(values))


def _pool(runs: Sequence[EpochScores], scale: float) -> tuple[float, ...]:
    """Return mean and deviations between runs, over epochs, and pooled."""
    means = [run.mean for run in runs]
    within = math.fsum(run.std**2 for run in runs) / len(runs)
    between = statistics.stdev(means) if len(runs) > 1 else math.nan
    pooled = math.sqrt(statistics.pvariance(means) + within)
    return tuple(scale * value for value in (math.fsum(means) / len(runs), between, math.sqrt(within), pooled))
