"""Originals of Waterbirds and the assignment of birds to backgrounds (Sagawa et al. 2020, appendix C.1).

The originals are CUB-200-2011 (Wah et al. 2011) with its segmentations, and four categories of Places365 (Zhou et al.
2017).
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import numpy as np

from biasbed.data.listing import images_below, report_unreadable
from biasbed.datasets.base import OnDisk, resolve
from biasbed.datasets.biased import ALIGNED, CONFLICTING, refuse_too_few
from biasbed.errors import UsageError, first_line, listed

CLASSES = ("landbird", "waterbird")
KINDS = ("land", "water")  # of backgrounds, in the order of the classes that they are aligned with
SPLITS = TRAIN, VALIDATION, TEST = (0, 1, 2)  # as the authors' table numbers them
SPLIT_NAMES = ("training", "validation", "test")
# Parts of a species' name, in any case. "Tern" is also in Eastern Towhee, Western Meadowlark and Western Wood-Pewee:
# three landbirds that count as waterbirds in every published number.
WATERBIRDS = (
    *("albatross", "auklet", "cormorant", "frigatebird", "fulmar", "gull", "jaeger", "kittiwake", "pelican", "puffin"),
    *("tern", "gadwall", "grebe", "mallard", "merganser", "guillemot", "pacific_loon"),
)
# Share of each class of CUB's training images that validates, from the published counts: a fifth of all.
HELD_OUT = (933 / 4_615, 266 / 1_379)
# Categories of each kind of background, and the folders that archives have them in.
CATEGORIES: Sequence[Mapping[str, Sequence[str]]] = (
    {
        "bamboo_forest": ("b/bamboo_forest", "bamboo_forest"),
        "forest/broadleaf": ("f/forest/broadleaf", "forest-broadleaf", "forest/broadleaf"),
    },
    {"ocean": ("o/ocean", "ocean"), "lake/natural": ("l/lake/natural", "lake-natural", "lake/natural")},
)


class CUB(OnDisk):
    """CUB-200-2011's birds. The segmentations, a separate archive, are in the same folder or beside it."""

    name = "cub"

    def _is_in(self, folder: Path) -> bool:
        return (folder / "images.txt").is_file()

    def birds(self, folder: Path) -> list[Bird]:
        """Return all birds, sorted by number. Raises UsageError if the lists can't be read or don't match."""
        paths, parts = _read_list(folder / "images.txt"), _read_list(folder / "train_test_split.txt")
        if not paths or paths.keys() != parts.keys():
            self.refuse(folder, "images.txt and train_test_split.txt don't number the same images")
        for path in paths.values():
            if PurePosixPath(path).is_absolute() or ".." in PurePosixPath(path).parts or "/" not in path:
                self.refuse(folder, f"images.txt should have <species>/<image>, not '{path}'")
        if len(set(paths.values())) < len(paths):
            self.refuse(folder, "images.txt has an image twice")
        wrong = sorted(set(parts.values()) - {"0", "1"})
        if wrong:
            self.refuse(folder, f"train_test_split.txt should say 0 or 1 of an image, not '{wrong[0]}'")
        return [Bird(number, paths[number], label_of(paths[number]), parts[number] == "1") for number in sorted(paths)]

    def segmentations(self, folder: Path) -> Path:
        """Return the folder of the birds' masks. Raises UsageError if there is none."""
        for masks in (folder / "segmentations", folder.parent / "segmentations"):
            if masks.is_dir():
                return masks
        raise UsageError(
            f"there are no segmentations of the birds in {folder}: expected the folder segmentations there or "
            f"beside it; where to get it: {self.release.source}"
        )


class Places(OnDisk):
    """Places365's training images in any of the released layouts; only four categories are needed."""

    name = "places365"

    def scenes(self, folder: Path) -> tuple[list[str], ...]:
        """Return the images of each kind of background, relative to the folder.

        Raises UsageError if a category is missing.
        """
        scenes = []
        for categories in CATEGORIES:
            inner = [self._category_folder(folder, name, folders) for name, folders in categories.items()]
            with report_unreadable():
                scenes.append(list(itertools.chain.from_iterable(images_below(folder, inner))))
        return tuple(scenes)

    def _is_in(self, folder: Path) -> bool:
        for categories in CATEGORIES:
            names = itertools.chain.from_iterable(categories.values())
            if any(resolve(folder, name) is not None for name in names):
                return True
        return False

    def _category_folder(self, folder: Path, name: str, folders: Sequence[str]) -> str:
        with report_unreadable():
            inner = next(filter(None, (resolve(folder, inner) for inner in folders)), None)
        if inner is None:
            self.refuse(folder, f"there is no folder of the category {name}: looked for {listed(folders, 5)}")
        return inner.relative_to(folder).as_posix()


class Bird(NamedTuple):
    """One of CUB's images, whose path is relative to its folder `images`."""

    number: int
    image: str
    y: int
    is_training: bool


def label_of(image: str) -> int:
    """Return the class of an image by the species in its path."""
    species = image.split("/")[0].lower()
    return int(any(name in species for name in WATERBIRDS))


def find_originals(data_set: OnDisk, option: str, folder: str, data_dir: Path) -> Path:
    """Return the folder of a data set in the option's folder, or below data_dir if the option is `auto`.

    Raises UsageError if it is not there.
    """
    if folder == "auto":
        return data_set.folder(data_dir)
    root = Path(folder).expanduser()
    if root.is_dir():
        originals = root if data_set._is_in(root) else data_set.find(root)
        if originals is not None:
            return originals
    raise UsageError(f"{option}={root}: '{data_set.name}' is not there; where to get it: {data_set.release.source}")


