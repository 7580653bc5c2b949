"""Image folders `<folder>/<class>/**/<image>` as sources, and splits of sources."""

from __future__ import annotations

import functools
import itertools
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Generic, NamedTuple, NoReturn, TypeVar

import numpy as np

from biasbed.data import listing_cache
from biasbed.data.decoding import EXTENSIONS, open_file
from biasbed.data.image_store import FILES, ImageStore
from biasbed.data.listing import (
    UNPACK,
    has_shards,
    images_below,
    images_in,
    is_data,
    list_classes,
    report_unreadable,
    scan,
)
from biasbed.data.names import Names
from biasbed.data.source import Picture, Source
from biasbed.errors import UsageError, find_other_form, listed

S = TypeVar("S", bound=Source)


@dataclass(frozen=True, eq=False, kw_only=True)
class FolderSource(Source):
    """Images in files; `ids` are paths relative to `root`.

    images: store that they are opened through.
    """

    root: Path
    images: ImageStore = field(default=FILES, repr=False)

    def open(self, row: int) -> Picture:
        name = self.ids[row]
        return self.images.open(self.root, name) or open_file(self.root / name)

    def version(self, row: int) -> int:
        """Return the modification time of an image's file in ns (0 if it is gone), or its checksum in a pack."""
        name = self.ids[row]
        checksum = self.images.checksum(self.root, name)
        if checksum is not None:
            return checksum
        try:
            return (self.root / name).stat().st_mtime_ns
        except OSError:
            return 0

    def fingerprint(self) -> str:
        """Hash names, labels and file sizes.

        Reads no file; calls stat for each file, or for a sample of an unchanged tree.
        """
        return self.images.mark(self._digest(self._sizes, *self._further_content()))

    def with_store(self, images: ImageStore) -> FolderSource:
        if self.images is images:
            return self
        images.bind(self, self.root, self.fingerprint)
        source = replace(self, images=images, origin=images.mark(self.origin) if self.origin else "")
        if "_sizes" in vars(self):  # they are read once
            vars(source)["_sizes"] = self._sizes
        return source

    def _further_content(self) -> tuple[bytes, ...]:
        """Return what the fingerprint depends on besides names, labels and sizes."""
        return ()

    @property
    def sizes(self) -> np.ndarray:
        """Sizes of the files in bytes [N] int64."""
        return np.frombuffer(self._sizes, dtype=np.int64)

    @functools.cached_property
    def _sizes(self) -> bytes:
        """Sizes of the files, read once: a data set may have a million files."""
        assert isinstance(self.ids, Names)
        cached = listing_cache.read_sizes(self.root, self.ids)
        if cached is not None:
            return cached.tobytes()
        starts = range(0, len(self.ids), 256)  # a task per file would cost more than its stat
        with report_unreadable(), ThreadPoolExecutor(8) as pool:
            sizes = np.concatenate([np.empty(0, dtype=np.int64), *pool.map(self._read_sizes, starts)])
        listing_cache.write_sizes(self.root, self.ids, sizes)
        return sizes.tobytes()

    def _read_sizes(self, start: int) -> np.ndarray:
        """Return the sizes of the 256 files from row `start` on."""
        names = self.ids[start : start + 256]
        return np.array([os.stat(f"{self.root}/{name}").st_size for name in names], dtype=np.int64)


def class_folders(folder: Path) -> list[str]:
    """Return the names of the class folders, sorted. Raises UsageError if the folder is missing or has none."""
    _refuse_missing(folder)
    with report_unreadable():
        classes = scan(folder).folders
        advice = f"; {UNPACK}" if has_shards(folder) else ""
    if advice or not classes:
        raise UsageError(f"{folder} has no class folders: expected {folder}/<class>/<image>{advice}")
    return classes


