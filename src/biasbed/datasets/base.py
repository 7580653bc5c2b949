"""Data sets that find, check and load themselves under `data_dir`, in the layouts in which people keep them.

A data set is a subclass of `DataSet` with a few lines: its name, how many images and which classes its release has, and
the folders where it may be. How to read a layout other than class folders is one method, `listing`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, NoReturn

import numpy as np

from biasbed import record
from biasbed.data.folders import FolderSource
from biasbed.data.listing import labelled, reading, scan
from biasbed.datasets.classes import imagenet_classes
from biasbed.errors import MissingData, UsageError, listed
from biasbed.registry import Registry
from biasbed.settings import nearest

# Folders with ImageNet's class folders in `train` or `val` that are not ImageNet.
NOT_IMAGENET = frozenset({"stylizedimagenet", "imagenetstylized", "sin", "deepaugcae", "deepaugedsr", "cae", "edsr"})
SPLITS = frozenset({"train", "val", "validation", "test"})  # folders that hold another data set's images than asked


@dataclass(frozen=True, eq=False)
class Contents:
    """What is there of a data set, for who checks whether it is whole."""

    folder: Path
    files: Sequence[str]  # relative to the folder
    images: int
    labels: int  # how many of the classes some image has
    fingerprint: Callable[[], str]  # as runs record it; UsageError where a file is not to be had
    are_images: bool = True  # whether each of the files is one
    differences: tuple[str, ...] = ()  # from the release, in words
    remarks: tuple[str, ...] = ()  # what else is to be said
    side: int | None = None  # pixels that every image has per side, where they are all alike


class OnDisk:
    """A named collection of images in files, as it is looked for and checked."""

    name: str  # identifier
    images: int  # of the published release; 0 where there is none to compare with
    places: tuple[str, ...]  # folders under data_dir: the first that is there counts, case and punctuation don't
    archives: tuple[str, ...] = ()  # files of the release, as they are called before they are unpacked
    licence: str
    source: str  # where to get it, or how to make it
    kind = "class folders"

    @property
    def num_classes(self) -> int:
        """Of the published release; 0 where there is none to compare with."""
        return 0

    def find(self, data_dir: Path) -> Path | None:
        """The first of `places` that has something of the data set in it; None where there is none."""
        with reading():
            found = (resolve(data_dir, place) for place in self.places if not self._is_anothers(data_dir, place))
            return next((folder for folder in found if folder is not None and self._is_in(folder)), None)

    def folder(self, data_dir: Path) -> Path:
        """Where it is; UsageError where it is not."""
        found = self.find(data_dir)
        if found is None:
            raise MissingData(self.missing(data_dir))
        return found

    def missing(self, data_dir: Path) -> str:
        """One line about a data set that is not there: where it was looked for, and an archive that waits unpacked."""
        if not data_dir.is_dir():
            return f"data_dir={data_dir}: there is no such folder"
        others = f" (or {some(self.places[1:], 3)})" if self.places[1:] else ""
        text = f"'{self.name}' is not in {data_dir}: expected {self.places[0]}{others}"
        packed = self.packed(data_dir)
        return f"{text}; {packed}" if packed else f"{text}; where to get it: {self.source}"

    def packed(self, data_dir: Path) -> str:
        """In words the archives of the release that lie there; empty where none does."""
        with reading():
            found = sorted({archive for folder in self._around(data_dir) for archive in self._archives_in(folder)})
        return f"{some(found)} {'is' if len(found) == 1 else 'are'} there but not unpacked" if found else ""

    def contents(self, data_dir: Path) -> Contents:
        """What is there; UsageError as in opening it."""
        raise NotImplementedError

    def layout(self, folder: Path) -> str:
        """The layout that the folder is taken for, in words."""
        return self.kind

    def listed(self, folder: Path) -> Iterable[Path]:
        """The folders of which it is remembered what lay below (`data.listing_cache`)."""
        return (folder,)

    def refuse(self, folder: Path, reason: str) -> NoReturn:
        """Raises the UsageError for a folder that is not this data set."""
        raise UsageError(f"{folder} doesn't fit '{self.name}': {reason}")

    def _is_in(self, folder: Path) -> bool:
        """Whether something of the data set is in a folder."""
        return _holds_images(folder)

    def _is_anothers(self, data_dir: Path, place: str) -> bool:
        """Whether a split right under data_dir is that of the data set after which data_dir is called."""
        return place in SPLITS and letters(data_dir.resolve().name) in NOT_IMAGENET

    def _around(self, data_dir: Path) -> Iterator[Path]:
        """Folders in which an archive may wait: data_dir and, as far as they are there, the places."""
        yield data_dir
        for place in self.places:
            parts = place.split("/")
            for end in range(1, len(parts) + 1):
                folder = resolve(data_dir, "/".join(parts[:end]))
                if folder is not None:
                    yield folder

    def _archives_in(self, folder: Path) -> list[Path]:
        return [folder / name for name in self.archives if (folder / name).is_file()]


class DataSet(OnDisk):
    """One in class folders, or in another layout that its `listing` reads."""

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the class folders, in the order of the labels."""
        raise NotImplementedError

    @property
    def num_classes(self) -> int:
        return len(self.classes)

    def open(self, data_dir: Path) -> FolderSource:
        """The images with their labels, in an order that depends on their names alone.

        Raises UsageError where the data set is not there, and with the reason where its folders or file names are not
        those of this data set. A number of images other than the release's is no error here.
        """
        folder = self.folder(data_dir)
        with reading():
            ids, y = self.listing(folder)
        bias = self.bias(ids, folder)
        return FolderSource(name=self.name, classes=self.classes, y=y, ids=ids, root=folder, bias=bias)

    def contents(self, data_dir: Path) -> Contents:
        source = self.open(data_dir)
        known = self.images in (0, len(source))
        differences = () if known else (f"{len(source):,} images; the release has {self.images:,}",)
        return Contents(
            source.root, source.ids, len(source), source.num_labels, source.fingerprint, differences=differences
        )

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

    def _other_folders(self, folder: Path, found: Collection[str]) -> str:
        """Why the folder's class folders are not this data set's."""
        if not found:
            return f"{len(scan(folder)[1])} images and no class folders; {self.flat_hint()}"
        unknown, lacking = sorted(set(found) - set(self.classes)), sorted(set(self.classes) - set(found))
        parts = [f"unknown class folders {some(unknown)}"] if unknown else []
        parts += [f"{len(lacking)} of {len(self.classes)} class folders missing: {some(lacking)}"] if lacking else []
        return "; ".join([*parts, *likely_cause(set(found), set(self.classes))])


