"""Image folders that are Parquet or WebDataset shards: listed and read by the paths that their files would have.

`Trees` stands between whoever lists or reads image folders and the disk. A tree's images are found by path, so class
folders, domains, splits and fingerprints are those of an image folder, and packs are made and read as for one.

Answers: How is a data set read from Parquet or WebDataset files?
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import threading
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from biasbed import record
from biasbed.data import listing_cache, parquet_shards
from biasbed.data.names import Names, relative_prefix
from biasbed.data.shard_columns import BIAS, LABEL, SPLIT, StatedColumns, class_files
from biasbed.data.shard_index import AUTO, FOLDER, Shards, as_names, build_index, count_word, find_shards
from biasbed.errors import UnfitImage, UsageError

NO_COLUMNS = StatedColumns()
VERSION = 1  # of the index; raised whenever it is built in another way
GROUP_BYTES = 2**26  # largest row group that is kept in memory; a larger one is read again, batch by batch
GROUPS = 2  # row groups in memory
log = logging.getLogger(__name__)
_warned: set[Path] = set()


class Listing(NamedTuple):
    """Names of the sub-folders and of the images in a folder of a tree."""

    folders: list[str]
    images: list[str]


class BiasRow(NamedTuple):
    """Image of a tree that has biases, in words."""

    image: str
    label: str
    split: str
    bias: str


class Tree:
    """Images of one folder of shards, found by path."""

    def __init__(self, root: str, shards: Shards) -> None:
        """Read the index, or build it. root: path that the paths start from. Raises UsageError as `build_index`."""
        self.root, self.shards = root, shards
        self.stamps = _stamps(root, shards)
        key = record.digest(
            [VERSION, shards.format, list(shards.files), [list(pair) for pair in shards.columns.stated]]
        )
        self._arrays = dict(
            listing_cache.cached_table(shards.folder, lambda: build_index(shards), _stamped_files(shards), key)
        )
        self.paths = as_names(self._arrays, "path")
        self._files: dict[int, int] = {}
        self._groups: OrderedDict[tuple[int, int], _Group] = OrderedDict()
        self._lock = threading.Lock()

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_files": {}, "_groups": OrderedDict(), "_lock": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._lock = threading.Lock()

    def __del__(self) -> None:
        for descriptor in self._files.values() if hasattr(self, "_files") else ():
            with contextlib.suppress(OSError):
                os.close(descriptor)

    @property
    def layout(self) -> str:
        """Description for the data doctor."""
        return f"{len(self.shards.files)} {count_word(self.shards)}"

    @property
    def has_bias(self) -> bool:
        return f"{BIAS}_bytes" in self._arrays

    @property
    def is_compressed(self) -> bool:
        """True if images can't be read at their place in a shard."""
        return bool((self._arrays["offset"] < 0).any())

    def is_current(self) -> bool:
        """Return True if no shard has changed, come or gone since the index was read."""
        try:
            return _stamps(self.root, self.shards) == self.stamps
        except OSError:
            return False

    def scan(self, folder: str) -> Listing | None:
        """Return what a folder has; None if there is no such folder. folder: relative to the root, empty for it."""
        prefix = f"{folder}/" if folder else ""
        at = bisect_left(self.paths, prefix)
        folders, images = [], []
        while at < len(self.paths) and self.paths[at].startswith(prefix):
            name, slash, _ = self.paths[at][len(prefix) :].partition("/")
            if slash:
                folders.append(name)
                at = bisect_left(self.paths, f"{prefix}{name}0")  # the character after the slash
            else:
                images.append(name)
                at += 1
        # Folders come in the order of their names with a slash behind them.
        return Listing(sorted(folders), images) if folders or images else None

    def below(self, folder: str) -> list[str]:
        """Return the paths of all images below a folder, sorted."""
        if not folder:
            return self.paths[:]
        return self.paths[bisect_left(self.paths, f"{folder}/") : bisect_left(self.paths, f"{folder}0")]

    def find(self, path: str, guess: int = -1) -> int | None:
        """Return an image's row; None if there is none. guess: row that it may have."""
        if 0 <= guess < len(self.paths) and self.paths[guess] == path:
            return guess
        at = bisect_left(self.paths, path)
        if at < len(self.paths) and self.paths[at] == path:
            return at
        return self._stored_rows.get(path) if self.has_bias else None

    def table(self) -> Iterator[BiasRow]:
        """Yield the rows of a tree that has biases; images have the names that the shards give them."""
        columns = [as_names(self._arrays, name) for name in ("stored", LABEL, SPLIT, BIAS)]
        yield from map(BiasRow._make, zip(*columns, strict=True))

    def length(self, row: int) -> int:
        """Return the size of an image's file in bytes."""
        return int(self._arrays["length"][row])

    def places(self, rows: np.ndarray) -> np.ndarray:
        """Return the order [N] in which rows are read fastest: that of the shards."""
        arrays = self._arrays
        keys = [arrays[name][rows] for name in ("row", "offset", "group", "shard")]
        return np.lexsort(keys)

    def version(self, row: int) -> int:
        """Return the modification time of an image's shard in ns."""
        return self.stamps[int(self._arrays["shard"][row])][1]

    def content(self, row: int) -> bytes:
        """Return the bytes of an image's file. Raises UnfitImage if the shard was cut off meanwhile."""
        arrays = self._arrays
        shard, offset, length = int(arrays["shard"][row]), int(arrays["offset"][row]), self.length(row)
        try:
            if offset >= 0:
                content = os.pread(self._file(shard), length, offset)
            else:
                with self._lock:
                    content = self._group(shard, int(arrays["group"][row])).content(int(arrays["row"][row]))
        except (OSError, ValueError) as error:
            raise UnfitImage(f"can't read {self.shards.paths()[shard]}: {error}") from None
        if len(content) != length:
            path = self.shards.paths()[shard]
            raise UnfitImage(f"{path} has changed since it was opened (noticed at {self.paths[row]})")
        return content

    @functools.cached_property
    def _stored_rows(self) -> dict[str, int]:
        """Row of each image by the name that its shard gives it."""
        return {name: row for row, name in enumerate(as_names(self._arrays, "stored"))}

    def _file(self, shard: int) -> int:
        if shard not in self._files:
            self._files[shard] = os.open(self.shards.paths()[shard], os.O_RDONLY)
        return self._files[shard]

    def _group(self, shard: int, number: int) -> _Group:
        """Return a row group; the last ones are kept."""
        key = shard, number
        if key not in self._groups:
            while len(self._groups) >= GROUPS:
                self._groups.popitem(last=False)
            self._groups[key] = _Group(self.shards.paths()[shard], number, self.shards.columns)
        self._groups.move_to_end(key)
        return self._groups[key]


