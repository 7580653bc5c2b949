"""Forest plot: by how much one algorithm of a pair is better, with intervals."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from biasbed.analysis.report import wording
from biasbed.analysis.report.figures.style import GREY, SMALL, Sheet
from biasbed.analysis.report.verdicts import Verdict
from biasbed.analysis.result import Analysis
from biasbed.analysis.statistics.friedman import RankTests

APART, NOT_APART = "#0072B2", "#9a9a9a"


MOST = 60  # pairs that are drawn; the table has all


def choose_drawn(pairs: Sequence[Verdict]) -> list[Verdict]:
    """Choose the pairs that are drawn: of many those that a test separates, then the largest differences, in order."""
    first = sorted(pairs, key=lambda pair: (not pair.told_apart, -abs(pair.difference)))[:MOST]
    return [pair for pair in pairs if pair in first]


def draw_forest(analysis: Analysis, comparison: RankTests, pairs: Sequence[Verdict]) -> Sheet:
    """Draw the mean difference over the sets of every pair, with its bootstrap interval; filled if a test separates it.

    The band is the region of practical equivalence.
    """
    figure = Sheet(figsize=(6.6, 1.15 + 0.21 * len(pairs)), layout="constrained")
    axes = figure.add_subplot()
    unit = wording.unit(analysis)
    rope = analysis.options.rope if unit == "points" else 0
    axes.axvspan(-rope, rope, color="#f0e6c8", lw=0, zorder=0)
    axes.axvline(0, color=GREY, lw=0.8, zorder=1)
    named = [f"{analysis.label(pair.a)} \N{MINUS SIGN} {analysis.label(pair.b)}" for pair in pairs]
    values = np.array([(pair.low, pair.high, pair.difference) for pair in pairs])
    told_apart = np.array([pair.told_apart for pair in pairs], dtype=bool)
    heights = np.arange(len(pairs))
    # All alike at once: lines and markers of their own would be measured and drawn one by one.
    for drawn, colour, face in ((told_apart, APART, APART), (~told_apart, NOT_APART, "white")):
        low, high, difference = values[drawn].T
        axes.hlines(heights[drawn], low, high, color=colour, lw=1.6)
        axes.plot(difference, heights[drawn], "o", ms=4.5, color=colour, markerfacecolor=face)
    for y, pair in enumerate(pairs):
        text = f"{named[y]}: {pair.difference:+.2f} [{pair.low:+.2f} to {pair.high:+.2f}], p = {pair.p_holm:.3g}"
        figure.tip(axes, pair.difference, float(y), f"{text} (Wilcoxon), better on {pair.wins} of {pair.num_sets}")
    axes.set_yticks(range(len(pairs)), named)
    axes.set_ylim(len(pairs) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x", color="#ececec", lw=0.7)
    axes.set_axisbelow(True)
    level = f"{wording.percent(1 - comparison.alpha)}"
    axes.set_xlabel(f"mean difference over {comparison.size}, {unit}, with {level} bootstrap interval")
    items: list[Line2D | Patch] = [
        Line2D([], [], color=APART, marker="o", ms=4.5, label="told apart by Nemenyi or Wilcoxon with Holm"),
        Line2D([], [], color=NOT_APART, marker="o", ms=4.5, markerfacecolor="white", label="not told apart"),
    ]
    if comparison.pair is not None:
        items[0].set_label("told apart by Wilcoxon")
    if rope:
        items.append(Patch(color="#f0e6c8", label=f"alike in practice: ±{rope:g}"))
    figure.legend_below(items, [str(item.get_label()) for item in items], SMALL)
    return figure