# --- data sets by name ------------------------------------------------------------------------------------------------


class DataSetRegistry(Registry):
    """Data sets that the setting `train` names: registered ones in any spelling, or a folder of the user's own."""

    def __init__(self, entries: Mapping[str, str], user_class: str, aliases: Mapping[str, str] | None = None) -> None:
        """user_class: `module:Class` that reads a user's folder. aliases: further names, by their `letters`."""
        super().__init__("train", entries, kind="data set")
        self.user_class = user_class
        self.spellings = {letters(name): name for name in entries} | dict(aliases or {})

    def identifier(self, name: str) -> str:
        """Return the name that runs are filed under: a registered name, or a slug of the user's folder."""
        return self.spellings.get(letters(name), record.slug(name))

    def make(self, name: str, data_dir: Callable[[], Path]) -> Any:
        """Return the registered data set of a name in any spelling, else one that reads the folder of this name.

        data_dir: returns the folder of all data sets; called only for a folder of the user's own. Raises MissingData if
        there is neither.
        """
        identifier = self.identifier(name)
        if identifier in self:
            return self.load(identifier)()
        root = data_dir()
        with reading():
            folders = scan(root)[0]
        if name not in folders:
            raise MissingData(f"train={name}: {root} has no such data set{nearest(name, [*self, *folders])}")
        return resolve_name(self.user_class)(root / name)


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
    return listed(names, count)


# --- folders ----------------------------------------------------------------------------------------------------------


def _holds_images(folder: Path) -> bool:
    """Whether there is an image, or a folder that is neither another split nor an archive unpacked into its name."""
    try:
        folders, images = scan(folder)
    except PermissionError:
        return True  # `open` says that it can't be read, which is more than that nothing is there
    return bool(images) or any(name.lower() not in {*SPLITS, folder.name.lower()} for name in folders)


def resolve(root: Path, place: str) -> Path | None:
    """The folder `place` below `root`, where case and punctuation don't count: `imagenet-a` is also `ImageNet_A`."""
    for part in place.split("/"):
        if not (root / part).is_dir():
            similar = [name for name in scan(root)[0] if letters(name) == letters(part)] if root.is_dir() else []
            if not similar:
                return None
            part = similar[0]
        root = root / part
    return root


def letters(name: str) -> str:
    """What of a folder's name counts."""
    return re.sub(r"[^a-z0-9]", "", name.lower())
