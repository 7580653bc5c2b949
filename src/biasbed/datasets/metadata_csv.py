"""Biased data sets of image files with a table of their classes, splits and biases.

A user's own data set is a folder with `metadata.csv`; Waterbirds and CelebA are read as they are released. The labels
of the table are part of the fingerprint, because they can change without the images.
"""

from __future__ import annotations

import os
import posixpath
import stat
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import numpy as np

from biasbed.data.decoding import EXTENSIONS
from biasbed.data.folders import FolderSource
from biasbed.data.listing import THREADS, UNPACK, has_shards
from biasbed.datasets.base import Contents, OnDisk, OwnFolder
from biasbed.datasets.biased import BiasedData, Division, DivisionRequest, describe_counts
from biasbed.errors import UsageError, listed
from biasbed.settings import nearest
from biasbed.system.csv_tables import read_rows

TRAIN, VALIDATION, TEST = "train", "validation", "test"
SPLITS: Mapping[str, str] = {
    **{TRAIN: TRAIN, "val": VALIDATION, VALIDATION: VALIDATION, TEST: TEST},
    **{"0": TRAIN, "1": VALIDATION, "2": TEST},
}
CLOSE = 0.1  # largest relative difference between the severity of a table and the requested one


class Row(NamedTuple):
    """Row of a table, in its original words; the path of the image is relative to the folder."""

    image: str
    label: str
    split: str
    bias: str
    line: int


@dataclass(frozen=True, eq=False, kw_only=True)
class TableSource(FolderSource):
    """Images in files with labels and biases from a table."""

    def _further_content(self) -> tuple[bytes, ...]:
        assert self.bias is not None
        return (self.bias.astype(np.int64).tobytes(),)


class TableData(OnDisk, BiasedData):
    """Data set with a table; its classes are those in the table, sorted, unless `labels` names them.

    labels: word in the table -> class. biases: word in the table -> class that this bias suggests. By default the words
    are the classes.
    """

    file = "metadata.csv"
    columns = ("image", "class", "split", "bias")
    labels: Mapping[str, str] = {}
    biases: Mapping[str, str] = {}
    at_others = ""  # end of the message about a severity that the table does not have

    def parts(self, data_dir: Path, request: DivisionRequest) -> Division:
        folder = self.folder(data_dir)
        train, validation, test = self._open_parts(folder)
        assert train.bias is not None
        share = 100 * float((train.bias != train.y).mean())
        if request.severity is not None and abs(share - request.severity) > CLOSE * request.severity:
            raise UsageError(
                f"data.severity={request.severity:g}: of the training images of {folder / self.file}, {share:.3g} % "
                f"conflict; leave it out{self.at_others}"
            )
        return Division(train, validation, test, round(share, 1) if request.severity is None else request.severity)

    def contents(self, data_dir: Path) -> Contents:
        folder = self.folder(data_dir)
        rows = self._read_checked(folder)
        source = self._open_part(folder, rows)
        splits = {SPLITS[row.split.lower()] for row in rows}
        parts = [part for part in (TRAIN, VALIDATION, TEST) if part in splits]
        remarks = tuple(f"{part} has {describe_counts(self._open_part(folder, rows, part))}" for part in parts)
        return Contents.from_source(source, folder, differences=self.release.compare(len(source)), remarks=remarks)

    def rows(self, folder: Path) -> Iterator[Row]:
        """Read the rows of the table. Raises UsageError if it can't be read or lacks a column."""
        image, label, split, bias = self.columns
        for line, row in read_rows(folder / self.file, self.columns):
            yield Row(row[image], row[label], row[split], row[bias], line)

    def _is_in(self, folder: Path) -> bool:
        return (folder / self.file).is_file()

    def _open_parts(self, folder: Path) -> list[TableSource]:
        """Open the images that train, validate and test. Raises UsageError if the table doesn't fit."""
        rows = self._read_checked(folder)
        parts = [self._open_part(folder, rows, part) for part in (TRAIN, VALIDATION, TEST)]
        missing = sorted(set(range(len(parts[0].classes))) - set(parts[0].y.tolist()))
        if missing:
            names = listed([parts[0].classes[label] for label in missing], 5)
            raise UsageError(f"{folder / self.file} has no image of {names} with the split '{TRAIN}'")
        return parts

    def _open_part(self, folder: Path, rows: Sequence[Row], part: str = "") -> TableSource:
        """Open the images of one part, or all, in the order of the rows. Raises UsageError if the table doesn't fit."""
        classes = tuple(dict.fromkeys(self.labels.values())) or tuple(sorted({row.label for row in rows}))
        number = {name: label for label, name in enumerate(classes)}
        labels = self.labels or {name: name for name in classes}
        suggested = self.biases or labels
        chosen = [row for row in rows if not part or SPLITS[row.split.lower()] == part]
        if not chosen:
            raise UsageError(f"{folder / self.file} has no image with the split '{part}'")
        return TableSource(
            name=self.name if part in ("", TRAIN) else f"{self.name}_{part}",
            classes=classes,
            y=np.array([number[labels[row.label]] for row in chosen], dtype=np.int64),
            bias=np.array([number[suggested[row.bias]] for row in chosen], dtype=np.int64),
            ids=[row.image for row in chosen],
            root=folder,
        )

    def _read_checked(self, folder: Path) -> list[Row]:
        """Return all rows, sorted by image. Raises UsageError if a row is wrong, or a file is missing."""
        rows = list(self.rows(folder))
        labels = self.labels or {row.label for row in rows}
        for row in rows:
            problem = self._find_problem(row, labels)
            if problem:
                raise UsageError(f"{folder / self.file}, line {row.line}: {problem}")
        rows = sorted(row._replace(image=posixpath.normpath(row.image)) for row in rows)
        parts = [SPLITS[row.split.lower()] for row in rows]
        check_files(folder, self.file, [row.image for row in rows], parts)
        return rows

    def _find_problem(self, row: Row, labels: Collection[str]) -> str:
        """Return what is wrong with a row, as text; empty if nothing is. labels: classes, in the table's words."""
        if row.split.lower() not in SPLITS:
            return f"unknown split '{row.split}'{nearest(row.split, [TRAIN, VALIDATION, TEST])}"
        if row.label not in labels:
            return f"unknown class '{row.label}': expected {listed(list(labels), 5)}"
        path = PurePosixPath(row.image)
        if not row.label or path.is_absolute() or ".." in path.parts or path.suffix.lower() not in EXTENSIONS:
            expected = "a class and the path of an image below that folder"
            return f"expected {expected}, not '{row.label}' and '{row.image}'"
        if row.bias not in (self.biases or labels):
            hint = listed(list(self.biases), 5) if self.biases else "the class that the image's shortcut suggests"
            return f"unknown bias '{row.bias}': expected {hint}"
        return ""


