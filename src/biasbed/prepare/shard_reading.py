"""Reading of Parquet and WebDataset shards, once: the list of their images, and each image in the order of shards."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from biasbed.data import parquet_shards, shard_trees
from biasbed.data.folders import FolderSource
from biasbed.data.shard_columns import StatedColumns
from biasbed.data.shard_index import build_index, find_shards
from biasbed.data.shard_trees import Tree
from biasbed.errors import UnfitImage


def list_images(root: Path, columns: tuple[str, ...]) -> None:
    """Read all shards of a folder and write the list of their images, which every other command reads.

    columns: names of columns by role, as `packed.columns` has them. Raises UsageError for a shard that can't be read.
    """
    shards = find_shards(root)
    assert shards is not None  # it was refused because it has some
    shard_trees.write(root, shards, columns, build_index(shards, StatedColumns.parse(columns)))


def shard_order(source: FolderSource) -> np.ndarray | None:
    """Return the order [N] in which a source's images are read fastest; None for files."""
    positions = [shard_trees.find(source.root, name) for name in source.ids[:1]]
    if not positions or positions[0] is None:
        return None
    tree, rows = positions[0].tree, []
    for name in source.ids:
        position = shard_trees.find(source.root, name)
        if position is None or position.tree is not tree:
            return None
        rows.append(position.row)
    return np.lexsort([tree.arrays[name][rows] for name in ("row", "offset", "group", "shard")])


class ShardReader:
    """Images of shards, read one after the other."""

    def __init__(self) -> None:
        self._group: _Group | None = None

    def content(self, tree: Tree, row: int) -> bytes:
        """Return the bytes of an image's file. Raises UnfitImage if the shard has changed since it was listed."""
        arrays = tree.arrays
        path = tree.shards.paths()[int(arrays["shard"][row])]
        offset, length, group = (int(arrays[name][row]) for name in ("offset", "length", "group"))
        try:
            if offset >= 0:
                with path.open("rb") as file:
                    content = os.pread(file.fileno(), length, offset)
            else:
                if self._group is None or (self._group.path, self._group.number) != (path, group):
                    self._group = _Group(path, group, StatedColumns.parse(tree.columns))
                content = self._group.content(int(arrays["row"][row]))
        except (OSError, ValueError) as error:
            raise UnfitImage(f"can't read {path}: {error}") from None
        if len(content) != length:
            raise UnfitImage(f"{path} has changed since it was opened (noticed at {tree.paths[row]})")
        return content


class _Group:
    """Images of one row group of a Parquet file, read forwards in batches, of which one is in memory."""

    def __init__(self, path: Path, number: int, columns: StatedColumns) -> None:
        self.path, self.number, self.columns = path, number, columns
        self._batches = self._read()
        self._contents: list[Any] = []  # of the rows from `_start` on
        self._start = 0

    def content(self, row: int) -> bytes:
        """Return the bytes of an image. A row before those in memory means reading the group again."""
        if row < self._start:
            self._batches, self._contents, self._start = self._read(), [], 0
        while row >= self._start + len(self._contents):
            batch = next(self._batches, None)
            if batch is None:
                raise ValueError(f"its row group {self.number} has no row {row}")
            self._start += len(self._contents)
            self._contents = list(batch)
        content = self._contents[row - self._start].as_py()
        assert isinstance(content, bytes)
        return content

    def _read(self) -> Iterator[Any]:
        with parquet_shards.opened(self.path) as file:
            yield from parquet_shards.read_contents(
                file, self.number, parquet_shards.content_column(file, self.columns)
            )
