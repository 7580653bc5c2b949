"""Gains of selection rules that take more labels of validation images than others."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from biasbed import record
from biasbed.analysis.columns import Column, make_design
from biasbed.analysis.comparisons.rule_comparison import RuleScores
from biasbed.analysis.report import wording
from biasbed.analysis.report.table_model import (
    Links,
    ReportTable,
    TableCell,
    TableColumn,
    TableRecord,
    make_table,
    number_cell,
    prepared,
    text_cell,
)
from biasbed.analysis.result import Analysis
from biasbed.analysis.scores import published_means
from biasbed.analysis.sections.section import CsvFile, Section, ShownPart
from biasbed.analysis.selection.rules import (
    CLASS_LABELS,
    GROUP_LABELS,
    NO_LABELS,
    TEST_LABELS,
    BestValidation,
    ValidationAccuracy,
)
from biasbed.analysis.statistics import bootstrap
from biasbed.analysis.statistics.design import Design, rows_of
from biasbed.analysis.statistics.exact import Array
from biasbed.analysis.statistics.friedman import DIGITS

FILE = "labels.csv"
LABEL_COLUMNS = (
    *("rule", "oracle", "labels", "algorithm", "dataset", "mean", "baseline"),
    *("difference", "low", "high", "num_runs"),
)
OVER_METHODS = "(mean over methods)"  # algorithm of a row that averages over all methods with the column
BASELINE = ValidationAccuracy.name  # rule that any validation set allows


class LabelGains(Section[pd.DataFrame]):
    """Gains of rules that take more labels; the data are `LABEL_COLUMNS`."""

    name = "labels"
    title = "What labels of validation images buy"

    def compute(self, analysis: Analysis) -> pd.DataFrame:
        return label_gains(analysis.rules.scores, analysis.columns, analysis.options.alpha, analysis.options.bootstrap)

    def files(self, data: pd.DataFrame, analysis: Analysis) -> Iterator[CsvFile]:
        yield CsvFile(FILE, data, "how much better rules choose that take more labels than others")

    def show(self, data: pd.DataFrame, analysis: Analysis, links: Links) -> Iterator[ShownPart]:
        over_methods = data[data["algorithm"] == OVER_METHODS]
        if len(over_methods):
            yield make_gain_table(over_methods, analysis)


LABEL_GAINS = LabelGains()

# --- what is computed -------------------------------------------------------------------------------------------------


def label_gains(rules: Sequence[RuleScores], sets: Sequence[Column], alpha: float, resamples: int) -> pd.DataFrame:
    """Return `LABEL_COLUMNS`: how much better each rule chooses than `BASELINE`, rules with fewer labels first.

    One row per rule, algorithm and column, then the same over methods. difference: of the scores of the same run, mean
    over runs, positive if the rule is better; low, high: its 1 - alpha interval, runs resampled. Empty if no rule takes
    labels of groups, and without the baseline.
    """
    scored = [rule for rule in rules if not rule.skipped]
    baseline = next((rule.runs for rule in scored if rule.name == BASELINE), None)
    if baseline is None or all(GROUP_LABELS not in rule.labels for rule in scored):
        return pd.DataFrame(columns=list(LABEL_COLUMNS))
    parts = []
    for rule in sorted(scored, key=lambda rule: _count_labels(rule.labels)):
        frame = _gain_intervals(rule.runs, baseline, make_design(sets), alpha, resamples)
        parts.append(frame.assign(rule=rule.name, oracle=rule.oracle, labels=rule.labels, baseline=BASELINE))
    return pd.concat(parts, ignore_index=True)[list(LABEL_COLUMNS)].round(DIGITS)


def _count_labels(labels: str) -> int:
    """Return the position of labels among all, fewest first."""
    order = (NO_LABELS, CLASS_LABELS, GROUP_LABELS, TEST_LABELS)
    if labels in order:
        return order.index(labels)
    return len(order)


def _gain_intervals(
    runs: pd.DataFrame, baseline: pd.DataFrame, design: Design, alpha: float, resamples: int
) -> pd.DataFrame:
    """Return algorithm, dataset, mean, difference, low, high and num_runs of one rule."""
    keys = ["algorithm", "dataset", "replicate"]
    both = runs.drop(published_means(runs).index).merge(baseline[[*keys, "score"]], on=keys, suffixes=("", "_base"))
    gains = design.oriented(rows_of(both.assign(score=both["score"] - both["score_base"]), design.shown))
    draws = bootstrap.resample(gains, design, resamples)
    intervals = bootstrap.intervals(gains, design, draws, alpha).rename(columns={"mean": "difference"})
    means = both.groupby(keys[:2])["score"].mean().rename("mean").reset_index()
    by_method = intervals.drop(columns="run_ids").merge(means, on=keys[:2])  # drops rows of blocks, without a score
    drawn: dict[tuple[str, str], Array] = {}
    for name, row in gains.items():
        for column, values in zip(row.columns, bootstrap.column_means(row, draws.runs[name]).T, strict=True):
            drawn[name, column] = values
    averages = []
    for dataset, rows in by_method.groupby("dataset", sort=False):
        averages.append((OVER_METHODS, str(dataset), *_average_methods(rows, drawn, alpha)))
    columns = ["algorithm", "dataset", "mean", "difference", "low", "high", "num_runs"]
    return pd.concat([by_method, pd.DataFrame(averages, columns=columns)], ignore_index=True)


def _average_methods(
    rows: pd.DataFrame, drawn: Mapping[tuple[str, str], Array], alpha: float
) -> tuple[float, float, float, float, int]:
    """Return one column's values from `mean` on. Methods are drawn apart; all count as many runs as the fewest."""
    draws = [drawn[key] for key in zip(rows["algorithm"], rows["dataset"], strict=True)]
    low, high = bootstrap.interval(np.mean(draws, axis=0), alpha, int(rows["num_runs"].min()), len(draws))
    return float(rows["mean"].mean()), float(rows["difference"].mean()), low, high, int(rows["num_runs"].sum())


