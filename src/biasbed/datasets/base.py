"""Contract of data sets: how they are found below `data_dir`, checked, opened and chosen by name.

A data set is a subclass of `DataSet` with a few lines: its name, by which `releases.yaml` has what was published, and
its classes. A layout other than class folders needs one method, `listing`.

Answers: How is a data set found and opened?
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, ClassVar, NoReturn

import numpy as np

from biasbed import record
from biasbed.data.folders import FolderSource
from biasbed.data.listing import UNPACK, has_shards, list_classes, report_unreadable, scan
from biasbed.data.source import Source
from biasbed.datasets.classes import imagenet_classes
from biasbed.datasets.releases import Release, read_releases
from biasbed.errors import MissingData, UsageError, listed
from biasbed.registry import Registry
from biasbed.settings import nearest

# Folders with ImageNet's class folders in `train` or `val` that are not ImageNet.
NOT_IMAGENET = frozenset({"stylizedimagenet", "imagenetstylized", "sin", "deepaugcae", "deepaugedsr", "cae", "edsr"})
SPLITS = frozenset({"train", "val", "validation", "test"})  # folders that hold another split's images


@dataclass(frozen=True, eq=False)
class Contents:
    """Files and counts of a data set on disk, for the data doctor."""

    folder: Path
    files: Sequence[str]  # relative to the folder
    images: int
    labels: int  # number of classes that occur
    fingerprint: Callable[[], str]  # as runs record it; raises UsageError if a file can't be read
    are_images: bool = True  # True if each file is one image
    differences: tuple[str, ...] = ()  # descriptions of differences from the release
    remarks: tuple[str, ...] = ()  # further descriptions
    side: int | None = None  # side of all images in pixels, if they must have one size

    @classmethod
    def from_source(cls, source: Source, folder: Path, **further: Any) -> Contents:
        """Sum up an opened data set. further: other fields, and other values of those that the source has."""
        values: dict[str, Any] = {"files": source.ids, "images": len(source), "labels": source.num_labels}
        return cls(**{"folder": folder, "fingerprint": source.fingerprint, **values, **further})


class OnDisk:
    """Named collection of images in files, which can be found and checked."""

    name: str  # identifier
    is_published: ClassVar[bool] = True

    @property
    def release(self) -> Release:
        """Published release: the row of `releases.yaml`. A data set that has none there sets it in its class."""
        return read_releases()[self.name]

    def find(self, data_dir: Path) -> Path | None:
        """Return the first of the release's folders that contains some of the data set; None if there is none."""
        with report_unreadable():
            for location in self.release.folders:
                folder = None if self._is_of_another_data_set(data_dir, location) else resolve(data_dir, location)
                if folder is not None and self._is_in(folder):
                    return folder
        return None

    def folder(self, data_dir: Path) -> Path:
        """Return the data set's folder. Raises MissingData if there is none."""
        folder = self.find(data_dir)
        if folder is None:
            raise MissingData(self.describe_missing(data_dir))
        return folder

    def describe_missing(self, data_dir: Path) -> str:
        """Describe in a line why the data set is missing: the expected folders, and archives that are not unpacked."""
        if not data_dir.is_dir():
            return f"data_dir={data_dir}: there is no such folder"
        first, *more = self.release.folders
        others = f" (or {listed(more, 3)})" if more else ""
        text = f"'{self.name}' is not in {data_dir}: expected {first}{others}"
        if self.find(data_dir.absolute().parent) is not None:
            return f"{text}; give the folder above as data_dir, it has the data set"
        packed = self.describe_archives(data_dir)
        return f"{text}; {packed}" if packed else f"{text}; where to get it: {self.release.source}"

    def describe_archives(self, data_dir: Path) -> str:
        """Describe the archives of the release, or the shards, that are not unpacked; empty if there are none."""
        archives: set[Path] = set()
        with report_unreadable():
            for folder in self._archive_folders(data_dir):
                archives.update(self._archives_in(folder))
                if has_shards(folder):
                    return f"{folder}: {UNPACK}"
        verb = "is" if len(archives) == 1 else "are"
        return f"{listed(sorted(archives), 5)} {verb} there but not unpacked" if archives else ""

    def contents(self, data_dir: Path) -> Contents:
        """Return the data set's contents on disk. Raises UsageError as opening it does."""
        raise NotImplementedError

    def layout(self, folder: Path) -> str:
        """Describe the layout of the folder."""
        return self.release.layout

    def listed_folders(self, folder: Path) -> Iterable[Path]:
        """Return the folders whose listings are cached (`data.listing_cache`)."""
        return (folder,)

    def refuse(self, folder: Path, reason: str) -> NoReturn:
        """Raise the UsageError for a folder that does not fit the data set."""
        raise UsageError(f"{folder} doesn't fit '{self.name}': {reason}")

    def _is_in(self, folder: Path) -> bool:
        """Return True if the folder contains some of the data set."""
        return _holds_images(folder)

    def _is_of_another_data_set(self, data_dir: Path, location: str) -> bool:
        """Return True for a split directly below data_dir if data_dir is named after another data set."""
        return location in SPLITS and letters(data_dir.resolve().name) in NOT_IMAGENET

    def _archive_folders(self, data_dir: Path) -> Iterator[Path]:
        """Yield the folders in which an archive may be: data_dir, the release's existing folders and their parents."""
        yield data_dir
        for location in self.release.folders:
            parts = location.split("/")
            for end in range(1, len(parts) + 1):
                folder = resolve(data_dir, "/".join(parts[:end]))
                if folder is not None:
                    yield folder

    def _archives_in(self, folder: Path) -> list[Path]:
        return [folder / name for name in self.release.archives if (folder / name).is_file()]


