"""CSV tables of people, as spreadsheets and editors save them, and CSV tables that spreadsheets may open."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from biasbed.errors import UsageError, shown

ROWS, BYTES = 5_000_000, 2**30  # most of a table
DELIMITERS = (",", ";", "\t")
# What a spreadsheet takes for a formula, also after quotes that were put before it.
_FORMULA = re.compile("'*[=+\\-@\t\r\n\uff1d\uff0b\uff0d\uff20]")
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]+)?|[+-]?(inf|nan)", re.ASCII | re.I)


# --- reading ----------------------------------------------------------------------------------------------------------


def read_lines(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield (number, fields) of each line with content; blanks around fields are removed.

    A byte order mark, blank lines, lines of empty fields, and semicolons or tabs in place of commas are taken. Raises
    UsageError for what is no text or no CSV, or too long.
    """
    try:
        if path.stat().st_size > BYTES:
            raise UsageError(f"{path}: is larger than {BYTES // 2**20} MiB: is this the right file?")
        content = path.read_bytes()
        text = content.decode("utf-8-sig")
    except OSError as error:
        raise UsageError(f"{path}: can't be read ({error.strerror})") from None
    except UnicodeDecodeError as error:
        number = content.count(b"\n", 0, error.start) + 1
        raise UsageError(f"{path}, line {number}: can't be read as CSV (it is no UTF-8)") from None
    yield from parse_lines(text, str(path))


def parse_lines(text: str, where: str) -> Iterator[tuple[int, list[str]]]:
    """The same of a text. where: it comes from, for messages."""
    if "\0" in text:
        number = text.count("\n", 0, text.index("\0")) + 1
        raise UsageError(f"{where}, line {number}: can't be read as CSV (it has a NUL character)")
    rows = csv.reader(io.StringIO(text, newline=""), delimiter=_delimiter(text), skipinitialspace=True, strict=True)
    count = 0
    try:
        for row in rows:
            fields = [field.strip() for field in row]
            if not any(fields):
                continue
            count += 1
            if count > ROWS:
                raise UsageError(f"{where}: has more than {ROWS:,} lines")
            yield rows.line_num, fields
    except csv.Error as error:
        raise UsageError(f"{where}, line {rows.line_num}: can't be read as CSV ({error})") from None


def _delimiter(text: str) -> str:
    """Return what separates the names in the first line that has any."""
    head = text.lstrip().partition("\n")[0]
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
