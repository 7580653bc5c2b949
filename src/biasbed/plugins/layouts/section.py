"""Tables laid out as a paper's (`report=`): scores of chosen epochs and gains of one row over another.

Files name the rows and columns (`layout_file`). Beside our numbers stand those that the paper printed.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import pandas as pd

from biasbed import measures
from biasbed.analysis import scores
from biasbed.analysis.columns import Column, measured_by
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
from biasbed.analysis.sections.single_runs import SINGLE_RUNS
from biasbed.analysis.selection.bias_measures import measure_at
from biasbed.analysis.selection.select import ChosenRun, Selected
from biasbed.analysis.statistics import per_set
from biasbed.analysis.statistics.friedman import DIGITS
from biasbed.errors import UsageError, listed
from biasbed.plugins.layouts import layout_file
from biasbed.plugins.layouts.layout_file import Hypothesis, PrintedNumber, TableLayout
from biasbed.plugins.layouts.options import requested_names
from biasbed.system import commands

if TYPE_CHECKING:
    from biasbed.analysis.options import AnalyzeOptions

FILE = "layouts.csv"
# value: as the table shows it, so an error if it shows errors.
COLUMNS = ("layout", "row", "column", "run_id", "measure", "value", "higher_is_better", "images")
RUNS, PAIRED, IMAGES = "runs", "paired images", "images"  # kinds of intervals
INTERVALS = {
    RUNS: "over runs (Welch's t)",
    PAIRED: "for one run each, over the images that both classified (bootstrap); it says nothing about other seeds",
    IMAGES: "over images, as if each row were tested on other images (Newcombe 1998, method 10), which is too wide",
}


class LayoutValues(NamedTuple):
    """Layouts and the values of their rows and columns."""

    layouts: tuple[TableLayout, ...]
    values: pd.DataFrame  # `COLUMNS`


class Layouts(Section[LayoutValues]):
    """Tables in the layouts of papers."""

    name = "layouts"
    title = "Laid out as published"
    before = "card"

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
        return bool(requested_names(analysis.options))

    def on_terminal(self, analysis: Analysis, links: Links) -> Sequence[ShownPart]:
        return self.parts(analysis, links)


LAYOUTS = Layouts()

# --- values -----------------------------------------------------------------------------------------------------------


def requested(options: AnalyzeOptions) -> tuple[TableLayout, ...]:
    """Return the layouts that `report=` names. Raises UsageError for an unknown or wrong one."""
    return tuple(map(layout_file.read, requested_names(options)))


def layout_values(layouts: Sequence[TableLayout], selected: Selected, sets: Sequence[Column]) -> pd.DataFrame:
    """Return `COLUMNS`: a line for each layout, its rows and columns, and each run that the rule chose there.

    selected: choices of the rule in use. Raises UsageError for a layout none of whose rows is there, and for a set that
    several columns of the score table show.
    """
    lines: list[tuple[object, ...]] = []
    for layout in layouts:
        _refuse_unfit_layout(layout, sets, {chosen.pool.algorithm for chosen in selected.choices})
        for chosen in selected.choices:
            algorithm = chosen.pool.algorithm
            if algorithm in layout.needed:
                lines += [(layout.name, algorithm, *value) for value in _read_values(layout, chosen)]
    return pd.DataFrame(lines, columns=list(COLUMNS)).round({"value": DIGITS})


def _refuse_unfit_layout(layout: TableLayout, sets: Sequence[Column], rows: Collection[str]) -> None:
    """Raise UsageError if a column of the layout is ambiguous, or if none of its rows is there."""
    for head in layout.columns.values():
        cells = [column.cell for column in sets if head.shows(column)]
        if len(cells) > 1:
            raise UsageError(f"report={layout.name}: '{head.set}' is a column of several cells: {listed(cells)}")
    if not set(layout.needed) & set(rows):
        ways = "; ".join(missing(layout, rows))
        raise UsageError(f"report={layout.name}: none of its rows is among the runs: {ways}")


def missing(layout: TableLayout, rows: Collection[str]) -> list[str]:
    """Return a line for each row that the runs lack: why no run can fill it, or the command that trains it."""
    lines = []
    for name in layout.needed:
        if name in rows:
            continue
        way = layout.lacking.get(name, "")
        if name not in layout.lacking and layout.study:
            settings = {"table": layout.study, "data_dir": "<folder>", "algorithms": name}
            way = commands.format_command("benchmark", settings)
        lines.append(f"{name}: {way}" if way else name)
    return lines


def _read_values(layout: TableLayout, chosen: ChosenRun) -> Iterator[tuple[object, ...]]:
    """Yield `COLUMNS` from `column` on, for the layout's columns that show this set."""
    run, column = chosen.candidate.run, chosen.column
    if run.study == f"published_{layout.source}":
        return  # these are the printed ones
    for head, layout_column in layout.columns.items():
        if not layout_column.shows(column):
            continue
        measure = layout_column.measure_of(column.set_record)
        measured = measured_by(column, measure, chosen.protocol)
        if measured is None:
            continue
        value = measure_at(chosen.candidate.history, measure, measured, chosen.steps).value
        if not math.isnan(value):
            is_higher = measured.higher_is_better and not layout.is_error(measure)
            yield head, run.id, measure, layout.shown(measure, value), is_higher, column.images


