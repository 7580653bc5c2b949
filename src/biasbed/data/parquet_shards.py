"""Parquet shards of image data sets, as the `datasets` library writes them: read by batches, one at a time.

An image column is a struct of `bytes` and `path`, or plain bytes.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from biasbed.data.shard_columns import (
    BIAS,
    IMAGE,
    LABEL,
    ROLES,
    ShardImages,
    StatedColumns,
    check_path,
    name_values,
    suffix_of,
)
from biasbed.errors import first_line
from biasbed.system.strict import ROWS, parse_json

if TYPE_CHECKING:
    from pyarrow.parquet import ParquetFile

BATCH = 32  # images in memory at a time
BATCH_BYTES = 2**27  # of a batch at most, if images may be repeated: a dictionary stores them once
EXPANSION = 100  # bytes of images for each byte of a file at most
ALLOWANCE = 2**30  # bytes of images that any file may have
BUFFER = 2**20  # bytes that are read at a time: without a buffer pyarrow loads a row group's column at once
CLASS_LABEL = "ClassLabel"


@dataclass(frozen=True)
class _Columns:
    """Columns of a file: name of each role, names of numbers by column, whether the image is a struct."""

    names: Mapping[str, str]
    features: Mapping[str, tuple[str, ...]]
    has_path: bool
    content: str  # column of the image's bytes, as Parquet names it


@contextlib.contextmanager
def opened(path: Path) -> Iterator[ParquetFile]:
    """Open a Parquet file. Raises ValueError, within the block too, if it is damaged."""
    import pyarrow
    from pyarrow import parquet

    try:
        with parquet.ParquetFile(path, buffer_size=BUFFER, page_checksum_verification=True) as file:
            yield file
    except (pyarrow.ArrowException, OSError) as error:
        raise ValueError(f"it is damaged or no Parquet file ({first_line(error)[:100]})") from None


def read_shard(path: Path, columns: StatedColumns, classes: tuple[str, ...]) -> ShardImages:
    """Index a shard: the size and place of its images, and their labels. Reads all of it once, by batches.

    classes: names of the labels that are numbers, in place of the file's. Raises ValueError if it is damaged, a row
    does not fit, or its images are far larger than the file.
    """
    with opened(path) as file:
        if file.metadata.num_rows > ROWS:
            raise ValueError(f"it has {file.metadata.num_rows:,} rows; at most {ROWS:,} are read")
        chosen = _choose_columns(file, columns)
        most, size = EXPANSION * path.stat().st_size + ALLOWANCE, 0
        paths: list[str] = []
        suffixes: list[str] = []
        named: dict[str, list[str | None]] = {role: [] for role in chosen.names if role != IMAGE}
        parts: list[np.ndarray] = []
        for group in range(file.num_row_groups):
            start, first = 0, len(paths)
            for batch in file.iter_batches(
                _batch_size(file, group, chosen.content),
                row_groups=[group],
                columns=list(chosen.names.values()),
                use_threads=False,
            ):
                size += batch.nbytes
                if size > most:
                    raise ValueError(f"its images need more than {most / 2**30:.1f} GiB, far more than the file")
                contents, names = _images(batch.column(chosen.names[IMAGE]), chosen.has_path, first + start)
                paths += names
                suffixes += [suffix_of(content[:16]) for content in contents]
                for role, column in named.items():
                    values = batch.column(chosen.names[role]).to_pylist()
                    column += name_values(values, _number_names(role, chosen, classes), role, first + start)
                rows = range(start, start + len(contents))
                places = [(len(c), -1, group, row) for c, row in zip(contents, rows, strict=True)]
                parts.append(np.array(places, dtype=np.int64).reshape(-1, 4))
                start += len(contents)
    length, offset, groups, rows_in_group = np.concatenate([np.empty((0, 4), dtype=np.int64), *parts]).T
    return ShardImages(paths, suffixes, named, length, offset, groups, rows_in_group)


def read_contents(file: ParquetFile, group: int, content: str) -> Iterator[Any]:
    """Yield arrays of the images' bytes of a row group, in order. content: column of the bytes."""
    size = _batch_size(file, group, content)
    for batch in file.iter_batches(size, row_groups=[group], columns=[content], use_threads=False):
        column = batch.column(0)
        yield column.field(0) if column.type.num_fields else column


