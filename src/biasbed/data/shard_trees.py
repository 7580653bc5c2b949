"""Image folders that are Parquet or WebDataset shards: listed by the paths that their files would have.

`prepare what=packed` reads the shards, writes the list of their images here, and packs them. All else reads the list,
so that class folders, domains, splits and fingerprints are those of an image folder, and the pictures from the pack.

Answers: How is a data set read from Parquet or WebDataset files?
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from biasbed.data.names import Names
from biasbed.data.shard_columns import BIAS, LABEL, SPLIT, class_files
from biasbed.data.shard_index import Shards, as_names, count_word, find_shards
from biasbed.errors import UsageError
from biasbed.system.files import atomic_file
from biasbed.system.places import own_home

# Arrays of a list beside the images: state of the shards, their folder, columns that were stated.
STAMPS, ROOT, COLUMNS = "stamps", "root", "columns"
Stamps = tuple[tuple[str, int, int], ...]  # name, size and modification time of each file that the list depends on


class UnpackedShards(UsageError):
    """Images in shards that are not packed, or have changed since."""

    def __init__(self, folder: Path, command: str = "biasbed prepare --what packed") -> None:
        """folder: of the shards. command: that packs them."""
        super().__init__(
            f"the images in {folder} are Parquet or WebDataset shards, and are read once they are packed: "
            f"run {command}, then repeat this command"
        )
        self.folder = folder


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

    def __init__(self, root: Path, shards: Shards, arrays: Mapping[str, np.ndarray]) -> None:
        """root: path that the paths start from. arrays: of `shard_index.build_index`, and what `write` adds."""
        self.root, self.shards, self.arrays = root, shards, arrays
        self.paths = as_names(arrays, "path")

    @property
    def layout(self) -> str:
        """Description for the data doctor."""
        return f"{len(self.shards.files)} {count_word(self.shards)}"

    @property
    def has_bias(self) -> bool:
        return f"{BIAS}_bytes" in self.arrays

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns that were stated when the shards were read."""
        return tuple(self.arrays[COLUMNS].tolist())

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

    def find(self, path: str) -> int | None:
        """Return an image's row; None if there is none."""
        at = bisect_left(self.paths, path)
        if at < len(self.paths) and self.paths[at] == path:
            return at
        return self._stored_rows.get(path) if self.has_bias else None

    def table(self) -> Iterator[BiasRow]:
        """Yield the rows of a tree that has biases; images have the names that the shards give them."""
        columns = [as_names(self.arrays, name) for name in ("stored", LABEL, SPLIT, BIAS)]
        yield from map(BiasRow._make, zip(*columns, strict=True))

    @functools.cached_property
    def _stored_rows(self) -> dict[str, int]:
        """Row of each image by the name that its shard gives it."""
        return {name: row for row, name in enumerate(as_names(self.arrays, "stored"))}


class InTree(NamedTuple):
    """Tree, and a path in it."""

    tree: Tree
    path: str


class TreeRow(NamedTuple):
    """Tree, and the row of an image in it."""

    tree: Tree
    row: int


def at(folder: Path) -> InTree | None:
    """Return the tree of shards whose root or part a folder is; None for an ordinary folder.

    Raises UnpackedShards if its shards have not been read, or have changed since; UsageError if they can't be read.
    """
    root = existing = os.path.abspath(folder)
    while not os.path.isdir(existing) and os.path.dirname(existing) != existing:
        existing = os.path.dirname(existing)
    try:
        shards = find_shards(Path(existing))
    except OSError:  # whoever lists the folder says why
        return None
    if shards is None:
        return None
    tree = _read(Path(existing), shards, _stamps(shards))
    relative = os.path.relpath(root, existing)
    return InTree(tree, "" if relative == "." else relative)


def scan(folder: Path) -> Listing | None:
    """Return what a folder of a tree has; None if it is in no tree."""
    position = at(folder)
    return None if position is None else position.tree.scan(position.path)


def is_folder(folder: Path) -> bool:
    """Return True if there is such a folder, on the disk or in a tree."""
    return os.path.isdir(folder) or scan(folder) is not None


def find(root: Path, name: str) -> TreeRow | None:
    """Return the tree that has an image below a folder, and its row there; None if it is a file of its own."""
    parent = os.path.dirname(f"{root}/{name}")
    position = None if os.path.exists(f"{root}/{name}") else at(Path(parent))
    if position is None:
        return None
    row = position.tree.find(os.path.join(position.path, os.path.basename(name)))
    return None if row is None else TreeRow(position.tree, row)


def sizes(root: Path, names: Names) -> np.ndarray | None:
    """Return the sizes of images [N] int64; None if they are files of their own."""
    if not len(names) or os.path.exists(f"{root}/{names[0]}"):
        return None
    parents: dict[str, InTree | None] = {}
    lengths = np.empty(len(names), dtype=np.int64)
    for number, name in enumerate(names):
        folder, _, base = name.rpartition("/")
        if folder not in parents:
            parents[folder] = at(root / folder)
        position = parents[folder]
        row = None if position is None else position.tree.find(os.path.join(position.path, base))
        if position is None or row is None:
            return None
        lengths[number] = position.tree.arrays["length"][row]
    return lengths


# --- on disk ----------------------------------------------------------------------------------------------------------


def write(root: Path, shards: Shards, columns: tuple[str, ...], arrays: Mapping[str, np.ndarray]) -> None:
    """Write the list of a tree's images. columns: that were stated when the shards were read."""
    texts = {STAMPS: np.array(repr(_stamps(shards))), ROOT: np.array(os.path.abspath(root))}
    texts[COLUMNS] = np.array(columns, dtype=str)
    path = _list_path(root)
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_file(path) as temporary, temporary.open("wb") as file:
        np.savez(file, allow_pickle=False, **texts, **arrays)
    _read.cache_clear()


def forget_others(folder: Path, columns: tuple[str, ...]) -> None:
    """Remove the lists of all shards below a folder that were read by other columns than these."""
    for path in _list_path(folder).parent.glob("*.npz"):
        with contextlib.suppress(Exception), np.load(path) as file:  # a damaged file may raise nearly anything
            if Path(str(file[ROOT])).is_relative_to(folder.absolute()) and tuple(file[COLUMNS].tolist()) != columns:
                path.unlink()
    _read.cache_clear()


@functools.lru_cache(64)
def _read(root: Path, shards: Shards, stamps: Stamps) -> Tree:
    """Read the list of a tree's images. Raises UnpackedShards if it is missing, damaged or of other shards."""
    with contextlib.suppress(Exception), np.load(_list_path(root)) as file:  # a damaged file may raise nearly anything
        if str(file[STAMPS]) == repr(stamps):
            return Tree(root, shards, {name: file[name] for name in file.files if name != STAMPS})
    raise UnpackedShards(root)


def _list_path(root: Path) -> Path:
    """Return the path of a tree's list. Raises UsageError if there is no home to keep it in."""
    try:
        return own_home() / "shards" / f"{hashlib.sha256(os.fsencode(os.path.abspath(root))).hexdigest()[:16]}.npz"
    except RuntimeError:
        raise UsageError("there is no home folder for the lists of shards: set BIASBED_HOME") from None


def _stamps(shards: Shards) -> Stamps:
    """Return the state of each file that a list depends on: the shards, and the lists of their classes."""
    lists = filter(Path.is_file, class_files((shards.folder, shards.folder.parent)))
    states = [(path.name, path.stat()) for path in (*shards.paths(), *lists)]
    return tuple((name, state.st_size, state.st_mtime_ns) for name, state in states)
