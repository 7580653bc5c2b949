"""Charts of the results site: a value with its interval for each row, placed in percent of the chart's width.

Each row has its name and numbers above its bar, so that a chart can be read at any width.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from matplotlib.ticker import MaxNLocator

from biasbed.analysis.report import wording
from biasbed.analysis.report.table_model import STAR, score_cell
from biasbed.analysis.result import Analysis, Cell
from biasbed.analysis.statistics.friedman import RankTests

ROW, AXIS = 36, 24  # pixels: height of a row, and of the numbers below the last
PADDING = 2.0  # percent left free on either side, so that no mark is cut off


class Mark(NamedTuple):
    """Value of one row, with its interval and its numbers as they are printed; NaN is not drawn."""

    name: str
    text: str
    value: float
    low: float = math.nan
    high: float = math.nan


class PlacedMark(NamedTuple):
    """Mark with positions in percent of the width; None for what is not drawn."""

    mark: Mark
    top: int  # pixels
    value: float | None
    low: float | None
    high: float | None


class GridLine(NamedTuple):
    """Line of the grid, with its number below."""

    position: float
    label: str


class Chart(NamedTuple):
    """Chart as the template draws it."""

    caption: str
    marks: list[PlacedMark]
    ticks: list[GridLine]
    height: int  # pixels, of everything
    bottom: int  # pixels, of the rows
    row: int = ROW  # pixels of a row


def make_chart(caption: str, marks: Sequence[Mark], whole_numbers: bool = False) -> Chart | None:
    """Place the marks on an axis that holds all of them; None if no mark has a value."""
    values: list[float] = []
    for mark in marks:
        values += [number for number in (mark.value, mark.low, mark.high) if math.isfinite(number)]
    if not values:
        return None
    numbers = MaxNLocator(nbins=5, integer=whole_numbers).tick_values(min(values), max(values))
    start, end = float(min(numbers)), float(max(numbers))
    if whole_numbers:  # there is no rank 0
        start, end = min(values), max(values)
        numbers = [number for number in numbers if start <= number <= end]

    def position_of(number: float) -> float | None:
        if not math.isfinite(number):
            return None
        return round(PADDING + (100 - 2 * PADDING) * (number - start) / ((end - start) or 1.0), 2)

    placed = []
    for row, mark in enumerate(marks):
        value, low, high = map(position_of, (mark.value, mark.low, mark.high))
        placed.append(PlacedMark(mark, ROW * row, value, low, high))
    ticks = [GridLine(position_of(float(number)) or 0.0, f"{number:g}") for number in numbers]
    bottom = ROW * len(marks)
    return Chart(caption, placed, ticks, bottom + AXIS, bottom)


# --- scores -----------------------------------------------------------------------------------------------------------


def set_chart(analysis: Analysis, name: str) -> Chart | None:
    """Return the chart of every method's score on one set, the best first; None without scores.

    The caption has the number of runs; if methods differ in it, every row has its own.
    """
    cells = {algorithm: analysis.cells[algorithm, name] for algorithm in analysis.algorithms}
    is_higher = next(column.higher_is_better for column in analysis.sets if column.name == name)
    shown = [algorithm for algorithm in cells if not math.isnan(cells[algorithm].mean)]
    run_counts = {cells[algorithm].num_runs for algorithm in shown}
    marks = []
    for algorithm in sorted(shown, key=lambda algorithm: cells[algorithm].mean, reverse=is_higher):
        cell = cells[algorithm]
        text = cell_text(cell)
        if len(run_counts) > 1:
            text += f", {wording.count(cell.num_runs, 'run')}"
        marks.append(Mark(analysis.label(algorithm), text, cell.mean, *_bar_ends(cell)))
    caption = "Scores; the bar is the interval of the table, or the ± where there is none"
    if len(run_counts) == 1:
        caption += f"; {wording.count(run_counts.pop(), 'run')} each"
    return make_chart(f"{caption}.", marks)


def rank_set_chart(analysis: Analysis, comparison: RankTests) -> Chart | None:
    """Return the chart of the ranks that each algorithm can have, with its average rank as the point."""
    marks = []
    for name, ranks in comparison.rank_sets.items():
        average = comparison.mean_ranks[name]
        text = f"{ranks}{STAR if ranks.best == 1 else ''}, average {average:.2f}"
        marks.append(Mark(analysis.label(name), text, average, *ranks))
    caption = f"Ranks that each algorithm can have (bar), and its average rank (point); {STAR} may be first."
    return make_chart(caption, marks, whole_numbers=True)


def _bar_ends(cell: Cell) -> tuple[float, float]:
    """Return the ends of a cell's bar: its interval, else mean ± spread; NaN without either."""
    if math.isnan(cell.interval[0]):
        return cell.mean - cell.std, cell.mean + cell.std
    return cell.interval


def cell_text(cell: Cell) -> str:
    """Return a cell of the table of scores in one line: `71.2 ±0.4 (70.1 to 72.3)`."""
    shown = score_cell(cell)
    interval = f"({shown.interval})" if shown.interval else ""
    return " ".join(filter(None, [shown.text, shown.spread, interval]))
