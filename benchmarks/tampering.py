"""Errors put into real tables by a program, and how many of them `compare --check yes` finds.

    PYTHONPATH=src python benchmarks/tampering.py <folder of tables> [--count 40] [--seed 0] [--missed]

The folder has a folder for each table with a file `table.<ext>`. Each kind of error is put into tables in turn, one
error a table, wherever a table of its kind has room for it:

average  a printed average is raised or lowered by 0.3 to 3 per cent of 100 (or of 1)
bold     the bold mark moves to a number that is worse
row      all numbers of a method become those of another
digit    two digits of a score change places, in a table with averages, or its decimal point moves
heads    the heads of an average and of one of its columns, or of columns of two averages, are exchanged

An error counts as found if the check has a contradiction, or a line equal to another on one data set, that it does not
have on the untouched table, in the row or column of the error. Errors without a trace are not made: two heads of one
average exchanged, a digit of a score that no average counts.
"""

from __future__ import annotations

import argparse
import copy
import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from biasbed.analysis.tables.check import check_table
from biasbed.analysis.tables.findings import TableFinding
from biasbed.analysis.tables.formats import read_grids
from biasbed.analysis.tables.grid import Grid
from biasbed.analysis.tables.printed import PrintedNumbers
from biasbed.analysis.tables.scores import Score
from biasbed.analysis.tables.settings import ReaderSettings
from biasbed.analysis.tables.understand import understand_grid
from biasbed.errors import UsageError

TRIES = 30  # draws of an error in one table


class Source(NamedTuple):
    """A table that is read."""

    name: str
    grid: Grid
    table: PrintedNumbers
    findings: tuple[TableFinding, ...]


class Error(NamedTuple):
    """An error that was put into a table."""

    grid: Grid
    places: frozenset[tuple[int, int]]  # (row, column) of the body
    text: str


class Result(NamedTuple):
    """Outcome of the check on an error."""

    kind: str
    table: str
    text: str
    outcome: str  # found, missed or refused


def read_sources(folder: Path) -> Iterator[Source]:
    """Yield the tables of a folder that are read."""
    for path in sorted(folder.glob("*/table.*")):
        try:
            grids = read_grids(path)
        except UsageError:
            continue
        for grid in grids:
            try:
                table = understand_grid(copy.deepcopy(grid), ReaderSettings()).printed
            except UsageError:
                continue
            assert table is not None
            if all(row in grid.rows for row in table.body.grid.rows):  # runs of a tracker are rearranged
                yield Source(path.parent.name, grid, table, check_table(table).findings)


# --- edits of a grid --------------------------------------------------------------------------------------------------


class Edit:
    """Edits cells of a table by their places in its body."""

    def __init__(self, source: Source) -> None:
        self.grid = copy.deepcopy(source.grid)
        self.body = source.table.body
        self._rows: list[int] = []
        start = 0
        for row in self.body.grid.rows:
            start = next(number for number in range(start, len(self.grid.rows)) if self.grid.rows[number] == row) + 1
            self._rows.append(start - 1)

    def copy_cell(self, source: Score, target: Score) -> None:
        text = self.body.grid.rows[source.row][source.column]
        self.grid.rows[self._rows[target.row]][target.column] = text

    def write(self, cell: Score, figure: str) -> None:
        """Put a figure in place of the first one of a cell."""
        row = self.grid.rows[self._rows[cell.row]]
        row[cell.column] = row[cell.column].replace(first_figure(cell), figure, 1)

    def move_bold(self, cell: Score, target: Score) -> None:
        self.grid.bold.discard((self._rows[cell.row], cell.column))
        self.grid.bold.add((self._rows[target.row], target.column))


def first_figure(cell: Score) -> str:
    """Return the first figure of a cell, as printed."""
    start = next(position for position, sign in enumerate(cell.text) if sign.isdigit())
    end = start
    while end < len(cell.text) and (cell.text[end].isdigit() or cell.text[end] in ".,"):
        end += 1
    return cell.text[start:end].rstrip(".,")


def averages_of(table: PrintedNumbers) -> list[int]:
    """Return the columns of averages, by their names, whose numbers are on the scale of the scores."""
    scores = [cell.value for (_, of_set), cell in table.cells.items() if not table.sets[of_set].is_average]
    sets = []
    for of_set, described in enumerate(table.sets):
        values = [cell.value for cell in table.numbers(of_set).values()]
        is_rank = "rank" in described.name.casefold()
        if described.is_average and len(values) > 2 and max(values) <= max(scores) and not is_rank:
            sets.append(of_set)
    return sets


