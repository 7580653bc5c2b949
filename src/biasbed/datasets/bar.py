"""Biased Action Recognition (BAR: Nam, Cha, Ahn, Lee and Shin 2020): actions at their usual or at another place.

The folders `train` and `test` are flat; the class is the file's name before the last underscore. Images have no bias
labels, but all training images are aligned and all test images conflict. `bar` is the released division. `bar_ac` is
the Align-Conflict paper's division of the same images, with images of both kinds in each part.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from biasbed.data.folders import FolderSource, split
from biasbed.data.listing import images_below, report_unreadable, scan
from biasbed.datasets.base import Contents, OnDisk
from biasbed.datasets.biased import (
    ALIGNED,
    CONFLICTING,
    BiasedData,
    Division,
    DivisionRequest,
    interleave_classes,
    refuse_too_few,
)
from biasbed.errors import UsageError

CLASSES = ("climbing", "diving", "fishing", "pole vaulting", "racing", "throwing")
TRAIN, TEST = "train", "test"
SEVERITY = 5.0  # default, in percent
HELD_OUT = 0.1  # share of each class of the released training images that validates


class Bar(OnDisk, BiasedData):
    """Released division: 1,941 aligned images train, a tenth of which validates; 654 conflicting images test.

    No part has images of both kinds, so that the AC score is undefined and only the accuracy is measured.
    """

    name = "bar"
    version_of = "bar"
    bias_type = "place"

    def parts(self, data_dir: Path, request: DivisionRequest) -> Division:
        if request.severity is not None:
            raise UsageError(
                f"data.severity={request.severity:g}: the training images of '{self.name}' have none that conflict; "
                "leave it out, or train=bar_ac, which has some"
            )
        released = self._open_released(self.folder(data_dir))
        train, validation = split(released[TRAIN], HELD_OUT, request.seed, (self.name, f"{self.name}_val"))
        remark = f"'{self.name}' is trained and validated on aligned images and tested on conflicting ones: no AC score"
        return Division(train, validation, released[TEST], 0.0, is_drawn=True, remarks=(remark,))

    def contents(self, data_dir: Path) -> Contents:
        folder = self.folder(data_dir)
        released = self._open_released(folder)
        source = _open(folder, self.name, [*released[TRAIN].ids, *released[TEST].ids])
        remarks = []
        for part, kind in ((TRAIN, ALIGNED), (TEST, CONFLICTING)):
            per_class = zip(CLASSES, _count_classes(released[part]), strict=True)
            remarks.append(f"{kind} images in {part}: " + ", ".join(f"{name} {number:,}" for name, number in per_class))
        differences = self.release.compare_parts({part: len(released[part]) for part in (TRAIN, TEST)}).differences
        return Contents.from_source(source, folder, differences=differences, remarks=tuple(remarks))

    def _is_in(self, folder: Path) -> bool:
        return (folder / TRAIN).is_dir() and (folder / TEST).is_dir()

    def _open_released(self, folder: Path) -> dict[str, FolderSource]:
        """Open the images of both folders. Raises UsageError for an empty folder and for other file names."""
        sources = {}
        for part, name in ((TRAIN, self.name), (TEST, f"{self.name}_test")):
            with report_unreadable():
                inner, ids = scan(folder / part).folders, images_below(folder, [part])[0]
            if inner or not ids:
                self.refuse(folder, f"expected images in {part}/ itself, called <class>_<number>.jpg")
            sources[part] = _open(folder, name, ids)
            lacking = [CLASSES[label] for label in np.flatnonzero(_count_classes(sources[part]) == 0)]
            if lacking:
                self.refuse(folder, f"{part} has no images of {', '.join(lacking)}")
        return sources


@dataclass(frozen=True)
class Counts:
    """Numbers of images in the Align-Conflict paper's division at one severity, over all classes."""

    training: int  # conflicting; all remaining aligned images train too
    validation: int  # conflicting
    test: int  # of each kind


