"""Numbers of a table as printed, with the rounding that their digits leave: what `check` recomputes from."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from biasbed.analysis.tables import vocabulary as say
from biasbed.analysis.tables.head import Body
from biasbed.analysis.tables.layout import Layout
from biasbed.analysis.tables.repeats import NamedNumber
from biasbed.analysis.tables.roles import ParsedCells

MOST_ITEMS = 10**9
# Heads of the number of images that a score is a share of.
ITEMS = {
    *("images", "nimages", "numimages", "testimages", "samples", "nsamples", "numsamples", "testsamples", "testsize"),
    *("items", "nitems", "numitems", "examples", "nexamples", "numexamples", "questions", "numquestions", "ntest"),
}
FEW_SHORT = 0.3  # share of numbers with fewer digits up to which they may have lost zeros at their end


@dataclass
class Printed:
    """A number of a cell."""

    row: int
    column: int
    text: str
    value: float
    digits: int  # behind the decimal sign
    half: float  # half a unit of the last digit: how far the unrounded number may be away
    is_bold: bool
    spread: float | None = None
    num_runs: int = 0  # behind the deviation; 0: the table does not say
    num_items: int = 0  # images that a score is a share of; 0: the table does not say

    @property
    def spread_half(self) -> float:
        """Half a unit of the last digit of the deviation."""
        digits = len(repr(self.spread).partition(".")[2]) if self.spread is not None else 0
        return 0.5 * 10.0**-digits


class PrintedSet(NamedTuple):
    """A data set and measure that methods have a number on, or an average of such."""

    name: str
    path: tuple[str, ...]
    direction: str  # yes: higher is better; no; empty: nothing says it
    block: str = ""
    metric: str = ""
    is_average: bool = False
    is_said: bool = False  # the user gives the direction


@dataclass
class PrintedNumbers:
    """Methods x data sets, whatever the layout of the table was."""

    source: str
    body: Body
    name_column: int | None
    are_lines_methods: bool
    methods: list[str] = field(default_factory=list)
    sets: list[PrintedSet] = field(default_factory=list)
    cells: dict[tuple[int, int], Printed] = field(default_factory=dict)  # by method and set
    is_standard_error: bool = False  # printed deviations are errors of means
    groups: list[list[str]] = field(default_factory=list)  # partitions of the methods: a name of its part for each

    def numbers(self, of_set: int) -> dict[int, Printed]:
        """Return the numbers on a set by method."""
        cells = ((method, self.cells.get((method, of_set))) for method in range(len(self.methods)))
        return {method: cell for method, cell in cells if cell is not None}

    def position(self, cell: Printed) -> tuple[str, str, int]:
        """Return the names of a cell's row and column, and its line in the file."""
        name = f"row {cell.row + 1}"
        if self.name_column is not None:
            name = self.body.grid.rows[cell.row][self.name_column] or name
        return name, self.body.name(cell.column), self.body.grid.lines[cell.row]

    def heads(self) -> list[tuple[str, tuple[str, str, str]]]:
        """Return the head of each set as the table has it, with its block, data set and measure."""
        heads: dict[int, tuple[str, tuple[str, str, str]]] = {}
        for (_, of_set), cell in self.cells.items():
            described = self.sets[of_set]
            if of_set not in heads and not described.is_average:
                row, column, _ = self.position(cell)
                head = column if self.are_lines_methods else row
                heads[of_set] = head, (described.block, described.name, described.metric)
        return list(heads.values())

    def with_directions(self, is_lower: Mapping[tuple[str, str, str], bool]) -> PrintedNumbers:
        """Return the table with the user's directions; averages have that of their sets, if there is one alone.

        is_lower: by block, data set and measure.
        """
        sets = []
        for described in self.sets:
            lower = is_lower.get((described.block, described.name, described.metric))
            if lower is not None and not described.is_average:
                described = described._replace(direction="no" if lower else "yes", is_said=True)
            sets.append(described)
        common = {described.direction for described in sets if described.is_said}
        for position, described in enumerate(sets):
            if described.is_average and len(common) == 1:
                sets[position] = described._replace(direction=next(iter(common)), is_said=True)
        return replace(self, sets=sets)


class CellPlace(NamedTuple):
    """Cell of a number that is no score."""

    row: int
    column: int
    spread: float | None = None


