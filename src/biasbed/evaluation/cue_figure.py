"""Shape bias by category, beside people and known networks: a table to print, and a figure of what was decided."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from biasbed import measures
from biasbed.evaluation.decisions import CUES, Decisions
from biasbed.published import observers
from biasbed.published import shape_bias_figure as drawing
from biasbed.published.observers import PublishedObserver
from biasbed.system.terminal import aligned

FILE = "shape_bias_{}.png"  # of a set


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
    """The figure of these decisions as a file; whether there was anything to draw."""
    found = {name: of for name, one in list(named.items())[: drawing.MOST] if (of := shares(one))}
    if not found:
        return False
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    drawn = drawing.figure(found, all(fits(one) for one in named.values()))
    FigureCanvasAgg(drawn)
    drawn.savefig(path, dpi=160)
    return True