def open_folder(folder: Path, name: str, classes: Sequence[str] | None = None) -> FolderSource:
    """Open all images in class folders.

    classes: the classes in order, which the folder must have; by default its sub-folders, sorted. Raises UsageError for
    a missing or empty folder, for a class without images and for other classes.
    """
    folders = class_folders(folder)
    if classes is not None and set(folders) != set(classes):
        _refuse_classes(folder, folders, classes)
    classes = tuple(classes or folders)
    with report_unreadable():
        ids, labels, empty = list_classes(folder, classes)
    if empty:
        raise UsageError(f"the class folder {folder / empty[0]} has no images ({' '.join(sorted(EXTENSIONS))})")
    return FolderSource(name=name, classes=classes, y=labels, ids=ids, root=folder)


def _refuse_classes(folder: Path, folders: Sequence[str], classes: Sequence[str]) -> NoReturn:
    """Raise the UsageError for class folders that are not the expected ones."""
    missing, extra = sorted(set(classes) - set(folders)), sorted(set(folders) - set(classes))
    differences = [f"{verb} {listed(names)}" for verb, names in (("lacks", missing), ("has besides", extra)) if names]
    same = next((name for name in missing if find_other_form(name, extra)), "")
    hint = f"; '{same}' is written in two Unicode forms (NFC and NFD): rename one of its folders" if same else ""
    raise UsageError(f"the classes of {folder} differ from the training data's: it {' and '.join(differences)}{hint}")


def open_flat(folder: Path, name: str) -> FolderSource:
    """Open all images below a folder, in any layout, as one class. Raises UsageError if there are none."""
    _refuse_missing(folder)
    with report_unreadable():
        ids = sorted(itertools.chain(images_in(folder), *images_below(folder, scan(folder).folders)))
    if not ids:
        raise UsageError(f"{folder} has no images ({' '.join(sorted(EXTENSIONS))})")
    return FolderSource(name=name, classes=(name,), y=np.zeros(len(ids), dtype=np.int64), ids=ids, root=folder)


class SplitSource(NamedTuple, Generic[S]):
    """Parts of a source."""

    rest: S
    held_out: S


def split(source: S, fraction: float, seed: int, names: tuple[str, str]) -> SplitSource[S]:
    """Hold a fraction of each class of a source out, drawn by the seed.

    Each class keeps at least one image on each side. Images with several labels are divided label by label, the rarest
    first, so that each label comes close to the fraction (Sechidis et al. 2011), and last those without a label. Raises
    UsageError for a class with one image. names: of the two sources.
    """
    generator = np.random.default_rng([seed, 0x5A11])
    is_held, is_drawn = np.zeros((2, len(source)), dtype=bool)
    for members, label in _list_members(source):
        rows = generator.permutation(np.flatnonzero(members & ~is_drawn))
        total, already = int(members.sum()), int((members & is_held).sum())
        target = min(max(1, round(fraction * total)), total - 1)
        if target < 1 and label is not None:
            where = getattr(source, "root", source.name)
            raise UsageError(f"class '{label}' of {where} has one image: too few to hold one out")
        is_held[rows[: max(0, target - already)]] = True
        is_drawn[rows] = True
    rest = source.subset(np.flatnonzero(~is_held), names[0])
    return SplitSource(rest, source.subset(np.flatnonzero(is_held), names[1]))


def _list_members(source: Source) -> Iterator[tuple[np.ndarray, str | None]]:
    """Yield (members [N] bool, name) of each class or, with several labels per image, of each label, the rarest first.

    The last item are the images without a label; its name is None.
    """
    if source.y.ndim == 1:
        yield from ((source.y == number, name) for number, name in enumerate(source.classes))
        return
    has: np.ndarray = source.y > 0
    counts, counts_of_image = has.sum(axis=0), has.sum(axis=1)
    yield from ((has[:, k], source.classes[k]) for k in np.argsort(counts, kind="stable").tolist() if counts[k])
    yield counts_of_image == 0, None


def _refuse_missing(folder: Path) -> None:
    """Raise UsageError, with the folders beside it, for a folder that does not exist."""
    if folder.is_dir():
        return
    neighbours = ""
    if folder.parent.is_dir():
        names = sorted(path.name for path in os.scandir(folder.parent) if path.is_dir() and is_data(path.name))
        neighbours = f"; {folder.parent} has: {', '.join(names[:20])}" if names else f"; {folder.parent} has no folders"
    raise UsageError(f"there is no folder {folder}{neighbours}")
