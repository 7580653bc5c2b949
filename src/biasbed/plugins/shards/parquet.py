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

from biasbed.errors import first_line
from biasbed.plugins.shards.columns import (
    BIAS,
    IMAGE,
    LABEL,
    ROLES,
    ShardImages,
    StatedColumns,
    check_path,
    name_values,
)
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
    """Read the names and the values of a shard's images.

    classes: names of the labels that are numbers, in place of the file's. Raises ValueError if it is damaged or a row
    does not fit.
    """
    with opened(path) as file:
        if file.metadata.num_rows > ROWS:
            raise ValueError(f"it has {file.metadata.num_rows:,} rows; at most {ROWS:,} are read")
        chosen = _choose_columns(file, columns)
        image = chosen.names[IMAGE]
        roles = {role: name for role, name in chosen.names.items() if role != IMAGE}
        paths: list[str] = []
        named: dict[str, list[str | None]] = {role: [] for role in roles}
        read = [*roles.values(), *([f"{image}.path"] if chosen.has_path else [])]
        for batch in file.iter_batches(columns=read, use_threads=False):
            first = len(paths)
            for role, name in roles.items():
                values = batch.column(name).to_pylist()
                named[role] += name_values(values, _names_of_numbers(role, chosen, classes), role, first)
            paths += _read_paths(batch.column(image), first) if chosen.has_path else [""] * len(batch)
    return ShardImages(paths, named)


def read_images(path: Path, columns: StatedColumns) -> Iterator[bytes]:
    """Yield the files of a shard's images, in its order.

    Raises ValueError for a row without an image, and if the images are far larger than the shard.
    """
    most, size, row = EXPANSION * path.stat().st_size + ALLOWANCE, 0, 0
    with opened(path) as file:
        content = _choose_columns(file, columns).content
        for group in range(file.num_row_groups):
            batch_size = _batch_size(file, group, content)
            for batch in file.iter_batches(batch_size, row_groups=[group], columns=[content], use_threads=False):
                size += batch.nbytes
                if size > most:
                    raise ValueError(f"its images need more than {most / 2**30:.1f} GiB, far more than the file")
                column = batch.column(0)
                for value in column.field(0) if column.type.num_fields else column:
                    image = value.as_py()
                    if not image:
                        raise ValueError(f"row {row}: it has no image")
                    yield image
                    row += 1


def _batch_size(file: ParquetFile, group: int, content: str) -> int:
    """Return how many rows of a row group may be in memory. Each image may be all of the column if it is repeated."""
    row_group = file.metadata.row_group(group)
    chunks = [row_group.column(number) for number in range(row_group.num_columns)]
    size = sum(chunk.total_uncompressed_size for chunk in chunks if chunk.path_in_schema == content)
    return max(1, min(BATCH, BATCH_BYTES // max(1, size)))


def _choose_columns(file: ParquetFile, columns: StatedColumns) -> _Columns:
    """Choose the column of each role. Raises ValueError if one is missing, in doubt or of a type that is not read."""
    from pyarrow import types

    schema, features = file.schema_arrow, _read_features(file)
    names = {IMAGE: columns.require(schema.names, IMAGE, _columns_of_type(features, "Image"))}
    labels = _columns_of_type(features, CLASS_LABEL)
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


def _read_features(file: ParquetFile) -> dict[str, Mapping[str, Any]]:
    """Return what the `datasets` library says about each column; empty if it did not write the file."""
    about = (file.schema_arrow.metadata or {}).get(b"huggingface")
    try:
        features = parse_json(about)["info"]["features"] if about else {}
        return {str(name): feature for name, feature in features.items() if isinstance(feature, dict)}
    except (ValueError, KeyError, TypeError, AttributeError, json.JSONDecodeError):
        raise ValueError("its description of the columns ('huggingface') is damaged") from None


def _columns_of_type(features: Mapping[str, Mapping[str, Any]], kind: str) -> list[str]:
    return [name for name, feature in features.items() if feature.get("_type") == kind]


def _names_of_numbers(role: str, columns: _Columns, classes: Sequence[str]) -> Sequence[str]:
    """Return the names of a column's numbers. A bias without names has those of the label."""
    in_file = columns.features.get(columns.names[LABEL], ())
    if classes and in_file and len(classes) != len(in_file):
        raise ValueError(f"its label has {len(in_file)} classes, and the list of classes has {len(classes)}")
    if role == LABEL:
        return classes or in_file
    named = columns.features.get(columns.names[role], ())
    return named or (classes or in_file if role == BIAS else ())


def _read_paths(column: Any, first: int) -> list[str]:
    """Return the path of each image of a batch; empty if it has none. first: number of the first row."""
    paths = []
    for row, value in enumerate(column.to_pylist(), first):
        try:
            paths.append(check_path((value or {}).get("path") or ""))
        except ValueError as error:
            raise ValueError(f"row {row}: {error}") from None
    return paths
