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
    """A measure's value at the chosen epochs, and what a paper prints beside a published mean."""

    measure: str
    value: float
    printed_std: float
    printed_runs: float


def measure_choices(selected: Selected) -> pd.DataFrame:
    """Return `COLUMNS`, one row per chosen run, column and measure."""
    measures_by_column = _measures_by_column(selected)
    rows: list[tuple[object, ...]] = []
    for chosen in selected.choices:
        column_by_measure = measures_by_column[chosen.column.name]
        if not column_by_measure:
            continue
        history = chosen.candidate.history
        measured = [measure_at(history, name, column, chosen.steps) for name, column in column_by_measure.items()]
        measured += _measure_biased_classifier(history, chosen.steps, chosen.protocol)
        about = (chosen.pool.algorithm, chosen.column.name, chosen.candidate.run.id)
        rows += [(*about, *measurement) for measurement in measured if not math.isnan(measurement.value)]
    return pd.DataFrame(rows, columns=list(COLUMNS)).round(DIGITS)


def _measures_by_column(selected: Selected) -> dict[str, dict[str, Column]]:
    """Return column -> measure -> the column that shows it; no measures for a set without bias-conflicting images.

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
    """Return the column's mean over the steps, as shown; of a published mean also its deviation and number of runs."""
    printed = {}
    for name in ("std_over_runs", "num_runs"):
        curve = next(filter(None, map(history.curve, summary_metrics(column, name))), {})
        printed[name] = _mean(curve, steps)
    value = column.scale * _mean(history.curve(column.metric), steps)
    return Measurement(measure, value, column.scale * printed["std_over_runs"], printed["num_runs"])


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
