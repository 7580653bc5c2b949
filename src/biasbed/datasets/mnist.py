"""Coloured and rotated MNIST: domains computed from the 70,000 digits (LeCun et al. 1998) in their IDX files.

They are made as in DomainBed (Gulrajani and Lopez-Paz 2021, section 3), except for the generator: the digits of a
domain, the flips and the colours follow from the data set and its own seed, so that all trainings see the same images.
"""

from __future__ import annotations

import functools
import gzip
import hashlib
import itertools
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.random import Generator
from PIL import Image

from biasbed import record
from biasbed.data.listing import report_unreadable
from biasbed.data.source import MemorySource, Source
from biasbed.datasets.base import Contents, OnDisk
from biasbed.datasets.domains import DomainDataSet
from biasbed.datasets.releases import read_releases
from biasbed.errors import UsageError, listed
from biasbed.system.strict import open_regular

SIZE = 28  # pixels
PARTS = ("train", "t10k")
NOISE = 0.25  # probability that a label of Coloured MNIST is flipped
# Probability that a domain's colours disagree with the label, as in the tables; the paper's appendix has 0.3 for 0.2.
DISAGREEMENT = (0.1, 0.2, 0.9)
ANGLES = (0, 15, 30, 45, 60, 75)  # degrees, counter-clockwise
RESAMPLING: Mapping[str, Image.Resampling] = {
    "bilinear": Image.Resampling.BILINEAR,
    "bicubic": Image.Resampling.BICUBIC,
}


class MNISTFiles(OnDisk):
    """Data set made of MNIST's digits in their four files."""

    def digits(self, data_dir: Path) -> Digits:
        """Read all digits. Raises UsageError if files are missing or damaged."""
        return _read_digits(self.folder(data_dir))

    def file_contents(self, data_dir: Path, fingerprint: Callable[[Digits], str]) -> Contents:
        """Return the contents of the files. fingerprint: returns that of the images made of the digits."""
        folder = self.folder(data_dir)
        digits = _read_digits(folder)
        comparison = read_releases()["mnist"].compare_parts(dict(zip(PARTS, digits.parts, strict=True)))
        return Contents(
            folder=folder,
            files=[path.name for path in _find_files(folder).values()],
            images=len(digits.labels),
            labels=len(np.unique(digits.labels)),
            fingerprint=lambda: fingerprint(digits),
            are_images=False,
            differences=comparison.differences,
        )

    def _is_in(self, folder: Path) -> bool:
        return bool(_find_files(folder))


class DomainDigits(NamedTuple):
    """Images [n,C,28,28] and labels [n] int64 of a domain."""

    images: np.ndarray
    y: np.ndarray


class MNISTDomains(MNISTFiles, DomainDataSet):
    """Data set of several domains, to which the shuffled digits are dealt in turn."""

    is_computed = True
    size = SIZE
    classes: tuple[str, ...]

    def open_domains(self, data_dir: Path, seed: int = 0, image_size: int | None = None) -> dict[str, Source]:
        size = SIZE if image_size is None or SIZE % image_size else image_size
        return dict(_make_domains(self, self.digits(data_dir), seed, size))

    def fingerprint(self, data_dir: Path) -> str:
        return self.origin(self.digits(data_dir))

    def contents(self, data_dir: Path) -> Contents:
        contents = self.file_contents(data_dir, self.origin)
        return replace(contents, labels=len(np.unique(self.labels(self.digits(data_dir).labels))))

    def labels(self, digits: np.ndarray) -> np.ndarray:
        """Return the labels of digits 0 to 9, before any is flipped."""
        return digits

    def origin(self, digits: Digits) -> str:
        """Return the fingerprint of the digits and the recipe."""
        return record.digest([self.recipe, digits.sha256])

    @property
    def recipe(self) -> str:
        """Description of everything that the images depend on besides digits and seed."""
        raise NotImplementedError

    def make(self, digits: Digits, rows: np.ndarray, domain: int, generator: Generator) -> DomainDigits:
        """Make the images and labels of a domain from its digits, rows [n]."""
        raise NotImplementedError


