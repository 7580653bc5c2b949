"""Report tables as data: columns, and rows of cells, built once and rendered as HTML, LaTeX and text.

Answers: How is a table of the report built and rendered?
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

from biasbed.analysis.display_names import Labels
from biasbed.analysis.report import wording
from biasbed.analysis.result import Analysis, Cell

MISSING = "-"
DAGGER = "†"
DAGGER_MEANING = "trained on data made in the same way as this set"
DAGGER_LEGEND = f" Underlined{DAGGER}: {DAGGER_MEANING}."
STAR = "*"  # may be first


class TableCell(NamedTuple):
    """One cell of a table."""

    text: str
    value: float | None = None  # key by which the column is sorted on screen; None sorts by text
    spread: str = ""  # shown behind the text, small
    interval: str = ""  # shown below the text, on screen only
    published: str = ""  # a paper's number: below the text on screen, in brackets behind it elsewhere
    name: str = ""  # id of the method or set whose display name the text is
    href: str = ""
    mark: str = ""  # word behind the text, on screen only
    bold: bool = False
    sign: str | None = None  # behind the text: `DAGGER`, `STAR` or empty; None if the column has no signs
    underlined: bool = False
    left: bool = False  # True for words, which are aligned left

    @property
    def shown(self) -> str:
        """First line of the cell on screen."""
        return self.text or self.published

    @property
    def below(self) -> str:
        """Second line of the cell on screen."""
        return self.interval or (self.published if self.text else "")


TableRecord = Mapping[Any, Any]  # one row's values by field
CellMaker = Callable[[TableRecord], TableCell]


@dataclass(frozen=True)
class TableColumn:
    """One column: its heads, and how a row's record becomes a cell."""

    head: str | None  # on screen; None: the column is not shown there
    make: CellMaker
    printed: str | None = None  # head in LaTeX; None: the column is not printed
    style: Literal["plain", "turned", "math"] = "plain"  # of the head in LaTeX
    align: Literal["l", "c", "r"] = "r"  # in LaTeX
    unit: str = ""  # behind the head, as ` (ratio)`
    block: str = ""  # data set whose name stands above the column
    full_head: str | None = None  # head in tables without names of data sets above; None: `head`
    name: str = ""  # id of the set whose display name the head is


class ScoreColumn(NamedTuple):
    """Column that a section adds to tables of scores."""

    head: str
    dataset: str  # set that it is about; empty: all
    cells: Mapping[str, TableCell]  # by algorithm
    legend: str  # sentence for the caption, with a blank before it
    is_printed: bool = True  # False: LaTeX does not have it


class RowBelow(NamedTuple):
    """Row that a section adds below the scores of the algorithms: it is in no test and has no rank."""

    name: str
    cells: Mapping[Hashable, TableCell]  # by column, and by (`groups.AVERAGE`, block)
    legend: str  # sentence for the caption, with a blank before it


@dataclass(frozen=True)
class PrintedText:
    """Text that LaTeX prints around a table; all fields are LaTeX."""

    label: str
    caption: str
    note: str


@dataclass(frozen=True)
class ReportTable:
    """One table; the first column names the row."""

    caption: str  # on screen
    columns: tuple[TableColumn, ...]
    rows: tuple[tuple[TableCell, ...], ...]
    oracle: bool  # selected on the test images
    file: str = ""  # CSV files with the same numbers and more
    ids: tuple[str, ...] = ()  # anchors of the rows
    printed: PrintedText | None = None
    footer: tuple[tuple[str, ...], ...] = ()  # last lines in LaTeX
    below: tuple[tuple[TableCell, ...], ...] = ()  # further rows, below a rule
    legend_below: str = ""  # meaning of the rows below, which the caption has too; with a blank before it

    @property
    def screen_columns(self) -> list[TableColumn]:
        """Columns without those that only LaTeX has."""
        return [column for column in self.columns if column.head is not None]

    @property
    def heads(self) -> list[str]:
        """Heads on screen."""
        return [column.head + column.unit for column in self.columns if column.head is not None]

    @property
    def full_heads(self) -> list[str]:
        """Heads on screen that need no name of a data set above them."""
        heads = []
        for column in self.columns:
            if column.head is not None:
                full_head = column.head if column.full_head is None else column.full_head
                heads.append(full_head + column.unit)
        return heads

    @functools.cached_property
    def screen_rows(self) -> list[list[TableCell]]:
        """Rows without the columns that only LaTeX has."""
        return self._on_screen(self.rows)

    @functools.cached_property
    def screen_below(self) -> list[list[TableCell]]:
        """Rows below the rule without the columns that only LaTeX has."""
        return self._on_screen(self.below)

    def _on_screen(self, rows: Iterable[tuple[TableCell, ...]]) -> list[list[TableCell]]:
        shown = [column.head is not None for column in self.columns]
        return [list(itertools.compress(row, shown)) for row in rows]

    @property
    def above(self) -> list[tuple[str, int]]:
        """Names of data sets above the heads on screen, each with its number of columns (`names_above`)."""
        return names_above(self.screen_columns)