def _batch_size(file: ParquetFile, group: int, content: str) -> int:
    """Return how many rows of a row group may be in memory. Each image may be all of the column if it is repeated."""
    row_group = file.metadata.row_group(group)
    chunks = [row_group.column(number) for number in range(row_group.num_columns)]
    size = sum(chunk.total_uncompressed_size for chunk in chunks if chunk.path_in_schema == content)
    return max(1, min(BATCH, BATCH_BYTES // max(1, size)))


def content_column(file: ParquetFile, columns: StatedColumns) -> str:
    """Return the column of the images' bytes, as Parquet names it."""
    return _choose_columns(file, columns).content


def _choose_columns(file: ParquetFile, columns: StatedColumns) -> _Columns:
    """Choose the column of each role. Raises ValueError if one is missing, in doubt or of a type that is not read."""
    from pyarrow import types

    schema, features = file.schema_arrow, _features(file)
    names = {IMAGE: columns.require(schema.names, IMAGE, _of_type(features, "Image"))}
    labels = _of_type(features, CLASS_LABEL)
    for role in ROLES[::-1]:  # the label last: it may be any column of classes that has no other role
        left = [name for name in schema.names if name not in names.values()]
        if role == LABEL:
            names[LABEL] = columns.require(left, LABEL, labels)
        elif role != IMAGE:
            name = columns.choose(left, role)
            names |= {} if name is None else {role: name}
    image = schema.field(names[IMAGE]).type
    is_struct = types.is_struct(image) and "bytes" in [image.field(n).name for n in range(image.num_fields)]
    if not is_struct and not types.is_binary(image) and not types.is_large_binary(image):
        raise ValueError(f"its column {names[IMAGE]} is {image}, not the bytes of image files")
    for role, name in names.items():
        kind = schema.field(name).type
        kind = kind.value_type if types.is_dictionary(kind) else kind
        if role != IMAGE and not (types.is_integer(kind) or types.is_string(kind) or types.is_large_string(kind)):
            raise ValueError(f"its {role}, the column {name}, is {kind}: should be a number or a name")
    has_path = is_struct and any(image.field(n).name == "path" for n in range(image.num_fields))
    named = {name: tuple(map(str, feature.get("names") or ())) for name, feature in features.items()}
    return _Columns(names, named, has_path, f"{names[IMAGE]}.bytes" if is_struct else names[IMAGE])


def _features(file: ParquetFile) -> dict[str, Mapping[str, Any]]:
    """Return what the `datasets` library says about each column; empty if it did not write the file."""
    about = (file.schema_arrow.metadata or {}).get(b"huggingface")
    try:
        features = parse_json(about)["info"]["features"] if about else {}
        return {str(name): feature for name, feature in features.items() if isinstance(feature, dict)}
    except (ValueError, KeyError, TypeError, AttributeError, json.JSONDecodeError):
        raise ValueError("its description of the columns ('huggingface') is damaged") from None


def _of_type(features: Mapping[str, Mapping[str, Any]], kind: str) -> list[str]:
    return [name for name, feature in features.items() if feature.get("_type") == kind]


def _number_names(role: str, columns: _Columns, classes: Sequence[str]) -> Sequence[str]:
    """Return the names of a column's numbers. A bias without names has those of the label."""
    in_file = columns.features.get(columns.names[LABEL], ())
    if classes and in_file and len(classes) != len(in_file):
        raise ValueError(f"its label has {len(in_file)} classes, and the list of classes has {len(classes)}")
    if role == LABEL:
        return classes or in_file
    named = columns.features.get(columns.names[role], ())
    return named or (classes or in_file if role == BIAS else ())


def _images(column: Any, has_path: bool, first: int) -> tuple[list[bytes], list[str]]:
    """Return the bytes and the path of each image of a batch. Raises ValueError for an image without bytes."""
    values = column.to_pylist()
    contents, paths = [], []
    for row, value in enumerate(values, first):
        content = value.get("bytes") if isinstance(value, dict) else value
        if not content:
            raise ValueError(f"row {row}: it has no image")
        contents.append(content)
        try:
            paths.append(check_path((value.get("path") or "") if has_path else ""))
        except ValueError as error:
            raise ValueError(f"row {row}: {error}") from None
    return contents, paths