# --- gains ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Gain:
    """Gain of a row over another in points; above 0 is better, also if less of the measure is better."""

    value: float
    low: float = math.nan
    high: float = math.nan
    interval: str = ""  # kind of the interval: RUNS, PAIRED or IMAGES; empty without one

    @property
    def is_sure(self) -> bool:
        """True if 0 is outside the interval."""
        return bool(self.interval) and not self.low <= 0 <= self.high


def gain(
    frame: pd.DataFrame, row: str, other_row: str, alpha: float, paired: pd.DataFrame | None = None
) -> Gain | None:
    """Return the gain of a row over another on one column; None if one of the two has no value.

    With two runs of each the interval is Welch's, over runs. With fewer only accuracies have one, over images: from the
    decisions on each image, else as if the two had been tested on different images (`independent`).

    frame: `COLUMNS` of the column. paired: `single_runs.COLUMNS` of the column.
    """
    sides = [frame.loc[frame["row"] == name, "value"].to_numpy(dtype="float64") for name in (row, other_row)]
    if not all(map(len, sides)):
        return None
    first = frame.iloc[0]
    sign = 1 if first["higher_is_better"] else -1
    difference = sign * float(sides[0].mean() - sides[1].mean())
    if min(map(len, sides)) > 1:
        low, high, _ = per_set.welch(sides[0], sides[1], 1 - alpha)
        return Gain(difference) if math.isnan(low) else Gain(difference, *_turn_bounds(sign, low, high), RUNS)
    if first["measure"] != "accuracy" or first["images"] < 1:
        return Gain(difference)
    bounds = _find_paired_interval(paired, row, other_row)
    if bounds is not None:
        return Gain(difference, *bounds, PAIRED)  # of accuracies, of which more is better
    low, high = independent(float(sides[0].mean()), float(sides[1].mean()), int(first["images"]), alpha)
    return Gain(difference, *_turn_bounds(sign, low, high), IMAGES)


def _turn_bounds(sign: int, low: float, high: float) -> tuple[float, float]:
    """Return the bounds of the difference times the sign, the lower one first."""
    return (low, high) if sign > 0 else (-high, -low)


def _find_paired_interval(paired: pd.DataFrame | None, row: str, other_row: str) -> tuple[float, float] | None:
    """Return the interval of the difference of two rows with one run, over the images that both classified.

    None if their decisions were not compared. paired: `single_runs.COLUMNS` of one column.
    """
    for line in () if paired is None else paired.to_dict("records"):
        if (line["num_runs_a"], line["num_runs_b"]) == (1, 1):
            if (line["a"], line["b"]) == (row, other_row):
                return line["low"], line["high"]
            if (line["b"], line["a"]) == (row, other_row):
                return -line["high"], -line["low"]
    return None


def printed_gain(layout: TableLayout, head: str, row: str, other_row: str, alpha: float) -> Gain | None:
    """Return the gain by the numbers that the layout's source printed; None if it lacks one of both."""
    printed = layout.published()
    if (row, head) not in printed or (other_row, head) not in printed:
        return None
    first, second = printed[row, head].value, printed[other_row, head].value
    tested = layout.source_set(head)
    measure = layout.columns[head].measure_of(tested) if tested else ""
    is_higher = measures.find_measure(measure).higher_is_better and not layout.is_error(measure)
    sign = 1 if is_higher else -1
    difference, images = round(sign * (first - second), DIGITS), tested.images if tested else 0
    if measure != "accuracy" or images < 1:
        return Gain(difference)
    return Gain(difference, *_turn_bounds(sign, *independent(first, second, images, alpha)), IMAGES)


def independent(first: float, second: float, images: int, alpha: float) -> tuple[float, float]:
    """Return the interval of first - second, percentages of as many images each (Newcombe 1998, method 10), in points.

    It takes the two for independent. On the same images they mostly agree, so that it is wider than need be; how much
    they agree is in the decisions, not in the percentages.
    """
    shares = [value / 100 for value in (first, second)]
    (low_1, high_1), (low_2, high_2) = (measures.wilson(round(s * images), images, 1 - alpha) for s in shares)
    difference = shares[0] - shares[1]
    low = difference - math.hypot(shares[0] - low_1, high_2 - shares[1])
    high = difference + math.hypot(high_1 - shares[0], shares[1] - low_2)
    return 100 * low, 100 * high


# --- tables -----------------------------------------------------------------------------------------------------------


