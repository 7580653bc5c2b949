"""What goes into tables that are laid out as a paper's: values of chosen epochs, and what one row gains over another.

Which rows and columns is said by files (`layout_file`); here is what the runs have for them.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pandas as pd

from biasbed import measures, record
from biasbed.analysis import layout_file
from biasbed.analysis.columns import Column, measured_by
from biasbed.analysis.layout_file import TableLayout
from biasbed.analysis.measured import taken
from biasbed.analysis.selection.pools import Candidate, Choice
from biasbed.analysis.selection.select import Selected
from biasbed.analysis.statistics.friedman import DIGITS
from biasbed.errors import UsageError, listed
from biasbed.system import commands

if TYPE_CHECKING:
    from biasbed.analysis.options import AnalyzeOptions

# value: as the table shows it, so an error where that is wanted.
COLUMNS = ("layout", "row", "column", "run_id", "measure", "value", "higher_is_better", "images")
RUNS, PAIRED, IMAGES = "runs", "paired images", "images"  # what an interval is of


@dataclass(frozen=True)
class Gain:
    """What a row has more than another, or less where less is better: above 0 is better. In points."""

    value: float
    low: float = math.nan
    high: float = math.nan
    of: str = ""  # what the interval is of; empty without one

    @property
    def is_sure(self) -> bool:
        """Whether 0 is outside the interval."""
        return bool(self.of) and not self.low <= 0 <= self.high


def wanted(options: AnalyzeOptions) -> tuple[TableLayout, ...]:
    """The layouts that are asked for; UsageError for one that is not there or has something wrong."""
    names = () if options.report == "none" else options.report
    return tuple(layout_file.read(name) for name in names)


def table(
    layouts: Sequence[TableLayout], selected: Selected, sets: Sequence[Column], protocols: Mapping[str, record.Protocol]
) -> pd.DataFrame:
    """`COLUMNS`: a row for each layout, its rows and columns, and each run that the rule chose there.

    selected: what the rule in use chose; protocols: hash -> protocol. UsageError for a layout none of whose rows is
    there, and for a set that several columns show.
    """
    places = {(column.cell, column.entry.name): column for column in sets}
    found: list[tuple[object, ...]] = []
    for one in layouts:
        _check(one, sets, {pool.algorithm for pool, _ in selected.choices})
        for pool, choice in selected.choices:
            if pool.algorithm in one.needed:
                run = next(known for known in pool.candidates if known.run.id == choice.run)
                column = places[pool.cell, choice.set]
                about = (one.name, pool.algorithm)
                found += [(*about, *value) for value in _values(one, run, choice, column, protocols)]
    return pd.DataFrame(found, columns=list(COLUMNS)).round({"value": DIGITS})


def _check(one: TableLayout, sets: Sequence[Column], rows: Collection[str]) -> None:
    for column in one.columns.values():
        cells = [known.cell for known in sets if known.entry.name == column.set]
        if len(cells) > 1:
            raise UsageError(f"report={one.name}: '{column.set}' is a column of several cells: {listed(cells)}")
    if not set(one.needed) & set(rows):
        ways = "; ".join(way.strip() for way in missing(one, rows))
        raise UsageError(f"report={one.name}: none of its rows is among the runs: {ways}")


def missing(one: TableLayout, rows: Collection[str]) -> list[str]:
    """The rows that the runs lack, each with what would make it."""
    lost = [name for name in one.needed if name not in rows]
    ways = {}
    for name in lost:
        settings = {"table": one.words.study, "data_dir": "<folder>", "algorithms": name}
        ways[name] = one.lacking.get(name, commands.typed("benchmark", settings) if one.words.study else "")
    return [f"  {name}: {way}" if way else f"  {name}" for name, way in ways.items()]


def _values(
    one: TableLayout, candidate: Candidate, choice: Choice, column: Column, protocols: Mapping[str, record.Protocol]
) -> Iterator[tuple[object, ...]]:
    """`COLUMNS` from `column` on, of the layout's columns that show this set."""
    if candidate.run.study == f"published_{one.words.source}":
        return  # these are the printed ones
    protocol = protocols[candidate.run.protocol]
    for head, words in one.columns.items():
        measure = words.of(column.entry)
        shown = measured_by(column, measure, protocol) if words.set == column.entry.name else None
        value = math.nan if shown is None else taken(candidate.history, shown, choice.steps)[0]
        if shown is not None and not math.isnan(value):
            is_higher = shown.higher_is_better and not one.is_error(measure)
            yield head, candidate.run.id, measure, one.shown(measure, value), is_higher, column.images


