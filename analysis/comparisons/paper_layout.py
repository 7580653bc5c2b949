"""Values for tables laid out as a paper's: scores of chosen epochs, and gains of one row over another.

Files name the rows and columns (`layout_file`); this module finds their values in the runs.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pandas as pd

from biasbed import measures
from biasbed.analysis.columns import Column, measured_by
from biasbed.analysis.comparisons import layout_file
from biasbed.analysis.comparisons.bias_measures import measure_at
from biasbed.analysis.comparisons.layout_file import TableLayout
from biasbed.analysis.selection.select import ChosenRun, Selected
from biasbed.analysis.statistics import per_set
from biasbed.analysis.statistics.friedman import DIGITS
from biasbed.errors import UsageError, listed
from biasbed.system import commands

if TYPE_CHECKING:
    from biasbed.analysis.options import AnalyzeOptions

# value: as the table shows it, so an error if it shows errors.
COLUMNS = ("layout", "row", "column", "run_id", "measure", "value", "higher_is_better", "images")
RUNS, PAIRED, IMAGES = "runs", "paired images", "images"  # what an interval is of


@dataclass(frozen=True)
class Gain:
    """Gain of a row over another in points; above 0 is better, also if less of the measure is better."""

    value: float
    low: float = math.nan
    high: float = math.nan
    of: str = ""  # kind of the interval; empty without one

    @property
    def is_sure(self) -> bool:
        """True if 0 is outside the interval."""
        return bool(self.of) and not self.low <= 0 <= self.high


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
            if algorithm in layout.needed:
                lines += [(layout.name, algorithm, *value) for value in _read_values(layout, chosen)]
    return pd.DataFrame(lines, columns=list(COLUMNS)).round({"value": DIGITS})


def _check(layout: TableLayout, sets: Sequence[Column], rows: Collection[str]) -> None:
    for head in layout.columns.values():
        cells = [column.cell for column in sets if head.shows(column)]
        if len(cells) > 1:
            raise UsageError(f"report={layout.name}: '{head.set}' is a column of several cells: {listed(cells)}")
    if not set(layout.needed) & set(rows):
        ways = "; ".join(way.strip() for way in missing(layout, rows))
        raise UsageError(f"report={layout.name}: none of its rows is among the runs: {ways}")


def missing(layout: TableLayout, rows: Collection[str]) -> list[str]:
    """Return a line for each row that the runs lack, with the command that makes it."""
    lines = []
    for name in layout.needed:
        if name in rows:
            continue
        command = ""
        if layout.study:
            settings = {"table": layout.study, "data_dir": "<folder>", "algorithms": name}
            command = commands.typed("benchmark", settings)
        way = layout.lacking.get(name, command)
        lines.append(f"  {name}: {way}" if way else f"  {name}")
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


# --- gains ------------------------------------------------------------------------------------------------------------


def gain(
    frame: pd.DataFrame, row: str, other_row: str, alpha: float, paired: pd.DataFrame | None = None
) -> Gain | None:
    """Return the gain of a row over another, from the values of one column; None if one of the two has none.

    With two runs of each the interval is Welch's, over runs. With fewer only accuracies have one, over images: from the
    decisions on each image (paired: `single_runs.COLUMNS`, of this column), else as if the two had been tested on
    different images (`independent`).
    """
    sides = [frame.loc[frame["row"] == name, "value"].to_numpy(dtype="float64") for name in (row, other_row)]
    if not all(map(len, sides)):
        return None
    first = frame.iloc[0]
    sign = 1 if first["higher_is_better"] else -1
    difference = sign * float(sides[0].mean() - sides[1].mean())
    if min(map(len, sides)) > 1:
        low, high, _ = per_set.welch(sides[0], sides[1], 1 - alpha)
        return Gain(difference) if math.isnan(low) else Gain(difference, *_turn(sign, low, high), RUNS)
    if first["measure"] != "accuracy" or first["images"] < 1:
        return Gain(difference)
    bounds = _find_paired(paired, row, other_row)
    if bounds is not None:
        return Gain(difference, *bounds, PAIRED)  # of accuracies, of which more is better
    low, high = independent(float(sides[0].mean()), float(sides[1].mean()), int(first["images"]), alpha)
    return Gain(difference, *_turn(sign, low, high), IMAGES)


def _turn(sign: int, low: float, high: float) -> tuple[float, float]:
    """Return the bounds of the difference times the sign, the lower one first."""
    if sign > 0:
        return (low, high)
    return (-high, -low)


def _find_paired(paired: pd.DataFrame | None, row: str, other_row: str) -> tuple[float, float] | None:
    """Return the interval of the difference of two rows with one run, over the images that both have decided on."""
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
    measure = ""
    if tested:
        measure = layout.columns[head].measure_of(tested)
    is_higher = measures.find_measure(measure).higher_is_better and not layout.is_error(measure)
    sign = 1 if is_higher else -1
    difference, images = round(sign * (first - second), DIGITS), tested.images if tested else 0
    if measure != "accuracy" or images < 1:
        return Gain(difference)
    return Gain(difference, *_turn(sign, *independent(first, second, images, alpha)), IMAGES)


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