def names_above(columns: Sequence[TableColumn]) -> list[tuple[str, int]]:
    """Return (name above, number of columns) from left to right; the name is empty above a single column.

    Empty if no data set has several columns.
    """
    widths = [(block, len(list(group))) for block, group in itertools.groupby(columns, lambda column: column.block)]
    if not any(block and width > 1 for block, width in widths):
        return []
    return [(block if width > 1 else "", width) for block, width in widths]


def make_table(
    caption: str, columns: Sequence[TableColumn], records: Iterable[TableRecord], file: str = "", **more: Any
) -> ReportTable:
    """Build a table of one row per record. file: CSV files with the same numbers; more: fields of `ReportTable`."""
    rows = []
    for record in records:
        rows.append(tuple(column.make(record) for column in columns))
    return ReportTable(caption, tuple(columns), tuple(rows), file=file, **more)


def without_columns(table: ReportTable, is_empty: Callable[[Sequence[TableCell]], bool]) -> ReportTable:
    """Return the table without the columns whose cells are empty."""
    kept = [not is_empty(cells) for cells in zip(*table.rows, strict=True)]
    columns = tuple(itertools.compress(table.columns, kept))
    rows = tuple(tuple(itertools.compress(row, kept)) for row in table.rows)
    return replace(table, columns=columns, rows=rows)


# --- cells ------------------------------------------------------------------------------------------------------------


def text_cell(value: object) -> TableCell:
    """Return a cell of words, aligned left."""
    return TableCell(str(value), left=True)


def count_cell(value: int) -> TableCell:
    """Return a cell with a whole number."""
    return TableCell(str(value), value=value)


def number_cell(value: float, digits: int = 1, **look: Any) -> TableCell:
    """Return a cell with a number of so many digits; a dash for NaN. look: further fields of the cell."""
    if math.isnan(value):
        return TableCell(MISSING, value=-math.inf, **look)
    if math.isinf(value):
        return TableCell("∞" if value > 0 else "-∞", value=value, **look)
    return TableCell(f"{round(value, digits) + 0.0:.{digits}f}", value=value, **look)  # + 0.0: no -0.0


def score_cell(cell: Cell, href: str = "") -> TableCell:
    """Return a cell with a mean, its spread, interval and marks."""
    value = cell.mean
    if math.isnan(value):
        value = -math.inf
    return TableCell(
        cell.mean_text,
        value=value,
        spread=spread_text(cell.std_text),
        interval=cell.interval_text,
        href=href,
        bold=cell.best,
        sign=DAGGER if cell.dagger else "",
    )


def interval_cell(value: float, low: float, high: float, digits: int = 1) -> TableCell:
    """Return a cell with a number and its interval."""
    return number_cell(value, digits, interval=interval_text(low, high, digits))


def interval_text(low: float, high: float, digits: int = 1) -> str:
    """Return `1.0 to 2.0`; empty for NaN."""
    if math.isnan(low):
        return ""
    return f"{low:.{digits}f} to {high:.{digits}f}"


