"""CSV tables of people, as spreadsheets and editors save them, and CSV tables that spreadsheets may open."""

from __future__ import annotations

import csv
import itertools
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

from biasbed.errors import UsageError, shown
from biasbed.settings import is_text
from biasbed.system.strict import open_text

ROWS, BYTES, LINE = 5_000_000, 2**30, 2**22  # most of a table, and characters of a row
DELIMITERS = (",", ";", "\t")
# What a spreadsheet takes for a formula, also after quotes that were put before it.
_FORMULA = re.compile("'*[=+\\-@\t\r\n\uff1d\uff0b\uff0d\uff20]")
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]+)?|[+-]?(inf|nan)", re.ASCII | re.I)


# --- reading ----------------------------------------------------------------------------------------------------------


def read_lines(path: Path, delimiters: Sequence[str] = ()) -> Iterator[tuple[int, list[str]]]:
    """Yield (number, fields) of each line with content; blanks around fields are removed.

    A byte order mark, blank lines, lines of empty fields, and semicolons or tabs in place of commas are taken. With
    `delimiters` the one is taken that the first line has most of. Raises UsageError for what is no text or no CSV, or
    too long.
    """
    try:
        with open_text(path, encoding="utf-8-sig", errors="surrogateescape", newline="") as file:
            if os.fstat(file.fileno()).st_size > BYTES:
                raise UsageError(f"{path}: is larger than {BYTES // 2**20} MiB: is this the right file?")
            yield from parse_lines(file, str(path), delimiters)
    except OSError as error:
        raise UsageError(f"{path}: can't be read ({error.strerror})") from None


def parse_lines(file: TextIO, where: str, delimiters: Sequence[str] = ()) -> Iterator[tuple[int, list[str]]]:
    """Yield (number, fields) of each line with content of an open file. where: names it in messages."""
    lines = BoundedLines(file)
    try:
        head = next((line for line in lines if line.strip()), "")
        blank = lines.number - 1
        delimiter = max(delimiters, key=head.count) if delimiters else _delimiter(head)
        rows = csv.reader(itertools.chain([head], lines), delimiter=delimiter, skipinitialspace=True, strict=True)
        for row in rows:
            lines.end_row()
            if rows.line_num > ROWS:
                raise UsageError(f"{where}: has more than {ROWS:,} lines")
            fields = [field.strip() for field in row]
            if any(fields):
                yield blank + rows.line_num, fields
    except (ValueError, csv.Error) as error:
        raise UsageError(f"{where}, line {lines.number}: can't be read as CSV ({error})") from None


class BoundedLines:
    """Iterator over the lines of a text file that reads none that is endless, as that would fill the memory.

    Open the file with `newline=""` and `errors="surrogateescape"`. Raises ValueError for a row of more than `LINE`
    characters, and for characters that are no text.
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
        """Note that the lines until here were a row. A field in quotes may go on over several lines."""
        self._size = 0


def _delimiter(head: str) -> str:
    """Return what separates the names in the first line that has any."""
    return next((sign for sign in DELIMITERS if sign in head), ",")


def read_rows(path: Path, columns: Sequence[str]) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield (line number, entries by column) of each row of a table whose first line names the columns.

    Raises UsageError if the table can't be read, lacks one of the columns, has one twice, or a row of another length.
    """
    lines = read_lines(path)
    _, heads = next(lines, (0, []))
    missing = [name for name in columns if name not in heads]
    if missing:
        first = shown(",".join(heads)) or "empty"
        raise UsageError(f"{path} lacks the column {' and '.join(missing)}: its first line is {first}")
    twice = [name for name in columns if heads.count(name) > 1]
    if twice:
        raise UsageError(f"{path} has the column {twice[0]} twice")
    for number, row in lines:
        if len(row) != len(heads):
            raise UsageError(f"{path}, line {number}: {len(row)} entries for {len(heads)} columns")
        yield number, dict(zip(heads, row, strict=True))


# --- writing ----------------------------------------------------------------------------------------------------------


def write_rows(file: Any, columns: Sequence[str], rows: Iterable[Mapping[str, object]], missing: str = "") -> None:
    """Write a CSV table with a head. Text that a spreadsheet would run as a formula gets a quote before it."""
    writer = csv.DictWriter(file, list(columns), restval=missing, extrasaction="ignore", lineterminator="\n")
    writer.writerow({name: harmless(name) for name in columns})
    for row in rows:
        writer.writerow({name: harmless(value) for name, value in row.items()})


def harmless(value: Any) -> Any:
    """Return a cell as it is written: text that begins like a formula has a ' before it. Numbers stay as they are."""
    if not isinstance(value, str):
        return value
    is_formula = _FORMULA.match(value) and not _NUMBER.fullmatch(value)
    text = value.replace("\r", " ")  # which `csv` leaves without quotes, so that what follows would be a line
    return f"'{text}" if is_formula else text


def original(cell: str) -> str:
    """Return what `harmless` was given."""
    return cell[1:] if cell.startswith("'") and _FORMULA.match(cell) else cell
