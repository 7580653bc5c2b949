"""Index of packed images: the place of each image in a pack's Parquet files. Nothing of it is read before its checksum.

An index is one file: a line with the checksum of all that follows, the length of a JSON text, the text (`About`) and
the columns, one array after the other. Each Parquet file has an index of its own, its part, and the pack one that is
made of the parts.
"""

from __future__ import annotations

import hashlib
import mmap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from biasbed import record
from biasbed.errors import UsageError, first_line
from biasbed.system import formats
from biasbed.system.files import atomic_file
from biasbed.system.strict import MANY_PARTS, parse_json

MAGIC = b"biasbed pack 2 "
HEAD = 64  # bytes before the JSON text
# Columns and their types, the larger ones first so that each array is aligned. The key is the hash of the image's name.
# height and width: of raw pixels; 0 for the bytes of an image file. crc: CRC-32 of the bytes.
COLUMNS: Mapping[str, np.dtype[Any]] = {
    **{"key": np.dtype("<u8"), "offset": np.dtype("<i8"), "length": np.dtype("<i8")},
    **{"shard": np.dtype("<i4"), "crc": np.dtype("<u4"), "height": np.dtype("<i4"), "width": np.dtype("<i4")},
}
AGAIN = "prepare what=packed again, or give data.packed=no"


class Shard(NamedTuple):
    """Size and checksum of a Parquet file; its number gives its name."""

    size: int
    sha256: str


@dataclass(frozen=True)
class About:
    """Contents of a pack."""

    source: str  # name of the source
    root: str  # folder of its files when it was packed
    fingerprint: str  # of the source
    form: str
    images: int
    shards: tuple[Shard, ...]


class Index(NamedTuple):
    """Index of a pack or of one of its Parquet files."""

    about: About
    columns: Mapping[str, np.ndarray]  # sorted by key


def shard_name(number: int) -> str:
    """Return the name of a pack's Parquet file: no index can name another file."""
    return f"images-{number:05}.parquet"


def name_key(name: str) -> int:
    """Hash an image's name to 64 bits."""
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "little")


def encode(about: About, parts: Sequence[Mapping[str, np.ndarray]]) -> bytes:
    """Return the index of images. parts: columns of each Parquet file's images. Raises UsageError for a key twice."""
    columns = {name: np.concatenate([part[name] for part in parts]).astype(kind) for name, kind in COLUMNS.items()}
    order = np.argsort(columns["key"], kind="stable")
    keys = columns["key"][order]
    if (keys[1:] == keys[:-1]).any():
        raise UsageError(f"two images of '{about.source}' have the same name, or the same hash of 64 bits")
    text = record.canonical_json({**vars(about), "shards": [list(shard) for shard in about.shards]}).encode()
    body = len(text).to_bytes(8, "little") + text.ljust(_padded_length(len(text)))
    body += b"".join(column[order].tobytes() for column in columns.values())
    return _checksum_line(body) + body


def write(path: Path, content: bytes) -> None:
    """Write an index that is there whole or not at all."""
    with atomic_file(path) as temporary:
        temporary.write_bytes(content)


def read(path: Path) -> Index:
    """Map an index into memory. Raises UsageError if it is not what was written."""
    try:
        if not path.is_file():
            raise ValueError("it is no file")
        with path.open("rb") as file:
            content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        return _decode(memoryview(content))
    except (OSError, ValueError, OverflowError) as error:
        raise UsageError(f"the index {path} of packed images is damaged ({first_line(error)}); {AGAIN}") from None


def _checksum_line(body: bytes | memoryview) -> bytes:
    return MAGIC + hashlib.blake2b(body, digest_size=20).hexdigest().encode() + b"\n"


def _padded_length(length: int) -> int:
    return -(-length // HEAD) * HEAD


def _decode(content: memoryview) -> Index:
    head = HEAD - 8
    if bytes(content[:head]) != _checksum_line(content[head:]):
        raise ValueError("its checksum is another")
    length = int.from_bytes(content[head:HEAD], "little")
    about: Any = formats.check(About, parse_json(bytes(content[HEAD : HEAD + length]), MANY_PARTS))
    at, columns = HEAD + _padded_length(length), {}
    for name, kind in COLUMNS.items():
        end = at + about.images * kind.itemsize
        if not at <= end <= len(content):
            raise ValueError("it has another number of images")
        columns[name] = np.frombuffer(content[at:end], dtype=kind)
        at = end
    return Index(about, columns)
