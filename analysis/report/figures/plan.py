"""Figures that a result allows, before they are drawn."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from matplotlib.figure import Figure


class PlannedFigure(NamedTuple):
    """Figure that the result allows."""

    name: str
    draw: Callable[[], Figure]
    description: str  # one line
