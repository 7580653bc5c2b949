"""Figure of the shape bias by category beside people and known networks, like figure 4 of Geirhos et al. (2019).

Each row is a category. A point is the share of decisions for the shape among those for either cue, and a vertical line
is an observer's mean.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from biasbed import measures
from biasbed.published import observers
from biasbed.published.observers import PublishedObserver

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

OURS = ("#0072b2", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")  # distinct for colour-blind people, too
PEOPLE, NETWORKS = "#a3001b", "#8a93a3"
MARKERS = ("o", "s", "D", "^", "v", "P")
MOST = len(OURS)  # models in a figure


class DrawnObserver(NamedTuple):
    """Observer in the figure."""

    name: str
    shares: Mapping[str, float]  # category -> share of decisions for the shape
    colour: str
    marker: str
    size: int


def figure(shares: Mapping[str, Mapping[str, float]], with_published: bool) -> Figure:
    """Return the figure of up to `MOST` models; with_published: also of the published observers.

    shares: model -> category -> share of decisions for the shape.
    """
    from matplotlib.figure import Figure

    drawn = _published() if with_published else []
    categories = set(observers.categories()) if with_published else set().union(*shares.values())
    for (name, by_category), colour, marker in zip(shares.items(), OURS, MARKERS, strict=False):
        drawn.append(DrawnObserver(name, by_category, colour, marker, size=42))
    order = sorted(categories, reverse=True)
    figure = Figure(figsize=(6.2, 1.1 + 0.27 * len(order)), layout="constrained")
    axes = figure.subplots()
    for observer in drawn:
        _draw(axes, observer, order)
    axes.set_yticks(range(len(order)), order)
    axes.set_xlim(-0.02, 1.02)
    axes.set_xlabel("share of the shape among decisions for either cue (0: all texture, 1: all shape)")
    axes.grid(axis="y", color="#dde1e8", linewidth=0.7)
    axes.set_axisbelow(True)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.tick_params(axis="y", length=0)
    figure.legend(loc="outside upper center", ncols=4, fontsize=8, frameon=False)
    return figure


def _published() -> list[DrawnObserver]:
    """Return the people, pooled, and the paper's networks."""
    people = observers.pooled("people", observers.people())
    drawn = [DrawnObserver("people", _shares(people), PEOPLE, "d", size=22)]
    by_name = {observer.name: observer for observer in observers.observers()}
    for name, marker in zip(observers.KNOWN, ("<", ">", "X", "h"), strict=True):
        drawn.append(DrawnObserver(name, _shares(by_name[name]), NETWORKS, marker, size=22))
    return drawn


def _shares(observer: PublishedObserver) -> dict[str, float]:
    return {name: measures.shape_bias(*counts) for name, counts in observer.counts.items() if sum(counts)}


def _draw(axes: Axes, observer: DrawnObserver, order: Sequence[str]) -> None:
    """Draw a point for each category, and a line at their mean."""
    rows, values = [], []
    for category, share in observer.shares.items():
        if category in order:
            rows.append(order.index(category))
            values.append(share)
    colour, marker, size = observer.colour, observer.marker, observer.size
    axes.scatter(
        values, rows, s=size, color=colour, marker=marker, label=observer.name, alpha=0.9, linewidths=0, zorder=3
    )
    axes.axvline(float(np.mean(values)), color=colour, linewidth=1.2, alpha=0.8, zorder=2)
