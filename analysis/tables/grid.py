"""Grid of cells: a table of any format after its markup is gone, before anything is understood."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from biasbed.errors import UsageError, shown

if TYPE_CHECKING:
    import pandas as pd

LONGEST_CELL = 2_000  # characters; a longer one is prose or data
MOST_ROWS, MOST_COLUMNS = 50_000, 2_000
MANY_ROWS = 20_000  # from which on lines of runs are read as means
SAMPLE = 2_000  # lines that say what the columns of such a table hold


class RawCell(NamedTuple):
    """A cell as a format's reader has it."""

    text: str  # without markup
    is_bold: bool = False
    columns: int = 1  # that it spans
    rows: int = 1


@dataclass
class Grid:
    """Rectangle of texts. Cells that span several places are repeated in each."""

    source: str  # file, for messages
    rows: list[list[str]]
    lines: list[int]  # of the file, one for each row
    num_head_rows: int = 0  # that the format marks as such; 0: it marks none
    bold: set[tuple[int, int]] = field(default_factory=set)  # (row, column)
    wide_rows: dict[int, str] = field(default_factory=dict)  # rows that one cell spans, or that hold one text
    has_spans: bool = False  # the head shows by spans which columns belong together
    caption: str = ""  # words of the file about the table
    format: str = "CSV"
    problem: str = ""  # why the rectangle can't be trusted
    frame: pd.DataFrame | None = None  # all lines, by their numbers, of a table of which the rows are a sample

    @property
    def width(self) -> int:
        return len(self.rows[0]) if self.rows else 0

    def where(self, row: int) -> str:
        """Return the place of a row, for messages."""
        return self.at(self.lines[row])

    def at(self, line: int) -> str:
        """Return the place of a line of the file, for messages."""
        if self.format == "DataFrame":
            return f"row {line}"
        return f"{self.source}, {'record' if self.format == 'JSON' else 'line'} {line}"


def make_grid(
    source: str, rows: Sequence[Sequence[RawCell]], lines: Sequence[int], num_head_rows: int, format_name: str
) -> Grid:
    """Return the rectangle of rows whose cells may span columns and rows."""
    texts: list[list[str]] = []
    grid = Grid(source, texts, list(lines), num_head_rows, format=format_name)
    hanging: dict[int, tuple[str, int]] = {}  # column -> text and rows that it still covers
    for number, row in enumerate(rows):
        line: list[str] = []
        for cell in row:
            _fill_hanging(line, hanging)
            column = len(line)
            width = min(max(cell.columns, 1), MOST_COLUMNS)
            grid.has_spans |= width > 1
            line += [cell.text] * width
            for column_number in range(column, column + width):
                if cell.is_bold:
                    grid.bold.add((number, column_number))
                if cell.rows > 1:
                    hanging[column_number] = (cell.text, cell.rows - 1)
        _fill_hanging(line, hanging)
        texts.append(line)
        if len(row) == 1 and len(line) > 1 and line[0]:
            grid.wide_rows[number] = line[0]
    grid.problem = _longer_row(grid)
    grid = square(grid)
    if not grid.has_spans:
        return grid
    columns = list(zip(*grid.rows, strict=True))  # cells below a head of the same width repeat in each of its columns
    return select(grid, range(len(grid.rows)), [n for n in range(grid.width) if n == 0 or columns[n] != columns[n - 1]])


def _longer_row(grid: Grid) -> str:
    """Return a message on a row with more cells than the head or, if no head is marked, than the usual row."""
    widths = [len(row) for row in grid.rows]
    head = widths[: grid.num_head_rows] or [next((width for width in widths if width > 1), 1)]
    usual = max(set(widths), key=widths.count) if widths else 0
    for number, row in enumerate(grid.rows):
        if any(row[max(*head, usual if not grid.num_head_rows else 0) :]):
            return f"{grid.where(number)}: {len(row)} entries for {max(*head, 1)} columns"
    return ""


def _fill_hanging(line: list[str], hanging: dict[int, tuple[str, int]]) -> None:
    """Append the cells that reach down from rows above into the next places."""
    while len(line) in hanging:
        column = len(line)
        text, left = hanging.pop(column)
        line.append(text)
        if left > 1:
            hanging[column] = (text, left - 1)


def square(grid: Grid) -> Grid:
    """Return the grid with rows of one length, without empty rows and columns. Raises UsageError if it is too large."""
    width = max(map(len, grid.rows), default=0)
    if len(grid.rows) > MOST_ROWS:
        raise UsageError(
            f"{grid.source}: has more than {MOST_ROWS:,} lines: give a line per score, not per image (docs/tables.md)"
        )
    if width > MOST_COLUMNS:
        raise UsageError(f"{grid.source}: has {width:,} columns; at most {MOST_COLUMNS:,} are read")
    for number, row in enumerate(grid.rows):
        for text in row:
            if len(text) > LONGEST_CELL:
                raise UsageError(
                    f"{grid.where(number)}: a cell has {len(text):,} characters ('{shown(text, 30)}'): is this a "
                    "table of scores?"
                )
        row += [""] * (width - len(row))
    kept = [number for number, row in enumerate(grid.rows) if any(row)]
    filled = [column for column in range(width) if any(grid.rows[number][column] for number in kept)]
    return select(grid, kept, filled)


def select(grid: Grid, kept: Sequence[int], columns: Sequence[int] | None = None) -> Grid:
    """Return the grid of these rows and columns."""
    column_numbers = range(grid.width) if columns is None else columns
    new_row = {row: number for number, row in enumerate(kept)}
    new_column = {column: number for number, column in enumerate(column_numbers)}
    bold = set()
    for row, column in grid.bold:
        if row in new_row and column in new_column:
            bold.add((new_row[row], new_column[column]))
    return Grid(
        source=grid.source,
        rows=[[grid.rows[row][column] for column in column_numbers] for row in kept],
        lines=[grid.lines[row] for row in kept],
        num_head_rows=sum(row < grid.num_head_rows for row in kept),
        bold=bold,
        wide_rows={new_row[row]: text for row, text in grid.wide_rows.items() if row in new_row},
        has_spans=grid.has_spans,
        caption=grid.caption,
        format=grid.format,
        problem=grid.problem,
    )


def sample_grid(source: str, heads: Sequence[str], frame: pd.DataFrame, format_name: str) -> Grid:
    """Return a table of very many lines, with a sample of them as its rows."""
    sample = frame.sample(SAMPLE, random_state=0).sort_index()
    rows = [list(heads), *sample.astype(str).to_numpy().tolist()]
    return Grid(source, rows, [1, *sample.index.tolist()], 1, format=format_name, frame=frame)


def texts_of(rows: Iterable[Sequence[str]]) -> list[list[RawCell]]:
    """Return plain texts as cells."""
    return [[RawCell(text) for text in row] for row in rows]
