"""Shape bias by category beside people and known networks, as Geirhos et al. (2019) draw it in figure 4.

Each line is a category, a point the share of decisions for the shape among those for either cue, and an upright line an
observer's mean.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from biasbed import measures
from biasbed.published import observers
from biasbed.published.observers import PublishedObserver

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

OURS = ("#0072b2", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")  # told apart by colour-blind people, too
PEOPLE, NETWORKS = "#a3001b", "#8a93a3"
SIGNS = ("o", "s", "D", "^", "v", "P")
MOST = len(OURS)  # observers of one's own in a figure


def figure(found: Mapping[str, Mapping[str, float]], beside: bool) -> Figure:
    """Observer -> category -> share of the shape, of `MOST` observers at most, and the published ones beside them."""
    from matplotlib.figure import Figure

    published = _beside() if beside else {}
    known = observers.categories() if published else {name for of in found.values() for name in of}
    order = sorted(known, reverse=True)
    drawn = Figure(figsize=(6.2, 1.1 + 0.27 * len(order)), layout="constrained")
    axes = drawn.subplots()
    styles = {name: (colour, sign) for name, colour, sign in zip(found, OURS, SIGNS, strict=False)}
    for name, (of, colour, sign) in published.items():
        _observer(axes, name, of, order, colour, sign, size=22)
    for name, own in found.items():
        _observer(axes, name, own, order, *styles[name], size=42)
    axes.set_yticks(range(len(order)), order)
    axes.set_xlim(-0.02, 1.02)
    axes.set_xlabel("share of the shape among decisions for either cue (0: all texture, 1: all shape)")
    axes.grid(axis="y", color="#dde1e8", linewidth=0.7)
    axes.set_axisbelow(True)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.tick_params(axis="y", length=0)
    drawn.legend(loc="outside upper center", ncols=4, fontsize=8, frameon=False)
    return drawn


def _beside() -> dict[str, tuple[dict[str, float], str, str]]:
    """People as one, and the paper's networks: name -> shares, colour, sign."""
    every = observers.observers()
    people = observers.pooled("people", [one for one in every if one.is_human])
    networks = [one for name in observers.KNOWN for one in every if one.name == name]
    signs = dict(zip(observers.KNOWN, ("<", ">", "X", "h"), strict=True))
    found = {"people": (_shares(people), PEOPLE, "d")}
    return {**found, **{one.name: (_shares(one), NETWORKS, signs[one.name]) for one in networks}}


def _shares(one: PublishedObserver) -> dict[str, float]:
    return {name: measures.shape_bias(*counts) for name, counts in one.counts.items() if sum(counts)}


def _observer(
    axes: Axes, name: str, of: Mapping[str, float], order: list[str], colour: str, sign: str, size: int
) -> None:
    """A point for each category, and a line at their mean."""
    there = [category for category in of if category in order]
    values = [of[category] for category in there]
    rows = [order.index(category) for category in there]
    axes.scatter(values, rows, s=size, color=colour, marker=sign, label=name, alpha=0.9, linewidths=0, zorder=3)
    axes.axvline(float(np.mean(values)), color=colour, linewidth=1.2, alpha=0.8, zorder=2)
