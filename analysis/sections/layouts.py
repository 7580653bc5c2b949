"""Tables laid out as a paper's (`report=`): scores of chosen epochs.

Files name the rows and columns (`layout_file`). Beside our numbers stand those that the paper printed.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import pandas as pd

from biasbed.analysis import layout_file, scores
from biasbed.analysis.columns import Column, measured_by
from biasbed.analysis.layout_file import PrintedNumber, TableLayout
from biasbed.analysis.report import latex, wording
from biasbed.analysis.report.table_model import (
    MISSING,
    Links,
    PrintedText,
    ReportTable,
    TableCell,
    TableColumn,
    make_table,
    prepared,
    spread_text,
    text_cell,
)
from biasbed.analysis.result import Analysis, number
from biasbed.analysis.sections.section import CsvFile, PrintedTable, Section, Sentences, ShownPart
from biasbed.analysis.selection.bias_measures import measure_at
from biasbed.analysis.selection.select import ChosenRun, Selected
from biasbed.analysis.statistics.friedman import DIGITS
from biasbed.errors import UsageError, listed
from biasbed.system import commands

if TYPE_CHECKING:
    from biasbed.analysis.options import AnalyzeOptions

FILE = "layouts.csv"
# value: as the table shows it, so an error if it shows errors.
COLUMNS = ("layout", "row", "column", "run_id", "measure", "value", "higher_is_better", "images")


class LayoutValues(NamedTuple):
    """Layouts and the values of their rows and columns."""

    layouts: tuple[TableLayout, ...]
    values: pd.DataFrame  # `COLUMNS`


class Layouts(Section[LayoutValues]):
    """Tables in the layouts of papers."""

    name = "layouts"
    title = "Laid out as published"

    def check(self, options: AnalyzeOptions) -> None:
        requested(options)

    def compute(self, analysis: Analysis) -> LayoutValues:
        layouts = requested(analysis.options)
        return LayoutValues(layouts, layout_values(layouts, analysis.selected, analysis.columns))

    def files(self, data: LayoutValues, analysis: Analysis) -> Iterator[CsvFile]:
        lines: list[dict[str, str]] = []
        for layout in data.layouts:
            lines += _list_cells(layout.name, lay_out(layout, data.values, analysis, Links(analysis)))
        yield CsvFile(FILE, pd.DataFrame(lines), "tables laid out as a paper's: your numbers beside the printed ones")

    def show(self, data: LayoutValues, analysis: Analysis, links: Links) -> Iterator[ShownPart]:
        for layout in data.layouts:
            table = lay_out(layout, data.values, analysis, links)
            yield table
            yield PrintedTable(layout.name, table, layout.title or layout.name)
            lines = missing(layout, analysis.algorithms)
            if lines:
                yield Sentences(("Missing rows, and what makes them:", *lines))

    def leads(self, analysis: Analysis) -> bool:
        return analysis.options.report != "none"

    def on_terminal(self, analysis: Analysis, links: Links) -> Sequence[ShownPart]:
        return self.parts(analysis, links)


LAYOUTS = Layouts()

# --- values -----------------------------------------------------------------------------------------------------------


def requested(options: AnalyzeOptions) -> tuple[TableLayout, ...]:
    """Return the layouts that `report=` names. Raises UsageError for an unknown or wrong one."""
    names = () if options.report == "none" else options.report
    return tuple(layout_file.read(name) for name in names)


def layout_values(layouts: Sequence[TableLayout], selected: Selected, sets: Sequence[Column]) -> pd.DataFrame:
    """Return `COLUMNS`: a row for each layout, its rows and columns, and each run that the rule chose there.

    selected: choices of the rule in use. Raises UsageError for a layout none of whose rows
    is there, and for a set that several columns show.
    """
    lines: list[tuple[object, ...]] = []
    for layout in layouts:
        _check(layout, sets, {chosen.pool.algorithm for chosen in selected.choices})
        for chosen in selected.choices:
            algorithm = chosen.pool.algorithm
            if algorithm in layout.rows:
                lines += [(layout.name, algorithm, *value) for value in _read_values(layout, chosen)]
    return pd.DataFrame(lines, columns=list(COLUMNS)).round({"value": DIGITS})


def _check(layout: TableLayout, sets: Sequence[Column], rows: Collection[str]) -> None:
    for head in layout.columns.values():
        cells = [column.cell for column in sets if head.shows(column)]
        if len(cells) > 1:
            raise UsageError(f"report={layout.name}: '{head.set}' is a column of several cells: {listed(cells)}")
    if not set(layout.rows) & set(rows):
        ways = "; ".join(missing(layout, rows))
        raise UsageError(f"report={layout.name}: none of its rows is among the runs: {ways}")


def missing(layout: TableLayout, rows: Collection[str]) -> list[str]:
    """Return a line for each row that the runs lack, with the command that makes it."""
    lines = []
    for name in layout.rows:
        if name in rows:
            continue
        command = ""
        if layout.study:
            settings = {"table": layout.study, "data_dir": "<folder>", "algorithms": name}
            command = commands.typed("benchmark", settings)
        way = layout.lacking.get(name, command)
        lines.append(f"{name}: {way}" if way else name)
    return lines


def _read_values(layout: TableLayout, chosen: ChosenRun) -> Iterator[tuple[object, ...]]:
    """Yield `COLUMNS` from `column` on, for the layout's columns that show this set."""
    _, candidate, column, protocol, steps = chosen
    if candidate.run.study == f"published_{layout.source}":
        return  # these are the printed ones
    for head, layout_column in layout.columns.items():
        measure = layout_column.measure_of(column.set_record)
        shown = measured_by(column, measure, protocol) if layout_column.shows(column) else None
        if shown is None:
            continue
        value = measure_at(candidate.history, measure, shown, steps).value
        if not math.isnan(value):
            is_higher = shown.higher_is_better and not layout.is_error(measure)
            yield head, candidate.run.id, measure, layout.shown(measure, value), is_higher, column.images


