"""Averages of data sets of several columns, and deviations of the last epochs' scores.

The ± of every other table is the standard deviation between runs (n - 1). The pooled variance is that between the runs'
means (with n) plus the mean over runs of the variance over their epochs: with as many epochs in each run, the variance
of all epochs of all runs. A review of Kalischek et al. 2023 found that the deviations of its table of the last 30
epochs are formed so; the table's values are not at hand here, and no test compares with them.
"""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import pandas as pd

from biasbed import record
from biasbed.analysis import scores
from biasbed.analysis.columns import Column, headline
from biasbed.analysis.report import groups, latex, wording
from biasbed.analysis.report.groups import AVERAGE, ColumnGroup
from biasbed.analysis.report.table_model import (
    Links,
    PrintedText,
    ReportTable,
    make_table,
    number_cell,
    score_cell,
)
from biasbed.analysis.result import SCORE_DIGITS, Analysis, Cell
from biasbed.analysis.result import number as number_text
from biasbed.analysis.runs.run import Run, group_runs
from biasbed.analysis.sections.section import CsvFile, PrintedTable, Section, ShownPart
from biasbed.analysis.selection.pools import History
from biasbed.analysis.selection.rules import Rule
from biasbed.analysis.selection.select import Rules
from biasbed.analysis.statistics.friedman import DIGITS

BLOCKS_FILE, AVERAGES_FILE, DEVIATIONS_FILE = "blocks.csv", "averages.csv", "spread.csv"
COLUMNS = (
    *("algorithm", "dataset", "mean", "std_between_runs", "std_over_epochs", "std_pooled", "num_runs", "num_epochs"),
)


class Averages(Section[pd.DataFrame]):
    """Averages of data sets, and deviations over runs and epochs; the data are `COLUMNS` of the latter."""

    name = "averages"
    title = "Averages and deviations"

    def compute(self, analysis: Analysis) -> pd.DataFrame:
        inputs = analysis.inputs
        return deviation_table(
            inputs.collection.runs, inputs.histories, analysis.columns, inputs.rules, analysis.options.n
        )

    def files(self, data: pd.DataFrame, analysis: Analysis) -> Iterator[CsvFile]:
        about = "the same of the data sets that have several columns: mean over columns, deviation over replicates"
        yield CsvFile(BLOCKS_FILE, analysis.blocks.round(SCORE_DIGITS), about)
        if len(analysis.blocks):
            about = "what tables of data sets print: columns, averages and their mean, with the error and its ddof"
            yield CsvFile(AVERAGES_FILE, average_rows(analysis), about)
        about = "deviations over runs, over epochs, and over both as Kalischek et al. (2023) give them"
        yield CsvFile(DEVIATIONS_FILE, data, about)

    def show(self, data: pd.DataFrame, analysis: Analysis, links: Links) -> Iterator[ShownPart]:
        averages = make_average_table(analysis, links)
        if averages is not None:
            yield averages
            yield PrintedTable("averages", averages, "averages of the data sets")
            for group in groups.groups(analysis):
                if group.wide:
                    table = make_data_set_table(analysis, links, group)
                    yield PrintedTable(f"scores_{group.block}", table, f"scores on {group.block} alone")
        if len(data):
            deviations = make_deviation_table(data, analysis, links)
            yield deviations
            yield PrintedTable("spread", deviations, "scores with deviations over runs and epochs")

    def on_terminal(self, analysis: Analysis, links: Links) -> Sequence[ShownPart]:
        averages = make_average_table(analysis, links)
        return [] if averages is None else [averages]


AVERAGES = Averages()

# --- deviations -------------------------------------------------------------------------------------------------------


class EpochScores(NamedTuple):
    """A run's mean over the last epochs, and its standard deviation over them (with n)."""

    mean: float
    std: float