class OwnFolder(OnDisk):
    """Data set in a user's own folder; there is no release to compare with."""

    is_published = False
    own_layout = "class folders"

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.name = record.slug(folder.name)

    @property
    def release(self) -> Release:
        return Release(places=(self._folder.name,), source="your own", licence="yours", layout=self.own_layout)

    def find(self, data_dir: Path) -> Path | None:
        return self._folder


class DataSet(OnDisk):
    """Data set in class folders, or in another layout that its `listing` reads."""

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the class folders, in the order of the labels."""
        raise NotImplementedError

    def open(self, data_dir: Path) -> FolderSource:
        """Open the images with their labels, in an order that depends only on their names.

        Raises UsageError if the data set is missing, or if its folders or file names are not those of this data set. It
        is no error here if the number of images differs from the release.
        """
        folder = self.folder(data_dir)
        with report_unreadable():
            ids, y = self.listing(folder)
        bias = self.bias(ids, folder)
        return FolderSource(name=self.name, classes=self.classes, y=y, ids=ids, root=folder, bias=bias)

    def contents(self, data_dir: Path) -> Contents:
        source = self.open(data_dir)
        return Contents.from_source(source, source.root, differences=self.release.compare(len(source)))

    # --- to override for another layout ---

    def listing(self, folder: Path) -> tuple[list[str], np.ndarray]:
        """Return paths relative to the folder and labels [N] int64. Raises UsageError if they don't fit."""
        folders = set(scan(folder).folders)
        if has_shards(folder):
            self.refuse(folder, UNPACK)
        if folders != set(self.classes):
            self.refuse(folder, self._other_folders(folder, folders))
        ids, labels, empty = list_classes(folder, self.classes)
        if empty:
            self.refuse(folder, f"no images in {listed(empty, 5)}")
        return ids, labels

    def bias(self, ids: Sequence[str], folder: Path) -> np.ndarray | None:
        """Return the class that each image's shortcut suggests [N] int64. Raises UsageError for an unclear name."""
        return None

    def flat_hint(self) -> str:
        """Describe what to do about images outside class folders."""
        return f"expected one folder per class: {listed(self.classes, 3)}"

    def _other_folders(self, folder: Path, folders: Collection[str]) -> str:
        """Describe how the class folders differ from this data set's."""
        if not folders:
            return f"{len(scan(folder).images)} images and no class folders; {self.flat_hint()}"
        unknown, lacking = sorted(set(folders) - set(self.classes)), sorted(set(self.classes) - set(folders))
        parts = []
        if unknown:
            parts.append(f"unknown class folders {listed(unknown, 5)}")
        if lacking:
            parts.append(f"{len(lacking)} of {len(self.classes)} class folders missing: {listed(lacking, 5)}")
        return "; ".join([*parts, *likely_cause(set(folders), set(self.classes))])


