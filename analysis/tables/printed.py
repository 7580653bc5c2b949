"""Numbers of a table as printed, averages too, by method and data set: what `check` recomputes from."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from biasbed.analysis.tables.head import Body
from biasbed.analysis.tables.score_table import ScoreTable
from biasbed.analysis.tables.scores import Score

FEW_SHORT = 0.3  # share of numbers with fewer digits up to which they may have lost zeros at their end


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
    cells: dict[tuple[int, int], Score] = field(default_factory=dict)  # by method and set
    is_standard_error: bool = False  # printed deviations are errors of means
    groups: list[list[str]] = field(default_factory=list)  # partitions of the methods: a name of its part for each

    def numbers(self, of_set: int) -> dict[int, Score]:
        """Return the numbers on a set by method."""
        cells = ((method, self.cells.get((method, of_set))) for method in range(len(self.methods)))
        return {method: cell for method, cell in cells if cell is not None}

    def in_order(self) -> list[int]:
        """Return the sets in their order in the table, averages among them."""
        places: dict[int, int] = {}
        for (_, of_set), cell in self.cells.items():
            position = cell.column if self.are_lines_methods else cell.row
            places[of_set] = min(position, places.get(of_set, position))
        return sorted(places, key=lambda of_set: places[of_set])

    def position(self, cell: Score) -> tuple[str, str, int]:
        """Return the names of a cell's row and column, and its line in the file."""
        name = f"row {cell.row + 1}"
        if self.name_column is not None:
            name = self.body.grid.rows[cell.row][self.name_column] or name
        return name, self.body.name(cell.column), cell.line

    def line_of(self, cell: Score) -> int:
        """Return the row or column of a cell's method."""
        return cell.row if self.are_lines_methods else cell.column

    def method_name(self, cell: Score) -> str:
        """Return the method of a cell as printed."""
        row, column, _ = self.position(cell)
        return row if self.are_lines_methods else column

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
        directions = {False: "yes", True: "no"}
        sets = []
        for described in self.sets:
            lower = is_lower.get((described.block, described.name, described.metric))
            if lower is not None and not described.is_average:
                described = described._replace(direction=directions[lower], is_said=True)
            sets.append(described)
        common = {described.direction for described in sets if described.is_said}
        for position, described in enumerate(sets):
            if described.is_average and len(common) == 1:
                sets[position] = described._replace(direction=next(iter(common)), is_said=True)
        return replace(self, sets=sets)


def collect_printed(table: ScoreTable, scores: Sequence[Score], averages: Sequence[Score]) -> PrintedNumbers:
    """Return the printed numbers of a table."""
    printed = PrintedNumbers(table.body.grid.source, table.body, table.name_column, not table.is_turned)
    methods: dict[tuple[str, str], int] = {}  # by name and seed
    sets: dict[tuple[object, ...], int] = {}
    lines: dict[int, int] = {}  # of methods
    for score in scores:
        method = methods.setdefault((score.method, score.seed), len(methods))
        lines.setdefault(method, _line_of(table, score))
        key: tuple[object, ...] = score.names[1:-1]
        if key not in sets:
            described = PrintedSet(score.dataset, _path_of(table, score), score.direction, score.block, score.metric)
            sets[key] = len(printed.sets)
            printed.sets.append(described)
        printed.cells.setdefault((method, sets[key]), score)
    of_line = {line: method for method, line in lines.items()}
    common = {described.direction for described in printed.sets}
    common_direction = common.pop() if len(common) == 1 else ""
    for score in averages:
        owner = methods.get((score.method, score.seed)) if table.is_long else of_line.get(_line_of(table, score))
        if owner is None:
            continue
        key = "average", score.key, score.row if table.is_turned else score.column
        if key not in sets:
            direction = score.direction or common_direction
            described = PrintedSet(score.dataset, _path_of(table, score), direction, "", score.metric, is_average=True)
            sets[key] = len(printed.sets)
            printed.sets.append(described)
        printed.cells.setdefault((owner, sets[key]), score)
    printed.methods = [name for name, _ in methods]
    _restore_zeros(printed.cells)
    if not table.is_turned and not table.is_long:
        in_order = [lines[method] for method in range(len(methods))]
        printed.groups = [[table.body.sections[row] for row in in_order]]
        printed.groups += [[table.body.grid.rows[row][column] for row in in_order] for column in table.columns.texts]
    return printed


def _line_of(table: ScoreTable, score: Score) -> int:
    """Return the method of a table that a score is in the line of."""
    return score.column if table.is_turned else score.row


def _path_of(table: ScoreTable, score: Score) -> tuple[str, ...]:
    """Return the names above a score's data set."""
    if table.is_long:
        return tuple(filter(None, (score.block, score.dataset, score.metric)))
    return table.paths[score.row if table.is_turned else score.column]


def _restore_zeros(cells: dict[tuple[int, int], Score]) -> None:
    """Narrow the rounding of numbers that lost zeros at their end, as spreadsheets write them: 83.6 beside 83.57."""
    usual = Counter(cell.digits for cell in cells.values()).most_common(1)[0][0]
    rows = set()
    short = {}
    for key, cell in cells.items():
        if cell.digits < usual and "e" not in cell.text.lower():
            short[key] = cell
        elif cell.digits == usual:
            rows.add(cell.row)
            if _figure(cell.text).endswith("0"):
                return
    for key, cell in short.items() if len(short) <= FEW_SHORT * len(cells) else ():
        if cell.row in rows:
            cells[key] = cell._replace(half=0.5 * 10.0**-usual)


def _figure(text: str) -> str:
    match = re.search(r"[0-9][0-9.,]*", text)
    return match[0] if match else ""


def number_text(value: float, digits: int) -> str:
    """Return a recomputed number with a digit more than the printed one has."""
    return f"{value:.{min(digits + 1, 12)}f}"