class _Builder:
    """Collects the numbers of a table."""

    def __init__(self, body: Body, cells: ParsedCells, layout: Layout, num_runs: int) -> None:
        self.body, self.parsed, self.layout, self.num_runs = body, cells, layout, num_runs
        self.table = PrintedNumbers(body.grid.source, body, layout.name_column, layout.kind != "turned")
        self._methods: dict[tuple[str, str], int] = {}  # name and seed
        self._sets: dict[tuple[object, ...], int] = {}
        heads = [say.letters(body.leaf(column)) for column in range(body.grid.width)]
        self._items_column = next((column for column, head in enumerate(heads) if head in ITEMS), None)
        names = [say.letters(row[layout.name_column or 0]) for row in body.grid.rows]
        self._items_row = next((row for row, name in enumerate(names) if name in ITEMS), None)

    def method(self, name: str, seed: str) -> int:
        """Return the number of a method, which is added."""
        if (name, seed) not in self._methods:
            self._methods[name, seed] = len(self.table.methods)
            self.table.methods.append(name)
        return self._methods[name, seed]

    def add(self, method: int, key: tuple[object, ...], described: PrintedSet, number: NamedNumber | CellPlace) -> None:
        """Add a number on a data set, which is added too. key: what no other data set has."""
        if key not in self._sets:
            self._sets[key] = len(self.table.sets)
            self.table.sets.append(described)
        row, column = number.row, number.column
        parsed = self.parsed.number(row, column)
        if parsed is None:
            return
        text = self.parsed.text(row, column)
        half = 0.5 * 10.0 ** (_exponent(text) - parsed.digits)
        is_bold = (row, column) in self.body.grid.bold
        runs = self.num_runs or self._count(row, self.layout.columns.num_runs)
        items = self._count(row, self._items_column) or self._count(self._items_row, column)
        cell = Printed(row, column, text, parsed.value, parsed.digits, half, is_bold, number.spread, runs, items)
        self.table.cells.setdefault((method, self._sets[key]), cell)

    def _count(self, row: int | None, column: int | None) -> int:
        """Return the whole number of a cell; 0 for none."""
        number = self.parsed.number(row, column) if row is not None and column is not None else None
        return int(number.value) if number is not None and 1 <= number.value < MOST_ITEMS else 0

    def add_averages(self, records: Sequence[NamedNumber]) -> None:
        """Add the averages, which the scores leave out: columns, or lines with such a name."""
        columns, kind = self.layout.columns, self.layout.kind
        rows = {record.row: self.method(record.method, record.seed) for record in records}
        owner_of_column = {record.column: self.method(record.method, record.seed) for record in records}
        if kind == "straight":
            for row, method in rows.items():
                measure = self.body.grid.rows[row][columns.metric] if columns.metric is not None else ""
                for column in columns.scores:
                    if column not in owner_of_column:
                        self._add_average(method, (column,), self.body.path(column), measure, CellPlace(row, column))
            return
        name_column = columns.dataset if kind == "long" else self.layout.name_column
        for row, cells in enumerate(self.body.grid.rows):
            if name_column is None or row in rows or not say.average_kind(cells[name_column]):
                continue
            for column in columns.scores:
                is_long = kind == "long"
                owner = self._methods.get((cells[columns.method or 0], "")) if is_long else owner_of_column.get(column)
                if owner is not None:
                    key: tuple[object, ...] = (cells[name_column], column) if is_long else (row,)
                    measure = self.body.leaf(column) if is_long else ""
                    self._add_average(owner, key, (cells[name_column],), measure, CellPlace(row, column))

    def _add_average(
        self, method: int, key: tuple[object, ...], path: tuple[str, ...], measure: str, position: CellPlace
    ) -> None:
        direction = say.direction(" ".join((*path, measure)))
        described = PrintedSet(" / ".join(path), path, direction, metric=measure, is_average=True)
        self.add(method, ("average", *key, measure), described, position)


def collect_printed(
    body: Body,
    cells: ParsedCells,
    layout: Layout,
    records: Sequence[NamedNumber],
    directions: Sequence[str],
    num_runs: int,
) -> PrintedNumbers:
    """Return the printed numbers of a table.

    records: its scores with their places.
    directions: of each (yes: higher is better, no, or empty).
    num_runs: behind deviations; 0: unknown.
    """
    builder = _Builder(body, cells, layout, num_runs)
    is_straight = layout.kind == "straight"
    for record, direction in zip(records, directions, strict=True):
        meaning = record.meaning
        path = body.path(record.column) if is_straight else (meaning.block, meaning.name, meaning.metric)
        described = PrintedSet(meaning.name, tuple(filter(None, path)), direction, meaning.block, meaning.metric)
        builder.add(builder.method(record.method, record.seed), record.key[1:-1], described, record)
    builder.add_averages(records)
    table = builder.table
    of_sets = {described.direction for described in table.sets if not described.is_average}
    for position, described in enumerate(table.sets):
        if described.is_average and not described.direction and len(of_sets) == 1:
            table.sets[position] = described._replace(direction=next(iter(of_sets)))
    _restore_zeros(list(table.cells.values()))
    if is_straight:
        rows = {builder.method(record.method, record.seed): record.row for record in reversed(records)}
        in_order = [rows[method] for method in range(len(table.methods))]
        table.groups = [[body.sections[row] for row in in_order]]
        table.groups += [[body.grid.rows[row][column] for row in in_order] for column in layout.columns.texts]
    return table


def _exponent(text: str) -> int:
    match = re.match(r"\s*[+-]?[0-9.,]+[eE]([+-]?[0-9]{1,3})", text)
    return int(match[1]) if match else 0


def _restore_zeros(cells: Sequence[Printed]) -> None:
    """Narrow the rounding of numbers that lost zeros at their end, as spreadsheets write them: 83.6 beside 83.57."""
    counts: dict[int, int] = {}
    for cell in cells:
        counts[cell.digits] = counts.get(cell.digits, 0) + 1
    if not counts:
        return
    usual = max(counts, key=lambda digits: counts[digits])
    full = [cell for cell in cells if cell.digits == usual]
    short = [cell for cell in cells if cell.digits < usual and "e" not in cell.text.lower()]
    lose_zeros = not any(_figure(cell.text).endswith("0") for cell in full)
    if not lose_zeros or not usual or len(short) > FEW_SHORT * len(cells):
        return
    rows = {cell.row for cell in full}
    for cell in short:
        if cell.row in rows:
            cell.half = 0.5 * 10.0**-usual


def _figure(text: str) -> str:
    match = re.search(r"[0-9][0-9.,]*", text)
    return match[0] if match else ""


def number_text(value: float, digits: int) -> str:
    """Return a recomputed number with a digit more than the printed one has."""
    return f"{value:.{min(digits + 1, 12)}f}"
