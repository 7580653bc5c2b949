"""Cue profiles of rows: measures of shape, texture, background, watermark and factors at the selected epochs.

The interval of a row with several runs is over runs. A model that was only tested has the interval over images that its
evaluation computed.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

from biasbed import measures, record
from biasbed.analysis.report.table_model import (
    MISSING,
    CellMaker,
    Links,
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
from biasbed.analysis.result import SCORE_DIGITS, Analysis
from biasbed.analysis.runs.run import Run
from biasbed.analysis.sections.section import CsvFile, PlannedFigure, Section, Sentences, ShownPart
from biasbed.analysis.selection.select import Selected
from biasbed.analysis.statistics.friedman import DIGITS
from biasbed.datasets.releases import read_releases
from biasbed.evaluation.decisions import OF_CONFLICTS
from biasbed.plugins.cues.cue_profile import cue_order, find_cue

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from biasbed.analysis.report.figures.style import Sheet
    from biasbed.analysis.runs.predictions import DecisionReader

FILE = "cue_profiles.csv"
MOST = 6  # rows in one figure
INCHES = 0.3  # height of a measure in a figure

OVER_RUNS, OVER_IMAGES = "runs", "images"
# value, low, high and people's numbers: in percent if that is the unit. over: what the interval is over; empty if none.
# decisions: number of decisions that the value rests on; NaN unless an evaluation has counted them.
COLUMNS = (
    *("algorithm", "cue", "meaning", "measure", "dataset", "unit", "value", "low", "high", "over", "num_runs"),
    "decisions",
    *("people", "people_low", "people_high", "people_from"),
)
NUMBERS = ("value", "low", "high", "people", "people_low", "people_high")
LEVEL = 0.95


class CueProfile(Section[pd.DataFrame]):
    """Cues that each row looks at: shape, texture, background, watermark and factors; the data are `COLUMNS`."""

    name = "cues"
    title = "What each row looks at"
    before = "effective"

    def compute(self, analysis: Analysis) -> pd.DataFrame:
        return cue_profile_table(analysis.inputs.decisions, analysis.selected, analysis.collection.algorithms)

    def files(self, data: pd.DataFrame, analysis: Analysis) -> Iterator[CsvFile]:
        about = "what each row looks at: shape, texture, background, watermark and factors, with intervals"
        yield CsvFile(FILE, data.round(SCORE_DIGITS), about)

    def show(self, data: pd.DataFrame, analysis: Analysis, links: Links) -> Iterator[ShownPart]:
        names = [name for name in analysis.algorithms if name in set(data["algorithm"])]
        together = [names] if len(names) <= MOST else [[name] for name in names]
        for number, drawn in enumerate(together if names else []):
            yield PlannedFigure(
                f"looks_at_{number + 1}" if len(together) > 1 else "looks_at",
                functools.partial(draw, analysis, data, drawn),
                description="what each row looks at: shape, texture, background and more",
                alt="what rows look at: a point with its interval for each measure of a cue",
                caption=(
                    "Points are values, lines 95 % intervals, open diamonds people. Percentages above, ratios of "
                    "errors below; at the dotted line a factor makes no difference."
                ),
            )
        for name in names:
            rows = data[data["algorithm"] == name]
            yield make_row_table(analysis, name, rows)
            samples = describe_samples(analysis, rows)
            if samples:
                yield Sentences((samples,))

    def leads(self, analysis: Analysis) -> bool:
        return len(analysis.algorithms) == 1  # nothing is compared


CUE_PROFILE = CueProfile()

# --- what is computed -------------------------------------------------------------------------------------------------


class _CueKey(NamedTuple):
    """Measure of a cue on a set."""

    measure: str
    dataset: str


def cue_profile_table(decisions: DecisionReader, selected: Selected, algorithms: Sequence[str]) -> pd.DataFrame:
    """Return `COLUMNS`, one row per algorithm and measure of a cue; empty if no set tells of any.

    Rows of several cells (training data) have none: their runs are not repeats of one another. Trainings that were
    tested on cue conflicts alone have none either: `shape_bias.shape_bias_table` tells as much.
    """
    runs, values, units = _read_values(selected)
    rows = []
    for algorithm in algorithms:
        of_row = {key: by_run for (name, key), by_run in values.items() if name == algorithm}
        evaluated = _read_evaluated(decisions, runs[algorithm]) if len(runs.get(algorithm, ())) == 1 else {}
        for key in sorted(of_row, key=lambda key: cue_order(key.measure, key.dataset)):
            cue = find_cue(key.measure, key.dataset)
            assert cue is not None
            row: dict[str, Any] = {
                "algorithm": algorithm,
                "cue": cue.cue,
                "meaning": cue.meaning,
                "measure": key.measure,
                "dataset": key.dataset,
                "unit": units[key],
                **_mean_with_interval(list(of_row[key].values()), evaluated.get(key, {})),
            }
            scale = measures.scale(units[key])
            rows.append(row | {name: scale * row[name] for name in NUMBERS})
    frame = pd.DataFrame(rows, columns=list(COLUMNS)).round(DIGITS)
    tells_more = not set(frame["measure"]) <= {*OF_CONFLICTS} or (frame["over"] == OVER_IMAGES).any()
    return frame if tells_more else frame.iloc[:0]


class _CueValues(NamedTuple):
    """Values of the chosen runs at the chosen steps."""

    runs: dict[str, list[Run]]  # by algorithm
    values: dict[tuple[str, _CueKey], dict[str, float]]  # (algorithm, measure) -> run id -> value
    units: dict[_CueKey, str]


def _read_values(selected: Selected) -> _CueValues:
    runs: dict[str, dict[str, Run]] = {}
    values: dict[tuple[str, _CueKey], dict[str, float]] = {}
    units: dict[_CueKey, str] = {}
    cells = {chosen.pool.cell for chosen in selected.choices}
    cue_metrics: dict[str, list[tuple[str, _CueKey]]] = {}  # by run id, as a run is chosen for every column
    for chosen in selected.choices if len(cells) == 1 else ():
        run, history, algorithm = chosen.candidate.run, chosen.candidate.history, chosen.pool.algorithm
        if run.kind == "published":
            continue
        runs.setdefault(algorithm, {})[run.id] = run
        if run.id not in cue_metrics:
            keys = [(metric, _find_key(metric)) for metric in history.metrics]
            cue_metrics[run.id] = [(metric, key) for metric, key in keys if key is not None]
        for metric, key in cue_metrics[run.id]:
            # A set that is no column is measured at the steps of the first one.
            if key.dataset != chosen.column.set_record.name and not _is_uncounted(key.dataset, chosen.protocol):
                continue
            value = history.mean(metric, chosen.steps)
            if not math.isnan(value):
                values.setdefault((algorithm, key), {}).setdefault(run.id, value)
                units[key] = measures.describe_metric(chosen.protocol, metric).unit
    return _CueValues({name: list(by_id.values()) for name, by_id in runs.items()}, values, units)


@functools.cache
def _find_key(metric: str) -> _CueKey | None:
    """Return the measure of a cue that a metric is; None for other metrics."""
    name = record.parse_metric(metric)
    if name is None or name.phase != "test" or name.group or name.set is None:
        return None
    return _CueKey(name.measure, name.set) if find_cue(name.measure, name.set) is not None else None


def _is_uncounted(name: str, protocol: record.Protocol) -> bool:
    """Return True for a set of the protocol that does not count."""
    return any(tested.name == name and not tested.counts for tested in protocol.sets)


def _mean_with_interval(values: Sequence[float], evaluated: Mapping[str, str]) -> dict[str, Any]:
    """Return the mean over runs with its interval and people's number. evaluated: the row of the only run's file."""
    from scipy import stats

    low, high, basis = math.nan, math.nan, ""
    if len(values) > 1 and np.ptp(values) > 0:
        half = float(stats.t.ppf((1 + LEVEL) / 2, len(values) - 1) * np.std(values, ddof=1) / math.sqrt(len(values)))
        low, high, basis = float(np.mean(values)) - half, float(np.mean(values)) + half, OVER_RUNS
    elif len(values) == 1:
        low, high = _parse_number(evaluated.get("low")), _parse_number(evaluated.get("high"))
        basis = "" if math.isnan(low) else OVER_IMAGES
    return {
        "value": math.fsum(values) / len(values),
        "low": low,
        "high": high,
        "over": basis,
        "num_runs": len(values),
        "decisions": _parse_number(evaluated.get("decisions")),
        "people": _parse_number(evaluated.get("people")),
        "people_low": _parse_number(evaluated.get("people_low")),
        "people_high": _parse_number(evaluated.get("people_high")),
        "people_from": str(evaluated.get("people_from") or ""),
    }


def _read_evaluated(decisions: DecisionReader, runs: Sequence[Run]) -> dict[_CueKey, Mapping[str, str]]:
    """Return the rows of the file that an evaluation wrote, by measure and set; empty for another run."""
    rows: dict[_CueKey, Mapping[str, str]] = {}
    profile = decisions.table(runs[0], "looks_at.csv")
    if len({row.get("observer") for row in profile}) > 1:  # of recorded decisions of several models
        return rows
    for row in profile:
        rows[_CueKey(str(row.get("measure")), str(row.get("set")))] = row
    return rows


def _parse_number(value: object) -> float:
    try:
        return float(str(value))
    except ValueError:
        return math.nan


# --- how it is shown --------------------------------------------------------------------------------------------------

CAPTION = (
    "Measures of this row in percent, or as ratios, where 1 means that a factor makes no difference. Below: "
    "the 95 % interval"
)


def make_row_table(analysis: Analysis, name: str, rows: pd.DataFrame) -> ReportTable:
    """Return the profile of one row. rows: its `COLUMNS`."""
    columns = [
        TableColumn("cue", _first_of_cue(rows)),
        TableColumn("measured", lambda row: text_cell(row["meaning"])),
        TableColumn("value", _value_cell),
    ]
    if rows["people"].notna().any():
        columns.append(TableColumn("people", _people_cell))
    has_decisions = rows["decisions"].notna().any()
    if has_decisions:
        columns.append(TableColumn("decisions", _decisions_cell))
    columns.append(TableColumn("set", named("dataset", analysis.label)))
    caption = f"{analysis.label(name)}: {CAPTION}{_describe_intervals(rows)}"
    if has_decisions:
        caption += " Decisions: how many of the model's a value rests on."
    sources = list(dict.fromkeys(filter(None, rows["people_from"])))
    if sources:
        caption += f" People: {'; '.join(sources)}; below, the lowest and the highest person."
    return make_table(caption, columns, rows.to_dict("records"), FILE, oracle=analysis.rule.oracle)


def _describe_intervals(rows: pd.DataFrame) -> str:
    """Say what the intervals of a profile are over."""
    bases = set(filter(None, rows["over"]))
    if bases == {OVER_IMAGES, OVER_RUNS}:
        return " over images of one evaluation, or of the mean over runs (Student's t)."
    if OVER_IMAGES in bases:
        return " over images, of one evaluation."
    if OVER_RUNS in bases:
        return f" of the mean over {int(rows['num_runs'].max())} runs (Student's t)."
    return ", which one run without stored intervals does not have."


def describe_samples(analysis: Analysis, rows: pd.DataFrame) -> str:
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
                parts[member.name] = f"{images:,} of {release.images:,} images of {name}"
    return f"Only a part of a release was tested: {'; '.join(parts.values())}." if parts else ""


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


def _value_cell(row: TableRecord) -> TableCell:
    digits = digits_of(row["unit"])
    interval = interval_text(row["low"], row["high"], digits)
    return number_cell(
        row["value"], digits, interval=interval, spread="" if row["unit"] == measures.FRACTION else row["unit"]
    )


def _decisions_cell(row: TableRecord) -> TableCell:
    number = row["decisions"]
    return TableCell(MISSING, value=-math.inf) if math.isnan(number) else TableCell(f"{number:,.0f}", value=int(number))


def _people_cell(row: TableRecord) -> TableCell:
    if math.isnan(row["people"]):
        return TableCell(MISSING, value=-math.inf)
    digits = digits_of(row["unit"])
    return number_cell(row["people"], digits, interval=interval_text(row["people_low"], row["people_high"], digits))


def draw(analysis: Analysis, frame: pd.DataFrame, names: Sequence[str]) -> Figure:
    """Draw the values of these rows, percentages and ratios in panels of their own. frame: `COLUMNS`."""
    from biasbed.analysis.report.figures.style import Sheet, legend

    frame = frame[frame["algorithm"].isin(names)]
    keys = frame.drop_duplicates(["measure", "dataset"])[["cue", "meaning", "measure", "dataset", "unit"]]
    units = [unit for unit in (measures.FRACTION, "ratio") if unit in set(keys["unit"])]
    heights = [int((keys["unit"] == unit).sum()) for unit in units]
    figure = Sheet(figsize=(7.2, 0.9 + INCHES * sum(heights) + 0.5 * len(units)), layout="constrained")
    panels = figure.subplots(len(units), 1, squeeze=False, height_ratios=heights)[:, 0]
    for axes, unit in zip(panels, units, strict=True):
        _draw_panel(figure, axes, analysis, frame[frame["unit"] == unit], keys[keys["unit"] == unit], names, unit)
    legend(figure, *panels)
    return figure


def _draw_panel(
    figure: Sheet,
    axes: Axes,
    analysis: Analysis,
    frame: pd.DataFrame,
    keys: pd.DataFrame,
    names: Sequence[str],
    unit: str,
) -> None:
    """Draw one panel: measures from top to bottom, in the order of the table."""
    from biasbed.analysis.report.figures.style import GREY, LIGHT, SMALL, look

    position = {(key.measure, key.dataset): row for row, key in enumerate(keys.itertuples())}
    for line in range(len(keys)):
        axes.axhline(line, color=LIGHT, lw=0.8, zorder=0)
    step = 0.6 / max(1, len(names))
    for number, name in enumerate(names):
        colour, _, marker = look(analysis.algorithms.index(name))
        rows = frame[frame["algorithm"] == name]
        heights = [
            position[key] + (number - (len(names) - 1) / 2) * step
            for key in zip(rows["measure"], rows["dataset"], strict=True)
        ]
        for values, height in zip(rows.to_dict("records"), heights, strict=True):
            figure.tip(axes, values["value"], height, _describe_value(analysis.label(name), values))
        axes.hlines(heights, rows["low"], rows["high"], color=colour, lw=1.6)
        axes.plot(rows["value"], heights, marker, color=colour, ms=5, label=analysis.label(name))
    people = frame.dropna(subset=["people"]).drop_duplicates(["measure", "dataset"])
    if len(people):
        heights = [position[key] for key in zip(people["measure"], people["dataset"], strict=True)]
        axes.plot(people["people"], heights, "D", mfc="none", color=GREY, ms=6, label="people")
    labels = [measure_label(str(key.cue), str(key.meaning)) for key in keys.itertuples()]
    axes.set_yticks(range(len(keys)), labels, fontsize=SMALL)
    axes.set_ylim(len(keys) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    if unit == measures.FRACTION:
        axes.set_xlim(min(-2.0, float(frame["low"].min()) - 2), 102)
        axes.set_xlabel("%")
    else:
        axes.axvline(1, color=GREY, lw=0.8, ls=":")
        axes.set_xlabel("error by the error on all images")


def _describe_value(label: str, row: TableRecord) -> str:
    """Return a value as a tooltip: row, measure, value and interval."""
    digits = digits_of(row["unit"])
    interval = interval_text(row["low"], row["high"], digits)
    return f"{label}, {row['meaning']}: {row['value']:.{digits}f}" + (f" ({interval})" if interval else "")
