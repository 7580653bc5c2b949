"""Shape bias by category, beside people and known networks: a table to print, and the figure of Geirhos et al. (2019).

There (figure 4) each row is a category, a point the share of decisions for the shape among those for either cue, and a
line each observer's mean.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from biasbed import measures
from biasbed.evaluation.decisions import CUES, Decisions
from biasbed.published import observers
from biasbed.published.observers import PublishedObserver
from biasbed.system.terminal import aligned

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FILE = "shape_bias_{}.png"  # of a set
OURS = ("#0072b2", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")  # told apart by colour-blind people, too
PEOPLE, NETWORKS = "#a3001b", "#8a93a3"
SIGNS = ("o", "s", "D", "^", "v", "P")
MOST = len(OURS)  # observers of one's own in a figure


def fits(one: Decisions) -> bool:
    """Whether people and networks have decided among the same categories."""
    return has_bias(one) and set(one.classes) == observers.categories()


def has_bias(one: Decisions) -> bool:
    """Whether these are decisions on images whose shape and texture conflict."""
    return one.cues == CUES and one.bias is not None


def shares(one: Decisions) -> dict[str, float]:
    """Category of the shape -> share of the shape among decisions for either cue; those without any left out."""
    counts = {name: one.cue_counts(name) for name in one.classes}
    return {n: c.shape_bias for n, c in counts.items() if c is not None and c.shape + c.texture}


def table(named: Mapping[str, Decisions], others: Sequence[PublishedObserver]) -> list[str]:
    """Lines of one's own observers among the published ones, the highest shape bias first."""
    people = [one for one in others if one.is_human]
    known = [one for one in others if not one.is_human]
    rows = [(one.shape_bias, one.name, one.interval, observers.CITATION) for one in known]
    if people:
        everybody = observers.pooled(f"{len(people)} people", people)
        spread = min(one.shape_bias for one in people), max(one.shape_bias for one in people)
        rows.append((everybody.shape_bias, everybody.name, spread, f"{observers.CITATION}; lowest to highest person"))
    for name, one in named.items():
        counts = one.cue_counts()
        if counts is not None:
            interval = measures.wilson(counts.shape, counts.shape + counts.texture, 0.95)
            rows.append((counts.shape_bias, name, interval, "tested here"))
    rows.sort(reverse=True, key=lambda row: row[0])
    cells = [[name, f"{bias:.4f}", f"{low:.3f} to {high:.3f}", source] for bias, name, (low, high), source in rows]
    return aligned([["shape bias", "", "95 % interval", "from"], *cells], left=(0, 3))


def draw(named: Mapping[str, Decisions], path: Path) -> bool:
    """The figure; whether there was anything to draw. People and known networks stand beside what they fit."""
    found = {name: of for name, one in list(named.items())[:MOST] if (of := shares(one))}
    if not found:
        return False
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    beside = _beside() if all(fits(one) for one in named.values()) else {}
    known = observers.categories() if beside else {name for of in found.values() for name in of}
    order = sorted(known, reverse=True)
    figure = Figure(figsize=(6.2, 1.1 + 0.27 * len(order)), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    styles = {name: (colour, sign) for name, colour, sign in zip(found, OURS, SIGNS, strict=False)}
    for name, (of, colour, sign) in beside.items():
        _observer(axes, name, of, order, colour, sign, size=22)
    for name, of in found.items():
        _observer(axes, name, of, order, *styles[name], size=42)
    axes.set_yticks(range(len(order)), order)
    axes.set_xlim(-0.02, 1.02)
    axes.set_xlabel("share of the shape among decisions for either cue (0: all texture, 1: all shape)")
    axes.grid(axis="y", color="#dde1e8", linewidth=0.7)
    axes.set_axisbelow(True)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.tick_params(axis="y", length=0)
    figure.legend(loc="outside upper center", ncols=4, fontsize=8, frameon=False)
    figure.savefig(path, dpi=160)
    return True


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