def check_files(folder: Path, table: str, names: Sequence[str], parts: Sequence[str] | None = None) -> None:
    """Check that a table's images exist and that no two parts share one.

    names: normalised paths below the folder. parts: the part of each; None if any image may come into any part.

    Raises UsageError for a name that the table has twice, for a missing file, and for two names of one file (by links,
    or on a disk that ignores case) in different parts.
    """
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise UsageError(f"{folder / table} has the image '{twice[0]}' twice")
    firsts: dict[tuple[int, int], int] = {}
    for number, status in enumerate(refuse_missing(folder, names)):
        first = firsts.setdefault((status.st_dev, status.st_ino), number)
        if first == number or (parts is not None and parts[first] == parts[number]):
            continue
        # Some file systems give one inode number to several files.
        is_link = os.path.realpath(folder / names[first]) == os.path.realpath(folder / names[number])
        if is_link or status.st_nlink > 1:
            shares = "" if parts is None else f", in {parts[first]} and in {parts[number]}"
            raise UsageError(
                f"{folder / table}: '{names[first]}' and '{names[number]}' are one file{shares}: keep one of them"
            )


def refuse_missing(folder: Path, names: Sequence[str], kind: str = "images of its table") -> list[os.stat_result]:
    """Return the status of each file. Raises UsageError if one is missing; kind: what the message calls the files."""
    with ThreadPoolExecutor(THREADS) as pool:
        states = list(pool.map(lambda name: _status(folder / name), names, chunksize=256))
    existing = [status for status in states if status is not None]
    if len(existing) < len(names):
        missing = [name for name, status in zip(names, states, strict=True) if status is None]
        raise UsageError(f"{folder} lacks {len(missing)} of the {len(names)} {kind}: {listed(missing, 3)}")
    return existing


def _status(path: Path) -> os.stat_result | None:
    """Return the status of a file; None if it is missing or is not a regular file."""
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return None
    return status if stat.S_ISREG(status.st_mode) else None


class OwnTable(OwnFolder, TableData):
    """Data set in a user's own folder with a `metadata.csv`; there is no release to compare with."""

    bias_type = "as the table says"
    own_layout = "images with a table"

    def find(self, data_dir: Path) -> Path | None:
        return self._folder if self._is_in(self._folder) else None

    def describe_missing(self, data_dir: Path) -> str:
        advice = f"; {UNPACK}" if has_shards(self._folder) else ""
        return f"{self._folder} has no {self.file}, the table with the columns {', '.join(self.columns)}{advice}"


class Waterbirds(TableData):
    """Land and water birds in front of land or water (Sagawa, Koh, Hashimoto and Liang 2020), as released.

    Of 4,795 training images 240 conflict; in validation and test each class has both backgrounds equally often.
    """

    name = "waterbirds"
    version_of = "waterbirds"
    bias_type = "background"
    columns = ("img_filename", "y", "split", "place")
    labels: Mapping[str, str] = {"0": "landbird", "1": "waterbird"}
    at_others = ", or train=waterbirds_ac, which is composed at any"


class CelebA(TableData):
    """Faces with blond or other hair; the bias is the gender (Liu et al. 2015; Sagawa et al. 2020)."""

    name = "celeba"
    bias_type = "gender"
    file = "list_attr_celeba.csv"
    partition = "list_eval_partition.csv"
    columns = ("image_id", "Blond_Hair", "partition", "Male")
    labels: Mapping[str, str] = {"-1": "not_blond", "0": "not_blond", "1": "blond"}
    biases: Mapping[str, str] = {"-1": "blond", "0": "blond", "1": "not_blond"}

    def rows(self, folder: Path) -> Iterator[Row]:
        image, label, split, bias = self.columns
        splits = {row[image]: row[split] for _, row in read_rows(folder / self.partition, (image, split))}
        inner = "img_align_celeba"
        below = f"{inner}/{inner}" if (folder / inner / inner).is_dir() else inner
        for line, row in read_rows(folder / self.file, (image, label, bias)):
            if row[image] not in splits:
                raise UsageError(f"{folder / self.partition} has no line for '{row[image]}'")
            yield Row(f"{below}/{row[image]}", row[label], splits[row[image]], row[bias], line)
