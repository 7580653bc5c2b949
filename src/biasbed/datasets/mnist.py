"""Coloured and rotated MNIST: domains that a seed makes of the 70,000 digits (LeCun et al. 1998) in their IDX files.

As DomainBed makes them (Gulrajani and Lopez-Paz 2021, section 3), but for the generator: which digits a domain has, the
flips and colours follow from the data set and a seed of their own, so that they are equal whatever is trained on them.
"""

from __future__ import annotations

import functools
import gzip
import hashlib
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.random import Generator
from PIL import Image

from biasbed import record
from biasbed.data.decoding import reading_file
from biasbed.data.listing import reading
from biasbed.data.source import MemorySource, Source
from biasbed.datasets.base import Contents, OnDisk, some
from biasbed.datasets.domains import DomainDataSet
from biasbed.errors import UsageError

SIZE = 28  # pixels
RELEASED: Mapping[str, int] = {"train": 60_000, "t10k": 10_000}  # digits of each part
NOISE = 0.25  # probability that a label of Coloured MNIST is flipped
# Probability of a domain's colours to disagree with the label, as in the tables; the paper's appendix has 0.3 for 0.2.
DISAGREEMENT = (0.1, 0.2, 0.9)
ANGLES = (0, 15, 30, 45, 60, 75)  # degrees, counter-clockwise
RESAMPLING: Mapping[str, Image.Resampling] = {
    "bilinear": Image.Resampling.BILINEAR,
    "bicubic": Image.Resampling.BICUBIC,
}


class MNISTFiles(OnDisk):
    """One that is made of MNIST's digits, in their four files."""

    kind = "IDX files"
    images = sum(RELEASED.values())
    # torchvision's folder, below data_dir or below DomainBed's; or the files themselves
    places = ("MNIST/raw", "MNIST/MNIST/raw", "MNIST", "raw", ".")
    licence = "CC BY-SA 3.0"
    source = "torchvision.datasets.MNIST(<data_dir>, download=True)"

    def digits(self, data_dir: Path) -> Digits:
        """All digits; UsageError where they are missing or damaged."""
        return _digits(self.folder(data_dir))

    def of_files(self, data_dir: Path, fingerprint: Callable[[Digits], str]) -> Contents:
        """What is there of them. fingerprint: of what is made of the digits."""
        folder = self.folder(data_dir)
        digits = _digits(folder)
        counts = zip(RELEASED.items(), digits.parts, strict=True)
        wrong = [(part, here, there) for (part, there), here in counts if here != there]
        return Contents(
            folder=folder,
            files=[path.name for path in _files(folder).values()],
            images=len(digits.labels),
            labels=len(np.unique(digits.labels)),
            fingerprint=lambda: fingerprint(digits),
            are_images=False,
            differences=tuple(f"{part} has {here:,} digits; the release has {there:,}" for part, here, there in wrong),
        )

    def _is_in(self, folder: Path) -> bool:
        return bool(_files(folder))


class MNISTDomains(MNISTFiles, DomainDataSet):
    """One of several domains: digits, shuffled together and dealt out to them in turn."""

    is_computed = True
    size = SIZE
    classes: tuple[str, ...]
    names: tuple[tuple[str, ...], ...]  # of each domain: its identifier, and others

    @property
    def num_classes(self) -> int:
        return len(self.classes)

    def domains(self, data_dir: Path) -> dict[str, tuple[str, ...]]:
        return {names[0]: names[1:] for names in self.names}

    def open_domains(self, data_dir: Path, seed: int = 0, image_size: int | None = None) -> dict[str, Source]:
        size = SIZE if image_size is None or SIZE % image_size else image_size
        return dict(_opened(self, self.digits(data_dir), seed, size))

    def fingerprint(self, data_dir: Path) -> str:
        return self.origin(self.digits(data_dir))

    def contents(self, data_dir: Path) -> Contents:
        found = self.of_files(data_dir, self.origin)
        return replace(found, labels=len(np.unique(self.labels(self.digits(data_dir).labels))))

    def labels(self, digits: np.ndarray) -> np.ndarray:
        """The labels of digits 0 to 9, before any is flipped."""
        return digits

    def origin(self, digits: Digits) -> str:
        """Fingerprint of what the images are made of."""
        return record.digest([self.recipe, digits.sha256])

    @property
    def recipe(self) -> str:
        """What all its images depend on besides digits and seed, in words."""
        raise NotImplementedError

    def made(self, digits: Digits, own: np.ndarray, domain: int, generator: Generator) -> tuple[np.ndarray, np.ndarray]:
        """(images [n,C,28,28], labels [n]) of a domain, of its own digits."""
        raise NotImplementedError


