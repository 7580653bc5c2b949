"""Columns of score tables by data set, each data set's average behind its columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from biasbed.analysis.columns import Column, blocks, names_of
from biasbed.analysis.report.phrases import say
from biasbed.analysis.report.wording import error, error_by, listing, repeated
from biasbed.analysis.result import UNIT_WORDS, Analysis, Cell

AVERAGE = "Avg"


@dataclass(frozen=True)
class ColumnGroup:
    """The columns of one block, as a table shows them."""

    block: str
    columns: tuple[Column, ...]
    counted: tuple[Column, ...]  # those whose mean is the block's value; one of them may stand for it

    @property
    def wide(self) -> bool:
        """True if it has an average beside its columns."""
        return len(self.counted) > 1

    def value(self, analysis: Analysis, algorithm: str) -> Cell:
        """Return the cell that stands for the block."""
        if self.wide:
            return analysis.averages[algorithm, self.block]
        return analysis.cells[algorithm, self.counted[0].name]


def unit_of(column: Column) -> str:
    """Return the unit as it stands behind a column's name; empty for percent and losses."""
    if column.unit in UNIT_WORDS:
        return ""
    return f" ({column.unit})"


def groups(analysis: Analysis) -> list[ColumnGroup]:
    """Return every block in display order."""
    by_block: dict[str, list[Column]] = {}
    for column in analysis.sets:
        by_block.setdefault(column.block, []).append(column)
    counted = blocks(analysis.sets)
    return [ColumnGroup(name, tuple(columns), counted[name]) for name, columns in by_block.items()]


def caption(analysis: Analysis) -> str:
    """Say how data sets are averaged and which columns are errors, with a blank before it; else return nothing."""
    text = ""
    if any(group.wide for group in groups(analysis)):
        slots = {"error": error(analysis), "run": repeated(analysis), "divisor": error_by(analysis)}
        text += say("columns_average", average=AVERAGE, **slots)
    for group in groups(analysis):
        if len(group.counted) < len(group.columns):
            columns = listing(map(analysis.label, names_of(group.counted)))
            text += say("columns_counted", block=analysis.label(group.block), columns=columns)
    lower = [column.name for column in analysis.sets if not column.higher_is_better]
    if 0 < len(lower) < len(analysis.sets):
        text += say("columns_lower", columns=listing(map(analysis.label, lower)))
    return text


class ColumnHead(NamedTuple):
    """ColumnHead of a column: its name and its unit behind it."""

    name: str
    unit: str


@dataclass(frozen=True)
class Averages:
    """A value for each data set, and their mean."""

    heads: tuple[ColumnHead, ...]
    rows: dict[str, tuple[Cell, ...]]  # algorithm -> cell of each data set
    means: dict[str, float]  # algorithm -> mean over the data sets; NaN if one lacks; empty if units differ


def averages(analysis: Analysis) -> Averages | None:
    """Return the averages; None without a data set of several columns beside another one."""
    column_groups = groups(analysis)
    if len(column_groups) < 2 or not any(group.wide for group in column_groups):
        return None
    rows, means = {}, {}
    is_alike = len({(group.counted[0].unit, group.counted[0].higher_is_better) for group in column_groups}) == 1
    for name in analysis.algorithms:
        rows[name] = tuple(group.value(analysis, name) for group in column_groups)
        if is_alike:
            means[name] = sum(cell.mean for cell in rows[name]) / len(rows[name])
    heads = tuple(ColumnHead(group.block, unit_of(group.counted[0])) for group in column_groups)
    return Averages(heads, rows, means)