def lay_out(layout: TableLayout, values: pd.DataFrame, analysis: Analysis, links: Links) -> ReportTable:
    """Return a table in the layout that a paper prints, with the published value beside ours. values: `COLUMNS`."""
    frame = values[values["layout"] == layout.name]
    columns = [TableColumn("", prepared("name"), printed="", align="l")]
    labels = dict.fromkeys(layout.hypotheses) if layout.hypotheses else layout.rows
    records: dict[str, dict[Any, TableCell]] = {}
    for row, label in labels.items():
        records[row] = {"name": text_cell(row if label is None else label)}
    printed = layout.published()
    for head in layout.columns:
        shown = analysis.label(head)
        columns.append(TableColumn(shown, prepared(("column", head)), printed=shown, style="turned", name=head))
        of_column = frame[frame["column"] == head]
        if layout.hypotheses:
            cells = _gain_cells(analysis, layout, of_column, head, links)
        else:
            cells = _score_cells(analysis, layout, of_column, printed, head, links)
        for row, cell in cells.items():
            records[row]["column", head] = cell
    caption = (
        _describe_gains(analysis, layout, frame) if layout.hypotheses else _describe_scores(analysis, layout, frame)
    )
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
    """Return a column's cells by row: our mean, beside it the printed number; the best of ours is bold."""
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
        choose = max if values["higher_is_better"].iloc[0] else min
        best = number(choose(means.values()))
        for row in means:
            cells[row] = cells[row]._replace(bold=cells[row].text == best)
    return cells


def _gain_cells(
    analysis: Analysis, layout: TableLayout, values: pd.DataFrame, head: str, links: Links
) -> dict[str, TableCell]:
    """Return a column's cells by hypothesis: what its row gains over the other, in bold if the interval excludes 0."""
    cells = {}
    for name, pair in layout.hypotheses.items():
        ours = _our_gain(analysis, layout, values, pair, head)
        theirs = printed_gain(layout, head, pair.row, pair.over, analysis.alpha)
        published = ""
        if theirs:
            published = " ".join(filter(None, _gain_texts(theirs)))
        if ours is None:
            if theirs is not None:
                cells[name] = TableCell("", theirs.value, published=published)
            continue
        text, interval = _gain_texts(ours)
        cells[name] = TableCell(
            text, ours.value, spread=interval, published=published, href=links.to_algorithm(pair.row), bold=ours.is_sure
        )
    return cells


def _our_gain(
    analysis: Analysis, layout: TableLayout, values: pd.DataFrame, pair: Hypothesis, head: str
) -> Gain | None:
    """Return the gain of our own runs on a column; None if one of the two rows has no run."""
    paired = analysis.data(SINGLE_RUNS).table
    of_set = paired[paired["dataset"] == layout.columns[head].set]
    return gain(values, pair.row, pair.over, analysis.alpha, of_set)


def _gain_texts(gain: Gain) -> tuple[str, str]:
    """Return the value and its interval; the latter empty if there is none."""
    value, low, high = (f"{round(number, 1) + 0.0:+.1f}" for number in (gain.value, gain.low, gain.high))
    return value, f"[{low} to {high}]" if gain.interval else ""


def _describe_scores(analysis: Analysis, layout: TableLayout, frame: pd.DataFrame) -> str:
    """Say what the cells of a table of rows are."""
    parts = []
    if len(frame):
        error, run = wording.error_name(analysis), wording.replicate_noun(analysis)
        parts.append(f"Mean ± {error} between {run}s; bold: the best of a column.")
    if layout.source:
        printed = f"as printed ({layout.source})."
        parts.append(f"Below: {printed}" if len(frame) else wording.capitalized(printed))
    return " ".join(parts)


def _describe_gains(analysis: Analysis, layout: TableLayout, frame: pd.DataFrame) -> str:
    """Say what the gains are, and what their intervals are of."""
    ours, theirs = [], []
    for pair in layout.hypotheses.values():
        for head in layout.columns:
            ours.append(_our_gain(analysis, layout, frame[frame["column"] == head], pair, head))
            theirs.append(printed_gain(layout, head, pair.row, pair.over, analysis.alpha))
    gains = [gain for gain in (*ours, *theirs) if gain]
    kinds = dict.fromkeys(gain.interval for gain in gains if gain.interval)
    intervals = "; ".join(INTERVALS[kind] for kind in kinds) or "no interval is known"
    level = f"{100 * (1 - analysis.alpha):g}"
    parts = [f"Gain of one row over another in points; above 0 is better, also for errors. {level} %: {intervals}."]
    if any(not gain.interval for gain in gains):
        parts.append("Measures that are no share of images have no interval: one number does not show its scatter.")
    parts.append("Bold: 0 is outside the interval, which is of this pair and set alone.")
    if layout.source:
        printed = f"from what was printed ({layout.source})."
        parts.append(f"Below: {printed}" if any(ours) else wording.capitalized(printed))
    return " ".join(parts)


def _list_cells(layout: str, table: ReportTable) -> Iterator[dict[str, str]]:
    """Yield a line of layouts.csv per row and column: our number, its interval or deviation, and the printed one."""
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
