"""Tables that are laid out as a paper's (`report=`): one's own numbers, and beside them those that were printed."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import pandas as pd

from biasbed.analysis import layouts, scores
from biasbed.analysis.layout_file import Hypothesis, PrintedNumber, TableLayout
from biasbed.analysis.layouts import IMAGES, PAIRED, RUNS, Gain
from biasbed.analysis.report import floats, latex, words
from biasbed.analysis.report.cells import Links, ReportTable, TableCell
from biasbed.analysis.report.cells import text as words_of
from biasbed.analysis.result import Analysis, number

CSV = "layouts.csv"
NOTHING = "-"
OF = {
    RUNS: "over runs (Welch's t)",
    PAIRED: "of one run each, over the images that both decided on (bootstrap), which tells nothing of other seeds",
    IMAGES: "over images, taken as if each row were tested on others (Newcombe 1998, method 10), which is too wide",
}


@dataclass(frozen=True)
class LaidCell:
    """One cell. Texts are empty where there is no such number."""

    ours: str = ""
    about: str = ""  # deviation over runs, or interval
    printed: str = ""
    best: bool = False
    row: str = ""  # whose runs it leads to
    value: float = math.nan  # by which it is sorted


@dataclass(frozen=True)
class LaidTable:
    """One table."""

    layout: TableLayout
    heads: tuple[str, ...]
    rows: tuple[tuple[str, tuple[LaidCell, ...]], ...]  # name, cells
    caption: str
    missing: tuple[str, ...]  # rows that the runs lack, each with what would make it

    @property
    def title(self) -> str:
        return self.layout.words.title or self.layout.name


def of(analysis: Analysis) -> list[LaidTable]:
    """All that were asked for, in that order."""
    return [_table(analysis, one) for one in layouts.wanted(analysis.options)]


def _table(analysis: Analysis, one: TableLayout) -> LaidTable:
    frame = analysis.laid_out[analysis.laid_out["layout"] == one.name]
    gaps = tuple(layouts.missing(one, analysis.algorithms))
    heads = tuple(one.columns)
    if one.hypotheses:
        rows = [(name, tuple(_gain(analysis, one, frame, name, head) for head in heads)) for name in one.hypotheses]
        return LaidTable(one, heads, tuple(rows), _caption_of_gains(analysis, one, frame), gaps)
    printed = one.published()
    columns = [_column(analysis, one, frame[frame["column"] == head], printed, head) for head in heads]
    rows = [(label, tuple(column[row] for column in columns)) for row, label in one.rows.items()]
    return LaidTable(one, heads, tuple(rows), _caption(analysis, one, frame), gaps)


def _column(
    analysis: Analysis,
    one: TableLayout,
    values: pd.DataFrame,
    printed: Mapping[tuple[str, str], PrintedNumber],
    head: str,
) -> dict[str, LaidCell]:
    """Row -> its cell, the best of one's own marked, where there are none the best that was printed."""
    cells, best = {}, {}
    for row in one.rows:
        own = values.loc[values["row"] == row, "value"].astype(float)
        theirs = printed.get((row, head))
        text = "" if theirs is None else f"{theirs.value:.{theirs.digits}f}"
        if own.empty:
            cells[row] = LaidCell(printed=text, value=math.nan if theirs is None else theirs.value)
            continue
        spread = scores.spread_of(float(own.std()), len(own), analysis.error)
        about = "" if math.isnan(spread) else f"±{number(spread)}"
        cells[row] = LaidCell(number(own.mean()), about, text, row=row, value=float(own.mean()))
        best[row] = cells[row].value
    if len(best) > 1:
        found = max(best.values()) if bool(values["higher_is_better"].iloc[0]) else min(best.values())
        for row in best:
            cells[row] = replace(cells[row], best=cells[row].ours == number(found))
    return cells


def _gain(analysis: Analysis, one: TableLayout, frame: pd.DataFrame, name: str, head: str) -> LaidCell:
    pair = one.hypotheses[name]
    ours = _ours(analysis, one, frame, pair, head)
    theirs = layouts.printed_gain(one, head, pair.row, pair.over, analysis.alpha)
    printed = " ".join(filter(None, _gain_text(theirs))) if theirs else ""
    if ours is None:
        return LaidCell(printed=printed, value=theirs.value if theirs else math.nan)
    return LaidCell(*_gain_text(ours), printed, ours.is_sure, pair.row, ours.value)


def _ours(analysis: Analysis, one: TableLayout, frame: pd.DataFrame, pair: Hypothesis, head: str) -> Gain | None:
    """What one's own runs have gained on a column."""
    paired = analysis.over_images.table
    of_set = paired[paired["dataset"] == one.columns[head].set]
    return layouts.gain(frame[frame["column"] == head], pair.row, pair.over, analysis.alpha, of_set)


