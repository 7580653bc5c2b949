"""Shape bias by category beside people and known networks: a figure."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from biasbed.evaluation.decisions import CUES, Decisions
from biasbed.published import observers
from biasbed.published import shape_bias_figure as drawing

FILE = "shape_bias_{}.png"  # of a set


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
