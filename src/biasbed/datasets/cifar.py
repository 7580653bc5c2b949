"""CIFAR-10 and CIFAR-100 (Krizhevsky 2009), and their test images under corruptions (Hendrycks & Dietterich 2019).

CIFAR is read from Python's batches. The corrupted images are arrays: `<corruption>.npy` has the images of severity 1,
then of severity 2, up to 5.
"""

from __future__ import annotations

import functools
import pickle
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from biasbed.data.listing import report_unreadable
from biasbed.data.source import Decoded, MemorySource, Picture, Source
from biasbed.datasets.base import Contents, OnDisk
from biasbed.datasets.corruption_benchmarks import BENCHMARK, SEVERITIES, conditions
from biasbed.errors import UsageError, listed
from biasbed.system.strict import open_regular

SIDE = 32  # pixels
SAMPLED = 997  # step between the images of an array that enter its fingerprint
_FINE = """
apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus butterfly camel can castle
caterpillar cattle chair chimpanzee clock cloud cockroach couch crab crocodile cup dinosaur dolphin elephant flatfish
forest fox girl hamster house kangaroo keyboard lamp lawn_mower leopard lion lizard lobster man maple_tree motorcycle
mountain mouse mushroom oak_tree orange orchid otter palm_tree pear pickup_truck pine_tree plain plate poppy porcupine
possum rabbit raccoon ray road rocket rose sea seal shark shrew skunk skyscraper snail snake spider squirrel streetcar
sunflower sweet_pepper table tank telephone television tiger tractor train trout tulip turtle wardrobe whale
willow_tree wolf woman worm
"""
CLASSES: Mapping[str, tuple[str, ...]] = {
    "cifar10": ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"),
    "cifar100": tuple(_FINE.split()),
}


# --- batches ----------------------------------------------------------------------------------------------------------


class Batches(OnDisk):
    """Images of CIFAR in Python's batches."""

    classes_of: str  # key of `CLASSES`
    key: str  # key of the labels in a file

    @property
    def batches(self) -> tuple[str, ...]:
        """Names of the files."""
        return tuple(self.release.md5)

    def open(self, data_dir: Path) -> MemorySource:
        """Open the images. Raises UsageError if a file is missing or is no batch of CIFAR."""
        folder = self.folder(data_dir)
        missing = [name for name in self.batches if not (folder / name).is_file()]
        if missing:
            self.refuse(folder, f"{listed(missing, 5)} missing")
        with report_unreadable():
            states = [(folder / name).stat() for name in self.batches]
        versions = tuple((state.st_size, state.st_mtime_ns) for state in states)
        files = tuple(folder / name for name in self.batches)
        return _read_batches(self.name, self.classes_of, self.key, files, versions)

    def contents(self, data_dir: Path) -> Contents:
        source = self.open(data_dir)
        differences = self.release.compare(len(source))
        return Contents.from_source(
            source, self.folder(data_dir), files=self.batches, are_images=False, differences=differences
        )

    def _is_in(self, folder: Path) -> bool:
        return any((folder / name).is_file() for name in self.batches)


@functools.lru_cache(maxsize=2)
def _read_batches(
    name: str, classes_of: str, key: str, files: tuple[Path, ...], versions: tuple[tuple[int, int], ...]
) -> MemorySource:
    """Return the images of all files, in order.

    versions: (size, time) of each file, so that unchanged files are read once.
    """
    classes = CLASSES[classes_of]
    batches = [_read_batch(path, key, len(classes)) for path in files]
    ids: list[str] = []
    for path, batch in zip(files, batches, strict=True):
        ids += [f"{path.name}/{row:05}" for row in range(len(batch.labels))]
    y = np.concatenate([batch.labels for batch in batches])
    images = np.concatenate([batch.images for batch in batches])
    return MemorySource(name=name, classes=classes, y=y, ids=ids, images=images)


