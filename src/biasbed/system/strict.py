"""Strict readers of strangers' files, with limits on kind, size and depth: text, JSON, numbers, parquet.

A pipe would be waited for without end, and a few bytes of nested or compressed data could fill the memory. All readers
raise ValueError or UsageError of one line, or OSError for a file that can't be opened. `strict_yaml` reads YAML and
`csv_tables` CSV, both through `open_text`.

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

# Most or largest:
DEPTH = 40  # levels of a nested value; biasbed writes fewer than ten
PARTS = 1_000_000  # values of one JSON text
BYTES_OF_PART = 64  # bytes of a file for each of its values
FILE_BYTES = PARTS * BYTES_OF_PART  # bytes of a text file
LARGEST = 2**63 - 1  # whole number
MANY_PARTS = 50_000_000  # values of a list of a data set's images
ROWS = 5_000_000  # rows of a parquet file; ImageNet-C has 3,750,000 images
BYTES = 2 * 2**30  # memory that its columns may need
BATCH = 65_536  # rows that are decoded at a time

# Signs of a value that no database can store: a whole number of over 64 bits, or half a surrogate pair.
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
    """Open a regular text file, UTF-8 unless `options`, those of `io.TextIOWrapper`, say otherwise."""
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
    """Return the value of a JSON text. Raises ValueError if it is invalid, nested too deeply or too large.

    parts: most values that it may have. A value takes about fifty bytes of memory, and as few as two of the text.
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
    """Raise ValueError for values nested more than `DEPTH` levels deep, and for those that no database can store."""
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
    """Parse a whole number from `least` to `LARGEST`, in the digits 0 to 9. Raises ValueError for any other text."""
    if _INT.fullmatch(text) and least <= int(text) <= LARGEST:
        return int(text)
    bound = f" from {least}" if least > -LARGEST else ""
    raise ValueError(f"{text[:30]!r} is no 64-bit number{bound}")


def parse_float(text: str) -> float:
    """Parse a number, which may be infinite or NaN. Raises ValueError for any other text."""
    if len(text) > 400 or not _FLOAT.fullmatch(text):
        raise ValueError(f"{text[:30]!r} is no number")
    return float(text)


# --- parquet ----------------------------------------------------------------------------------------------------------


def read_parquet(source: Path | bytes, columns: Sequence[str], coded: Sequence[str] = ()) -> Table:
    """Read these columns of a parquet file; columns that it lacks are left out.

    coded: columns to be read as dictionaries. Raises ValueError for more than `ROWS` rows, before any is read, and if
    the columns need more than `BYTES` bytes; ArrowException or OSError for an invalid file.
    """
    import pyarrow as pa
    from pyarrow import parquet

    def open_with(dictionaries: Sequence[str]) -> ParquetFile:
        content = io.BytesIO(source) if isinstance(source, bytes) else source
        return parquet.ParquetFile(content, read_dictionary=list(dictionaries), page_checksum_verification=True)

    with open_with(()) as file:
        _refuse_long(file)
        schema = file.schema_arrow
        present = [name for name in columns if name in schema.names]
        # Read as dictionaries at first, so that their size as texts can be checked.
        checked = [name for name in present if name not in coded and _may_be_too_large(file, name)]
    with open_with([name for name in (*coded, *checked) if name in present]) as file:
        fields = [file.schema_arrow.field(name) for name in present]
        batches = list(_read_batches(file, present))
        table = pa.Table.from_batches(batches, schema=pa.schema(fields, schema.metadata))
    table.validate(full=True)
    for name in checked:
        table = _decode_dictionary(table, name)
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


def _may_be_too_large(file: ParquetFile, name: str) -> bool:
    """Return True if the texts of a column may need more than `BYTES` bytes: the file stores repeated texts once."""
    import pyarrow as pa

    if not pa.types.is_string(file.schema_arrow.field(name).type):
        return False
    about = file.metadata
    numbers = [number for number in range(about.num_columns) if about.schema.column(number).path == name]
    groups = [about.row_group(index) for index in range(about.num_row_groups)]
    return sum(group.num_rows * group.column(numbers[0]).total_uncompressed_size for group in groups) > BYTES


def _read_batches(file: ParquetFile, columns: Sequence[str]) -> Iterator[Any]:
    """Yield batches of the columns. Raises ValueError as soon as they are too large, whatever the file says."""
    size = rows = 0
    for batch in file.iter_batches(BATCH, columns=list(columns), use_threads=False):
        size, rows = size + batch.nbytes, rows + len(batch)
        if size > BYTES or rows > ROWS:
            raise ValueError(f"it needs more than {BYTES // 2**30} GiB of memory, or has more than {ROWS:,} rows")
        yield batch


def _decode_dictionary(table: Table, name: str) -> Table:
    """Return the table with a dictionary column as plain texts. Raises ValueError if it would be too large."""
    import pyarrow as pa
    from pyarrow import compute

    column = table[name]
    size = 0
    for chunk in column.chunks:
        lengths = compute.take(compute.binary_length(chunk.dictionary), chunk.indices)
        size += compute.sum(lengths).as_py() or 0
    if size > BYTES:
        raise ValueError(f"its column {name} needs more than {BYTES // 2**30} GiB of memory")
    return table.set_column(table.schema.get_field_index(name), name, column.cast(pa.string()))