class BarSplit(Bar):
    """Align-Conflict paper's division (Lim et al. 2023, table 8), drawn by class because its files are not published.

    The released training images are the aligned ones: at every severity 168 validate and 1,493 train. The released test
    images are the conflicting ones. At 20 % only 198 of them, not 280, are left for the test, as the resolution of the
    published numbers shows; 82 aligned images are then in no part.
    """

    name = "bar_ac"
    tested_by_severity = True
    defaults: ClassVar[Mapping[str, Any]] = {"data.severity": SEVERITY}
    counts: ClassVar[Mapping[float, Counts]] = {1: Counts(13, 6, 280), 5: Counts(76, 7, 280), 20: Counts(370, 41, 198)}
    validating = 168  # aligned
    tested = 280  # aligned images that no severity trains or validates on

    def parts(self, data_dir: Path, request: DivisionRequest) -> Division:
        share = request.severity_among(self.counts, SEVERITY, self.name)
        folder, count = self.folder(data_dir), self.counts[share]
        released = self._open_released(folder)
        needed = count.training + count.validation + count.test
        refuse_too_few(self.name, {ALIGNED: (len(released[TRAIN]), self.release.parts[TRAIN])})
        refuse_too_few(f"{self.name} at {share:g} %", {CONFLICTING: (len(released[TEST]), needed)})
        generator = np.random.default_rng([request.seed, *b"bar_ac"])
        aligned = _divide(released[TRAIN].y, (self.tested, self.validating, len(released[TRAIN])), generator)
        conflicting = _divide(released[TEST].y, (count.test, count.validation, count.training), generator)
        test = _join(released, (aligned[0][: count.test], conflicting[0]), f"{self.name}_test")
        validation = _join(released, (aligned[1], conflicting[1]), f"{self.name}_val")
        train = _join(released, (aligned[2], conflicting[2]), self.name)
        return Division(replace(train, bias=None), validation, test, share, is_drawn=True)


def _open(folder: Path, name: str, ids: list[str]) -> FolderSource:
    """Open images with the classes in their names. Raises UsageError for other names."""
    labels = [identifier.split("/")[1].rpartition("_")[0] for identifier in ids]
    unknown = [identifier for identifier, label in zip(ids, labels, strict=True) if label not in CLASSES]
    if unknown:
        raise UsageError(f"{folder / unknown[0]}: expected <class>_<number>.jpg with one of {', '.join(CLASSES)}")
    y = np.array([CLASSES.index(label) for label in labels], dtype=np.int64)
    return FolderSource(name=name, classes=CLASSES, y=y, ids=ids, root=folder)


def _count_classes(source: FolderSource) -> np.ndarray:
    """Count the images of each class [K]."""
    return np.bincount(source.y, minlength=len(CLASSES))


def _divide(y: np.ndarray, counts: tuple[int, ...], generator: np.random.Generator) -> list[np.ndarray]:
    """Draw rows for a part per count; each part has the class shares of the images that the earlier parts leave."""
    parts, remaining = [], generator.permutation(len(y))
    for count in counts:
        order = interleave_classes(y, remaining)
        parts.append(order[:count])
        remaining = order[count:]
    return parts


def _join(released: Mapping[str, FolderSource], rows: tuple[np.ndarray, np.ndarray], name: str) -> FolderSource:
    """Join aligned and conflicting images in the order of their names, with bias labels. rows: of either kind.

    It is unknown which class the place of a conflicting image suggests: the next class stands for all others.
    """
    aligned, conflicting = released[TRAIN].subset(rows[0], name), released[TEST].subset(rows[1], name)
    y = np.concatenate([aligned.y, conflicting.y])
    bias = np.concatenate([aligned.y, (conflicting.y + 1) % len(CLASSES)])
    ids = [*aligned.ids, *conflicting.ids]
    order = np.array(sorted(range(len(ids)), key=ids.__getitem__))
    chosen = [ids[row] for row in order]
    return FolderSource(name=name, classes=CLASSES, y=y[order], bias=bias[order], ids=chosen, root=aligned.root)
