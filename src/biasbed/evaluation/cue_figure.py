"""Shape bias by category beside people and known networks: a table to print and a figure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from biasbed.evaluation.decisions import CUES, Decisions
from biasbed.evaluation.intervals import shape_bias_interval
from biasbed.published import observers
from biasbed.published import shape_bias_figure as drawing
from biasbed.published.observers import PublishedObserver
from biasbed.system.terminal import aligned

FILE = "shape_bias_{}.png"  # of a set


class _Row(NamedTuple):
    shape_bias: float
    name: str
    interval: tuple[float, float]
    source: str


def has_published_categories(decisions: Decisions) -> bool:
    """Return True if the published people and networks have decided among the same categories."""
    return has_bias(decisions) and set(decisions.classes) == observers.categories()


def has_bias(decisions: Decisions) -> bool:
    """Return True for decisions on images whose shape and texture conflict."""
    return decisions.cues == CUES and decisions.bias is not None


def shape_shares(decisions: Decisions) -> dict[str, float]:
    """Return the share of the shape among decisions for either cue, keyed by the shape's category.

    Leaves out categories without such decisions.
    """
    shares = {}
    for name in decisions.classes:
        counts = decisions.cue_counts(name)
        if counts is not None and counts.shape + counts.texture:
            shares[name] = counts.shape_bias
    return shares


def table(tested: Mapping[str, Decisions], published: Sequence[PublishedObserver]) -> list[str]:
    """Return the lines of a table of tested observers, keyed by name, among the published ones, highest first."""
    people = [observer for observer in published if observer.is_human]
    rows = []
    for observer in published:
        if not observer.is_human:
            rows.append(_Row(observer.shape_bias, observer.name, observer.interval, observers.CITATION))
    if people:
        everybody = observers.pooled(f"{len(people)} people", people)
        biases = [person.shape_bias for person in people]
        source = f"{observers.CITATION}; lowest to highest person"
        rows.append(_Row(everybody.shape_bias, everybody.name, (min(biases), max(biases)), source))
    for name, decisions in tested.items():
        counts = decisions.cue_counts()
        if counts is not None and counts.shape + counts.texture:
            interval = shape_bias_interval(decisions)
            rows.append(_Row(counts.shape_bias, name, interval, "tested here"))
    rows.sort(reverse=True, key=lambda row: row.shape_bias)
    cells = [["shape bias", "", "95 % interval", "from"]]
    for row in rows:
        low, high = row.interval
        cells.append([row.name, f"{row.shape_bias:.4f}", f"{low:.3f} to {high:.3f}", row.source])
    return aligned(cells, left=(0, 3))


def draw(tested: Mapping[str, Decisions], path: Path) -> bool:
    """Draw the shape bias of these decisions into a file; return False if there is nothing to draw."""
    shares = {}
    for name, decisions in list(tested.items())[: drawing.MOST]:
        shares_by_category = shape_shares(decisions)
        if shares_by_category:
            shares[name] = shares_by_category
    if not shares:
        return False
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    figure = drawing.figure(shares, all(map(has_published_categories, tested.values())))
    FigureCanvasAgg(figure)
    figure.savefig(path, dpi=160)
    return True