def deviation_table(
    runs: Sequence[Run], histories: Mapping[str, History], columns: Sequence[Column], rules: Rules, n: int
) -> pd.DataFrame:
    """Return `COLUMNS`, one row per algorithm and set whose runs all have a deviation over epochs.

    Empty under other rules than `last_n`, whose n it is. std_over_epochs: root of the mean over runs of the variance
    over their epochs; std_pooled: that of all epochs of all runs.
    """
    rows: list[tuple[object, ...]] = []
    if any(rule.name != "last_n" for rule in rules.values()):
        return pd.DataFrame(rows, columns=list(COLUMNS))
    cells = [column.cell for column in columns]
    for algorithm, of_algorithm in group_runs(runs, "algorithm").items():
        for column in columns:
            scores_of_runs = []
            for run in of_algorithm:
                if column.cell not in run.among(cells):
                    continue
                rule, history = rules.get((run.protocol, column.cell)), histories[run.id].on(column.cell)
                epoch_scores = _epoch_scores(run, history, column.set_record, rule)
                if epoch_scores is not None:
                    scores_of_runs.append(epoch_scores)
            if scores_of_runs and not any(math.isnan(of_run.std) for of_run in scores_of_runs):
                pooled = _pool_deviations(scores_of_runs, column.scale)
                rows.append((algorithm, column.name, *pooled, len(scores_of_runs), n))
    return pd.DataFrame(rows, columns=list(COLUMNS)).round(DIGITS)


def _epoch_scores(run: Run, history: History, tested: record.SetRecord, rule: Rule | None) -> EpochScores | None:
    """Return a run's mean and deviation over the rule's epochs, or as published; None without a value on the set."""
    curve = history.curve(headline(tested))
    if run.kind == "published" or rule is None:
        if not curve:
            return None
        deviations = history.curve(record.MetricName("test", "std_over_epochs", tested.name))
        return EpochScores(list(curve.values())[-1], next(iter(deviations.values()), math.nan))
    values = [curve[step] for step in rule.steps(history, tested)]
    if not values or not all(map(record.is_finite, values)):
        return None
    return EpochScores(math.fsum(values) / len(values), statistics.pstdev(values))


def _pool_deviations(runs: Sequence[EpochScores], scale: float) -> tuple[float, ...]:
    """Return mean and deviations between runs, over epochs, and pooled, each times the scale."""
    means = [run.mean for run in runs]
    within = math.fsum(run.std**2 for run in runs) / len(runs)
    between = statistics.stdev(means) if len(runs) > 1 else math.nan
    pooled = math.sqrt(statistics.pvariance(means) + within)
    return tuple(scale * value for value in (math.fsum(means) / len(runs), between, math.sqrt(within), pooled))


def make_deviation_table(frame: pd.DataFrame, analysis: Analysis, links: Links) -> ReportTable:
    """Return mean and deviation over runs and epochs together, beside that between runs. frame: `COLUMNS`."""
    cells: dict[str, dict[str, Any]] = {}
    digits = {column.name: column.digits for column in analysis.sets}
    for row in frame.to_dict("records"):
        places = digits[row["dataset"]]
        pooled, between = (number_text(row[name], places) for name in ("std_pooled", "std_between_runs"))
        cell = number_cell(row["mean"], places, spread=f"±{pooled}", interval=f"runs ±{between}")
        cells.setdefault(row["algorithm"], {"algorithm": row["algorithm"]})[row["dataset"]] = cell
    caption = (
        f"The same means ± the standard deviation over runs and epochs together, in {analysis.units}: the root of the "
        "variance between runs (n) and the mean variance over their epochs. Below: the deviation between runs (n - 1), "
        "which every other table gives."
    )
    printed = PrintedText(
        "spread",
        rf"Scores in {analysis.units}: mean $\pm$ standard deviation over runs and epochs together.",
        f"The root of the variance between runs and the mean variance over their epochs. {latex.provenance(analysis)}.",
    )
    return make_table(
        caption,
        [links.column(), *(groups.set_column(analysis.label(name), name) for name in analysis.set_names)],
        [cells[algorithm] for algorithm in analysis.algorithms if algorithm in cells],
        DEVIATIONS_FILE,
        oracle=analysis.rule.oracle,
        printed=printed,
    )


# --- averages ---------------------------------------------------------------------------------------------------------


class ColumnHead(NamedTuple):
    """Name of a column and its unit behind it."""

    name: str
    unit: str


@dataclass(frozen=True)
class AverageRows:
    """Value of each algorithm on each data set, and their mean."""

    heads: tuple[ColumnHead, ...]
    rows: dict[str, tuple[Cell, ...]]  # algorithm -> cell of each data set
    means: dict[str, float]  # algorithm -> mean over the data sets; NaN if a value is missing; empty if units differ