def p_cell(p: float, alpha: float, bold: bool = False) -> TableCell:
    """Return a cell with a p-value; a dash for NaN."""
    if math.isnan(p):
        return TableCell(MISSING, value=2.0)
    return TableCell(wording.short_p(p, alpha), value=p, bold=bold)


def spread_text(std: str) -> str:
    """Return `±1.2`; empty if there is no deviation."""
    if std:
        return f"±{std}"
    return ""


# --- cells of a record's fields: functions that a `TableColumn` takes as `make` ---------------------------------------


def prepared(key: Hashable) -> CellMaker:
    """Show the cell that the record holds under a key; a dash if it holds none."""
    missing = number_cell(math.nan)

    def make(record: TableRecord) -> TableCell:
        cell: TableCell = record.get(key, missing)
        return cell

    return make


def prepared_columns(names: Iterable[str]) -> list[TableColumn]:
    """Return columns whose cells the record holds under their heads."""
    return [TableColumn(name, prepared(name)) for name in names]


def text(key: str) -> CellMaker:
    """Show a field's words."""

    def make(record: TableRecord) -> TableCell:
        return text_cell(record[key])

    return make


def named(key: str, label: Labels) -> CellMaker:
    """Show the display name of the method or set in a field."""

    def make(record: TableRecord) -> TableCell:
        name = str(record[key])
        return TableCell(label(name), left=True, name=name)

    return make


def count(key: str) -> CellMaker:
    """Show a whole number with separators of thousands."""

    def make(record: TableRecord) -> TableCell:
        return TableCell(f"{record[key]:,}", value=record[key])

    return make


def number(key: str, digits: int = 1, spread: str = "") -> CellMaker:
    """Show a number. spread: field of its standard deviation."""

    def make(record: TableRecord) -> TableCell:
        std = record[spread] if spread else math.nan
        return number_cell(record[key], digits, spread="" if math.isnan(std) else f"±{std:.{digits}f}")

    return make


def interval(key: str, low: str, high: str, digits: int = 1) -> CellMaker:
    """Show a number with its interval."""

    def make(record: TableRecord) -> TableCell:
        return interval_cell(record[key], record[low], record[high], digits)

    return make


def p_value(key: str, alpha: float, bold: str = "") -> CellMaker:
    """Show a p-value. bold: field that says if it is bold."""

    def make(record: TableRecord) -> TableCell:
        return p_cell(record[key], alpha, bool(record[bold]) if bold else False)

    return make


# --- links ------------------------------------------------------------------------------------------------------------


class Links:
    """Anchors of algorithms and runs; numbered, as names may hold any character."""

    prefix = ""  # of the anchors: tells the links of one analysis apart

    def __init__(self, analysis: Analysis) -> None:
        self.label = analysis.label
        self.algorithms = {name: f"runs-{i}" for i, name in enumerate(analysis.algorithms)}
        runs = (*analysis.collection.runs, *analysis.collection.duplicates)
        self.runs = {run.id: f"run-{i}" for i, run in enumerate(runs)}

    def to_algorithm(self, name: str) -> str:
        """Return the link to an algorithm's runs; empty if none of its runs count."""
        return f"#{self.algorithms[name]}" if name in self.algorithms else ""

    def to_run(self, run_id: str | None) -> str:
        """Return the link to a run under provenance; empty for None."""
        return f"#{self.runs[run_id]}" if run_id else ""

    def algorithm_cell(self, name: str) -> TableCell:
        """Return an algorithm's name that leads to its runs."""
        return TableCell(self.label(name), href=self.to_algorithm(name), left=True, name=name)

    def column(self) -> TableColumn:
        """Return the column of algorithms' names, which has no head in LaTeX."""
        return TableColumn("algorithm", self.algorithm(), printed="", align="l")

    def run_cell(self, run_id: str, text: str = "") -> TableCell:
        """Return a text, by default the first digits of the id, that leads to the run."""
        return TableCell(text or run_id[:8], href=self.to_run(run_id), left=True)

    def algorithm(self, key: str = "algorithm") -> CellMaker:
        """Show an algorithm's name that leads to its runs."""

        def make(record: TableRecord) -> TableCell:
            return self.algorithm_cell(record[key])

        return make
