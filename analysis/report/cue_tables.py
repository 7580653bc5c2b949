"""Tables of cue profiles: shape, texture, background, watermark and factors, for the report and a page per row."""

from __future__ import annotations

import math
from typing import NamedTuple

import pandas as pd

from biasbed import measures, record
from biasbed.analysis.report.phrases import say
from biasbed.analysis.report.table_model import (
    MISSING,
    CellMaker,
    ReportTable,
    TableCell,
    TableColumn,
    TableRecord,
    interval_text,
    make_table,
    named,
    number_cell,
    text_cell,
)
from biasbed.analysis.result import Analysis

FILE = "cue_profiles.csv"
# Phrase about the intervals of a table, by what they are over.
_OVER = {
    frozenset(): "cue_profile_over_none",
    frozenset({"images"}): "cue_profile_over_images",
    frozenset({"runs"}): "cue_profile_over_runs",
    frozenset({"images", "runs"}): "cue_profile_over_images_runs",
}
MOST_PAGES = 24  # rows with a page of their own


class CueProfile(NamedTuple):
    """Cue profile of one row, as the report shows it."""

    algorithm: str  # its id
    label: str
    table: ReportTable
    figure: str  # name of its figure
    page: str  # file of its page; empty if there are too many rows


def cue_profiles(analysis: Analysis) -> list[CueProfile]:
    """Return a table of each row that some set tells of, in display order."""
    frame = analysis.cue_profiles
    present = [name for name in analysis.algorithms if name in set(frame["algorithm"])]
    names = record.slugs(present) if present else {}
    identifiers = {name: identifier for identifier, name in names.items()}
    profiles: list[CueProfile] = []
    for name in present:
        table = _table(analysis, frame[frame["algorithm"] == name])
        page = f"looks_at_{identifiers[name]}.html" if len(present) <= MOST_PAGES else ""
        profiles.append(CueProfile(name, analysis.label(name), table, f"looks_at_{len(profiles) + 1}", page))
    return profiles


def _table(analysis: Analysis, rows: pd.DataFrame) -> ReportTable:
    columns = [
        TableColumn("cue", _first_of_cue(rows)),
        TableColumn("measured", lambda row: text_cell(row["meaning"])),
        TableColumn("value", _value),
    ]
    if rows["people"].notna().any():
        columns.append(TableColumn("people", _people))
    columns.append(TableColumn("set", named("dataset", analysis.label)))
    bases = set(filter(None, rows["over"]))
    number = int(rows["num_runs"].max())
    caption = say("cue_profile") + say(_OVER[frozenset(bases)], number=number)
    sources = list(dict.fromkeys(filter(None, rows["people_from"])))
    if sources:
        caption += say("cue_profile_people", sources="; ".join(sources))
    return make_table(caption, columns, rows.to_dict("records"), FILE, oracle=analysis.rule.oracle)


def _first_of_cue(rows: pd.DataFrame) -> CellMaker:
    """Show the cue in the first of its rows; every cell sorts by its cue."""
    first = rows.drop_duplicates("cue")[["measure", "dataset"]].itertuples(index=False, name=None)
    firsts = set(first)
    order = {cue: position for position, cue in enumerate(rows["cue"].unique())}

    def make(row: TableRecord) -> TableCell:
        shown = row["cue"] if (row["measure"], row["dataset"]) in firsts else ""
        return TableCell(shown, value=order[row["cue"]], left=True)

    return make


def digits_of(unit: str) -> int:
    """Return the decimals of a value in this unit."""
    return 1 if unit == measures.FRACTION else 2


def _value(row: TableRecord) -> TableCell:
    digits = digits_of(row["unit"])
    interval = interval_text(row["low"], row["high"], digits)
    return number_cell(
        row["value"], digits, interval=interval, spread="" if row["unit"] == measures.FRACTION else row["unit"]
    )


def _people(row: TableRecord) -> TableCell:
    if math.isnan(row["people"]):
        return TableCell(MISSING, value=-math.inf)
    digits = digits_of(row["unit"])
    return number_cell(row["people"], digits, interval=interval_text(row["people_low"], row["people_high"], digits))
