"""Biased actions (BAR: Nam, Cha, Ahn, Lee and Shin 2020): an action, photographed at its usual or at another place.

Flat folders `train` and `test`; the class is the file's name before the last underscore. No image has a bias label, but
training images are aligned and test images conflicting throughout. `bar` is that, as released. `bar_ac` is the
Align-Conflict paper's division of the same images, with images of both kinds in each part: they are two data sets.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from biasbed.data.folders import FolderSource, split
from biasbed.data.listing import images_below, reading, scan
from biasbed.datasets.base import Contents, OnDisk
from biasbed.datasets.biased import ALIGNED, CONFLICTING, BiasedData, Division, Wanted, in_turn, short
from biasbed.errors import UsageError

CLASSES = ("climbing", "diving", "fishing", "pole vaulting", "racing", "throwing")
TRAIN, TEST = "train", "test"
SEVERITY = 5.0  # percent, of the division unless told otherwise
HELD_OUT = 0.1  # of each class of the released training images, to validate


class Bar(OnDisk, BiasedData):
    """As released: trained on 1,941 aligned images, of which a tenth validates, tested on 654 conflicting ones.

    Neither part has images of both kinds, so that no AC score is defined: accuracy is all that is measured.
    """

    name = "bar"
    version_of = "bar"
    bias_type = "place"
    images = 2_595
    places = ("BAR", "bar/BAR")
    archives = ("BAR.zip", "BAR.tar.gz")
    kind = "flat train and test"
    licence = "images of others, for research"
    source = "https://github.com/alinlab/BAR"
    released: ClassVar[Mapping[str, int]] = {TRAIN: 1_941, TEST: 654}

    @property
    def num_classes(self) -> int:
        return len(CLASSES)

    def parts(self, data_dir: Path, wanted: Wanted) -> Division:
        if wanted.severity is not None:
            raise UsageError(
                f"data.severity={wanted.severity:g}: the training images of '{self.name}' have none that conflict; "
                "leave it out, or train=bar_ac, which has some"
            )
        found = self._released(self.folder(data_dir))
        train, validation = split(found[TRAIN], HELD_OUT, wanted.seed, (self.name, f"{self.name}_val"))
        remark = f"'{self.name}' is trained and validated on aligned images and tested on conflicting ones: no AC score"
        return Division(train, validation, found[TEST], 0.0, is_drawn=True, remarks=(remark,))

    def contents(self, data_dir: Path) -> Contents:
        folder = self.folder(data_dir)
        found = self._released(folder)
        whole = _opened(folder, self.name, [*found[TRAIN].ids, *found[TEST].ids])
        counts = {part: len(source) for part, source in found.items()}
        differences = tuple(
            f"{part} has {count:,} images; the release has {self.released[part]:,}"
            for part, count in counts.items()
            if count != self.released[part]
        )
        remarks = tuple(
            f"{kind} images in {part}: "
            + ", ".join(f"{c} {n:,}" for c, n in zip(CLASSES, _counted(found[part]), strict=True))
            for part, kind in ((TRAIN, ALIGNED), (TEST, CONFLICTING))
        )
        return Contents(
            folder, whole.ids, len(whole), whole.num_labels, whole.fingerprint, differences=differences, remarks=remarks
        )

    def _is_in(self, folder: Path) -> bool:
        return (folder / TRAIN).is_dir() and (folder / TEST).is_dir()

    def _released(self, folder: Path) -> dict[str, FolderSource]:
        """The images of both folders; UsageError for one that has none, or a file that is called otherwise."""
        found = {}
        for part, name in ((TRAIN, self.name), (TEST, f"{self.name}_test")):
            with reading():
                inner, ids = scan(folder / part)[0], images_below(folder, [part])[0]
            if inner or not ids:
                self.refuse(folder, f"expected images in {part}/ itself, called <class>_<number>.jpg")
            found[part] = _opened(folder, name, ids)
            lacking = [CLASSES[c] for c in np.flatnonzero(_counted(found[part]) == 0)]
            if lacking:
                self.refuse(folder, f"{part} has no images of {', '.join(lacking)}")
        return found


@dataclass(frozen=True)
class Counts:
    """Images of the Align-Conflict paper's division at one severity, of all classes together."""

    training: int  # conflicting; all aligned ones that are left train
    validation: int  # conflicting
    test: int  # of each kind


