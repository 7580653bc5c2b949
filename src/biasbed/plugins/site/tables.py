"""Tables of the results site: the report's table of scores, and tables of one method or one set."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence

from biasbed.analysis import sections
from biasbed.analysis.columns import Column
from biasbed.analysis.report import score_tables, wording
from biasbed.analysis.report.table_model import (
    DAGGER_LEGEND,
    MISSING,
    Links,
    ReportTable,
    ScoreColumn,
    TableCell,
    count_cell,
    make_table,
    prepared_columns,
    score_cell,
    without_columns,
)
from biasbed.analysis.report.verdicts import control_of, main_comparison
from biasbed.analysis.result import Analysis

DecisionCounts = Mapping[tuple[str, str], str]  # (algorithm, set) -> summary of the stored predictions
BASELINE = "erm"  # method that only minimises the training error


class SiteLinks(Links):
    """Links of one analysis into the pages of its methods, which hold several analyses."""

    def __init__(self, analysis: Analysis, prefix: str, methods: Mapping[str, str]) -> None:
        """prefix: of the anchors, one for each analysis; methods: name -> file of its page."""
        super().__init__(analysis)
        self.prefix, self.methods = prefix, methods
        self.algorithms = {name: f"{prefix}-{anchor}" for name, anchor in self.algorithms.items()}
        self.runs = {run_id: f"{prefix}-{anchor}" for run_id, anchor in self.runs.items()}
        self.sets = {name: f"{prefix}-set-{position}" for position, name in enumerate(analysis.set_names)}
        runs = (*analysis.collection.runs, *analysis.collection.duplicates)
        self._method_of_run = {run.id: run.algorithm for run in runs}

    def to_algorithm(self, name: str) -> str:
        """Return the link to the analysis on a method's page."""
        return f"{self.methods[name]}#{self.prefix}" if name in self.algorithms else ""

    def to_run(self, run_id: str | None) -> str:
        """Return the link to a run on its method's page; empty for None."""
        return f"{self.methods[self._method_of_run[run_id]]}#{self.runs[run_id]}" if run_id else ""

    def to_cell(self, algorithm: str, name: str) -> str:
        """Return the link to a method's line for one set, below which its runs stand."""
        return f"{self.methods[algorithm]}#{self.sets[name]}"


# --- baseline ---------------------------------------------------------------------------------------------------------


def baselines(analysis: Analysis) -> tuple[str, ...]:
    """Return the rows that others are measured against, in display order.

    That is the control, else the row called `erm`, else all rows of that method.
    """
    control = control_of(analysis, main_comparison(analysis))
    if control is not None:
        return (control,)
    plain_rows = {run.algorithm for run in analysis.collection.runs if run.method == BASELINE}
    if BASELINE in plain_rows:  # other rows of the method have other networks, data or settings
        return (BASELINE,)
    return tuple(name for name in analysis.algorithms if name in plain_rows)


def _with_baseline(analysis: Analysis, name: str, cell: TableCell) -> TableCell:
    """Return a cell of a method's name, marked if it is the baseline."""
    if name in baselines(analysis):
        return cell._replace(mark="baseline")
    return cell


# --- tables -----------------------------------------------------------------------------------------------------------


def score_table(analysis: Analysis, links: SiteLinks) -> ReportTable:
    """Return the report's table of scores, the baseline marked and every score leading to its runs."""
    table = score_tables.scores(analysis, links)
    rows = []
    for algorithm, row in zip(analysis.algorithms, table.rows, strict=True):
        cells = [_with_baseline(analysis, algorithm, row[0])]
        for column, cell in zip(table.columns[1:], row[1:], strict=True):
            if column.name in links.sets:
                cell = cell._replace(href=links.to_cell(algorithm, column.name))
            cells.append(cell)
        rows.append(tuple(cells))
    return dataclasses.replace(table, rows=tuple(rows))