# --- gains ------------------------------------------------------------------------------------------------------------


def gain(frame: pd.DataFrame, row: str, over: str, alpha: float, paired: pd.DataFrame | None = None) -> Gain | None:
    """What `row` gains over `over`, from the values of one column; None where one of the two has none.

    With two runs of each the interval is Welch's, over runs. With fewer only accuracies have one, over images: from the
    decisions on each (paired: `single_runs.COLUMNS`, of this column), else as if the two had been tested on different
    images (`independent`).
    """
    sides = [frame.loc[frame["row"] == name, "value"].astype(float).to_numpy() for name in (row, over)]
    if not all(map(len, sides)):
        return None
    first = frame.iloc[0]
    sign = 1 if first["higher_is_better"] else -1
    difference = sign * float(sides[0].mean() - sides[1].mean())
    if min(map(len, sides)) > 1:
        if not any(side.std() for side in sides):
            return Gain(difference)
        from scipy import stats

        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # that the runs of one side are alike
            between = stats.ttest_ind(*sides, equal_var=False).confidence_interval(1 - alpha)
        low, high = sorted((sign * float(between.low), sign * float(between.high)))
        return Gain(difference, low, high, RUNS)
    if first["measure"] != "accuracy" or first["images"] < 1:
        return Gain(difference)
    if (known := _paired(paired, row, over)) is not None:
        return Gain(difference, *known, PAIRED)  # of accuracies, of which more is better
    low, high = independent(float(sides[0].mean()), float(sides[1].mean()), int(first["images"]), alpha)
    low, high = sorted((sign * low, sign * high))
    return Gain(difference, low, high, IMAGES)


def _paired(paired: pd.DataFrame | None, row: str, over: str) -> tuple[float, float] | None:
    """The interval of the difference of two rows with one run, over the images that both have decided on."""
    for one in () if paired is None else paired.to_dict("records"):
        if (one["num_runs_a"], one["num_runs_b"]) == (1, 1):
            if (one["a"], one["b"]) == (row, over):
                return one["low"], one["high"]
            if (one["b"], one["a"]) == (row, over):
                return -one["high"], -one["low"]
    return None


def printed_gain(one: TableLayout, head: str, row: str, over: str, alpha: float) -> Gain | None:
    """The same of what the layout's source printed, where nothing is known of runs; None where it lacks one of both."""
    known = one.published()
    if (row, head) not in known or (over, head) not in known:
        return None
    values = [known[name, head].value for name in (row, over)]
    entry = one.source_set(head)
    measure = one.columns[head].of(entry) if entry else ""
    is_higher = measures.of(measure).higher_is_better and not one.is_error(measure)
    sign = 1 if is_higher else -1
    difference, images = round(sign * (values[0] - values[1]), DIGITS), entry.images if entry else 0
    if measure != "accuracy" or images < 1:
        return Gain(difference)
    low, high = independent(values[0], values[1], images, alpha)
    low, high = sorted((sign * low, sign * high))
    return Gain(difference, low, high, IMAGES)


def independent(first: float, second: float, images: int, alpha: float) -> tuple[float, float]:
    """Interval of first - second, percentages of as many images each (Newcombe 1998, method 10), in points.

    It takes the two for independent. On the same images they mostly agree, so that it is wider than it need be; how
    much they agree is in the decisions, not in the percentages.
    """
    shares = [value / 100 for value in (first, second)]
    ends = [measures.wilson(round(share * images), images, 1 - alpha) for share in shares]
    difference = shares[0] - shares[1]
    low = difference - math.hypot(shares[0] - ends[0][0], ends[1][1] - shares[1])
    high = difference + math.hypot(ends[0][1] - shares[0], shares[1] - ends[1][0])
    return 100 * low, 100 * high
