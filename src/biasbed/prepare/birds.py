"""What Waterbirds is composed of, and which bird comes on which place (Sagawa et al. 2020, appendix C.1).

CUB-200-2011 (Wah et al. 2011) with its segmentations, and four categories of Places365 (Zhou et al. 2017).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import numpy as np

from biasbed.data.listing import images_below, reading
from biasbed.datasets.base import OnDisk, resolve, some
from biasbed.datasets.biased import ALIGNED, CONFLICTING, refuse_too_few
from biasbed.errors import UsageError

CLASSES = ("landbird", "waterbird")
KINDS = ("land", "water")  # of place, in the order of the classes that they go with
SPLITS = TRAIN, VALIDATION, TEST = (0, 1, 2)  # as the table numbers them
SPLIT_WORDS = ("training", "validation", "test")
# In the name of a species, in any case. "Tern" is in Eastern Towhee, Western Meadowlark and Western Wood-Pewee, too:
# three birds of land that have been waterbirds in every published number.
WATERBIRDS = (
    *("albatross", "auklet", "cormorant", "frigatebird", "fulmar", "gull", "jaeger", "kittiwake", "pelican", "puffin"),
    *("tern", "gadwall", "grebe", "mallard", "merganser", "guillemot", "pacific_loon"),
)
# Of each class of CUB's training images, to validate: as many as in the published counts, a fifth of all.
HELD_OUT = (933 / 4_615, 266 / 1_379)
# Of each kind of place its categories, and the folders that these are in by the archive.
CATEGORIES: Sequence[Mapping[str, Sequence[str]]] = (
    {
        "bamboo_forest": ("b/bamboo_forest", "bamboo_forest"),
        "forest/broadleaf": ("f/forest/broadleaf", "forest-broadleaf", "forest/broadleaf"),
    },
    {"ocean": ("o/ocean", "ocean"), "lake/natural": ("l/lake/natural", "lake-natural", "lake/natural")},
)


class CUB(OnDisk):
    """CUB-200-2011's birds; segmentations, an archive of their own, are in their folder or beside it."""

    name = "cub"
    images = 11_788
    places = ("CUB_200_2011", "CUB_200_2011/CUB_200_2011", "cub/CUB_200_2011", "cub/data/CUB_200_2011", "cub")
    archives = ("CUB_200_2011.tgz", "CUB_200_2011.tar.gz")
    kind = "lists of images"
    licence = "images of others, for non-commercial research"
    source = "https://www.vision.caltech.edu/datasets/cub_200_2011"

    def _is_in(self, folder: Path) -> bool:
        return (folder / "images.txt").is_file()

    def birds(self, folder: Path) -> list[Bird]:
        """All birds by their numbers; UsageError where the lists can't be read, or don't fit each other."""
        paths, parts = _listed(folder / "images.txt"), _listed(folder / "train_test_split.txt")
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
        """The folder of the birds' masks; UsageError where there is none."""
        found = [place for place in (folder / "segmentations", folder.parent / "segmentations") if place.is_dir()]
        if not found:
            raise UsageError(
                f"there are no segmentations of the birds in {folder}: expected the folder segmentations there or "
                f"beside it; where to get it: {self.source}"
            )
        return found[0]


class Places(OnDisk):
    """Places365's training images, of which four categories are needed, in any of the layouts that are given out."""

    name = "places365"
    images = 0  # most categories have 5,000 images, some fewer
    places = (
        *("places365", "places", "places365_standard", "data_large", "data_large_standard", "data_256"),
        *("data_256_standard", "places365/data_large", "places365/data_large_standard", "places365/data_256"),
        *("places365/data_256_standard", "places365_standard/train", "places365/train", "places365/places365_standard"),
        "places365/places365_standard/train",
    )
    archives = ("train_large_places365standard.tar", "train_256_places365standard.tar")
    licence = "images of others, for non-commercial research"
    source = "http://places2.csail.mit.edu/download.html"

    def scenes(self, folder: Path) -> tuple[list[str], ...]:
        """Images of each kind of place, relative to the folder; UsageError where a category is not there."""
        found = []
        for categories in CATEGORIES:
            inner = [self._category(folder, name, places) for name, places in categories.items()]
            with reading():
                found.append([image for images in images_below(folder, inner) for image in images])
        return tuple(found)

    def _is_in(self, folder: Path) -> bool:
        every = (place for categories in CATEGORIES for places in categories.values() for place in places)
        return any(resolve(folder, place) is not None for place in every)

    def _category(self, folder: Path, name: str, places: Sequence[str]) -> str:
        with reading():
            inner = next(filter(None, (resolve(folder, place) for place in places)), None)
        if inner is None:
            self.refuse(folder, f"there is no folder of the category {name}: looked for {some(places)}")
        return inner.relative_to(folder).as_posix()


class Bird(NamedTuple):
    """One of CUB's images, whose path is relative to its folder `images`."""

    number: int
    image: str
    y: int
    is_training: bool


def label_of(image: str) -> int:
    """Class of the species in whose folder an image is."""
    species = image.split("/")[0].lower()
    return int(any(name in species for name in WATERBIRDS))