class BatchFile(NamedTuple):
    """Content of a file."""

    images: np.ndarray  # [n,3,32,32] uint8
    labels: np.ndarray  # [n] int64


def _read_batch(path: Path, key: str, classes: int) -> BatchFile:
    """Read a file. key: of the labels in it. Raises UsageError if it is no batch of CIFAR with so many classes."""
    try:
        with open_regular(path) as file:
            batch = _PlainUnpickler(file, encoding="latin1").load()
        images, labels = np.asarray(batch["data"]), np.asarray(batch[key], dtype=np.int64)
    except Exception as error:  # a damaged pickle may raise nearly anything
        raise UsageError(f"{path} is no batch of CIFAR, or is cut off: {type(error).__name__}; get it again") from None
    fits = images.dtype == np.uint8 and images.shape == (len(labels), 3 * SIDE * SIDE) and len(labels)
    if not fits or not 0 <= labels.min() <= labels.max() < classes:
        raise UsageError(f"{path} is no batch of CIFAR: images of {3 * SIDE * SIDE} bytes and labels below {classes}")
    return BatchFile(images.reshape(-1, 3, SIDE, SIDE), labels)


class _PlainUnpickler(pickle.Unpickler):
    """Unpickler that accepts only arrays, numbers and strings, because a pickle from the web may run any program."""

    def find_class(self, module: str, name: str) -> Any:
        is_numpy = re.fullmatch(r"numpy(\._?core\.multiarray)?", module) and name in (
            "_reconstruct",
            "ndarray",
            "dtype",
        )
        if is_numpy or (module, name) == ("_codecs", "encode"):
            return super().find_class(module, name)
        raise pickle.UnpicklingError(f"{module}.{name}")


class CIFAR10(Batches):
    """CIFAR-10's 10,000 test images."""

    name = "cifar10"
    classes_of = "cifar10"
    key = "labels"


class CIFAR10Train(CIFAR10):
    """CIFAR-10's 50,000 training images."""

    name = "cifar10_train"


class CIFAR100(Batches):
    """CIFAR-100's 10,000 test images, with the fine labels."""

    name = "cifar100"
    classes_of = "cifar100"
    key = "fine_labels"


class CIFAR100Train(CIFAR100):
    """CIFAR-100's 50,000 training images."""

    name = "cifar100_train"


# --- arrays -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False, kw_only=True)
class ArraySource(Source):
    """Images in .npy files [n,32,32,3] of equal length, of which rows are read on demand."""

    files: tuple[Path, ...]
    each: int  # images per file
    position: np.ndarray  # number [N] int64 of each image, counted through all files

    @property
    def shape(self) -> tuple[int, ...]:
        return 3, SIDE, SIDE

    def load_all(self, rows: np.ndarray) -> Tensor:
        files, rows_in_file = np.divmod(self.position[rows], self.each)
        images = np.empty((len(rows), SIDE, SIDE, 3), np.uint8)
        for number in np.unique(files).tolist():
            at = files == number
            images[at] = _map_checked(self.files[number])[rows_in_file[at]]
        return torch.from_numpy(images).permute(0, 3, 1, 2).contiguous()

    def open(self, row: int) -> Picture:
        return Decoded(self.load_all(np.array([row]))[0])

    def fingerprint(self) -> str:
        """Hash names, labels and a sample of each file's images, because all images are gigabytes."""
        return self._digest(*(np.ascontiguousarray(_map_checked(path)[::SAMPLED]).tobytes() for path in self.files))

    def _columns(self) -> tuple[str, ...]:
        return *super()._columns(), "position"


@functools.lru_cache(maxsize=64)
def _map_checked(path: Path) -> np.ndarray:
    """Return an array mapped into memory from a file that `_map_array` could read."""
    array: np.ndarray = np.load(path, mmap_mode="r", allow_pickle=False)
    return array