class _Group:
    """Images of one row group of a Parquet file, read forwards in batches; those of a small group are all kept."""

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
            batch, is_small = next(self._batches, (None, True))
            if batch is None:
                raise ValueError(f"its row group {self.number} has no row {row}")
            if not is_small:
                self._start += len(self._contents)
                self._contents = []
            self._contents += list(batch)
        content = self._contents[row - self._start].as_py()
        assert isinstance(content, bytes)
        return content

    def _read(self) -> Iterator[tuple[Any, bool]]:
        """Yield (images of a batch, whether the group is small)."""
        with parquet_shards.opened(self.path) as file:
            about = file.metadata.row_group(self.number)
            content = parquet_shards.content_column(file, self.columns)
            sizes = [about.column(n).total_uncompressed_size for n in range(about.num_columns)]
            for contents in parquet_shards.read_contents(file, self.number, content):
                yield contents, sum(sizes) <= GROUP_BYTES


def _stamped_files(shards: Shards) -> list[Path]:
    """Return the files that the index depends on."""
    lists = class_files((shards.folder, shards.folder.parent))
    return [*shards.paths(), *filter(Path.is_file, lists)]


def _stamps(root: str, shards: Shards) -> list[tuple[int, int, int, int]]:
    """Return size and times of each file and folder that the index depends on, the shards first."""
    paths = [*_stamped_files(shards), shards.folder, Path(root)]
    states = [path.stat() for path in paths]
    return [(state.st_size, state.st_mtime_ns, state.st_ctime_ns, state.st_ino) for state in states]


# --- all trees --------------------------------------------------------------------------------------------------------


class InTree(NamedTuple):
    """Tree, and a path in it."""

    tree: Tree
    path: str


