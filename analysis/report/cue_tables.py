"""Tables of cue profiles: shape, texture, background, watermark and factors, for the report and a page per row."""

from __future__ import annotations

import math
from typing import NamedTuple

import pandas as pd

from biasbed import measures, record
from biasbed.analysis.report import wording
from biasbed.analysis.report.charts import Chart, Mark, make_chart
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
from biasbed.datasets.releases import read_releases

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
    charts: list[Chart]  # the same for a narrow screen: percentages, ratios
    samples: str  # sentence about the sets that are a part of their release; empty if none is
    page: str  # file of its page; empty if there are too many rows


def cue_profiles(analysis: Analysis) -> list[CueProfile]:
    """Return a table of each row that some set tells of, in display order."""
    frame = analysis.cue_profiles
    present = [name for name in analysis.algorithms if name in set(frame["algorithm"])]
    names = record.slugs(present) if present else {}
    identifiers = {name: identifier for identifier, name in names.items()}
    profiles: list[CueProfile] = []
    for name in present:
        rows = frame[frame["algorithm"] == name]
        profiles.append(
            CueProfile(
                algorithm=name,
                label=analysis.label(name),
                table=_table(analysis, rows),
                figure=f"looks_at_{len(profiles) + 1}",
                charts=_charts(rows),
                samples=_samples(analysis, rows),
                page=f"looks_at_{identifiers[name]}.html" if len(present) <= MOST_PAGES else "",
            )
        )
    return profiles


def _table(analysis: Analysis, rows: pd.DataFrame) -> ReportTable:
    columns = [
        TableColumn("cue", _first_of_cue(rows)),
        TableColumn("measured", lambda row: text_cell(row["meaning"])),
        TableColumn("value", _value),
    ]
    if rows["people"].notna().any():
        columns.append(TableColumn("people", _people))
    has_decisions = rows["decisions"].notna().any()
    if has_decisions:
        columns.append(TableColumn("decisions", _decisions))
    columns.append(TableColumn("set", named("dataset", analysis.label)))
    bases = set(filter(None, rows["over"]))
    number = int(rows["num_runs"].max())
    caption = say("cue_profile") + say(_OVER[frozenset(bases)], number=number)
    if has_decisions:
        caption += say("cue_profile_decisions")
    sources = list(dict.fromkeys(filter(None, rows["people_from"])))
    if sources:
        caption += say("cue_profile_people", sources="; ".join(sources))
    return make_table(caption, columns, rows.to_dict("records"), FILE, oracle=analysis.rule.oracle)


def _samples(analysis: Analysis, rows: pd.DataFrame) -> str:
    """Return a sentence about the sets of which fewer images were tested than their release has; else nothing.

    A set of the same name with other classes is not the release's. rows: of the profile, whose values may be derived of
    several sets.
    """
    parts: dict[str, str] = {}
    for protocol in analysis.collection.protocols.values():
        names = _measured_sets(protocol, rows)
        for member in protocol.sets:
            release = read_releases().get(member.name)
            if member.name not in names or release is None or release.classes != member.classes:
                continue
            images = member.images // max(1, len(member.conditions))
            if images < release.images:
                name = analysis.label(member.name)
                parts[member.name] = say("cue_profile_sample", images=images, released=release.images, set=name)
    return say("cue_profile_samples", sets="; ".join(parts.values())) if parts else ""


def _measured_sets(protocol: record.Protocol, rows: pd.DataFrame) -> set[str]:
    """Return the sets that the values of a profile are measured on."""
    names = set()
    for measure, dataset in rows[["measure", "dataset"]].itertuples(index=False, name=None):
        metric = str(record.MetricName("test", measure, dataset))
        derivation = protocol.derivation(metric)
        for name in [metric] if derivation is None else derivation.inputs:
            parsed = record.parse_metric(name)
            if parsed is not None and parsed.set is not None:
                names.add(parsed.set)
    return names


def _charts(rows: pd.DataFrame) -> list[Chart]:
    """Return a chart of percentages and one of ratios, which can be read on a narrow screen."""
    charts = []
    for unit, phrase in ((measures.FRACTION, "chart_cues"), ("ratio", "chart_cue_ratios")):
        marks = [_mark(row) for row in rows[rows["unit"] == unit].to_dict("records")]
        charts.append(make_chart(say(phrase), marks, is_stacked=True))
    return [chart for chart in charts if chart is not None]


def _mark(row: TableRecord) -> Mark:
    digits = digits_of(row["unit"])
    parts = [f"{row['value']:.{digits}f}"]
    interval = interval_text(row["low"], row["high"], digits)
    if interval:
        parts.append(f"({interval})")
    if not math.isnan(row["decisions"]):
        parts.append(f"of {row['decisions']:,.0f} {wording.plural('decision', row['decisions'])}")
    if not math.isnan(row["people"]):
        parts.append(f"· people {row['people']:.{digits}f}")
    return Mark(measure_label(row["cue"], row["meaning"]), " ".join(parts), row["value"], row["low"], row["high"])


def measure_label(cue: str, meaning: str) -> str:
    """Return the words beside a measure: of a factor its name says enough."""
    return meaning if cue == "factors" else f"{cue}: {meaning}"


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


def _decisions(row: TableRecord) -> TableCell:
    number = row["decisions"]
    return TableCell(MISSING, value=-math.inf) if math.isnan(number) else TableCell(f"{number:,.0f}", value=int(number))


def _people(row: TableRecord) -> TableCell:
    if math.isnan(row["people"]):
        return TableCell(MISSING, value=-math.inf)
    digits = digits_of(row["unit"])
    return number_cell(row["people"], digits, interval=interval_text(row["people_low"], row["people_high"], digits))