# --- how it is shown --------------------------------------------------------------------------------------------------


def make_gain_table(frame: pd.DataFrame, analysis: Analysis) -> ReportTable:
    """Return the gains as means over methods. frame: `LABEL_COLUMNS` over methods."""
    digits = {column.name: column.digits for column in analysis.sets}
    monitor = record.parse_metric(analysis.collection.protocol.monitor)
    measure = monitor.measure if monitor else analysis.collection.protocol.monitor
    records: dict[str, dict[str, Any]] = {}
    for row in frame.to_dict("records"):
        by = ""
        if row["rule"] == BestValidation.name:
            by = measure
        rule = TableCell(wording.rule_name(row), interval=by, left=True)
        cells = records.setdefault(row["rule"], {"rule": rule, "needs": text_cell(row["labels"])})
        cells[row["dataset"]] = _gain_cell(row, digits[row["dataset"]])
    columns = [TableColumn("rule", prepared("rule")), TableColumn("labels", prepared("needs"))]
    columns += [
        TableColumn(analysis.label(name), prepared(name), name=name) for name in digits if name in set(frame["dataset"])
    ]
    level = wording.percent(1 - analysis.alpha)
    caption = (
        "What do bias labels on validation images buy? Scores of what each rule chooses, mean over methods and runs, "
        f"in {analysis.units}. Behind it, the difference to {BASELINE}, which uses only class labels, in the same runs "
        f"(+: better); below, its {level} bootstrap interval over runs. An interval that contains 0 shows no "
        "difference."
    )
    if analysis.collection.is_search:
        caption += " Among the trials of a search, rules that look at no validation image choose by the monitor."
    return make_table(caption, columns, records.values(), FILE, oracle=True)


def _gain_cell(row: TableRecord, digits: int) -> TableCell:
    """Show a score, its difference to the baseline's and the interval of that."""
    if row["rule"] == row["baseline"]:
        return number_cell(row["mean"], digits)
    difference, low, high = (f"{round(row[key], digits) + 0.0:+.{digits}f}" for key in ("difference", "low", "high"))
    bounds = ""
    if not math.isnan(row["low"]):
        bounds = f"{low} to {high}"
    return number_cell(row["mean"], digits, spread=difference, interval=bounds)