class Trees:
    """Trees that were opened, and the settings by which folders are taken for trees."""

    def __init__(self, format: str = AUTO, columns: StatedColumns = NO_COLUMNS) -> None:
        """format: `data.format`. columns: `data.columns`."""
        self.format, self.columns = format, columns
        self._opened: dict[str, Tree] = {}
        self._related: dict[str, list[tuple[str, bool, Tree]]] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_related": {}}

    def at(self, folder: Path) -> InTree | None:
        """Return the tree that a folder is, or is in; None for an ordinary folder.

        Raises UsageError if it has shards that can't be read.
        """
        if self.format == FOLDER:
            return None
        root = existing = os.path.abspath(folder)
        while not os.path.isdir(existing) and os.path.dirname(existing) != existing:
            existing = os.path.dirname(existing)
        tree = self._open(existing) if os.path.isdir(existing) else None
        if tree is None:
            return None
        relative = os.path.relpath(root, existing)
        return InTree(tree, "" if relative == "." else relative)

    def scan(self, folder: Path) -> Listing | None:
        """Return what a folder of a tree has; None if it is in no tree."""
        position = self.at(folder)
        return None if position is None else position.tree.scan(position.path)

    def is_folder(self, folder: Path) -> bool:
        """Return True if there is such a folder, on the disk or in a tree."""
        return os.path.isdir(folder) or self.scan(folder) is not None

    def _open(self, root: str) -> Tree | None:
        """Return the tree of an existing folder, read anew if it has changed; None if the folder is no tree."""
        tree = self._opened.get(root)
        if tree is not None and tree.is_current():
            return tree
        try:
            shards = find_shards(Path(root), self.format, self.columns)
        except OSError:  # whoever lists the folder says why
            return None
        except ValueError as error:
            raise UsageError(f"{root}: {error}") from None
        self._opened.pop(root, None)
        self._related.clear()
        if shards is not None:
            self._opened[root] = Tree(root, shards)
        return self._opened.get(root)

    def find(self, root: Path, name: str, guess: int = -1) -> tuple[Tree, int] | None:
        """Return the tree that has an image, and its row there; None if it is a file of its own."""
        if not self._opened:
            return None
        key = str(root)
        if key not in self._related:
            self._related[key] = self._trees_around(os.path.abspath(root))
        for prefix, is_above, tree in self._related[key]:
            if is_above:
                row = tree.find(prefix + name, guess)
            else:
                row = tree.find(name[len(prefix) :], guess) if name.startswith(prefix) else None
            if row is not None:
                return tree, row
        return None

    def _trees_around(self, root: str) -> list[tuple[str, bool, Tree]]:
        """Return (prefix, is_above, tree) of the trees that have this folder, or folders below it."""
        around = []
        for tree_root, tree in self._opened.items():
            relation = relative_prefix(tree_root, root)
            if relation is not None:
                around.append((*relation, tree))
        return around

    def content(self, root: Path, name: str) -> bytes | None:
        """Return the bytes of an image of a tree; None if it is a file of its own."""
        position = self.find(root, name)
        return None if position is None else position[0].content(position[1])

    def rows(self, root: Path, names: Names) -> tuple[Tree, np.ndarray] | None:
        """Return the tree that has all of these images, and their rows [N]; None if no tree has."""
        rows = np.empty(len(names), dtype=np.int64)
        tree = None
        for at, position in enumerate(self._find_each(root, names)):
            if position is None or (tree is not None and position[0] is not tree):
                return None
            tree, rows[at] = position
        return None if tree is None else (tree, rows)

    def sizes(self, root: Path, names: Names) -> np.ndarray | None:
        """Return the sizes of images [N] int64; None if one is a file of its own."""
        sizes = np.empty(len(names), dtype=np.int64)
        for at, position in enumerate(self._find_each(root, names)):
            if position is None:
                return None
            sizes[at] = position[0].length(position[1])
        return sizes

    def _find_each(self, root: Path, names: Names) -> Iterator[tuple[Tree, int] | None]:
        """Yield what `find` returns for each name. Images mostly follow each other in a tree."""
        row = -1
        for name in names:
            position = self.find(root, name, row + 1)
            yield position
            row = -1 if position is None else position[1]

    def note_reading(self, root: Path) -> None:
        """Warn once if images of a folder can be read by row groups only."""
        position = self.at(root)
        if position is None or not position.tree.is_compressed or position.tree.shards.folder in _warned:
            return
        folder = position.tree.shards.folder
        _warned.add(folder)
        log.warning(
            "%s: its images are compressed in groups, and reading one reads its group; `biasbed prepare --what packed` "
            "with this command's suite and data_dir packs them once",
            folder,
        )


_trees = Trees()  # of this process; a ContextVar would not reach the threads that list and check folders


def current() -> Trees:
    """Return the trees that folders are looked up in."""
    return _trees


def read_as(format: str, columns: Sequence[str] = ()) -> None:
    """Read the folders that are opened from now on by these settings, `data.format` and `data.columns`."""
    global _trees
    names = StatedColumns.parse(columns)
    if (_trees.format, _trees.columns) != (format, names):
        _trees = Trees(format, names)