# --- kinds of errors --------------------------------------------------------------------------------------------------


def wrong_average(source: Source, random_: random.Random) -> Error | None:
    """Raise or lower a printed average."""
    averages = averages_of(source.table)
    if not averages:
        return None
    cells = list(source.table.numbers(random_.choice(averages)).values())
    cell = random_.choice(cells)
    scale = 1 if max(sibling.value for sibling in cells) <= 1 else 100
    value = cell.value + random_.choice((-1, 1)) * random_.uniform(0.003, 0.03) * scale
    edit = Edit(source)
    figure = f"{value:.{cell.digits}f}"
    edit.write(cell, figure.replace(".", "," if "," in cell.text else "."))
    return Error(edit.grid, frozenset({(cell.row, cell.column)}), f"average {cell.text} becomes {figure}")


def wrong_bold(source: Source, random_: random.Random) -> Error | None:
    """Move a bold mark to a number that is worse than the bold one."""
    table = source.table
    bold = [(of_set, cell) for (_, of_set), cell in table.cells.items() if cell.is_bold]
    if not bold:
        return None
    of_set, cell = random_.choice(bold)
    numbers = list(table.numbers(of_set).values())
    best = (min, max)[cell.value == max(sibling.value for sibling in numbers)](sibling.value for sibling in numbers)
    if sum(sibling.is_bold for sibling in numbers) > 1 or cell.value != best:
        return None
    target = random_.choice([sibling for sibling in numbers if sibling.value != cell.value] or [cell])
    if target is cell:
        return None
    edit = Edit(source)
    edit.move_bold(cell, target)
    return Error(edit.grid, frozenset({(target.row, target.column)}), f"bold moves from {cell.text} to {target.text}")


def copied_row(source: Source, random_: random.Random) -> Error | None:
    """Put the numbers of a method in place of another's."""
    table = source.table
    if len(table.methods) < 3:
        return None
    first, second = random_.sample(range(len(table.methods)), 2)
    edit, places = Edit(source), set()
    for of_set in range(len(table.sets)):
        cell, target = table.cells.get((first, of_set)), table.cells.get((second, of_set))
        if (cell is None) != (target is None):
            return None
        if cell is not None and target is not None:
            edit.copy_cell(cell, target)
            places.add((target.row, target.column))
            places.add((cell.row, cell.column))
    plain = sum(not table.sets[of_set].is_average for (method, of_set) in table.cells if method == first)
    if plain < 3:
        return None
    return Error(edit.grid, frozenset(places), f"numbers of {table.methods[second]} become {table.methods[first]}'s")


def shifted_digit(source: Source, random_: random.Random) -> Error | None:
    """Exchange two digits of a score that an average counts, or move the decimal point of a score."""
    table = source.table
    scores = [(of_set, cell) for (_, of_set), cell in table.cells.items() if not table.sets[of_set].is_average]
    of_set, cell = random_.choice(scores)
    figure = first_figure(cell)
    moves_point = random_.random() < 0.5 or not averages_of(table)
    change = _with_moved_point if moves_point else _with_exchanged_digits
    changed = change(figure, random_)
    if changed in ("", figure) or (moves_point and len(table.numbers(of_set)) < 5):
        return None
    edit = Edit(source)
    edit.write(cell, changed)
    row = {(cell.row, sibling.column) for sibling in table.cells.values() if sibling.row == cell.row}
    column = {(sibling.row, cell.column) for sibling in table.cells.values() if sibling.column == cell.column}
    places = row if table.are_lines_methods else column
    return Error(
        edit.grid, frozenset(places), f"{cell.text} becomes {changed} ({'point' if moves_point else 'digits'})"
    )


def _with_moved_point(figure: str, random_: random.Random) -> str:
    integer, _, fraction = figure.partition(".")
    if len(integer) < 2 or not fraction:
        return ""
    if random_.random() < 0.5:
        return f"{integer[:-1]}.{integer[-1]}{fraction}"
    return f"{integer}{fraction[0]}.{fraction[1:]}".rstrip(".")


def _with_exchanged_digits(figure: str, random_: random.Random) -> str:
    places = [position for position in range(len(figure)) if figure[position].isdigit()]
    number = random_.randrange(max(len(places) - 1, 1))
    if len(places) < 2:
        return ""
    first, second = places[number], places[number + 1]
    digits = list(figure)
    digits[first], digits[second] = digits[second], digits[first]
    return "".join(digits)


