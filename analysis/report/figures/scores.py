"""Figure of the scores on all sets."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes

from biasbed.analysis.columns import Column, names_of
from biasbed.analysis.report import wording
from biasbed.analysis.report.figures.style import CHANCE, GREY, Sheet, legend, look, marker_offset, set_axis
from biasbed.analysis.report.groups import ColumnGroup, groups
from biasbed.analysis.result import Analysis

# --- scores -----------------------------------------------------------------------------------------------------------


MOST_BESIDE = 12  # columns in one line of a figure


def scores(analysis: Analysis) -> Sheet:
    """Draw mean and standard deviation over runs of every algorithm on every column; chance as a grey line.

    Many columns take several lines; a data set stays in one line if it fits.
    """
    lines = _split_columns(groups(analysis))
    k, longest = len(analysis.algorithms), max(map(len, lines))
    each = max(0.8, 0.11 * k)  # inches for a set: the markers of eleven algorithms lie beside each other
    height = 4.0 if len(lines) == 1 else 3.0 * len(lines)
    figure = Sheet(figsize=(max(4.5, each * longest + 1.2), height), layout="constrained")
    grid = figure.subplots(len(lines), 1, squeeze=False)[:, 0]
    for axes, columns in zip(grid, lines, strict=True):
        _score_line(figure, axes, analysis, columns)
        axes.set_xlim(-0.5, longest - 0.5)
        axes.set_ylabel(wording.headline_label(columns))
    legend(figure, *grid)
    return figure


def _split_columns(column_groups: Sequence[ColumnGroup]) -> list[list[Column]]:
    """Split the columns into lines of one unit and at most `MOST_BESIDE`; only a longer block is split."""
    units: dict[str, None] = {}
    for group in column_groups:
        units |= dict.fromkeys(column.unit for column in group.columns)
    lines: list[list[Column]] = []
    for unit in units:
        lines.append([])
        for group in column_groups:
            columns = [column for column in group.columns if column.unit == unit]
            if lines[-1] and len(lines[-1]) + len(columns) > MOST_BESIDE:
                lines.append([])
            for start in range(0, len(columns), MOST_BESIDE):
                if start:
                    lines.append([])
                lines[-1] += columns[start : start + MOST_BESIDE]
    return lines


def _score_line(figure: Sheet, axes: Axes, analysis: Analysis, columns: Sequence[Column]) -> None:
    """Draw the mean of each method on each set with its standard deviation, and chance as a dotted line."""
    names = names_of(columns)
    table = analysis.scores.set_index(["algorithm", "dataset"])
    for position, algorithm in enumerate(analysis.algorithms):
        colour, _, marker = look(position)
        rows = table.loc[algorithm].loc[names]
        x = np.arange(len(names)) + marker_offset(position, len(analysis.algorithms))
        errors = rows["std"].fillna(0.0)
        axes.errorbar(x, rows["mean"], errors, fmt=marker, ms=4, color=colour, lw=1, label=analysis.label(algorithm))
        for name, centre, mean in zip(names, x, rows["mean"], strict=True):
            figure.tip(axes, float(centre), float(mean), _describe_score(analysis, algorithm, name))
    chances = [(i, column.chance) for i, column in enumerate(columns) if column.chance]
    for position, (i, chance) in enumerate(chances):
        label = None if position else CHANCE
        axes.plot([i - 0.42, i + 0.42], [chance, chance], color=GREY, lw=1, ls=":", label=label)
    set_axis(axes, [*map(analysis.label, names)])
    for i in range(1, len(columns)):
        if columns[i].block != columns[i - 1].block and analysis.comparisons[0].noun == "data set":
            axes.axvline(i - 0.5, color=GREY, lw=1.0, zorder=0)


def _describe_score(analysis: Analysis, algorithm: str, name: str) -> str:
    """Return a cell of the table of scores as a tooltip: value, deviation, interval, number of runs."""
    cell = analysis.cells[algorithm, name]
    spread = f" ±{cell.std_text}" if cell.std_text else ""
    interval = f", 95 % interval {cell.interval_text}" if cell.interval_text else ""
    runs = wording.count(cell.num_runs, "run")
    return f"{analysis.label(algorithm)} on {analysis.label(name)}: {cell.mean_text}{spread}{interval}, {runs}"