def _gain_text(found: Gain) -> tuple[str, str]:
    value, low, high = (f"{round(number, 1) + 0.0:+.1f}" for number in (found.value, found.low, found.high))  # no -0.0
    return value, f"[{low} to {high}]" if found.of else ""


def _caption(analysis: Analysis, one: TableLayout, frame: pd.DataFrame) -> str:
    said = []
    if len(frame):
        said.append(f"Mean ± {words.error(analysis)} between {words.repeated(analysis)}s; bold: the best of a column.")
    if one.words.source:
        said.append(f"{'Below: as' if len(frame) else 'As'} printed ({one.words.source}).")
    return " ".join(said)


def _caption_of_gains(analysis: Analysis, one: TableLayout, frame: pd.DataFrame) -> str:
    level = f"{100 * (1 - analysis.alpha):g} %"
    said = [f"What a row gains over another, in points; above 0 is better, also where errors are shown. {level}:"]
    places = [(pair, head) for pair in one.hypotheses.values() for head in one.columns]
    ours = [_ours(analysis, one, frame, pair, head) for pair, head in places]
    theirs = [layouts.printed_gain(one, head, pair.row, pair.over, analysis.alpha) for pair, head in places]
    kinds = dict.fromkeys(found.of for found in (*ours, *theirs) if found and found.of)
    said.append("; ".join(OF[kind] for kind in kinds) + "." if kinds else "no interval is known.")
    if any(found and not found.of for found in (*ours, *theirs)):
        said.append("Without an interval: of what is no share of images, one number tells no scatter.")
    said.append("Bold: 0 is outside the interval; each tells of its own pair and set alone.")
    if one.words.source:
        said.append(f"{'Below: from' if any(ours) else 'From'} what was printed ({one.words.source}).")
    return " ".join(said)


# --- as HTML, text, LaTeX and CSV -------------------------------------------------------------------------------------


def section(analysis: Analysis, links: Links) -> list[tuple[ReportTable, tuple[str, ...]]]:
    """(table, rows that are missing) of each."""
    found = []
    for table in of(analysis):
        rows = tuple((words_of(name), *(_shown(cell, links) for cell in cells)) for name, cells in table.rows)
        caption = f"{table.title}. {table.caption}"
        found.append((ReportTable(caption, ("", *table.heads), rows, analysis.rule.oracle, CSV), table.missing))
    return found


def _shown(cell: LaidCell, links: Links) -> TableCell:
    value = -math.inf if math.isnan(cell.value) else cell.value
    if not cell.ours:
        return TableCell(cell.printed or NOTHING, value=value)
    href = f"#{links.algorithms[cell.row]}"
    return TableCell(cell.ours, value, href, small=cell.about, below=cell.printed, bold=cell.best)


def in_words(table: LaidTable) -> list[list[str]]:
    """Its heads and rows as text."""
    return [["", *table.heads], *([name, *map(_plain, cells)] for name, cells in table.rows)]


def _plain(cell: LaidCell) -> str:
    if not cell.ours:
        return f"({cell.printed})" if cell.printed else NOTHING
    return " ".join(filter(None, (cell.ours, cell.about, cell.printed and f"({cell.printed})")))


def write(analysis: Analysis, folder: Path) -> dict[str, str]:
    """Writes each into `folder/tables` as LaTeX; returns file name -> one line that says what it is."""
    files = {}
    for table in of(analysis):
        name = f"tables/{table.layout.name}.tex"
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(_latex(analysis, table), encoding="utf-8")
        files[name] = f"{table.title}, LaTeX"
    return files


def _latex(analysis: Analysis, table: LaidTable) -> str:
    rows = [[floats.escape(name), *map(_latex_cell, cells)] for name, cells in table.rows]
    header = ["", *map(floats.turned, table.heads)]
    marks = floats.escape(table.caption.replace("Below:", "In brackets:")).replace("±", r"$\pm$")
    caption = f"{'ORACLE: ' if analysis.rule.oracle else ''}{floats.escape(table.title)}."
    note = f"{marks} {latex.provenance(analysis)}."
    return floats.floated(header, rows, "l" + "r" * len(table.heads), table.layout.name, caption=caption, note=note)


def _latex_cell(cell: LaidCell) -> str:
    if not cell.ours:
        return f"({cell.printed})" if cell.printed else "--"
    about = rf" {{\scriptsize {floats.escape(cell.about)}}}".replace("±", r"$\pm$") if cell.about else ""
    return floats.bold(cell.ours, cell.best) + about + (f" ({cell.printed})" if cell.printed else "")


def frame(analysis: Analysis) -> pd.DataFrame:
    """Tidy: one row per table, row and column; ours and printed as they are shown, interval or deviation in `about`."""
    return pd.DataFrame(
        [
            {"layout": table.layout.name, "row": name, "column": head, "ours": cell.ours, "about": cell.about}
            | {"printed": cell.printed}
            for table in of(analysis)
            for name, cells in table.rows
            for head, cell in zip(table.heads, cells, strict=True)
        ]
    )
