"""`biasbed.plugins.shards.parquet`: shards that expand to far more than their file."""

from __future__ import annotations

import tracemalloc
from collections import deque
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from biasbed.plugins.shards import parquet as shards
from biasbed.plugins.shards.columns import StatedColumns

CLASSES = ("cat", "dog")


def write_repeated(path: Path, image: bytes, rows: int) -> None:
    """Write a shard of equal images, which a dictionary stores once."""
    indices = pa.array([0] * rows, type=pa.int32())
    images = pa.DictionaryArray.from_arrays(indices, pa.array([image], type=pa.binary()))
    table = pa.table({"image": images, "label": pa.array([row % 2 for row in range(rows)])})
    parquet.write_table(table, path, compression="zstd", store_schema=False, write_statistics=False)


def test_a_shard_that_expands_is_refused_with_little_memory(tmp_path: Path) -> None:
    path = tmp_path / "train.parquet"
    write_repeated(path, bytes(2**26), 64)
    assert path.stat().st_size < 10_000
    before = pa.total_allocated_bytes()
    tracemalloc.start()
    with pytest.raises(ValueError, match=r"its images need more than 1.0 GiB"):
        deque(shards.read_images(path, StatedColumns()), maxlen=0)
    assert tracemalloc.get_traced_memory()[1] + pa.total_allocated_bytes() - before < 2**30
    tracemalloc.stop()


def test_equal_images_are_read(tmp_path: Path) -> None:
    path = tmp_path / "train.parquet"
    image = b"\x89PNG\r\n\x1a\n" + bytes(100)
    write_repeated(path, image, 100)
    assert shards.read_shard(path, StatedColumns(), CLASSES).values["label"][:2] == ["cat", "dog"]
    assert list(shards.read_images(path, StatedColumns())) == [image] * 100