@dataclass(frozen=True)
class ColoredMNIST(MNISTDomains):
    """Digits in one of two colours, which tells most labels of two of the domains (Arjovsky et al. 2019).

    The label is whether the digit is below 5, flipped with a probability of 25 %; the colour agrees with it in 90 %,
    80 % and 10 % of a domain's images.
    """

    name = "colored_mnist"
    channels = 2
    classes = ("5_to_9", "0_to_4")
    names = (("plus_90", "0.1", "+90%"), ("plus_80", "0.2", "+80%"), ("minus_90", "0.9", "-90%"))

    def labels(self, digits: np.ndarray) -> np.ndarray:
        return digits < 5

    @property
    def recipe(self) -> str:
        return f"colored 1: noise {NOISE}, disagreement {DISAGREEMENT}"

    def made(self, digits: Digits, own: np.ndarray, domain: int, generator: Generator) -> tuple[np.ndarray, np.ndarray]:
        flips, colours = generator.random(len(own)), generator.random(len(own))
        return colored(digits.images[own], digits.labels[own], flips, colours, DISAGREEMENT[domain])


@dataclass(frozen=True)
class RotatedMNIST(MNISTDomains):
    """Digits turned by an angle that differs by domain (Ghifary et al. 2015); the label is the digit.

    interpolation: bilinear; or bicubic, as in DomainBed's code of 2020, of which its tables are.
    """

    interpolation: str = "bilinear"

    name = "rotated_mnist"
    channels = 1
    classes = tuple(map(str, range(10)))
    names = tuple((str(angle),) for angle in ANGLES)

    def with_interpolation(self, interpolation: str) -> RotatedMNIST:
        return replace(self, interpolation=interpolation)

    @property
    def recipe(self) -> str:
        return f"rotated 1: {self.interpolation}, angles {ANGLES}"

    def made(self, digits: Digits, own: np.ndarray, domain: int, generator: Generator) -> tuple[np.ndarray, np.ndarray]:
        return rotated(digits.images[own], ANGLES[domain], self.interpolation), digits.labels[own]


@functools.lru_cache(maxsize=3)  # DomainBed's repeats: plans open them again for every row in every cell
def _opened(data_set: MNISTDomains, digits: Digits, seed: int, size: int) -> dict[str, MemorySource]:
    """The domains; all follows from digits, data set and seed."""
    generator = np.random.default_rng([seed, *data_set.name.encode()])
    order = generator.permutation(len(digits.labels))
    sources = {}
    for number, own in enumerate(dealt(order, len(data_set.names))):
        name = data_set.names[number][0]
        images, y = data_set.made(digits, own, number, generator)
        ids = [digits.name(at) for at in own]
        pixels, origin = pooled(images, size), data_set.origin(digits)
        sources[name] = MemorySource(name=name, classes=data_set.classes, y=y, ids=ids, images=pixels, origin=origin)
    return sources


# --- what is made of digits -------------------------------------------------------------------------------------------


def dealt(order: np.ndarray, count: int) -> list[np.ndarray]:
    """The digits of each domain: the first gets every `count`-th from the first on, and so on."""
    return [order[first::count] for first in range(count)]


def colored(
    images: np.ndarray, digits: np.ndarray, flips: np.ndarray, colours: np.ndarray, disagreement: float
) -> tuple[np.ndarray, np.ndarray]:
    """(images [n,2,28,28] that are 0 in the other colour's channel, labels [n]) of grey ones [n,28,28].

    flips, colours: [n] uniform in [0,1): whether a label is flipped, whether its colour then disagrees with it.
    """
    y = (digits < 5) ^ (flips < NOISE)
    colour = y ^ (colours < disagreement)
    found = np.zeros((len(images), 2, *images.shape[1:]), np.uint8)
    found[np.arange(len(images)), colour.astype(np.int64)] = images
    return found, y.astype(np.int64)


