"""Image folders `<folder>/<class>/**/<image>` as sources."""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from biasbed.data import listing_cache
from biasbed.data.decoding import EXTENSIONS, open_file
from biasbed.data.listing import images_below, images_in, is_data, labelled, reading, scan
from biasbed.data.names import Names
from biasbed.data.source import Picture, Source
from biasbed.errors import UsageError, listed, other_form

S = TypeVar("S", bound=Source)
_opened: ContextVar[dict[Any, FolderSource] | None] = ContextVar("_opened", default=None)


@contextlib.contextmanager
def opened_once() -> Iterator[None]:
    """Within the block a folder's images are listed, and asked for their sizes, once however often it is opened.

    For who opens the same data sets again and again at a stroke: a plan, for every row in every cell.
    """
    token = _opened.set({})
    try:
        yield
    finally:
        _opened.reset(token)


@dataclass(frozen=True, eq=False, kw_only=True)
class FolderSource(Source):
    """Images in files; `ids` are paths relative to `root`."""

    root: Path

    def open(self, row: int) -> Picture:
        return open_file(self.root / self.ids[row])

    def fingerprint(self) -> str:
        """Of names, labels and sizes in bytes: no file is read. A stat per file, or of some of an unchanged tree's."""
        return self._digest(self._sizes)

    @functools.cached_property
    def _sizes(self) -> bytes:
        """Sizes of the files, asked for once: a data set may have a million of them."""
        assert isinstance(self.ids, Names)
        known = listing_cache.sizes(self.root, self.ids)
        if known is not None:
            return known.tobytes()
        starts = range(0, len(self.ids), 256)  # a task per file would cost more than its stat
        with ThreadPoolExecutor(8) as pool:
            try:
                sizes = [size for found in pool.map(self._sizes_from, starts) for size in found]
            except OSError as error:
                raise UsageError(f"can't read {error.filename}: {error.strerror}") from None
        found = np.asarray(sizes, dtype=np.int64)
        listing_cache.remember_sizes(self.root, self.ids, found)
        return found.tobytes()

    def _sizes_from(self, start: int) -> list[int]:
        return [os.stat(f"{self.root}/{name}").st_size for name in self.ids[start : start + 256]]


def class_folders(folder: Path) -> list[str]:
    """Names of the class folders, sorted; UsageError says what is wrong with the folder."""
    if not folder.is_dir():
        beside = _neighbours(folder)
        raise UsageError(f"there is no folder {folder}{beside}")
    with reading():
        classes = scan(folder)[0]
    if not classes:
        raise UsageError(f"{folder} has no class folders: expected {folder}/<class>/<image>")
    return classes


def open_folder(folder: Path, name: str, classes: Sequence[str] | None = None) -> FolderSource:
    """All images of a folder of class folders.

    classes: the classes in order; the folder's own must be the same. Raises UsageError for a missing or empty folder,
    for a class without images and for classes that differ.
    """
    known, key = _opened.get(), (folder, name, None if classes is None else tuple(classes))
    if known is None:
        return _open_folder(*key)
    if key not in known:
        known[key] = _open_folder(*key)
    return known[key]


def _open_folder(folder: Path, name: str, classes: Sequence[str] | None) -> FolderSource:
    found = class_folders(folder)
    if classes is not None and set(found) != set(classes):
        missing, extra = sorted(set(classes) - set(found)), sorted(set(found) - set(classes))
        what = [f"{w} {listed(names)}" for w, names in (("lacks", missing), ("has besides", extra)) if names]
        same = next((name for name in missing if other_form(name, extra)), "")
        hint = f"; '{same}' is written in two Unicode forms (NFC and NFD): rename one of its folders" if same else ""
        raise UsageError(f"the classes of {folder} differ from the training data's: it {' and '.join(what)}{hint}")
    classes = tuple(classes or found)
    with reading():
        ids, labels, empty = labelled(folder, classes)
    if empty:
        raise UsageError(f"the class folder {folder / empty[0]} has no images ({' '.join(sorted(EXTENSIONS))})")
    return FolderSource(name=name, classes=classes, y=labels, ids=ids, root=folder)


def open_flat(folder: Path, name: str) -> FolderSource:
    """All images under a folder, however they are laid out, as one class; UsageError where there are none."""
    if not folder.is_dir():
        raise UsageError(f"there is no folder {folder}{_neighbours(folder)}")
    with reading():
        ids = sorted(itertools.chain(images_in(folder), *images_below(folder, scan(folder)[0])))
    if not ids:
        raise UsageError(f"{folder} has no images ({' '.join(sorted(EXTENSIONS))})")
    return FolderSource(name=name, classes=(name,), y=np.zeros(len(ids), dtype=np.int64), ids=ids, root=folder)


def split(source: S, fraction: float, seed: int, names: tuple[str, str]) -> tuple[S, S]:
    """(rest, held out): the given fraction of every class, drawn by the seed, at least one image on each side.

    Of images with several labels, the fraction of every label as nearly as can be, the rarest first (Sechidis et al.
    2011), then of those without any.
    """
    generator = np.random.default_rng([seed, 0x5A11])
    is_held, is_drawn = np.zeros((2, len(source)), dtype=bool)
    for members, label in _members(source):
        rows = generator.permutation(np.flatnonzero(members & ~is_drawn))
        total, already = int(members.sum()), int((members & is_held).sum())
        wanted = min(max(1, round(fraction * total)), total - 1)
        if wanted < 1 and label is not None:
            where = getattr(source, "root", source.name)
            raise UsageError(f"class '{label}' of {where} has one image: too few to hold one out")
        is_held[rows[: max(0, wanted - already)]] = True
        is_drawn[rows] = True
    return source.subset(np.flatnonzero(~is_held), names[0]), source.subset(np.flatnonzero(is_held), names[1])


def _members(source: Source) -> Iterator[tuple[np.ndarray, str | None]]:
    """(bool [N], name) of each class, or of each label that some image has; last those with no label, under no name."""
    if source.y.ndim == 1:
        yield from ((source.y == number, name) for number, name in enumerate(source.classes))
        return
    has: np.ndarray = source.y > 0
    counts, counts_of_image = has.sum(axis=0), has.sum(axis=1)
    yield from ((has[:, k], source.classes[k]) for k in np.argsort(counts, kind="stable").tolist() if counts[k])
    yield counts_of_image == 0, None


def _neighbours(folder: Path) -> str:
    """The folders that are there instead, for the message."""
    if not folder.parent.is_dir():
        return ""
    names = sorted(entry.name for entry in os.scandir(folder.parent) if os.path.isdir(entry) and is_data(entry.name))
    return f"; {folder.parent} has: {', '.join(names[:20])}" if names else f"; {folder.parent} has no folders"