class BarSplit(Bar):
    """The Align-Conflict paper's division (Lim et al. 2023, table 8), drawn by class: its files are not published.

    Aligned images are the released training images, 168 of them to validate and 1,493 to train at every severity;
    conflicting ones the released test images. At 20 % as few are left for the test as are published numbers' grain:
    198, not 280, so that 82 aligned images are in no part there.
    """

    name = "bar_ac"
    tested_by_severity = True
    defaults: ClassVar[Mapping[str, Any]] = {"data.severity": SEVERITY}
    counts: ClassVar[Mapping[float, Counts]] = {1: Counts(13, 6, 280), 5: Counts(76, 7, 280), 20: Counts(370, 41, 198)}
    validating = 168  # aligned
    tested = 280  # aligned images that no severity trains or validates on

    def parts(self, data_dir: Path, wanted: Wanted) -> Division:
        share = wanted.severity_or(SEVERITY)
        if share not in self.counts:
            known = ", ".join(f"{value:g}" for value in self.counts)
            raise UsageError(
                f"data.severity={share:g}: '{self.name}' is divided at {known} % only: at others it is not said which "
                f"of its {self.released[TEST]} conflicting images train and which test"
            )
        folder, count = self.folder(data_dir), self.counts[share]
        found = self._released(folder)
        conflicting = count.training + count.validation + count.test
        short(self.name, {ALIGNED: (len(found[TRAIN]), self.released[TRAIN])})
        short(f"{self.name} at {share:g} %", {CONFLICTING: (len(found[TEST]), conflicting)})
        generator = np.random.default_rng([wanted.seed, *b"bar_ac"])
        aligned = _divided(found[TRAIN].y, (self.tested, self.validating, len(found[TRAIN])), generator)
        other = _divided(found[TEST].y, (count.test, count.validation, count.training), generator)
        test, validation, train = (
            _joined(found, (of_aligned, of_other), name)
            for of_aligned, of_other, name in zip(
                (aligned[0][: count.test], *aligned[1:]),
                other,
                (f"{self.name}_test", f"{self.name}_val", self.name),
                strict=True,
            )
        )
        return Division(replace(train, bias=None), validation, test, share, is_drawn=True)


def _opened(folder: Path, name: str, ids: list[str]) -> FolderSource:
    """Images with the classes of their names; UsageError for another name."""
    labels = [identifier.split("/")[1].rpartition("_")[0] for identifier in ids]
    unknown = [identifier for identifier, label in zip(ids, labels, strict=True) if label not in CLASSES]
    if unknown:
        raise UsageError(f"{folder / unknown[0]}: expected <class>_<number>.jpg with one of {', '.join(CLASSES)}")
    y = np.array([CLASSES.index(label) for label in labels], dtype=np.int64)
    return FolderSource(name=name, classes=CLASSES, y=y, ids=ids, root=folder)


def _counted(source: FolderSource) -> np.ndarray:
    """Images of each class [K]."""
    return np.bincount(source.y, minlength=len(CLASSES))


def _divided(y: np.ndarray, counts: tuple[int, ...], generator: np.random.Generator) -> list[np.ndarray]:
    """Rows of as many parts as there are counts, each with the shares of classes of what is left for it."""
    return list(_parts(y, generator.permutation(len(y)), counts))


def _parts(y: np.ndarray, left: np.ndarray, counts: tuple[int, ...]) -> Iterator[np.ndarray]:
    for count in counts:
        order = in_turn(y, left)
        yield order[:count]
        left = order[count:]


def _joined(found: Mapping[str, FolderSource], rows: tuple[np.ndarray, np.ndarray], name: str) -> FolderSource:
    """Aligned images and conflicting ones in the order of their names, with whether they conflict as bias.

    Which class a conflicting image's place suggests is not known: the next one stands for all that are not its own.
    """
    aligned, other = (found[part].subset(of, name) for part, of in zip((TRAIN, TEST), rows, strict=True))
    y = np.concatenate([aligned.y, other.y])
    bias = np.concatenate([aligned.y, (other.y + 1) % len(CLASSES)])
    ids = [*aligned.ids, *other.ids]
    order = np.array(sorted(range(len(ids)), key=ids.__getitem__))
    chosen = [ids[row] for row in order]
    return FolderSource(name=name, classes=CLASSES, y=y[order], bias=bias[order], ids=chosen, root=aligned.root)