def rotated(images: np.ndarray, angle: float, interpolation: str = "bilinear") -> np.ndarray:
    """Grey images [n,28,28] turned counter-clockwise about their centre, [n,1,28,28]; what comes in is black."""
    n, height, width = images.shape
    by_four = np.zeros((-(-n // 4), 4, height, width), np.uint8)  # as channels of one image: a third of the time
    by_four.reshape(-1, height, width)[:n] = images
    found = np.empty_like(by_four)
    for four, turned in zip(by_four, found, strict=True):
        image = Image.frombytes("CMYK", (width, height), four.transpose(1, 2, 0).tobytes())
        turned[:] = np.asarray(image.rotate(angle, RESAMPLING[interpolation])).transpose(2, 0, 1)
    return found.reshape(-1, 1, height, width)[:n]


def pooled(images: np.ndarray, size: int) -> np.ndarray:
    """Images [n,C,s,s] with `size` pixels per side, of which s is a multiple: means, rounded."""
    step = images.shape[-1] // size
    if step == 1:
        return images
    sums = sum(
        images[..., down::step, across::step].astype(np.uint32) for down in range(step) for across in range(step)
    )
    return ((sums + step * step // 2) // (step * step)).astype(np.uint8)


# --- IDX files --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Digits:
    """Grey images [n,28,28] and labels [n] of both parts, one after the other."""

    images: np.ndarray
    labels: np.ndarray
    parts: tuple[int, ...]  # digits of each
    sha256: str  # of all, whether the files are packed or not

    def name(self, number: int) -> str:
        """Of a digit for good."""
        first = self.parts[0]
        return f"train/{number:05d}" if number < first else f"t10k/{number - first:05d}"


_DIMENSIONS: Mapping[str, int] = {"images": 3, "labels": 1}


def _files(folder: Path) -> dict[tuple[str, str], Path]:
    """What of MNIST's four files is in a folder, by part and by what they hold; unpacked ones before packed ones."""
    found = {}
    for part in RELEASED:
        for what, dims in _DIMENSIONS.items():
            names = [f"{part}-{what}{dot}idx{dims}-ubyte{end}" for end in ("", ".gz") for dot in ("-", ".")]
            there = [folder / name for name in names if (folder / name).is_file()]
            if there:
                found[part, what] = there[0]
    return found


def _digits(folder: Path) -> Digits:
    """All digits of a folder; UsageError where a file is missing or damaged, or they don't go together."""
    files = _files(folder)
    missing = [f"{part}-{what}" for part in RELEASED for what in _DIMENSIONS if (part, what) not in files]
    if missing:
        raise UsageError(f"{folder} lacks {some(missing)} of MNIST's four files")
    with reading():
        states = [(path, path.stat()) for path in files.values()]
    return _read(tuple((path, state.st_size, state.st_mtime_ns) for path, state in states))


@functools.lru_cache(maxsize=1)
def _read(states: tuple[tuple[Path, int, int], ...]) -> Digits:
    """What is in the four files, images before labels, in the order of the parts; read once as long as they are so."""
    paths = [path for path, *_ in states]
    arrays = [read_idx(path) for path in paths]
    images, labels = arrays[::2], arrays[1::2]
    for own, theirs, path in zip(images, labels, paths[::2], strict=True):
        if own.shape != (len(own), SIZE, SIZE) or theirs.shape != (len(own),) or theirs.max(initial=0) > 9:
            shapes = " and ".join(" x ".join(map(str, array.shape)) for array in (own, theirs))
            raise UsageError(f"{path} and its labels, {shapes}, are not MNIST's: n x {SIZE} x {SIZE} and n digits")
    sha = hashlib.sha256()
    for array in arrays:
        sha.update(repr(array.shape).encode() + array.tobytes())
    counts = tuple(map(len, images))
    return Digits(np.concatenate(images), np.concatenate(labels).astype(np.int64), counts, sha.hexdigest())


def read_idx(path: Path) -> np.ndarray:
    """The array of bytes in an IDX file, packed or not; UsageError where it is none, or cut off."""
    try:
        with reading_file(path) as file:
            content = gzip.decompress(file.read()) if path.suffix == ".gz" else file.read()
    except EOFError:
        raise UsageError(f"{path} is cut off: get it again") from None
    except (OSError, zlib.error) as error:
        raise UsageError(f"can't read {path}: {getattr(error, 'strerror', None) or error}") from None
    # Two zeros, the type (8: bytes), the number of dimensions, and their sizes in four bytes each, the highest first.
    if content[:3] != b"\0\0\x08" or len(content) < 4 + 4 * content[3]:
        raise UsageError(f"{path} is no IDX file of bytes")
    start = 4 + 4 * content[3]
    shape = np.frombuffer(content, ">u4", content[3], 4).tolist()
    if len(content) - start != int(np.prod(shape)):
        here = len(content) - start
        raise UsageError(f"{path} is cut off: its header says {' x '.join(map(str, shape))} bytes, and it has {here:,}")
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape)
