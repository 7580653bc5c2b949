"""Published rows below the scores: what a paper printed on the same domains, for a reader's orientation.

They are in no test: other seeds, other weights, and each method after a search of its own.

Answers: Which published numbers stand below the table of scores?
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from biasbed import published
from biasbed.analysis import scores
from biasbed.analysis.columns import names_of
from biasbed.analysis.report.groups import AVERAGE, ColumnGroup, groups
from biasbed.analysis.report.table_model import RowBelow, TableCell, number_cell
from biasbed.analysis.result import Analysis
from biasbed.analysis.sections.section import Section
from biasbed.analysis.statistics.friedman import DIGITS
from biasbed.published.display_names import display_name
from biasbed.published.paper import Paper, PublishedRun

PAPERS = {"domainbed": "domainbed_iclr2021"}  # suite -> paper whose rows are shown


class PublishedRows(NamedTuple):
    """Paper and its rows on the data sets of an analysis, those of its own methods first."""

    paper: Paper | None
    rows: tuple[PublishedRun, ...]


class PublishedRowsBelow(Section[PublishedRows]):
    """Rows of the paper whose protocol the suite follows, on data sets that it has all domains of."""

    name = "published_rows"
    title = "Published rows"

    def compute(self, analysis: Analysis) -> PublishedRows:
        scope = analysis.collection.scope
        shown = [group for group in groups(analysis) if group.wide]
        if scope.suite not in PAPERS or not shown or analysis.collection.published:
            return PublishedRows(None, ())
        paper = published.find(PAPERS[scope.suite])
        names: list[str] = []
        for group in shown:
            names += names_of(group.counted)
        rows = [run for run in paper.runs() if run.rule == analysis.rule.name and set(names) <= run.scores.keys()]
        of_study = {run.method for run in analysis.collection.runs}
        rows.sort(key=lambda row: (_method_of(row) not in of_study, -_mean_of_columns(row, names)))
        return PublishedRows(paper, tuple(rows))

    def rows_below(self, analysis: Analysis) -> Iterator[RowBelow]:
        data = analysis.data(self)
        if data.paper is None:
            return
        legend = (
            f" Rows marked as published ({data.paper.citation}): whole data sets, photographs with ResNet-50 at 224 "
            "pixels, other seeds, a search for each method; in no test."
        )
        column_groups = groups(analysis)
        for row in data.rows:
            cells = _row_cells(column_groups, row, analysis.error)
            yield RowBelow(f"{display_name(row.algorithm)}, published", cells, legend)


PUBLISHED_ROWS = PublishedRowsBelow()


def _method_of(row: PublishedRun) -> str:
    return row.method or row.algorithm


def _mean_of_columns(row: PublishedRun, names: list[str]) -> float:
    return sum(row.scores[name] for name in names) / len(names)


def _row_cells(column_groups: Sequence[ColumnGroup], row: PublishedRun, error: str) -> Mapping[Hashable, TableCell]:
    """Return a row's cells by column, and its plain mean by (`AVERAGE`, data set). error: kind of ± in the table."""
    cells: dict[Hashable, TableCell] = {}
    for group in column_groups:
        for column in group.columns:
            if column.name in row.scores:
                value, spread = row.scores[column.name] * column.scale, _spread_in_error(row, column.name, error)
                text = f"±{spread * column.scale:.{column.digits}f}" if math.isfinite(spread) else ""
                cells[column.name] = number_cell(value, column.digits, spread=text)
        if group.wide:
            cells[AVERAGE, group.block] = _average_cell(row, group)
    return cells


def _average_cell(row: PublishedRun, group: ColumnGroup) -> TableCell:
    """Return the plain mean of a data set's domains; a dash if the paper lacks one."""
    column, names = group.counted[0], names_of(group.counted)
    if not set(names) <= row.scores.keys():
        return number_cell(math.nan)
    mean = round(_mean_of_columns(row, names) * column.scale, DIGITS)  # 86.15 is 86.2, as they print
    return number_cell(mean, column.digits)


def _spread_in_error(row: PublishedRun, name: str, error: str) -> float:
    """Return the spread of a printed mean in this kind of error; NaN if the paper has none."""
    deviation = row.further.get("std_over_runs", {}).get(name, math.nan)
    number = row.further.get("num_runs", {}).get(name, 0)
    return scores.spread_of(deviation, int(number), error) if number > 1 else math.nan


def seed_deviation(suite: str, rule: str, names: Iterable[str]) -> float | None:
    """Return the standard deviation, a fraction, of the mean of these columns between repeats, by the suite's paper.

    It follows from the errors that the paper prints for each column, taken as independent; the median over the paper's
    rows, as some fail. Returns None if there is no such paper, or none of its rows has all columns under this rule.
    """
    if suite not in PAPERS:
        return None
    names = list(names)
    variances = []
    for row in published.find(PAPERS[suite]).runs():
        deviations = row.further.get("std_over_runs", {})
        if row.rule == rule and set(names) <= deviations.keys():
            variances.append(sum(deviations[name] ** 2 for name in names) / len(names) ** 2)
    return math.sqrt(statistics.median(variances)) if variances else None