# --- data sets by name ------------------------------------------------------------------------------------------------


class DataSetRegistry(Registry):
    """Data sets that the setting `train` names: registered ones in any spelling, or a folder of the user's own."""

    def __init__(
        self, entries: Mapping[str, str], user_class: str, offered_as: str, aliases: Mapping[str, str] | None = None
    ) -> None:
        """user_class: `module:Class` that reads a user's folder. aliases: further names, by their `letters`."""
        super().__init__("train", entries, kind="data set", offered_as=offered_as)
        self.user_class, self.aliases = user_class, aliases or {}

    def identifier(self, name: str) -> str:
        """Return the name that runs are filed under: a registered name, or a slug of the user's folder."""
        spellings = {letters(registered): registered for registered in self} | dict(self.aliases)
        return spellings.get(letters(name), record.slug(name))

    def make(self, name: str, data_dir: Callable[[], Path]) -> Any:
        """Return the registered data set of a name in any spelling, else one that reads the folder of this name.

        data_dir: returns the folder of all data sets; called only for a folder of the user's own. Raises MissingData if
        there is neither.
        """
        identifier = self.identifier(name)
        if identifier in self:
            return self.load(identifier)()
        root = data_dir()
        with report_unreadable():
            folders = scan(root).folders
        if name not in folders:
            raise MissingData(f"train={name}: {root} has no such data set{nearest(name, [*self, *folders])}")
        return resolve_name(self.user_class)(root / name)


# --- class lists ------------------------------------------------------------------------------------------------------


def likely_cause(folders: Collection[str], expected: Collection[str]) -> list[str]:
    """Guess why class folders are not the expected ones; return a list of one guess or none."""
    subsets = {"ImageNet-1k": "", "ImageNet-A": "a", "ImageNet-R": "r"}
    same = [name for name, subset in subsets.items() if set(folders) == set(imagenet_classes(subset))]
    if same:
        return [f"{len(folders)} folders: is this {same[0]}?"]
    if all(name.isdigit() for name in folders):
        return ["its folders are numbered; expected are their classes' names"]
    if not set(folders) < set(expected):
        return []
    if set(folders) < set(imagenet_classes()):
        return ["was it unpacked to the end? A part of ImageNet's classes is tested by suite=folders, among themselves"]
    return ["was it unpacked to the end?"]


# --- folders ----------------------------------------------------------------------------------------------------------


def _holds_images(folder: Path) -> bool:
    """Return True for an image, or a folder that is neither another split nor named like the folder itself."""
    try:
        folders, images, _ = scan(folder)
    except PermissionError:
        return True  # `open` then reports the unreadable folder instead of a missing one
    return bool(images) or any(name.lower() not in {*SPLITS, folder.name.lower()} for name in folders)


def resolve(root: Path, location: str) -> Path | None:
    """Find a folder below `root`, ignoring case and punctuation: `imagenet-a` also matches `ImageNet_A`."""
    for part in location.split("/"):
        if not (root / part).is_dir():
            if not root.is_dir():
                return None
            similar = [name for name in scan(root).folders if letters(name) == letters(part)]
            if not similar:
                return None
            part = similar[0]
        root = root / part
    return root


def letters(name: str) -> str:
    """Reduce a name to the lower-case letters and digits by which names are compared."""
    return re.sub(r"[^a-z0-9]", "", name.lower())
