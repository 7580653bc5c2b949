"""Class lists of ImageNet and of its 16 categories, and classes in the file names of stimuli."""

from __future__ import annotations

import functools
import re
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple


@functools.cache
def imagenet_classes(subset: str = "") -> tuple[str, ...]:
    """Return the WordNet ids of ImageNet-1k, or of its 200-class subset `a` or `r`; an id's position is its label.

    Reads the lists in timm's package without importing it. The subsets are those of Hendrycks et al. 2021.
    """
    spec = find_spec("timm")
    assert spec is not None
    assert spec.origin is not None
    name = f"imagenet_{subset}_synsets.txt" if subset else "imagenet_synsets.txt"
    return tuple(sorted(Path(spec.origin).with_name("data").joinpath("_info", name).read_text().split()))


def is_wordnet_id(name: str) -> bool:
    """Return True for a name like `n01440764`."""
    return re.fullmatch(r"n\d{8}", name) is not None


# Geirhos et al. 2019: the ImageNet-1k classes (by sorted WordNet id) of each of 16 entry-level categories.
_RANGES: dict[str, str] = {
    "airplane": "404",
    "bear": "294-297",
    "bicycle": "444 671",
    "bird": "8 10-16 18-20 22-24 80-83 87-96 98-100 127-133 135-145",
    "boat": "472 554 625 814 914",
    "bottle": "440 720 737 898 899 901 907",
    "car": "436 511 817",
    "cat": "281-286",
    "chair": "423 559 765 857",
    "clock": "409 530 892",
    "dog": "152-191 193-203 205-226 228-241 243-250 252-257 259 261-263 265-268",
    "elephant": "385 386",
    "keyboard": "508 878",
    "knife": "499",
    "oven": "766",
    "truck": "555 569 656 675 717 734 864 867",
}


CATEGORIES_16 = tuple(_RANGES)


def expand_ranges(text: str) -> tuple[int, ...]:
    """Return the numbers of a text: 7, 8, 9, 10, 12 for `7-10 12`."""
    columns: list[int] = []
    for item in text.split():
        first, _, last = item.partition("-")
        columns += range(int(first), int(last or first) + 1)
    return tuple(columns)


_CUES = re.compile(r"(?P<shape>[a-z]+)\d+-(?P<texture>[a-z]+)\d+(?:\.[a-z]+)?")
# Name of a trial's image (Geirhos et al. 2019, 2021): trial, experiment, subject, condition, category, number, image.
_TRIAL = re.compile(r"\d+_[^_]+_[^_]+_[^_]+_[^_]+_[^_]+_(?P<image>.+)")


def image_name(name: str, folders: int = 0) -> str:
    """Return the name of a stimulus without folders and without the six fields that an experiment puts before it.

    `edge/dog/dog3.png` and `0004_edg_dnn_0_dog_00_dog3.png` are both `dog3.png`. folders: number of folders above the
    image that the name keeps.
    """
    *above, base = name.replace("\\", "/").split("/")
    match = _TRIAL.fullmatch(base)
    kept = above[max(0, len(above) - folders) :]
    return "/".join([*kept, match["image"] if match else base])


class CueClasses(NamedTuple):
    """Classes of the two cues in an image."""

    shape: str
    texture: str


def parse_cue_classes(name: str) -> CueClasses | None:
    """Parse the classes from a name like `.../airplane1-bicycle2.png`, with or without fields of an experiment.

    Returns None for other names.
    """
    match = _CUES.fullmatch(image_name(name))
    return CueClasses(match["shape"], match["texture"]) if match else None


@functools.cache
def wordnet_lemmas() -> dict[str, tuple[str, ...]]:
    """Return all lemmas of each synset of ImageNet by WordNet id. Reads the list in timm's package."""
    spec = find_spec("timm")
    assert spec is not None
    assert spec.origin is not None
    path = Path(spec.origin).with_name("data").joinpath("_info", "imagenet_synset_to_lemma.txt")
    names: dict[str, tuple[str, ...]] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        wordnet_id, _, lemmas = line.partition("\t")
        names[wordnet_id] = tuple(lemma.strip() for lemma in lemmas.split(","))
    return names
