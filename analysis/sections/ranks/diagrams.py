"""Figures of ranks: critical-difference diagram, p-values of all pairs, ranks on every set."""

from __future__ import annotations

import bisect
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import BoundaryNorm, ListedColormap
from matplotlib.patches import Patch

from biasbed.analysis.report import wording
from biasbed.analysis.report.figures.style import GREY, SMALL, Sheet, look, text_on
from biasbed.analysis.result import Analysis
from biasbed.analysis.statistics.friedman import RankTests

# --- critical difference ----------------------------------------------------------------------------------------------


def critical_difference(analysis: Analysis, comparison: RankTests) -> Sheet:
    """Draw average ranks on an axis, best left; bars join algorithms that are not told apart (Demsar 2006, figure 1).

    Bars are drawn under a significant omnibus test only.
    """
    ranks = comparison.mean_ranks
    groups = comparison.groups() if comparison.significant else []
    k = len(ranks)
    depth = 0.55 + 0.22 * len(groups) + 0.36 * ((k + 1) // 2)
    figure = Sheet(figsize=(6.8, 1.0 + 0.62 * depth), layout="constrained")
    axes = figure.add_subplot()
    axes.set_axis_off()
    axes.set_xlim(1, k)  # names stand outside, and the layout makes room for them at any width
    axes.set_ylim(depth + 0.1, -1.0)
    _rank_axis(axes, k)
    _ruler(axes, comparison)
    for level, group in enumerate(groups):
        y = 0.26 + 0.22 * level
        reach = 0.012 * (k - 1)
        ends = [ranks[group[0]] - reach, ranks[group[-1]] + reach]
        axes.plot(ends, [y, y], color="#3a3a3a", lw=4, solid_capstyle="butt", zorder=1)
    for name, value in ranks.items():
        figure.tip(axes, value, 0.0, f"{analysis.label(name)}: average rank {value:.2f} over {comparison.size}")
    _rank_labels(axes, analysis, comparison, 0.5 + 0.22 * len(groups))
    text = comparison.size
    if not comparison.significant:
        text += "; omnibus test not significant: no pair is told apart"
    axes.text((1 + k) / 2, depth, text, ha="center", va="top", color=GREY, fontsize=8)
    for line in axes.lines:
        line.set_clip_on(False)
    return figure


def _rank_axis(axes: Axes, k: int) -> None:
    """Draw the axis of ranks from 1 to k, with a numbered tick at each."""
    axes.plot([1, k], [0, 0], color="black", lw=1)
    for value in range(1, k + 1):
        axes.plot([value, value], [0, -0.12], color="black", lw=1)
        axes.text(value, -0.17, str(value), ha="center", va="bottom")


def _ruler(axes: Axes, comparison: RankTests) -> None:
    """Draw the critical difference as a length from rank 1; write it if it is longer than the axis."""
    cd = comparison.reach.critical_difference if comparison.reach else None
    if cd is None:
        return
    k = len(comparison.algorithms)
    if cd > k - 1:
        text = f"critical difference {cd:.2f}: longer than the axis, no pair can be told apart"
        axes.text(1, -0.75, text, ha="left", va="center", fontsize=8)
        return
    axes.plot([1, 1 + cd], [-0.75, -0.75], color="black", lw=1.2)
    for end in (1, 1 + cd):
        axes.plot([end, end], [-0.83, -0.67], color="black", lw=1.2)
    axes.text(1 + cd + 0.02 * k, -0.75, f"critical difference {cd:.2f}", ha="left", va="center", fontsize=8)


def _rank_labels(axes: Axes, analysis: Analysis, comparison: RankTests, top: float) -> None:
    """Write names, the better half at the left and the others at the right, each joined to its rank by a line.

    top: y of the first name of each side.
    """
    ranks = comparison.mean_ranks
    k = len(ranks)
    num_left = (k + 1) // 2
    for position, (name, value) in enumerate(ranks.items()):
        label = analysis.label(name)
        if position < num_left:
            y = top + 0.36 * position
            line_end, text_x = 1 - 0.04 * (k - 1), 1 - 0.04 * (k - 1) - 0.01 * k
            text, align = f"{label}  {value:.2f}", "right"
        else:
            y = top + 0.36 * (k - 1 - position)  # the last is the highest: no line crosses another
            line_end, text_x = k + 0.04 * (k - 1), k + 0.04 * (k - 1) + 0.01 * k
            text, align = f"{value:.2f}  {label}", "left"
        colour = look(analysis.algorithms.index(name))[0]
        axes.plot([value, value, line_end], [0, y, y], color=colour, lw=1)
        axes.plot([value], [0], marker="o", ms=4, color=colour, zorder=3)
        axes.text(text_x, y, text, ha=align, va="center")


# --- p-values ---------------------------------------------------------------------------------------------------------

BOUNDS = (0.0, 0.001, 0.01, 0.05, 0.1, 1.0)
MOST_NUMBERED = 20  # rows whose p-values are written; of more there is the colour alone, in narrower cells
SHADES = ("#08306b", "#2171b5", "#7fb3dc", "#dbe4ec", "#f7f7f7")  # one hue: differs in lightness for everyone


def p_values(analysis: Analysis, comparison: RankTests) -> Sheet:
    """Draw p-values, best ranks first: Nemenyi's above the diagonal, exact Wilcoxon with Holm's correction below.

    No bold letters here and in `rank_map`: each face takes a PDF a quarter of a second and 10 kB.
    """
    names = list(comparison.mean_ranks)
    k = len(names)
    table = _p_table(analysis, comparison, names)
    cell = 0.46
    figure = Sheet(figsize=(2.6 + cell * k, 1.9 + cell * k), layout="compressed")  # cells stay squares
    axes = figure.add_subplot()
    colours = ListedColormap(SHADES)
    axes.pcolormesh(
        np.ma.masked_invalid(table), cmap=colours, norm=BoundaryNorm(BOUNDS, len(SHADES)), ec="white", lw=1.5
    )
    for i, j in np.argwhere(np.isfinite(table)):
        p = float(table[i, j])
        shade = SHADES[bisect.bisect_right(BOUNDS[1:-1], p)]
        red, green, blue = (int(shade[n : n + 2], 16) / 255 for n in (1, 3, 5))
        test = "Nemenyi" if j > i else "Wilcoxon, Holm"
        text = f"{analysis.label(names[i])} and {analysis.label(names[j])}: p = {p:.4g} ({test})"
        figure.tip(axes, float(j), float(i), text, 1.0, 1.0)
        if k > MOST_NUMBERED:
            continue
        shown = _p_text(p, comparison.alpha)
        if comparison.significant and p < comparison.alpha:
            shown += "*"
        write_in_cell(axes, j + 0.5, i + 0.5, shown, 7.5, color=text_on(red, green, blue))
    labels = [*map(analysis.label, names)]
    label_map(axes, [i + 0.5 for i in range(k)], labels, labels)
    axes.set_aspect("equal")
    lines = ["above the diagonal: Nemenyi; below: Wilcoxon with Holm", f"* below {comparison.alpha:g}"]
    if not comparison.significant:
        lines[1] = "omnibus test not significant: no pair is told apart"
    axes.set_xlabel("\n".join(lines), fontsize=8, color=GREY)
    labels = ["p < 0.001", "< 0.01", "< 0.05", "< 0.1", "≥ 0.1"]
    figure.legend_below([Patch(fc=shade, ec="#bbbbbb") for shade in SHADES], labels, SMALL)
    return figure


def _p_table(
    analysis: Analysis, comparison: RankTests, names: list[str]
) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    """Return p-values [k, k]: Nemenyi's above the diagonal, Wilcoxon's with Holm's correction below it.

    NaN on the diagonal, and for pairs without a test: those without the control.
    """
    table = np.full((len(names), len(names)), math.nan)
    for i, a in enumerate(names):
        for j in range(i + 1, len(names)):
            table[i, j] = comparison.p(a, names[j])
    frame = analysis.pairwise.wilcoxon
    rows = frame[frame["setting"] == comparison.setting]
    for a, b, p in zip(rows["a"], rows["b"], rows["p_holm"], strict=True):
        i, j = sorted((names.index(a), names.index(b)))
        table[j, i] = p
    return table


def label_map(axes: Axes, centres: Sequence[float], columns: Sequence[str], rows: Sequence[str]) -> None:
    """Write the columns' names above a map and the rows' at its left, the first row at the top."""
    turn: dict[str, Any] = {"rotation": 45} if len(columns) <= MOST_NUMBERED else {"rotation": 90, "va": "center"}
    axes.set_xticks(list(centres), list(columns), ha="left", rotation_mode="anchor", **turn)
    axes.set_yticks([i + 0.5 for i in range(len(rows))], list(rows))
    axes.xaxis.tick_top()
    axes.tick_params(length=0)
    axes.spines[["left", "bottom"]].set_visible(False)
    axes.set_ylim(len(rows), 0)


def write_in_cell(axes: Axes, x: float, y: float, text: str, points: float, **look_of_text: Any) -> None:
    """Write a text in the middle of a map's cell, which needs no room of its own: to measure many takes seconds."""
    axes.text(x, y, text, ha="center", va="center", fontsize=points, in_layout=False, **look_of_text)


def _p_text(p: float, alpha: float) -> str:
    """Return a p-value in few letters."""
    if p >= 0.995:
        return "1"
    return (f"{p:.2f}" if p >= 0.1 else wording.short_p(p, alpha)).replace("0.", ".")


# --- ranks ------------------------------------------------------------------------------------------------------------


WIDEST = 16.0  # inches of a map, however many sets there are
LEGIBLE = 0.28  # inches that a rank needs to be read; in narrower cells there is its colour alone


def rank_map(analysis: Analysis, comparison: RankTests) -> Sheet:
    """Draw the rank of every algorithm on every set, and their average."""
    names, sets = list(comparison.mean_ranks), list(comparison.sets)
    k = len(names)
    values = comparison.ranks[names].T.to_numpy(dtype="float64")
    table = np.column_stack([list(comparison.mean_ranks.values()), np.full(k, math.nan), values])
    each = min(0.44, WIDEST / len(sets))
    figure = Sheet(figsize=(1.9 + each * (len(sets) + 2), 1.3 + 0.3 * k), layout="constrained")
    axes = figure.add_subplot()
    colours = ListedColormap(np.linspace([0.03, 0.19, 0.42], [0.97, 0.97, 0.97], 64))
    x = np.cumsum([0, 1.35, 0.25, *[1] * len(sets)])
    axes.pcolormesh(x, np.arange(k + 1), np.ma.masked_invalid(table), cmap=colours, vmin=1, vmax=k, ec="white", lw=1.2)
    for i, j in np.argwhere(np.isfinite(table)):
        value = float(table[i, j])
        red, green, blue, _ = colours((value - 1) / (k - 1))
        where = f"rank {value:g} on {analysis.label(sets[j - 2])}" if j else f"average rank {value:.2f}"
        figure.tip(axes, float(x[j]), float(i), f"{analysis.label(names[i])}: {where}", float(x[j + 1] - x[j]), 1.0)
        if j > 0 and each < LEGIBLE:
            continue
        shown, points = (f"{value:.2f}", 9.0) if j == 0 else (f"{value:g}", 8.0)
        write_in_cell(axes, (x[j] + x[j + 1]) / 2, i + 0.5, shown, points, color=text_on(red, green, blue))
    centres = [(x[j] + x[j + 1]) / 2 for j in (0, *range(2, len(sets) + 2))]
    label_map(axes, centres, ["average", *map(analysis.label, sets)], [*map(analysis.label, names)])
    axes.set_xlabel(f"rank on each {comparison.noun}, 1 is best", fontsize=8, color=GREY)
    return figure
