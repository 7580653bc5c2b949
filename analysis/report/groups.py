"""How score tables lie: the columns of one data set beside each other, their average at the end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from biasbed.analysis.columns import Column, blocks
from biasbed.analysis.report.words import error, error_by, listing, repeated
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
        """Whether it has an average beside its columns."""
        return len(self.counted) > 1

    @property
    def heads(self) -> tuple[str, ...]:
        """Under the block's name: the columns, then the average. A block of one column needs no name above it."""
        prefix = f"{self.block}-" if len(self.columns) > 1 else ""
        names = [column.name.removeprefix(prefix) + unit_of(column) for column in self.columns]
        return (*names, *([AVERAGE] if self.wide else []))

    @property
    def full_heads(self) -> tuple[str, ...]:
        """The same where nothing stands above them."""
        names = [column.name + unit_of(column) for column in self.columns]
        return (*names, *([f"{self.block} {AVERAGE}"] if self.wide else []))

    def cells(self, analysis: Analysis, algorithm: str) -> list[Cell]:
        """An algorithm's."""
        found = [analysis.cells[algorithm, column.name] for column in self.columns]
        return [*found, *([analysis.averages[algorithm, self.block]] if self.wide else [])]

    def value(self, analysis: Analysis, algorithm: str) -> Cell:
        """What stands for the whole block."""
        if self.wide:
            return analysis.averages[algorithm, self.block]
        return analysis.cells[algorithm, self.counted[0].name]


def unit_of(column: Column) -> str:
    """The unit behind a column's name where it is neither percent nor a loss."""
    return "" if column.unit in UNIT_WORDS else f" ({column.unit})"


def groups(analysis: Analysis) -> list[ColumnGroup]:
    """Every block in display order."""
    found: dict[str, list[Column]] = {}
    for column in analysis.sets:
        found.setdefault(column.block, []).append(column)
    counted = blocks(analysis.sets)
    return [ColumnGroup(name, tuple(same), counted[name]) for name, same in found.items()]


def above(found: Sequence[ColumnGroup]) -> list[tuple[str, int]]:
    """Names above the heads, each over so many columns; empty without blocks of several."""
    if all(len(group.columns) == 1 for group in found):
        return []
    return [(group.block if len(group.columns) > 1 else "", len(group.heads)) for group in found]


def caption(analysis: Analysis) -> str:
    """How the values of data sets are taken and which columns are errors, with a blank before it; else empty."""
    text = ""
    if any(group.wide for group in groups(analysis)):
        text = (
            f" {AVERAGE}: plain mean over the columns of a data set, ± the {error(analysis)} of this mean over "
            f"{repeated(analysis)}s ({error_by(analysis)})."
        )
    for group in groups(analysis):
        if len(group.counted) < len(group.columns):
            text += f" Of {group.block} the tests take {listing(column.name for column in group.counted)}."
    lower = [column.name for column in analysis.sets if not column.higher_is_better]
    return text + (f" Less is better: {listing(lower)}." if 0 < len(lower) < len(analysis.sets) else "")


@dataclass(frozen=True)
class Averages:
    """A value for each data set, and their mean: the table of several."""

    heads: tuple[str, ...]
    rows: dict[str, tuple[Cell, ...]]  # algorithm -> of each data set
    means: dict[str, float]  # algorithm -> over the data sets; NaN where it lacks one; empty where units differ


def averages(analysis: Analysis) -> Averages | None:
    """None without a data set of several columns beside another one."""
    found = groups(analysis)
    if len(found) < 2 or not any(group.wide for group in found):
        return None
    rows = {name: tuple(group.value(analysis, name) for group in found) for name in analysis.algorithms}
    alike = len({(group.counted[0].unit, group.counted[0].higher_is_better) for group in found}) == 1
    means = {name: sum(cell.mean for cell in cells) / len(cells) for name, cells in rows.items()} if alike else {}
    return Averages(tuple(group.block + unit_of(group.counted[0]) for group in found), rows, means)
