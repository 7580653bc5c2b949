"""Accuracy on a shifted set by accuracy elsewhere, on probit axes, with the line through plain rows."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from biasbed.analysis.report.figures.style import COLOURS, GREY, LIGHT, SMALL, Sheet
from biasbed.analysis.result import Analysis

FEW = 10  # rows whose names do not lie over each other
TICKS = (0.1, 0.5, 1, 2, 5, 10, 20, 30, 40, 50, 60, 70, 80, 90, 95, 98, 99, 99.5, 99.9)  # percent


def scatter(analysis: Analysis, frame: pd.DataFrame) -> Sheet:
    """Draw one pair of sets. Rows outside the band have names; if there are few, all have.

    frame: rows of `effective_robustness.COLUMNS`.
    """
    from scipy import stats

    figure = Sheet(figsize=(6.0, 4.4), layout="constrained")
    axes = figure.add_subplot()
    x, y = (stats.norm.ppf(frame[name].to_numpy() / 100) for name in ("reference_accuracy", "accuracy"))
    ends = np.array([x.min(), x.max()])
    first = frame.iloc[0]
    axes.plot(ends, first["intercept"] + first["slope"] * ends, color=GREY, lw=1, zorder=1, label="through plain rows")
    order = np.argsort(x)
    low, high = (stats.norm.ppf((frame["accuracy"] - frame[end]).to_numpy() / 100)[order] for end in ("high", "low"))
    axes.fill_between(x[order], low, high, color=LIGHT, lw=0, zorder=0, label="one more of them")
    for kind, colour, chosen in (
        ("plain", COLOURS[6], frame["plain"].to_numpy(dtype=bool)),
        ("other", COLOURS[0], ~(frame["plain"] | frame["extrapolated"]).to_numpy(dtype=bool)),
        ("extrapolated", COLOURS[1], (frame["extrapolated"] & ~frame["plain"]).to_numpy(dtype=bool)),
    ):
        face = "white" if kind == "extrapolated" else colour
        axes.plot(x[chosen], y[chosen], "o", ms=5, color=colour, markerfacecolor=face, label=kind, zorder=2)
    for row, a, b in zip(frame.to_dict("records"), x, y, strict=True):
        accuracies = f"{row['accuracy']:.1f} at {row['reference_accuracy']:.1f}"
        text = f"{analysis.label(row['algorithm'])}: {accuracies}, {row['residual']:+.1f} from the line"
        figure.tip(axes, float(a), float(b), text)
    named = (frame["low"] > 0) | (frame["high"] < 0) | frame["extrapolated"] | (len(frame) <= FEW)
    for name, a, b in zip(frame["algorithm"][named], x[named], y[named], strict=True):
        axes.annotate(
            analysis.label(str(name)), (a, b), (4, 3), textcoords="offset points", fontsize=7, color="#444444"
        )
    _probit(axes, "x", x)
    _probit(axes, "y", y)
    axes.set_xlabel(f"accuracy on {analysis.label(first['reference'])}, percent (probit scale)")
    axes.set_ylabel(f"accuracy on {analysis.label(first['dataset'])}, percent (probit scale)")
    figure.legend_below(*axes.get_legend_handles_labels(), SMALL)
    return figure


def _probit(axes: Axes, which: str, values: np.ndarray) -> None:
    """Set ticks in percent."""
    from scipy import stats

    margin = 0.08 * max(float(np.ptp(values)), 0.1)
    low, high = values.min() - margin, values.max() + margin
    marks = [tick for tick in TICKS if low <= stats.norm.ppf(tick / 100) <= high]
    places = [float(stats.norm.ppf(tick / 100)) for tick in marks]
    labels = [f"{tick:g}" for tick in marks]
    if which == "x":
        axes.set_xlim(low, high + 2 * margin)  # room for names
        axes.set_xticks(places, labels)
    else:
        axes.set_ylim(low, high)
        axes.set_yticks(places, labels)
    axes.grid(color="#ececec", lw=0.7)
    axes.set_axisbelow(True)
