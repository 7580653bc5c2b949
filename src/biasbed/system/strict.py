"""Strict readers of what others wrote, with limits on kind, size and depth: files, JSON, numbers in text, parquet.

`strict_yaml` reads YAML, `csv_tables` CSV, both through `open_text`. All raise ValueError or UsageError of one line, or
OSError for a file that can't be opened: no pipe is waited for, nothing is nested without end, and a few bytes can't
fill the memory.

Answers: How is a file that a stranger wrote opened and read?
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TextIO

from biasbed.errors import UnreadableFile
from biasbed.settings import is_text

if TYPE_CHECKING:
    from pyarrow import Table
    from pyarrow.parquet import ParquetFile

DEPTH = 40  # levels of a nested value; what we write has fewer than ten
PARTS = 1_000_000  # values of one JSON text
BYTES_OF_PART = 64  # of a file, for each value that it may have
FILE_BYTES = PARTS * BYTES_OF_PART  # of a file of text
LARGEST = 2**63 - 1
MANY_PARTS = 50_000_000  # of a list of a data set's images
ROWS = 5_000_000  # rows of a parquet file; ImageNet-C has 3,750,000 images
BYTES = 2 * 2**30  # memory that its columns may need
BATCH = 65_536  # rows that are decoded at a time

# What may stand for a value that no database keeps: a whole number of over 64 bits, half a surrogate pair.
_DOUBTFUL = re.compile(r"(?<![0-9])[0-9]{19}|\\u[dD][89a-fA-F]", re.ASCII)
_INT = re.compile(r"[+-]?[0-9]{1,19}", re.ASCII)
_FLOAT = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]{1,6})?|[+-]?(inf|infinity|nan)", re.ASCII | re.I)


# --- files ------------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def open_regular(path: Path) -> Iterator[BinaryIO]:
    """Open a regular file for reading.

    Raises UnreadableFile for anything else: a pipe would be waited for without end, and a device may have no end.
    """
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise UnreadableFile(path, "it is not a regular file")
        yield file


@contextlib.contextmanager
def open_text(path: Path, **options: Any) -> Iterator[TextIO]:
    """Open a regular file of UTF-8 to read a part of it, or line by line. options: those of `io.TextIOWrapper`."""
    with open_regular(path) as file, io.TextIOWrapper(file, **{"encoding": "utf-8", **options}) as text:
        yield text


def read_bytes(path: Path, most: int = FILE_BYTES) -> bytes:
    """Return the content of a regular file. Raises UnreadableFile, before it is read, for more than `most` bytes."""
    with open_regular(path) as file:
        if os.fstat(file.fileno()).st_size > most:
            raise UnreadableFile(path, f"it has more than {most:,} bytes: is this the right file?")
        return file.read()


def read_text(path: Path, most: int = FILE_BYTES, errors: str = "strict") -> str:
    """Return the text of a regular file of UTF-8. Raises ValueError if it is too large, or no UTF-8."""
    return read_bytes(path, most).decode(errors=errors)


def read_json(path: Path, parts: int = PARTS) -> Any:
    """Return the value of a JSON file. Raises ValueError as `parse_json`, or if it is empty."""
    content = read_bytes(path, parts * BYTES_OF_PART)
    if not content.strip():
        raise ValueError("it is empty")
    return parse_json(content, parts)


# --- values -----------------------------------------------------------------------------------------------------------


def parse_json(text: str | bytes, parts: int = PARTS) -> Any:
    """Return the value of a JSON text. Raises ValueError if it is none, nested too deeply or too large.

    parts: most values that it may have. Each takes fifty bytes of memory or so, and two in the text.
    """
    if isinstance(text, bytes):
        text = text.decode(json.detect_encoding(text))
    brackets = text.count("[") + text.count("{")
    if text.count(",") + brackets > parts:  # a list in a list needs no comma, and as much memory
        raise ValueError(f"it has more than {parts:,} values")
    if "\\u0000" in text:
        raise ValueError("it has characters that no database keeps")
    try:
        value = json.loads(text)
    except RecursionError:
        raise ValueError(f"it is nested more than {DEPTH} levels deep") from None
    if brackets > DEPTH or _DOUBTFUL.search(text):
        refuse_values(value)
    return value


def refuse_values(value: Any) -> None:
    """Raise ValueError for values nested more than `DEPTH` levels deep, and for those that no database keeps."""
    level, depth = [value], 0
    while level:
        below: list[Any] = []
        for part in level:
            if isinstance(part, dict | list | tuple | set):
                if depth == DEPTH:
                    raise ValueError(f"it is nested more than {DEPTH} levels deep")
                below.extend(part)
                below.extend(part.values() if isinstance(part, dict) else ())
            elif isinstance(part, int) and abs(part) > LARGEST:
                raise ValueError("it has a whole number of more than 64 bits")
            elif isinstance(part, str) and ("\0" in part or not is_text(part)):
                raise ValueError("it has characters that no database keeps")
        level, depth = below, depth + 1


def parse_int(text: str, least: int = -LARGEST) -> int:
    """Return the whole number that a text is, in the digits 0 to 9. Raises ValueError for any other text."""
    value = int(text) if _INT.fullmatch(text) else None
    if value is None or not least <= value <= LARGEST:
        raise ValueError(f"{text[:30]!r} is no 64-bit number{f' from {least}' if least > -LARGEST else ''}")
    return value


def parse_float(text: str) -> float:
    """Return the number that a text is; it may be infinite or NaN. Raises ValueError for any other text."""
    if len(text) > 400 or not _FLOAT.fullmatch(text):
        raise ValueError(f"{text[:30]!r} is no number")
    return float(text)


# --- parquet ----------------------------------------------------------------------------------------------------------


def read_parquet(source: Path | bytes, columns: Sequence[str], coded: Sequence[str] = ()) -> Table:
    """Read those of the columns that a parquet file has.

    coded: columns to be read as dictionaries. Raises ValueError for more than `ROWS` rows, before any is read, and if
    the columns need more than `BYTES` bytes; ArrowException or OSError for what is no parquet file.
    """
    import pyarrow as pa
    from pyarrow import parquet

    def opened(dictionaries: Sequence[str]) -> ParquetFile:
        content = io.BytesIO(source) if isinstance(source, bytes) else source
        return parquet.ParquetFile(content, read_dictionary=list(dictionaries), page_checksum_verification=True)

    with opened(()) as file:
        _refuse_long(file)
        schema = file.schema_arrow
        there = [name for name in columns if name in schema.names]
        checked = [name for name in there if name not in coded and _may_repeat(file, name)]
    with opened([name for name in (*coded, *checked) if name in there]) as file:
        fields = [file.schema_arrow.field(name) for name in there]
        batches = list(_limited(file, there))
        table = pa.Table.from_batches(batches, schema=pa.schema(fields, schema.metadata))
    table.validate(full=True)
    for name in checked:
        table = _spelt_out(table, name)
    return table


def _refuse_long(file: ParquetFile) -> None:
    """Raise ValueError if a file says that it has more rows, or entries of a column, than are read."""
    about = file.metadata
    if about.num_rows > ROWS:
        raise ValueError(f"it has {about.num_rows:,} rows; at most {ROWS:,} are read")
    groups = [about.row_group(number) for number in range(about.num_row_groups)]
    if sum(group.total_byte_size for group in groups) > BYTES:
        raise ValueError(f"it would unpack to more than {BYTES // 2**30} GiB")
    for column in range(about.num_columns):
        if sum(group.column(column).num_values for group in groups) > BYTES // 8:
            raise ValueError(f"its column {about.schema.column(column).path[:60]} has more than {BYTES // 8:,} entries")


def _may_repeat(file: ParquetFile, name: str) -> bool:
    """Return True if texts of a column may come to more than `BYTES` bytes: a text that is repeated is stored once."""
    import pyarrow as pa

    if not pa.types.is_string(file.schema_arrow.field(name).type):
        return False
    about = file.metadata
    numbers = [number for number in range(about.num_columns) if about.schema.column(number).path == name]
    groups = [about.row_group(index) for index in range(about.num_row_groups)]
    return sum(group.num_rows * group.column(numbers[0]).total_uncompressed_size for group in groups) > BYTES


def _limited(file: ParquetFile, columns: Sequence[str]) -> Iterator[Any]:
    size = rows = 0
    for batch in file.iter_batches(BATCH, columns=list(columns), use_threads=False):
        size, rows = size + batch.nbytes, rows + len(batch)
        if size > BYTES or rows > ROWS:
            raise ValueError(f"it needs more than {BYTES // 2**30} GiB of memory, or has more than {ROWS:,} rows")
        yield batch


def _spelt_out(table: Table, name: str) -> Table:
    """Return the table with a column of texts in place of a dictionary. Raises ValueError if it would be too large."""
    import pyarrow as pa
    from pyarrow import compute

    column = table[name]
    size = sum(
        compute.sum(compute.take(compute.binary_length(chunk.dictionary), chunk.indices)).as_py() or 0
        for chunk in column.chunks
    )
    if size > BYTES:
        raise ValueError(f"its column {name} needs more than {BYTES // 2**30} GiB of memory")
    return table.set_column(table.schema.get_field_index(name), name, column.cast(pa.string()))
