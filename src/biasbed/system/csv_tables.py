"""CSV tables: reading files that spreadsheets and editors have saved, and writing files that spreadsheets may open."""

from __future__ import annotations

import csv
import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

from biasbed.errors import UsageError, shown
from biasbed.settings import is_text
from biasbed.system.strict import open_text

ROWS, LINE = 5_000_000, 2**22  # most rows of a table, and characters of a row
DELIMITERS = (",", ";", "\t")
# Beginning of a text that a spreadsheet takes for a formula, or of one that was escaped before.
_FORMULA = re.compile("'*[=+\\-@\t\r\n\uff1d\uff0b\uff0d\uff20]")
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]+)?|[+-]?(inf|nan)", re.ASCII | re.I)


# --- reading ----------------------------------------------------------------------------------------------------------


def read_lines(path: Path, delimiters: Sequence[str] = ()) -> Iterator[tuple[int, list[str]]]:
    """Yield (line number, fields) of each line with content; spaces around fields are removed.

    Accepts a byte order mark, blank lines, lines of empty fields, and semicolons or tabs in place of commas.
    delimiters: those to choose from, by their number in the first line. Raises UsageError for a file that is not text,
    not CSV, or too long.
    """
    with open_text(path, encoding="utf-8-sig", errors="surrogateescape", newline="") as file:
        yield from parse_lines(file, str(path), delimiters)


def parse_lines(file: TextIO, where: str, delimiters: Sequence[str] = ()) -> Iterator[tuple[int, list[str]]]:
    """Yield (line number, fields) of each line with content of an open file. where: names it in messages."""
    lines = BoundedLines(file)
    try:
        head = next((line for line in lines if line.strip()), "")
        num_blank = lines.number - 1  # before the head
        if delimiters:
            delimiter = max(delimiters, key=head.count)
        else:
            delimiter = next((sign for sign in DELIMITERS if sign in head), ",")
        rows = csv.reader(itertools.chain([head], lines), delimiter=delimiter, skipinitialspace=True, strict=True)
        for row in rows:
            lines.end_row()
            if rows.line_num > ROWS:
                raise UsageError(f"{where}: has more than {ROWS:,} lines")
            fields = [field.strip() for field in row]
            if any(fields):
                yield num_blank + rows.line_num, fields
    except (ValueError, csv.Error) as error:
        raise UsageError(f"{where}, line {lines.number}: can't be read as CSV ({error})") from None


class BoundedLines:
    """Iterator over the lines of a text file that refuses endless lines, as they would fill the memory.

    Open the file with `newline=""` and `errors="surrogateescape"`. Raises ValueError for a row of more than `LINE`
    characters, and for NUL characters and invalid UTF-8.
    """

    def __init__(self, file: TextIO) -> None:
        self.number = 0  # of the last line
        self._file, self._size = file, 0

    def __iter__(self) -> BoundedLines:
        return self

    def __next__(self) -> str:
        line = self._file.readline(LINE + 1)
        if not line:
            raise StopIteration
        self.number += 1
        self._size += len(line)
        if self._size > LINE:
            raise ValueError(f"it is longer than {LINE:,} characters")
        if "\0" in line:
            raise ValueError("it has a NUL character; save a file of UTF-16 as UTF-8")
        if not is_text(line):
            raise ValueError("it is no UTF-8: save it as such")
        return line

    def end_row(self) -> None:
        """Note that a row has ended: a quoted field, and so a row, may have several lines."""
        self._size = 0


def read_rows(path: Path, columns: Sequence[str], optional: Sequence[str] = ()) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield (line number, entries by column) of each row of a table whose first line names the columns.

    Raises UsageError if the table can't be read, lacks one of the `columns`, has one of them or of the `optional` ones
    twice, or has a row of another length.
    """
    lines = read_lines(path)
    _, header = next(lines, (0, []))
    missing = [name for name in columns if name not in header]
    if missing:
        first = shown(",".join(header)) or "empty"
        raise UsageError(f"{path} lacks the column {' and '.join(missing)}: its first line is {first}")
    twice = [name for name in (*columns, *optional) if header.count(name) > 1]
    if twice:
        raise UsageError(f"{path} has the column {twice[0]} twice")
    for number, row in lines:
        if len(row) != len(header):
            raise UsageError(
                f"{path}, line {number}: {len(row)} entries for {len(header)} columns: was the file cut off?"
            )
        yield number, dict(zip(header, row, strict=True))


# --- writing ----------------------------------------------------------------------------------------------------------


def write_rows(file: Any, columns: Sequence[str], rows: Iterable[Mapping[str, object]]) -> None:
    """Write a CSV table with a header. Text that a spreadsheet would run as a formula is escaped."""
    writer = csv.DictWriter(file, list(columns), extrasaction="ignore", lineterminator="\n")
    writer.writerow({name: escape_formula(name) for name in columns})
    for row in rows:
        writer.writerow({name: escape_formula(value) for name, value in row.items()})


def escape_formula(value: Any) -> Any:
    """Return a cell with a ' before text that begins like a formula. Numbers stay as they are."""
    if not isinstance(value, str):
        return value
    is_formula = _FORMULA.match(value) and not _NUMBER.fullmatch(value)
    text = value.replace("\r", " ")  # `csv` does not quote it, so that readers would begin a line there
    return f"'{text}" if is_formula else text


def unescape_formula(cell: str) -> str:
    """Return the text that `escape_formula` has made this cell of."""
    if cell.startswith("'") and _FORMULA.match(cell):
        return cell[1:]
    return cell