@dataclass(frozen=True)
class ColoredMNIST(MNISTDomains):
    """Coloured MNIST: digits in one of two colours, which predicts most labels in two domains (Arjovsky et al. 2019).

    The label tells if the digit is below 5; it is flipped with a probability of 25 %. The colour agrees with the label
    in 90 %, 80 % and 10 % of a domain's images.
    """

    name = "colored_mnist"
    channels = 2
    classes = ("5_to_9", "0_to_4")

    def labels(self, digits: np.ndarray) -> np.ndarray:
        return digits < 5

    @property
    def recipe(self) -> str:
        return f"colored 1: noise {NOISE}, disagreement {DISAGREEMENT}"

    def make(self, digits: Digits, rows: np.ndarray, domain: int, generator: Generator) -> DomainDigits:
        flips, colours = generator.random(len(rows)), generator.random(len(rows))
        return color_digits(digits.images[rows], digits.labels[rows], flips, colours, DISAGREEMENT[domain])


@dataclass(frozen=True)
class RotatedMNIST(MNISTDomains):
    """Rotated MNIST: digits turned by a different angle in each domain (Ghifary et al. 2015); the label is the digit.

    interpolation: bilinear; or bicubic, as in DomainBed's code of 2020, which made its tables.
    """

    interpolation: str = "bilinear"

    name = "rotated_mnist"
    channels = 1
    classes = tuple(map(str, range(10)))

    def with_interpolation(self, interpolation: str) -> RotatedMNIST:
        return replace(self, interpolation=interpolation)

    @property
    def recipe(self) -> str:
        return f"rotated 1: {self.interpolation}, angles {ANGLES}"

    def make(self, digits: Digits, rows: np.ndarray, domain: int, generator: Generator) -> DomainDigits:
        return DomainDigits(rotate(digits.images[rows], ANGLES[domain], self.interpolation), digits.labels[rows])


@functools.lru_cache(maxsize=3)  # for DomainBed's three seeds: plans open the same domains for every row and cell
def _make_domains(data_set: MNISTDomains, digits: Digits, seed: int, size: int) -> dict[str, MemorySource]:
    """Make the domains, which follow from digits, data set and seed."""
    generator = np.random.default_rng([seed, *data_set.name.encode()])
    order = generator.permutation(len(digits.labels))
    sources = {}
    names = list(data_set.release.parts)
    for number, (name, rows) in enumerate(zip(names, deal(order, len(names)), strict=True)):
        images, y = data_set.make(digits, rows, number, generator)
        ids = [digits.name(row) for row in rows]
        pixels, origin = shrink_by_means(images, size), data_set.origin(digits)
        sources[name] = MemorySource(name=name, classes=data_set.classes, y=y, ids=ids, images=pixels, origin=origin)
    return sources


# --- images from digits -----------------------------------------------------------------------------------------------


def deal(order: np.ndarray, count: int) -> list[np.ndarray]:
    """Deal the digits to `count` domains in turn: the first gets the digits 0, count, 2 count, ..."""
    return [order[first::count] for first in range(count)]


def color_digits(
    images: np.ndarray, digits: np.ndarray, flips: np.ndarray, colours: np.ndarray, disagreement: float
) -> DomainDigits:
    """Colour grey images [n,28,28] in one of two channels, and make their labels.

    flips, colours: uniform draws [n] on [0,1) that decide if a label is flipped and if the colour disagrees with it.
    """
    y = (digits < 5) ^ (flips < NOISE)
    colour = y ^ (colours < disagreement)
    coloured = np.zeros((len(images), 2, *images.shape[1:]), np.uint8)
    coloured[np.arange(len(images)), colour.astype(np.int64)] = images
    return DomainDigits(coloured, y.astype(np.int64))


