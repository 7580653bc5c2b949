"""Tables laid out as a paper's (`report=`): our numbers, and beside them those that the paper printed."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from biasbed.analysis import scores
from biasbed.analysis.comparisons import paper_layout
from biasbed.analysis.comparisons.layout_file import Hypothesis, PrintedNumber, TableLayout
from biasbed.analysis.comparisons.paper_layout import Gain
from biasbed.analysis.report import latex, wording
from biasbed.analysis.report.phrases import say
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
from biasbed.analysis.sections.single_runs import SINGLE_RUNS

CSV = "layouts.csv"


@dataclass(frozen=True)
class LaidOutTable:
    """One table, and the rows that it lacks."""

    name: str  # of the layout
    title: str
    table: ReportTable
    missing: tuple[str, ...]  # rows that the runs lack, each with what would make it


def laid_out_tables(analysis: Analysis, links: Links) -> list[LaidOutTable]:
    """Return the tables that `report=` asks for, in its order."""
    return [_lay_out(analysis, layout, links) for layout in paper_layout.requested(analysis.options)]


def _lay_out(analysis: Analysis, layout: TableLayout, links: Links) -> LaidOutTable:
    """Return a table in the layout that a paper prints, with the published value beside ours."""
    frame = analysis.laid_out[analysis.laid_out["layout"] == layout.name]
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
    caption = _describe_gains(analysis, layout, frame) if layout.hypotheses else _describe(analysis, layout, frame)
    title = layout.title or layout.name
    oracle = ""
    if analysis.rule.oracle:
        oracle = "ORACLE: "
    marks = latex.prose(caption.replace("Below:", "In brackets:"))
    note = f"{marks} {latex.provenance(analysis)}."
    text = PrintedText(layout.name, f"{oracle}{latex.escape(title)}.", note)
    table = make_table(f"{title}. {caption}", columns, records.values(), CSV, oracle=analysis.rule.oracle, printed=text)
    return LaidOutTable(layout.name, title, table, tuple(paper_layout.missing(layout, analysis.algorithms)))


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


def _gain_cells(
    analysis: Analysis, layout: TableLayout, values: pd.DataFrame, head: str, links: Links
) -> dict[str, TableCell]:
    """Return a column's cells by hypothesis: what its row gains over the other, in bold if the interval excludes 0."""
    cells = {}
    for name, pair in layout.hypotheses.items():
        ours = _our_gain(analysis, layout, values, pair, head)
        theirs = paper_layout.printed_gain(layout, head, pair.row, pair.over, analysis.alpha)
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
    """Return the gain of our own runs on a column; None if one of the two rows has none."""
    paired = analysis.data(SINGLE_RUNS).table
    of_set = paired[paired["dataset"] == layout.columns[head].set]
    return paper_layout.gain(values, pair.row, pair.over, analysis.alpha, of_set)


def _gain_texts(gain: Gain) -> tuple[str, str]:
    """Return the value and its interval; the latter empty if there is none."""
    value, low, high = (f"{round(number, 1) + 0.0:+.1f}" for number in (gain.value, gain.low, gain.high))
    return value, f"[{low} to {high}]" if gain.of else ""


def _describe(analysis: Analysis, layout: TableLayout, frame: pd.DataFrame) -> str:
    """Say what the cells are."""
    parts = []
    if len(frame):
        parts.append(say("laid_out_ours", error=wording.error(analysis), run=wording.repeated(analysis)))
    if layout.source:
        printed = "laid_out_printed_below" if len(frame) else "laid_out_printed"
        parts.append(say(printed, source=layout.source))
    return " ".join(parts)


def _describe_gains(analysis: Analysis, layout: TableLayout, frame: pd.DataFrame) -> str:
    """Say what the gains are, and what their intervals are of."""
    ours, theirs = [], []
    for pair in layout.hypotheses.values():
        for head in layout.columns:
            ours.append(_our_gain(analysis, layout, frame[frame["column"] == head], pair, head))
            theirs.append(paper_layout.printed_gain(layout, head, pair.row, pair.over, analysis.alpha))
    gains = [gain for gain in (*ours, *theirs) if gain]
    kinds = dict.fromkeys(gain.of for gain in gains if gain.of)
    intervals = "; ".join(say(f"laid_out_intervals.{kind}") for kind in kinds) or say("laid_out_no_interval")
    parts = [say("laid_out_gains", level=f"{100 * (1 - analysis.alpha):g}", intervals=intervals)]
    if any(not gain.of for gain in gains):
        parts.append(say("laid_out_without_interval"))
    parts.append(say("laid_out_bold_gain"))
    if layout.source:
        printed = "laid_out_gains_below" if any(ours) else "laid_out_gains_printed"
        parts.append(say(printed, source=layout.source))
    return " ".join(parts)


def frame(tables: list[LaidOutTable]) -> pd.DataFrame:
    """Return a line per table, row and column: our and the printed number as shown; about: interval or deviation."""
    lines = []
    for laid_out in tables:
        for name, *cells in laid_out.table.rows:
            for column, cell in zip(laid_out.table.columns[1:], cells, strict=True):
                lines.append(
                    {
                        "layout": laid_out.name,
                        "row": name.name or name.text,
                        "column": column.name,
                        "ours": "" if cell.text == MISSING else cell.text,
                        "about": cell.spread,
                        "printed": cell.published,
                    }
                )
    return pd.DataFrame(lines)