def average(analysis: Analysis) -> AverageRows | None:
    """Return the averages of data sets; None if there is one data set only, or if each has one column."""
    column_groups = groups.groups(analysis)
    if len(column_groups) < 2 or not any(group.wide for group in column_groups):
        return None
    rows, means = {}, {}
    is_alike = len({(group.counted[0].unit, group.counted[0].higher_is_better) for group in column_groups}) == 1
    for name in analysis.algorithms:
        rows[name] = tuple(group.value(analysis, name) for group in column_groups)
        if is_alike:
            means[name] = sum(cell.mean for cell in rows[name]) / len(rows[name])
    heads = tuple(ColumnHead(group.block, groups.unit_of(group.counted[0])) for group in column_groups)
    return AverageRows(heads, rows, means)


def average_rows(analysis: Analysis) -> pd.DataFrame:
    """Return one row per algorithm and column; then per data set of several columns; then over all data sets.

    Columns algorithm, dataset (`AVERAGE` over all), mean, standard_deviation or standard_error (what ± is in tables;
    none over all), its ddof, num_runs.
    """
    kind = scores.ERRORS[analysis.error]
    averages = average(analysis)
    rows: list[tuple[object, ...]] = []
    for algorithm in analysis.algorithms:
        cells = []
        for group in groups.groups(analysis):
            cells += [(column.name, analysis.cells[algorithm, column.name]) for column in group.columns]
            if group.wide:
                cells.append((group.block, analysis.averages[algorithm, group.block]))
        for name, cell in cells:
            rows.append((algorithm, name, cell.mean, cell.std, kind.ddof, cell.num_runs))
        if averages is not None and averages.means:
            rows.append((algorithm, AVERAGE, averages.means[algorithm], math.nan, None, None))
    columns = ["algorithm", "dataset", "mean", kind.label.replace(" ", "_"), "ddof", "num_runs"]
    return pd.DataFrame(rows, columns=columns).astype({"ddof": "Int64", "num_runs": "Int64"})


def make_average_table(analysis: Analysis, links: Links) -> ReportTable | None:
    """Return algorithms x data sets, and the mean over them; None without averages (`average`)."""
    averages = average(analysis)
    if averages is None:
        return None
    columns = [links.column()]
    for head, unit in averages.heads:
        columns.append(groups.set_column(analysis.label(head), head, unit))
    if averages.means:
        columns.append(groups.set_column(AVERAGE, "mean"))
    records = []
    for algorithm, cells in averages.rows.items():
        href = links.to_algorithm(algorithm)
        record: dict[str, object] = {"algorithm": algorithm}
        for (head, _), cell in zip(averages.heads, cells, strict=True):
            record[head] = score_cell(cell, href)
        if averages.means:
            record["mean"] = number_cell(averages.means[algorithm], analysis.sets[0].digits)
        records.append(record)
    caption = f"Averages of the data sets, in {analysis.units}. Bold: best of the column.{groups.caption(analysis)}"
    printed_caption = f"Averages in {analysis.units}"
    if averages.means:
        caption += " Last: the mean over the data sets."
        printed_caption += "; last, the mean over the data sets"
    return make_table(
        caption + wording.empty_cells_legend(analysis),
        columns,
        records,
        f"{BLOCKS_FILE}, scores.csv",
        oracle=analysis.rule.oracle,
        printed=groups.printed_text(analysis, "averages", f"{printed_caption}."),
    )


def make_data_set_table(analysis: Analysis, links: Links, group: ColumnGroup) -> ReportTable:
    """Return algorithms x the columns of one data set and their average; for LaTeX."""
    columns = [links.column()]
    for column in groups.score_columns([group], analysis.label):
        columns.append(dataclasses.replace(column, block="", style="plain"))
    records = [groups.score_record(analysis, links, algorithm) for algorithm in analysis.algorithms]
    label = latex.escape(f"scores-{group.block}")
    caption = (
        f"{latex.escape(analysis.label(group.block))}: scores in {analysis.units}, "
        rf"mean $\pm$ {groups.printed_error(analysis)}."
    )
    printed = groups.printed_text(analysis, label, caption)
    return make_table("", columns, records, oracle=analysis.rule.oracle, printed=printed)