def _read_list(path: Path) -> dict[int, str]:
    """Return the word of each line, by the number before it. Raises UsageError if the list can't be read."""
    words_by_number: dict[int, str] = {}
    try:
        for row, line in enumerate(path.read_text().splitlines(), 1):
            number, _, word = line.strip().partition(" ")
            if not line.strip():
                continue
            if not number.isdecimal() or not word or int(number) in words_by_number:
                raise ValueError(f"line {row}: expected a new image's number and a word, not '{line[:80]}'")
            words_by_number[int(number)] = word
    except (OSError, ValueError) as error:
        raise UsageError(f"can't read {path}: {first_line(error)}") from None
    return words_by_number


# --- assignment of birds to backgrounds -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Composed:
    """One image to be made. kind: of its background, as `KINDS` has it; scene: path in Places' folder."""

    bird: Bird
    split: int
    kind: int
    scene: str


class KindCounts(NamedTuple):
    """Numbers of images of one class in one split."""

    aligned: int
    conflicting: int


SplitCounts = Mapping[int, Sequence[KindCounts]]  # split -> the counts of each class


def count_images(training: Sequence[int], test: Sequence[int], severity: float) -> SplitCounts:
    """Return how many images each split has of each class, aligned and conflicting.

    The share of conflicting images is `severity` percent in training and validation, and half in the test. training,
    test: CUB's images of each class. Each class is rounded by itself, as in the authors' program, which gives Lim et
    al.'s table 8 at a severity of 100 - confounder strength.
    """
    validating = [round(images * share) for images, share in zip(training, HELD_OUT, strict=True)]
    left = [images - held_out for images, held_out in zip(training, validating, strict=True)]
    shares = {TRAIN: severity, VALIDATION: severity, TEST: 50.0}
    images = {TRAIN: left, VALIDATION: validating, TEST: test}
    counts = {}
    for split in SPLITS:
        counts[split] = [_divide_by_severity(number, shares[split]) for number in images[split]]
    return counts


def assign(birds: Sequence[Bird], scenes: Sequence[Sequence[str]], severity: float, seed: int) -> list[Composed]:
    """Return every bird with its scene, in the order of `birds`. All draws follow from the seed.

    Splits and test images are the same at every severity, and a bird that conflicts at one severity conflicts at every
    larger one. No scene is used twice. Raises UsageError that names the cells with too few birds, or the kinds with too
    few scenes.
    """
    y, is_training = np.array([(bird.y, bird.is_training) for bird in birds], dtype=np.int64).reshape(-1, 2).T
    generator = np.random.default_rng([seed, *b"waterbirds"])
    order, shuffled = generator.permutation(len(birds)), [generator.permutation(len(images)) for images in scenes]
    training, test_images = (np.bincount(y[is_training == part], minlength=len(CLASSES)).tolist() for part in (1, 0))
    counts = count_images(training, test_images, severity)
    name = f"waterbirds_ac at {severity:g} %"
    _refuse_empty(name, counts)
    splits, kinds = np.full(len(birds), TRAIN), y.copy()
    for label in range(len(CLASSES)):
        rows = order[y[order] == label]
        test, rest = rows[is_training[rows] == 0], rows[is_training[rows] == 1]
        held_out = sum(counts[VALIDATION][label])
        for split, part in ((TEST, test), (VALIDATION, rest[:held_out]), (TRAIN, rest[held_out:])):
            splits[part] = split
            kinds[part[: counts[split][label].conflicting]] = 1 - label
    needed = np.bincount(kinds, minlength=len(KINDS)).tolist()
    available = {}
    for number, kind in enumerate(KINDS):
        available[f"{kind} ({' and '.join(CATEGORIES[number])})"] = len(scenes[number]), needed[number]
    refuse_too_few(name, available)
    scene_numbers = _deal_scenes(splits, kinds, shuffled)
    composed = []
    for bird, split, kind, number in zip(birds, splits.tolist(), kinds.tolist(), scene_numbers, strict=True):
        composed.append(Composed(bird, split, kind, scenes[kind][number]))
    return composed


def _deal_scenes(splits: np.ndarray, kinds: np.ndarray, shuffled: Sequence[np.ndarray]) -> np.ndarray:
    """Return the number of each bird's scene among those of its kind [N].

    The test is dealt first, so that its scenes do not depend on the severity.
    """
    dealt, order = np.empty(len(splits), dtype=np.int64), np.argsort(splits != TEST, kind="stable")
    for kind, scenes in enumerate(shuffled):
        rows = order[kinds[order] == kind]
        dealt[rows] = scenes[: len(rows)]
    return dealt


def _divide_by_severity(images: int, severity: float) -> KindCounts:
    """Divide images into aligned and conflicting ones, `severity` percent of them conflicting."""
    aligned = round(round((100 - severity) / 100 * images, 9))  # the inner round makes 2.4999999999 a half
    return KindCounts(aligned, images - aligned)


def _refuse_empty(name: str, counts: SplitCounts) -> None:
    """Raise UsageError if a split lacks a kind of images of a class: no score of it would be defined."""
    needs = {}
    for split, classes in counts.items():
        for label, (aligned, conflicting) in zip(CLASSES, classes, strict=True):
            needs[f"{ALIGNED} {SPLIT_NAMES[split]} {label}"] = aligned, 1
            needs[f"{CONFLICTING} {SPLIT_NAMES[split]} {label}"] = conflicting, 1
    refuse_too_few(name, needs)
