"""Lines of a table: their names, and which of them are methods or data sets."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from biasbed.analysis.tables import averages
from biasbed.analysis.tables import vocabulary as say
from biasbed.analysis.tables.head import Body
from biasbed.analysis.tables.layout import Layout
from biasbed.analysis.tables.markup import without_citation
from biasbed.analysis.tables.numbers import is_missing, is_pair
from biasbed.analysis.tables.roles import ParsedCells, TableColumns
from biasbed.analysis.tables.settings import ReaderSettings
from biasbed.errors import UsageError, listed

LeftOut = list[tuple[str, str]]  # name of a line or column, and the reason
_LAST_BRACKET = re.compile(r"(.+?)\s*\(([^()]+)\)")


def name_lines(body: Body, cells: ParsedCells, columns: TableColumns, column: int | None) -> list[str]:
    """Return the name of each line in a column; an empty one repeats the name above if another column differs."""
    if column is None:
        return [f"row {row + 1}" for row in range(len(body.grid.rows))]
    plain = body.cells(column)
    names, last = [], ""
    tellers = {columns.metric, columns.method, *columns.texts} - {None, column}
    for row, cell in enumerate(plain):
        name = without_citation(cell)
        if not name:
            if last and any(body.grid.rows[row][teller or 0] for teller in tellers):
                name = last
            elif any(cells.number(row, score) for score in columns.scores):
                raise UsageError(f"{body.grid.where(row)}: has no name of a method or data set")
        names.append(name)
        last = name or last
    if len(set(names)) < len(set(filter(None, plain))):  # citations tell methods apart
        return [name or filled for name, filled in zip(plain, names, strict=True)]
    return names


def select_lines(
    body: Body, cells: ParsedCells, layout: Layout, names: Sequence[str], settings: ReaderSettings, left_out: LeftOut
) -> list[int]:
    """Return the lines that are methods or data sets; the others are added to what is left out."""
    of_settings = [name for name in names if say.is_setting(name)]
    if 5 * len(of_settings) >= 3 * len(names):
        raise UsageError(
            f"{body.grid.source}: holds no scores: its lines are settings or sizes ({listed(of_settings, 3)})"
        )
    rows = []
    for row, name in enumerate(names):
        reason = _other_line(name, layout, settings)
        if reason in averages.BY_NUMBERS and _holds_scores(cells, row, layout.columns.scores):
            rows.append(row)
        elif reason:
            left_out.append((f"line {name}", reason))
        elif name:
            rows.append(row)
    means = _means_of_lines(rows, names)
    left_out += [(f"line {names[row]}", "an average of other lines, by its name") for row in means]
    rows = [row for row in rows if row not in means]
    if not layout.is_turned:
        return rows
    counted = []
    for row in rows:
        if _holds_words(cells, row, layout.columns.scores):
            left_out.append((f"line {names[row]}", "words"))
        else:
            counted.append(row)
    return counted


def _other_line(name: str, layout: Layout, settings: ReaderSettings) -> str:
    """Return why a line is neither a method nor a data set; empty if it may be one."""
    if name.casefold() in map(str.casefold, settings.leave_out):
        return "as you say"
    if name.casefold() in map(str.casefold, settings.keep):
        return ""
    reason = averages.other_line(name)
    return "" if layout.kind == "long" and reason.startswith("a dev") else reason


def _holds_scores(cells: ParsedCells, row: int, columns: Sequence[int]) -> bool:
    """Return True if the numbers of a line are as large as those of the others, and not the largest of each column."""
    are_largest = []
    for column in columns:
        number = cells.number(row, column)
        beside = [cells.number(line, column) for line in range(len(cells.body.grid.rows)) if line != row]
        values = [number_beside.value for number_beside in beside if number_beside is not None]
        if number is None or not values or not min(values) / 2 <= number.value <= 2 * max(values):
            return False
        are_largest.append(number.value == max(values))
    return bool(are_largest) and not all(are_largest)


def runs_of_lines(rows: Sequence[int], names: Sequence[str]) -> dict[int, tuple[str, str]]:
    """Return the method and the run of lines like `erm (0)`, `erm (1)` beside `erm (avg)`, their mean."""
    means = {names[row].rpartition("(")[0] for row in _means_of_lines(range(len(names)), names)}
    runs = {}
    for row in rows:
        match = _LAST_BRACKET.fullmatch(names[row])
        if match and names[row].rpartition("(")[0] in means:
            runs[row] = (match[1], match[2])
    return runs


def _means_of_lines(rows: Sequence[int], names: Sequence[str]) -> set[int]:
    """Return lines like `erm (avg)` beside `erm (0)` and `erm (1)`: the means of runs."""
    split = {row: _LAST_BRACKET.fullmatch(names[row]) for row in rows}
    counts = Counter(match[1] for match in split.values() if match)
    means = set()
    for row, match in split.items():
        if match and counts[match[1]] > 2 and say.average_kind(match[2]) == "sure":
            means.add(row)
    return means


def _holds_words(cells: ParsedCells, row: int, columns: Sequence[int]) -> bool:
    """Return True for a line that says words of all methods, as `Architecture` does."""
    filled = [column for column in columns if not is_missing(cells.text(row, column))]
    has_words = all(cells.number(row, column) is None for column in filled)
    return has_words and len(filled) > 1 and not any(is_pair(cells.text(row, column)) for column in filled)