def method_table(
    analysis: Analysis,
    links: SiteLinks,
    algorithm: str,
    sets: Mapping[str, str],
    decisions: DecisionCounts,
) -> ReportTable:
    """Return a method's score on every set. sets: name -> file of its page."""
    further = [column for column in sections.score_columns(analysis) if column.dataset and algorithm in column.cells]
    records: list[dict[str, TableCell]] = []
    for column in analysis.sets:
        cell = analysis.cells[algorithm, column.name]
        runs = f"#{links.algorithms[algorithm]}"
        record = {
            "set": TableCell(analysis.label(column.name), href=sets[column.name], left=True, name=column.name),
            "score": score_cell(cell, runs),
            **_further_cells(further, column.name, algorithm),
            "of": TableCell(measured(column), left=True),
            "runs": count_cell(cell.num_runs),
            "images of the set": TableCell(f"{column.images:,}" if column.images else MISSING, value=column.images),
            "predictions": TableCell(decisions.get((algorithm, column.name), MISSING), left=True),
        }
        records.append(record)
    measures = dict.fromkeys(map(measured, analysis.sets))
    caption = f"Score on every set, in {analysis.units}."
    caption += _legend(analysis, [record["score"] for record in records])
    caption += "".join(dict.fromkeys(column.legend for column in further))
    if len(measures) == 1:
        caption += f" All are {next(iter(measures))}."
        for record in records:
            record["of"] = TableCell(MISSING)
    ids = tuple(links.sets[name] for name in analysis.set_names)
    columns = prepared_columns(records[0])
    table = make_table(caption, columns, records, oracle=analysis.rule.oracle, ids=ids)
    return without_columns(table, _is_missing)


def set_table(analysis: Analysis, links: SiteLinks, name: str) -> ReportTable:
    """Return every method's score on one set, the best first."""
    column = next(column for column in analysis.sets if column.name == name)
    further = [column for column in sections.score_columns(analysis) if column.dataset == name]
    records: list[dict[str, TableCell]] = []
    for algorithm in _by_score(analysis, column):
        cell = analysis.cells[algorithm, name]
        record = {
            "algorithm": _with_baseline(analysis, algorithm, links.algorithm_cell(algorithm)),
            "score": score_cell(cell, links.to_cell(algorithm, name)),
            **_further_cells(further, name, algorithm),
            "runs": count_cell(cell.num_runs),
        }
        records.append(record)
    caption = f"{wording.capitalized(measured(column))}, in {analysis.units}. The best score is first."
    caption += _legend(analysis, [record["score"] for record in records])
    caption += "".join(dict.fromkeys(column.legend for column in further))
    table = make_table(caption, prepared_columns(records[0]), records, oracle=analysis.rule.oracle)
    return without_columns(table, _is_missing)


def _further_cells(columns: Sequence[ScoreColumn], name: str, algorithm: str) -> dict[str, TableCell]:
    """Return a method's further measures of a set by their heads; dashes for those of other sets."""
    cells = {column.head: TableCell(MISSING, value=-math.inf) for column in columns}
    for column in columns:
        if column.dataset == name and algorithm in column.cells:
            cells[column.head] = column.cells[algorithm]
    return cells


def _is_missing(cells: Sequence[TableCell]) -> bool:
    """Return True for a column without any value."""
    return all(cell.text == MISSING for cell in cells)


def _by_score(analysis: Analysis, column: Column) -> list[str]:
    """Return the methods by their score on a set, the best first and those without a score last."""
    sign = -1 if column.higher_is_better else 1

    def position(name: str) -> float:
        mean = analysis.cells[name, column.name].mean
        return math.inf if math.isnan(mean) else sign * mean

    return sorted(analysis.algorithms, key=position)


def _legend(analysis: Analysis, cells: Sequence[TableCell]) -> str:
    """Return the sentences on ±, bold and †, as far as the cells have them, each with a blank before it."""
    parts = []
    if any(cell.spread for cell in cells):
        error, divisor = wording.error_name(analysis), wording.error_divisor(analysis)
        parts.append(f" ± is the {error} over {wording.replicate_noun(analysis)}s ({divisor}).")
    if any(cell.bold for cell in cells):
        parts.append(" Bold: the best method on the set.")
    if any(cell.sign for cell in cells):
        parts.append(DAGGER_LEGEND)
    return "".join(parts)


def measured(column: Column) -> str:
    """Return what a set's score is, and which direction is better: `accuracy, higher is better`."""
    direction = "higher" if column.higher_is_better else "lower"
    return f"{column.headline.replace('_', ' ')}, {direction} is better"


def rows_about(table: ReportTable | None, algorithm: str) -> ReportTable | None:
    """Return a table with only the rows of one algorithm; None without any."""
    if table is None:
        return None
    position = [column.head for column in table.columns].index("algorithm")
    kept = [number for number, row in enumerate(table.rows) if row[position].name == algorithm]
    if not kept:
        return None
    ids = tuple(table.ids[number] for number in kept) if table.ids else ()
    return dataclasses.replace(table, rows=tuple(table.rows[number] for number in kept), ids=ids)