# --- tables -----------------------------------------------------------------------------------------------------------


def lay_out(layout: TableLayout, values: pd.DataFrame, analysis: Analysis, links: Links) -> ReportTable:
    """Return a table in the layout that a paper prints, with the published value beside ours. values: `COLUMNS`."""
    frame = values[values["layout"] == layout.name]
    columns = [TableColumn("", prepared("name"), printed="", align="l")]
    records: dict[str, dict[Any, TableCell]] = {row: {"name": text_cell(label)} for row, label in layout.rows.items()}
    printed = layout.published()
    for head in layout.columns:
        shown = analysis.label(head)
        columns.append(TableColumn(shown, prepared(("column", head)), printed=shown, style="turned", name=head))
        of_column = frame[frame["column"] == head]
        for row, cell in _score_cells(analysis, layout, of_column, printed, head, links).items():
            records[row]["column", head] = cell
    caption = _describe(analysis, layout, frame)
    title = layout.title or layout.name
    oracle = ""
    if analysis.rule.oracle:
        oracle = "ORACLE: "
    marks = latex.prose(caption.replace("Below:", "In brackets:"))
    note = f"{marks} {latex.provenance(analysis)}."
    text = PrintedText(layout.name, f"{oracle}{latex.escape(title)}.", note)
    return make_table(f"{title}. {caption}", columns, records.values(), FILE, oracle=analysis.rule.oracle, printed=text)


def _score_cells(
    analysis: Analysis,
    layout: TableLayout,
    values: pd.DataFrame,
    printed: Mapping[tuple[str, str], PrintedNumber],
    head: str,
    links: Links,
) -> dict[str, TableCell]:
    """Return a column's cells by row, the best of ours in bold; they are sorted by our number, else the paper's."""
    cells, means = {}, {}
    for row in layout.rows:
        ours = values.loc[values["row"] == row, "value"].astype(float)
        theirs = printed.get((row, head))
        published = ""
        if theirs is not None:
            published = f"{theirs.value:.{theirs.digits}f}"
        if ours.empty:
            if theirs is not None:
                cells[row] = TableCell("", theirs.value, published=published)
            continue
        means[row] = float(ours.mean())
        spread = scores.spread_of(float(ours.std()), len(ours), analysis.error)
        cells[row] = TableCell(
            number(means[row]),
            means[row],
            spread=spread_text("" if math.isnan(spread) else number(spread)),
            published=published,
            href=links.to_algorithm(row),
        )
    if len(means) > 1:
        best = number((max if bool(values["higher_is_better"].iloc[0]) else min)(means.values()))
        for row in means:
            cells[row] = cells[row]._replace(bold=cells[row].text == best)
    return cells


def _describe(analysis: Analysis, layout: TableLayout, frame: pd.DataFrame) -> str:
    """Say what the cells are."""
    parts = []
    if len(frame):
        error, run = wording.error(analysis), wording.repeated(analysis)
        parts.append(f"Mean ± {error} between {run}s; bold: the best of a column.")
    if layout.source:
        printed = f"as printed ({layout.source})."
        parts.append(f"Below: {printed}" if len(frame) else wording.capitalized(printed))
    return " ".join(parts)


def _list_cells(layout: str, table: ReportTable) -> Iterator[dict[str, str]]:
    """Yield a line per row and column: our and the printed number as shown; about: interval or deviation."""
    for name, *cells in table.rows:
        for column, cell in zip(table.columns[1:], cells, strict=True):
            yield {
                "layout": layout,
                "row": name.name or name.text,
                "column": column.name,
                "ours": "" if cell.text == MISSING else cell.text,
                "about": cell.spread,
                "printed": cell.published,
            }
