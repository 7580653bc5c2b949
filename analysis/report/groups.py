"""How score tables lie: the columns of one data set beside each other, their average at the end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from biasbed import measures
from biasbed.analysis.columns import Column, blocks
from biasbed.analysis.result import UNIT_WORDS, Analysis, Cell

AVERAGE = "Avg"


@dataclass(frozen=True)
class ColumnGroup:
    """The columns of one block, as a table shows them."""

    block: str
    columns: tuple[Column, ...]
    wide: bool  # whether it has an average beside its columns: one of them may stand for the block

    @property
    def heads(self) -> tuple[str, ...]:
        """Under the block's name: the columns, then the average. A block of one column needs no name above it."""
        prefix = f"{self.block}-" if self.wide else ""
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


def unit_of(column: Column) -> str:
    """The unit behind a column's name where it is neither percent nor a loss."""
    return "" if column.unit in UNIT_WORDS else f" ({column.unit})"


def groups(analysis: Analysis) -> list[ColumnGroup]:
    """Every block in display order."""
    found: dict[str, list[Column]] = {}
    for column in analysis.sets:
        found.setdefault(column.block, []).append(column)
    counted = blocks(analysis.sets)
    return [ColumnGroup(name, tuple(same), len(counted[name]) > 1) for name, same in found.items()]


def above(found: Sequence[ColumnGroup]) -> list[tuple[str, int]]:
    """Names above the heads, each over so many columns; empty without blocks of several."""
    if not any(group.wide for group in found):
        return []
    return [(group.block if group.wide else "", len(group.heads)) for group in found]


def caption(analysis: Analysis) -> str:
    """How averages are taken, with a blank before it; empty without them."""
    if not any(group.wide for group in groups(analysis)):
        return ""
    return (
        f" {AVERAGE}: plain mean over the columns of a data set, ± the standard deviation of this mean over replicates "
        "(n - 1)."
    )


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
    rows = {name: tuple(group.cells(analysis, name)[-1] for group in found) for name in analysis.algorithms}
    alike = len({(group.columns[0].unit, group.columns[0].higher_is_better) for group in found}) == 1
    means = {name: sum(cell.mean for cell in cells) / len(cells) for name, cells in rows.items()} if alike else {}
    return Averages(tuple(group.block + unit_of(group.columns[0]) for group in found), rows, means)


def is_percent(analysis: Analysis) -> bool:
    """Whether all columns are."""
    return {column.unit for column in analysis.sets} == {measures.FRACTION}
