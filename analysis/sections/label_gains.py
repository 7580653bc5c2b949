"""Gains of selection rules that take more labels of validation images than others."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import pandas as pd

from biasbed import record
from biasbed.analysis.comparisons.rule_comparison import BASELINE, OVER_METHODS, label_gains
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
from biasbed.analysis.sections.section import CsvFile, Section, ShownPart
from biasbed.analysis.selection.rules import BestValidation

FILE = "labels.csv"


class LabelGains(Section[pd.DataFrame]):
    """Gains of rules that take more labels; the data are `rule_comparison.LABEL_COLUMNS`."""

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


def make_gain_table(frame: pd.DataFrame, analysis: Analysis) -> ReportTable:
    """Return the gains as means over methods. frame: `rule_comparison.LABEL_COLUMNS` over methods."""
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