def swapped_heads(source: Source, random_: random.Random) -> Error | None:
    """Exchange the numbers of an average and of a score's column, or of the columns of two averages."""
    table = source.table
    averages = averages_of(table)
    if not averages:
        return None
    of_set = random_.choice(averages)
    inside = _neighbours(table, of_set)
    foreign = [sibling for sibling in _neighbours(table, None) if sibling not in inside]
    if len(averages) > 1 and foreign and random_.random() < 0.5:
        first, second = random_.choice(inside), random_.choice(foreign)
    else:
        first, second = of_set, random_.choice(inside)
    edit, places = Edit(source), set()
    for method in range(len(table.methods)):
        cell, target = table.cells.get((method, first)), table.cells.get((method, second))
        if cell is not None and target is not None:
            edit.copy_cell(cell, target)
            edit.copy_cell(target, cell)
            for sibling in (first, second, *averages):
                position = table.cells.get((method, sibling))
                if position is not None:
                    places.add((position.row, position.column))
    names = " and ".join(table.sets[sibling].name for sibling in (first, second))
    return Error(edit.grid, frozenset(places), f"{names} are exchanged")


def _neighbours(table: PrintedNumbers, average: int | None) -> list[int]:
    """Return the scores that stand below the head of an average, all if no other average is there."""
    plain = [of_set for of_set, described in enumerate(table.sets) if not described.is_average]
    if average is None or len(averages_of(table)) < 2:
        return plain
    path = table.sets[average].path
    same = [of_set for of_set in plain if len(path) > 1 and table.sets[of_set].path[:1] == path[:1]]
    return same or plain


KINDS: dict[str, Callable[[Source, random.Random], Error | None]] = {
    "average": wrong_average,
    "bold": wrong_bold,
    "row": copied_row,
    "digit": shifted_digit,
    "heads": swapped_heads,
}


# --- counts -----------------------------------------------------------------------------------------------------------


def judge(source: Source, kind: str, error: Error) -> Result:
    """Return what the check says of a table with an error."""
    try:
        table = understand_grid(error.grid, ReaderSettings()).printed
    except UsageError as refusal:
        return Result(kind, source.name, f"{error.text}: {refusal}", "refused")
    assert table is not None
    recognized = {finding[:5] for finding in source.findings}
    rows, columns = set(), set()
    for row, column in error.places:
        columns.add(table.body.name(column))
        rows.add(f"row {row + 1}" if table.name_column is None else table.body.grid.rows[row][table.name_column])
    findings = check_table(table).findings
    for finding in (finding for finding in findings if finding.is_error or "is one a copy" in finding.text):
        is_there = finding.row in rows or finding.column in columns or finding.kind == "heads"
        if is_there and finding[:5] not in recognized:
            return Result(kind, source.name, f"{error.text}: {finding}", "found")
    return Result(kind, source.name, error.text, "missed")


def tamper(sources: Sequence[Source], count: int, seed: int) -> list[Result]:
    """Return the outcomes of so many errors of each kind, put into the tables in turn."""
    results = []
    for kind, make in KINDS.items():
        random_ = random.Random(f"{seed} {kind}")
        errors: list[tuple[Source, Error]] = []
        while len(errors) < count:
            made = len(errors)
            for source in sources:
                drawn = (make(source, random_) for _ in range(TRIES))
                error = next((error for error in drawn if error is not None), None)
                if error is not None:
                    errors.append((source, error))
            if len(errors) == made:
                break
        results += [judge(source, kind, error) for source, error in errors[:count]]
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--count", type=int, default=40, help="errors of each kind")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--missed", action="store_true", help="also print the errors that were not found")
    options = parser.parse_args()
    sources = list(read_sources(options.folder))
    print(f"{len(sources)} tables are read; findings on them as they are:")
    for source in sources:
        for finding in source.findings:
            if finding.is_error:
                print(f"  {source.name}: {finding.kind}: {finding}")
    results = tamper(sources, options.count, options.seed)
    print("\n| error | made | found | missed | refused | tables |\n|---|---|---|---|---|---|")
    for kind in (*KINDS, "all"):
        of_kind = [result for result in results if kind in (result.kind, "all")]
        counts = [sum(result.outcome == outcome for result in of_kind) for outcome in ("found", "missed", "refused")]
        tables = len({result.table for result in of_kind})
        print(f"| {kind} | {len(of_kind)} | {' | '.join(map(str, counts))} | {tables} |")
    if options.missed:
        for result in results:
            if result.outcome != "found":
                print(f"  {result.outcome}: {result.kind}: {result.table}: {result.text}")


if __name__ == "__main__":
    main()
