"""What the report's tables consist of: cells, and the links between them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from biasbed.analysis.report import words
from biasbed.analysis.result import Analysis, Cell


@dataclass(frozen=True)
class TableCell:
    """One cell."""

    text: str
    value: float | None = None  # by which it is sorted, if not by its text
    href: str = ""
    small: str = ""  # after the text
    below: str = ""  # under the text
    bold: bool = False
    dagger: bool = False
    underlined: bool = False
    left: bool = False


@dataclass(frozen=True)
class ReportTable:
    """One table; the first column names the row."""

    caption: str
    head: tuple[str, ...]
    rows: tuple[tuple[TableCell, ...], ...]
    oracle: bool  # selected on the test images
    file: str = ""  # the CSV with the same numbers and more
    ids: tuple[str, ...] = ()  # anchors of the rows
    above: tuple[tuple[str, int], ...] = ()  # over the head: names, each over so many columns


class Links:
    """Anchors of algorithms and runs; by position, as names may hold anything."""

    def __init__(self, analysis: Analysis) -> None:
        self.algorithms = {name: f"runs-{i}" for i, name in enumerate(analysis.algorithms)}
        runs = (*analysis.collection.runs, *analysis.collection.duplicates)
        self.runs = {run.id: f"run-{i}" for i, run in enumerate(runs)}

    def algorithm(self, name: str) -> TableCell:
        """The name, leading to its runs."""
        return TableCell(name, href=f"#{self.algorithms[name]}", left=True)

    def to_run(self, run_id: str | None) -> str:
        """The link to a run's line under provenance; empty where there is none."""
        return f"#{self.runs[run_id]}" if run_id else ""

    def run(self, run_id: str, text: str = "") -> TableCell:
        """A run by its id's first digits, leading to its line under provenance."""
        return TableCell(text or run_id[:8], href=f"#{self.runs[run_id]}", left=True)


def text(value: object) -> TableCell:
    """Words at the left."""
    return TableCell(str(value), left=True)


def decimal(value: float, digits: int = 1, **look: Any) -> TableCell:
    """A number; a dash where there is none, a sign for infinity."""
    if math.isnan(value):
        return TableCell("-", value=-math.inf, **look)
    if math.isinf(value):
        return TableCell("∞" if value > 0 else "-∞", value=value, **look)
    return TableCell(f"{round(value, digits) + 0.0:.{digits}f}", value=value, **look)  # no -0.0


def score(cell: Cell, **look: Any) -> TableCell:
    """A mean with its deviation, marked where it is the best of its column or has a dagger."""
    return TableCell(
        cell.mean_text,
        value=-math.inf if math.isnan(cell.mean) else cell.mean,
        small=f"±{cell.std_text}" if cell.std_text else "",
        below=cell.interval_text,
        bold=cell.best,
        dagger=cell.dagger,
        **look,
    )


def interval(value: float, low: float, high: float, digits: int = 1) -> TableCell:
    """A number with its interval below."""
    bounds = "" if math.isnan(low) else f"{low:.{digits}f} to {high:.{digits}f}"
    return decimal(value, digits, below=bounds)


def p_entry(p: float, alpha: float, bold: bool) -> TableCell:
    """A p-value; bold where it may be called significant."""
    if math.isnan(p):
        return TableCell("-", value=2.0)
    return TableCell(words.short_p(p, alpha), value=p, bold=bold)