class CorruptedArrays(OnDisk):
    """CIFAR's test images under each of `corruptions`, in five severities."""

    classes_of: str
    corruptions = BENCHMARK

    def open(self, data_dir: Path) -> ArraySource:
        """Open all images, condition by condition. Raises UsageError if a file is missing, damaged or does not fit."""
        folder = self.folder(data_dir)
        names = [*(f"{name}.npy" for name in self.corruptions), "labels.npy"]
        missing = [name for name in names if not (folder / name).is_file()]
        if missing:
            here = len(names) - len(missing)
            self.refuse(folder, f"{here} of {len(names)} files are there, {listed(missing, 5)} missing")
        y = self._read_labels(folder)
        files = tuple(folder / f"{name}.npy" for name in self.corruptions)
        for path in files:
            self._refuse_shape(path, len(y))
        each = len(y) // len(SEVERITIES)
        ids: list[str] = []
        for condition in self._conditions:
            folder_name = condition.replace("-", "/")
            ids += [f"{folder_name}/{row:05}" for row in range(each)]
        return ArraySource(
            name=self.name,
            classes=CLASSES[self.classes_of],
            y=np.tile(y, len(files)),
            ids=ids,
            condition=np.repeat(np.arange(len(self._conditions), dtype=np.uint8), each),
            conditions=self._conditions,
            files=files,
            each=len(y),
            position=np.arange(len(ids)),
        )

    def contents(self, data_dir: Path) -> Contents:
        source = self.open(data_dir)
        files, differences = [path.name for path in source.files], self.release.compare(len(source))
        return Contents.from_source(
            source, self.folder(data_dir), files=[*files, "labels.npy"], are_images=False, differences=differences
        )

    @property
    def _conditions(self) -> tuple[str, ...]:
        return conditions(self.corruptions)

    def _is_in(self, folder: Path) -> bool:
        return any((folder / f"{name}.npy").is_file() for name in self.corruptions)

    def _read_labels(self, folder: Path) -> np.ndarray:
        """Read the labels [5 n] int64, which must be the same for every severity."""
        path = folder / "labels.npy"
        labels = _map_array(path)
        classes = len(CLASSES[self.classes_of])
        has_shape = labels.ndim == 1 and len(labels) > 0 and len(labels) % len(SEVERITIES) == 0
        if not has_shape or labels.dtype.kind not in "iu" or not 0 <= labels.min() <= labels.max() < classes:
            raise UsageError(
                f"{path} is {labels.dtype} {list(labels.shape)}: expected labels of 5 x n images, below {classes}"
            )
        by_severity = np.asarray(labels).reshape(len(SEVERITIES), -1)
        if (by_severity != by_severity[0]).any():
            raise UsageError(f"{path}: the five severities have other labels, so that they are not of the same images")
        return np.asarray(labels, dtype=np.int64)

    def _refuse_shape(self, path: Path, images: int) -> None:
        array, expected = _map_array(path), (images, SIDE, SIDE, 3)
        if array.shape != expected or array.dtype != np.uint8:
            here, there = (" x ".join(map(str, shape)) for shape in (array.shape, expected))
            raise UsageError(f"{path} is {array.dtype} {here}, and by labels.npy it should be uint8 {there}")


def _map_array(path: Path) -> np.ndarray:
    """Return a file's array, mapped into memory anew at each call. Raises UsageError if it is no array."""
    try:
        array: np.ndarray = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        reason = getattr(error, "strerror", None) or "it is no array, or is cut off"
        raise UsageError(f"can't read {path}: {reason}; get it again") from None
    return array


class CIFAR10C(CorruptedArrays):
    """CIFAR-10-C: the 15 corruptions of the benchmark."""

    name = "cifar10_c"
    classes_of = "cifar10"


class CIFAR100C(CorruptedArrays):
    """CIFAR-100-C: the 15 corruptions of the benchmark."""

    name = "cifar100_c"
    classes_of = "cifar100"
