"""Measures of biased data at the chosen epochs, beside each set's headline.

The Align-Conflict paper's tables have several measures of the same runs at the same epochs: a rule chooses once, and
every measure is taken there. Only sets whose images agree or conflict with a bias have these.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import pandas as pd

from biasbed import measures, record
from biasbed.analysis.columns import Column, measured_columns, summary_metrics
from biasbed.analysis.runs.store import BIASED
from biasbed.analysis.selection.pools import History
from biasbed.analysis.selection.select import Selected
from biasbed.analysis.statistics.friedman import DIGITS

UNBIASED, CONFLICTING = "accuracy", "conflicting_accuracy"
DIFFERENCE, OPPORTUNITY, SCORE = "accuracy_difference", "equality_of_opportunity", "ac_score"
MEASURES = (SCORE, UNBIASED, CONFLICTING, DIFFERENCE, OPPORTUNITY)
# Accuracies of a method's biased classifier on the validation set.
BIASED_ALIGNED, BIASED_CONFLICTING = (f"{BIASED}/{kind}_accuracy" for kind in ("aligned", "conflicting"))
# value: as it is shown; printed_std, printed_runs: of a published mean in key of runs, else NaN.
COLUMNS = ("algorithm", "dataset", "run_id", "measure", "value", "printed_std", "printed_runs")


class Measurement(NamedTuple):
    """A measure's value at the chosen epochs; of a published mean what stands beside it."""

    measure: str
    value: float
    printed_std: float
    printed_runs: float


def measure_choices(selected: Selected) -> pd.DataFrame:
    """Return `COLUMNS`, one row per chosen run, column and measure."""
    by_column = _columns_by_measure(selected)
    rows: list[tuple[object, ...]] = []
    for pool, candidate, column, protocol, steps in selected.choices:
        by_measure = by_column[column.name]
        if not by_measure:
            continue
        about = (pool.algorithm, column.name, candidate.run.id)
        values = [measure_at(candidate.history, name, shown, steps) for name, shown in by_measure.items()]
        values += _measure_biased_classifier(candidate.history, steps, protocol)
        rows += [(*about, *measurement) for measurement in values if not math.isnan(measurement.value)]
    return pd.DataFrame(rows, columns=list(COLUMNS)).round(DIGITS)


def _columns_by_measure(selected: Selected) -> dict[str, dict[str, Column]]:
    """Return column -> measure -> the column with it; no measures for sets whose images conflict with no bias.

    The measures are those of our own protocol, if published rows stand beside ours.
    """
    ours_first = sorted(selected.choices, key=lambda chosen: chosen.pool.candidates[0].run.kind == "published")
    by_column: dict[str, dict[str, Column]] = {}
    for chosen in ours_first:
        if chosen.column.name not in by_column:
            by_measure = measured_columns(chosen.column, MEASURES, chosen.protocol)
            by_column[chosen.column.name] = by_measure if {UNBIASED, CONFLICTING} <= by_measure.keys() else {}
    return by_column


def measure_at(history: History, measure: str, column: Column, steps: Sequence[int]) -> Measurement:
    """Return the column's mean over the steps; of a published mean also its deviation and number of runs."""
    curves = {}
    for name in ("std_over_runs", "num_runs"):
        curves[name] = next(filter(None, map(history.curve, summary_metrics(column, name))), {})
    mean, std = _mean(history.curve(column.metric), steps), _mean(curves["std_over_runs"], steps)
    return Measurement(measure, column.scale * mean, column.scale * std, _mean(curves["num_runs"], steps))


def _mean(curve: Mapping[int, float], steps: Sequence[int]) -> float:
    """Return the mean over the steps; NaN if the curve lacks one of them."""
    values = [curve.get(step, math.nan) for step in steps]
    if all(map(record.is_finite, values)):
        return math.fsum(values) / len(values)
    return math.nan


def _measure_biased_classifier(
    history: History, chosen_steps: Sequence[int], protocol: record.Protocol
) -> list[Measurement]:
    """Return the accuracies of the method's biased classifier on validation images, at the same steps.

    A classifier with a training stage of its own, which counts its epochs apart, is measured at that stage's end.
    """
    monitor = record.parse_metric(protocol.monitor)
    if monitor is None or monitor.set is None:
        return []
    has_stage = bool(history.curve(f"{BIASED}/loss"))
    measurements = []
    for name in (BIASED_ALIGNED, BIASED_CONFLICTING):
        curve = history.curve(f"{name}/{monitor.set}")
        steps = tuple(curve)[-1:] if has_stage else chosen_steps
        value = _mean(curve, steps) if curve else math.nan
        percent = measures.scale(measures.FRACTION) * value
        measurements.append(Measurement(name, percent, math.nan, math.nan))
    return measurements