def located(data_set: OnDisk, option: str, given: str, data_dir: Path) -> Path:
    """The folder of what is composed, as an option gives it, else below data_dir; UsageError where it is not there."""
    if given == "auto":
        return data_set.folder(data_dir)
    root = Path(given).expanduser()
    found = root if root.is_dir() and data_set._is_in(root) else data_set.find(root) if root.is_dir() else None
    if found is None:
        raise UsageError(f"{option}={root}: '{data_set.name}' is not there; where to get it: {data_set.source}")
    return found


def _listed(path: Path) -> dict[int, str]:
    """Number -> word of each line; UsageError where the list can't be read or has another line."""
    found: dict[int, str] = {}
    try:
        for at, line in enumerate(path.read_text().splitlines(), 1):
            number, _, word = line.strip().partition(" ")
            if not line.strip():
                continue
            if not number.isdecimal() or not word or int(number) in found:
                raise UsageError(f"{path}, line {at}: expected a new image's number and a word, not '{line[:80]}'")
            found[int(number)] = word
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"can't read {path}: {getattr(error, 'strerror', None) or error}") from None
    return found


# --- which bird on which place ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Composed:
    """One image that is to be made. place: number of its kind; scene: the image of it, relative to Places' folder."""

    bird: Bird
    split: int
    place: int
    scene: str


Numbers = Mapping[int, Sequence[tuple[int, int]]]  # split -> of each class how many are aligned, and conflict


def numbers(training: Sequence[int], test: Sequence[int], severity: float) -> Numbers:
    """How many images each cell gets: those that train and validate as `severity` says, the test half and half.

    training, test: CUB's images of each class. severity: in percent. Each class is rounded by itself, as in the
    authors' program, which with a severity of 100 - confounder strength gives Lim et al.'s table 8.
    """
    validating = [round(images * share) for images, share in zip(training, HELD_OUT, strict=True)]
    left = [images - held_out for images, held_out in zip(training, validating, strict=True)]
    shares = {TRAIN: severity, VALIDATION: severity, TEST: 50.0}
    images = {TRAIN: left, VALIDATION: validating, TEST: test}
    return {split: [_parted(count, shares[split]) for count in images[split]] for split in SPLITS}


def planned(birds: Sequence[Bird], scenes: Sequence[Sequence[str]], severity: float, seed: int) -> list[Composed]:
    """Every bird with its place, by the birds' numbers; all that is drawn follows from the seed.

    Split and test are the same at every severity, and a bird that conflicts at one does so at every larger one. No
    scene is used twice. UsageError that names the cells with too few birds, or the kinds with too few places.
    """
    y, is_training = np.array([(bird.y, bird.is_training) for bird in birds], dtype=np.int64).reshape(-1, 2).T
    generator = np.random.default_rng([seed, *b"waterbirds"])
    order, drawn = generator.permutation(len(birds)), [generator.permutation(len(images)) for images in scenes]
    counts = [np.bincount(y[is_training == part], minlength=len(CLASSES)).tolist() for part in (1, 0)]
    cells = numbers(counts[0], counts[1], severity)
    _refuse_empty(cells, severity)
    split, place = np.full(len(birds), TRAIN), y.copy()
    for label in range(len(CLASSES)):
        own = order[y[order] == label]
        tested, others = own[is_training[own] == 0], own[is_training[own] == 1]
        held_out = sum(cells[VALIDATION][label])
        for part, rows in ((TEST, tested), (VALIDATION, others[:held_out]), (TRAIN, others[held_out:])):
            split[rows] = part
            place[rows[: cells[part][label][1]]] = 1 - label
    needed = np.bincount(place, minlength=len(KINDS)).tolist()
    there = {f"{kind} ({' and '.join(CATEGORIES[at])})": (len(scenes[at]), needed[at]) for at, kind in enumerate(KINDS)}
    refuse_too_few(_called(severity), there)
    scene = _dealt(split, place, drawn)
    return [
        Composed(bird, int(split[row]), int(place[row]), scenes[place[row]][scene[row]])
        for row, bird in enumerate(birds)
    ]


def _dealt(split: np.ndarray, place: np.ndarray, drawn: Sequence[np.ndarray]) -> np.ndarray:
    """For each bird the number of its scene among those of its kind [N]: the tested first, whatever the severity."""
    found, order = np.empty(len(split), dtype=np.int64), np.argsort(split != TEST, kind="stable")
    for kind, scenes in enumerate(drawn):
        rows = order[place[order] == kind]
        found[rows] = scenes[: len(rows)]
    return found


def _parted(images: int, severity: float) -> tuple[int, int]:
    """How many are aligned, and how many conflict."""
    aligned = round(round((100 - severity) / 100 * images, 9))  # what is half but for the last digits is half
    return aligned, images - aligned


def _refuse_empty(cells: Numbers, severity: float) -> None:
    refuse_too_few(_called(severity), dict(_least(cells)))


def _least(cells: Numbers) -> Iterator[tuple[str, tuple[int, int]]]:
    """Of each cell its name, its images, and that it needs one: else no score of it is defined."""
    for split, classes in cells.items():
        for name, images in zip(CLASSES, classes, strict=True):
            for kind, count in zip((ALIGNED, CONFLICTING), images, strict=True):
                yield f"{kind} {SPLIT_WORDS[split]} {name}", (count, 1)


def _called(severity: float) -> str:
    return f"waterbirds_ac at {severity:g} %"
