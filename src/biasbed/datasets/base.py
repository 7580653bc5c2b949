"""Data sets that find, check and load themselves under `data_dir`, in the layouts in which people keep them.

A data set is a subclass of `DataSet` with a few lines: its name, how many images and which classes its release has, and
the folders where it may be. How to read a layout other than class folders is one method, `listing`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import NoReturn

import numpy as np

from biasbed.data.folders import FolderSource
from biasbed.data.listing import labelled, reading, scan
from biasbed.datasets.classes import imagenet_classes
from biasbed.errors import UsageError

# Folders with ImageNet's class folders in `train` or `val` that are not ImageNet.
NOT_IMAGENET = frozenset({"stylizedimagenet", "imagenetstylized", "sin", "deepaugcae", "deepaugedsr", "cae", "edsr"})
SPLITS = frozenset({"train", "val", "validation", "test"})  # folders that hold another data set's images than asked


class DataSet:
    """A named collection of images in files. `find`, `missing`, `open` and `layout` are all that others use."""

    name: str  # identifier
    images: int  # of the published release; 0 where there is none to compare with
    places: tuple[str, ...]  # folders under data_dir: the first that is there counts, case and punctuation don't
    archives: tuple[str, ...] = ()  # files of the release, as they are called before they are unpacked
    licence: str
    source: str  # where to get it, or how to make it
    kind = "class folders"

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the class folders, in the order of the labels."""
        raise NotImplementedError

    def find(self, data_dir: Path) -> Path | None:
        """The first of `places` that has images or class folders in it; None where there is none."""
        with reading():
            found = (_resolve(data_dir, place) for place in self.places if not self._is_anothers(data_dir, place))
            return next((folder for folder in found if folder is not None and _holds_images(folder)), None)

    def missing(self, data_dir: Path) -> str:
        """One line about a data set that is not there: where it was looked for, and an archive that waits unpacked."""
        if not data_dir.is_dir():
            return f"data_dir={data_dir}: there is no such folder"
        others = f" (or {some(self.places[1:], 3)})" if self.places[1:] else ""
        text = f"'{self.name}' is not in {data_dir}: expected {self.places[0]}{others}"
        with reading():
            packed = sorted({archive for folder in self._around(data_dir) for archive in self._archives_in(folder)})
        if packed:
            return f"{text}; {some(packed)} is there but not unpacked"
        return f"{text}; where to get it: {self.source}"

    def open(self, data_dir: Path) -> FolderSource:
        """The images with their labels, in an order that depends on their names alone.

        Raises UsageError where the data set is not there, and with the reason where its folders or file names are not
        those of this data set. A number of images other than the release's is no error here.
        """
        folder = self.find(data_dir)
        if folder is None:
            raise UsageError(self.missing(data_dir))
        with reading():
            ids, y = self.listing(folder)
        bias = self.bias(ids, folder)
        return FolderSource(name=self.name, classes=self.classes, y=y, ids=ids, root=folder, bias=bias)

    def layout(self, folder: Path) -> str:
        """The layout that `open` takes the folder for, in words."""
        return self.kind

    # --- what a data set with a layout of its own overrides ---

    def listing(self, folder: Path) -> tuple[list[str], np.ndarray]:
        """Paths relative to the folder and labels [N] int64; UsageError where they don't fit."""
        found = set(scan(folder)[0])
        if found != set(self.classes):
            self.refuse(folder, self._other_folders(folder, found))
        ids, labels, empty = labelled(folder, self.classes)
        if empty:
            self.refuse(folder, f"no images in {some(empty)}")
        return ids, labels

    def bias(self, ids: Sequence[str], folder: Path) -> np.ndarray | None:
        """The class that each image's shortcut suggests [N] int64; UsageError where a name doesn't tell."""
        return None

    def flat_hint(self) -> str:
        """What to do about images that are in no class folders."""
        return f"expected one folder per class: {some(self.classes, 3)}"

    def refuse(self, folder: Path, reason: str) -> NoReturn:
        """Raises the UsageError for a folder that is not this data set."""
        raise UsageError(f"{folder} doesn't fit '{self.name}': {reason}")

    def _is_anothers(self, data_dir: Path, place: str) -> bool:
        """Whether a split right under data_dir is that of the data set after which data_dir is called."""
        return place in SPLITS and _letters(data_dir.resolve().name) in NOT_IMAGENET

    # --- in words ---

    def _other_folders(self, folder: Path, found: Collection[str]) -> str:
        """Why the folder's class folders are not this data set's."""
        if not found:
            return f"{len(scan(folder)[1])} images and no class folders; {self.flat_hint()}"
        unknown, lacking = sorted(set(found) - set(self.classes)), sorted(set(self.classes) - set(found))
        parts = [f"unknown class folders {some(unknown)}"] if unknown else []
        parts += [f"{len(lacking)} of {len(self.classes)} class folders missing: {some(lacking)}"] if lacking else []
        return "; ".join([*parts, *likely_cause(set(found), set(self.classes))])

    def _around(self, data_dir: Path) -> Iterator[Path]:
        """Folders in which an archive may wait: data_dir and, as far as they are there, the places."""
        yield data_dir
        for place in self.places:
            parts = place.split("/")
            for end in range(1, len(parts) + 1):
                folder = _resolve(data_dir, "/".join(parts[:end]))
                if folder is not None:
                    yield folder

    def _archives_in(self, folder: Path) -> list[Path]:
        return [folder / name for name in self.archives if (folder / name).is_file()]


# --- class lists ------------------------------------------------------------------------------------------------------


def likely_cause(found: Collection[str], expected: Collection[str]) -> list[str]:
    """A guess at why class folders are not the expected ones, as a list of one or none."""
    known = {"ImageNet-1k": "", "ImageNet-A": "a", "ImageNet-R": "r"}
    same = [name for name, subset in known.items() if set(found) == set(imagenet_classes(subset))]
    if same:
        return [f"{len(found)} folders: is this {same[0]}?"]
    if all(name.isdigit() for name in found):
        return ["its folders are numbered; expected are their classes' names"]
    return ["was it unpacked to the end?"] if set(found) < set(expected) else []


def some(names: Sequence[object], count: int = 5) -> str:
    """`a, b, c and 12 more`."""
    shown = ", ".join(map(str, names[:count]))
    return f"{shown} and {len(names) - count} more" if len(names) > count else shown


# --- folders ----------------------------------------------------------------------------------------------------------


def _holds_images(folder: Path) -> bool:
    """Whether there is an image, or a folder that is neither another split nor an archive unpacked into its name."""
    try:
        folders, images = scan(folder)
    except PermissionError:
        return True  # `open` says that it can't be read, which is more than that nothing is there
    return bool(images) or any(name.lower() not in {*SPLITS, folder.name.lower()} for name in folders)


def _resolve(root: Path, place: str) -> Path | None:
    """The folder `place` below `root`, where case and punctuation don't count: `imagenet-a` is also `ImageNet_A`."""
    for part in place.split("/"):
        if not (root / part).is_dir():
            similar = [name for name in scan(root)[0] if _letters(name) == _letters(part)] if root.is_dir() else []
            if not similar:
                return None
            part = similar[0]
        root = root / part
    return root


def _letters(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())