def rotate(images: np.ndarray, angle: float, interpolation: str = "bilinear") -> np.ndarray:
    """Turn grey images [n,28,28] counter-clockwise about their centre: [n,1,28,28], black at uncovered corners."""
    n, height, width = images.shape
    by_four = np.zeros((-(-n // 4), 4, height, width), np.uint8)  # as channels of one image: a third of the time
    by_four.reshape(-1, height, width)[:n] = images
    turned = np.empty_like(by_four)
    for four, turned_four in zip(by_four, turned, strict=True):
        image = Image.frombytes("CMYK", (width, height), four.transpose(1, 2, 0).tobytes())
        turned_four[:] = np.asarray(image.rotate(angle, RESAMPLING[interpolation])).transpose(2, 0, 1)
    return turned.reshape(-1, 1, height, width)[:n]


def shrink_by_means(images: np.ndarray, size: int) -> np.ndarray:
    """Shrink images [n,C,s,s] to `size` pixels per side by rounded means; s is a multiple of `size`."""
    step = images.shape[-1] // size
    if step == 1:
        return images
    offsets = itertools.product(range(step), repeat=2)
    sums = sum(images[..., down::step, across::step].astype(np.uint32) for down, across in offsets)
    return ((sums + step * step // 2) // (step * step)).astype(np.uint8)


# --- IDX files --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Digits:
    """Grey images [n,28,28] and labels [n] of both parts, concatenated."""

    images: np.ndarray
    labels: np.ndarray
    parts: tuple[int, ...]  # number of digits in each part
    sha256: str  # of the unpacked arrays

    def name(self, number: int) -> str:
        """Return the permanent name of a digit."""
        first = self.parts[0]
        return f"train/{number:05d}" if number < first else f"t10k/{number - first:05d}"


_DIMENSIONS: Mapping[str, int] = {"images": 3, "labels": 1}


def _find_files(folder: Path) -> dict[tuple[str, str], Path]:
    """Find MNIST's four files in a folder, keyed by (part, kind); unpacked files are preferred."""
    files = {}
    for part, kind in itertools.product(PARTS, _DIMENSIONS):
        endings = itertools.product(("", ".gz"), ("-", "."))
        paths = [folder / f"{part}-{kind}{dot}idx{_DIMENSIONS[kind]}-ubyte{suffix}" for suffix, dot in endings]
        existing = [path for path in paths if path.is_file()]
        if existing:
            files[part, kind] = existing[0]
    return files


def _read_digits(folder: Path) -> Digits:
    """Read all digits in a folder.

    Raises UsageError if a file is missing or damaged, or if files don't fit together.
    """
    files = _find_files(folder)
    missing = [f"{part}-{kind}" for part, kind in itertools.product(PARTS, _DIMENSIONS) if (part, kind) not in files]
    if missing:
        raise UsageError(f"{folder} lacks {listed(missing, 5)} of MNIST's four files")
    with report_unreadable():
        states = [(path, path.stat()) for path in files.values()]
    return _read_files(tuple((path, state.st_size, state.st_mtime_ns) for path, state in states))


@functools.lru_cache(maxsize=1)
def _read_files(states: tuple[tuple[Path, int, int], ...]) -> Digits:
    """Read the four files, images before labels, in the order of the parts.

    states: (path, size, time) as a cache key.
    """
    paths = [path for path, *_ in states]
    arrays = [read_idx(path) for path in paths]
    images, labels = arrays[::2], arrays[1::2]
    for pixels, y, path in zip(images, labels, paths[::2], strict=True):
        if pixels.shape != (len(pixels), SIZE, SIZE) or y.shape != (len(pixels),) or y.max(initial=0) > 9:
            shapes = " and ".join(" x ".join(map(str, array.shape)) for array in (pixels, y))
            raise UsageError(f"{path} and its labels, {shapes}, are not MNIST's: n x {SIZE} x {SIZE} and n digits")
    sha = hashlib.sha256()
    for array in arrays:
        sha.update(repr(array.shape).encode() + array.tobytes())
    counts = tuple(map(len, images))
    return Digits(np.concatenate(images), np.concatenate(labels).astype(np.int64), counts, sha.hexdigest())


def read_idx(path: Path) -> np.ndarray:
    """Read the array of bytes in an IDX file, packed or not. Raises UsageError if it is no such file or is cut off."""
    try:
        with open_regular(path) as file:
            content = gzip.decompress(file.read()) if path.suffix == ".gz" else file.read()
        # Two zeros, the type (8: bytes), the number of dimensions, and their sizes as big-endian four-byte integers.
        if content[:3] != b"\0\0\x08":
            raise ValueError("it is no IDX file of bytes")
        shape = np.frombuffer(content, ">u4", content[3], 4)
        return np.frombuffer(content, np.uint8, offset=4 + 4 * len(shape)).reshape(shape)
    except (OSError, EOFError, IndexError, ValueError, zlib.error) as error:
        raise UsageError(f"can't read {path}: {getattr(error, 'strerror', None) or error}; get it again") from None
