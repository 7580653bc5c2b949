"""BFFHQ: faces whose age mostly agrees with the gender (Kim, Lee and Choo 2021), as released or composed from FFHQ.

The class is young or old, the bias is the gender: young women and old men are aligned.
"""

from __future__ import annotations

import itertools
import posixpath
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np

from biasbed.data.folders import FolderSource
from biasbed.data.listing import images_below, report_unreadable, scan
from biasbed.datasets.base import Contents, OnDisk
from biasbed.datasets.biased import (
    ALIGNED,
    CONFLICTING,
    BiasedData,
    Division,
    DivisionRequest,
    describe_counts,
    number_of_conflicting,
    refuse_too_few,
)
from biasbed.datasets.metadata_csv import TableSource, check_files
from biasbed.errors import UsageError
from biasbed.system.csv_tables import read_rows

CLASSES = ("young", "old")
AGES: Mapping[str, tuple[int, int]] = {"young": (10, 29), "old": (40, 59)}  # in years; other ages are in no class
GENDERS: Mapping[str, int] = {"female": 0, "male": 1}  # class that each gender agrees with
SEVERITY = 0.5  # default in percent, as in the authors' first experiment
TRAIN, VALIDATION, TEST = "train", "val", "test"
NAMED = re.compile(r"_([01])_([01])\.\w+$")  # the end of an author's file: class and bias


class BFFHQ(OnDisk, BiasedData):
    """Released BFFHQ: folders `<severity>pct/{align,conflict}/<class>/` for training, and `valid/` and `test/`.

    Labels are the last two numbers of a file's name.
    """

    name = "bffhq"
    version_of = "bffhq"
    bias_type = "gender"
    defaults: ClassVar[Mapping[str, Any]] = {"data.severity": SEVERITY}

    def parts(self, data_dir: Path, request: DivisionRequest) -> Division:
        folder = self.folder(data_dir)
        folders = self._find_severities(folder)
        share = request.severity_among(folders, SEVERITY, self.name)
        train = self._open_part(folder, folders[share], self.name)
        validation, test = (self._open_part(folder, part, f"{self.name}_{name}") for part, name in _BESIDE.items())
        return Division(train, validation, test, share)

    def contents(self, data_dir: Path) -> Contents:
        folder = self.folder(data_dir)
        folders = (*self._find_severities(folder).values(), *_BESIDE)
        parts = {part: self._open_part(folder, part, part) for part in folders}
        ids = itertools.chain.from_iterable(source.ids for source in parts.values())
        source = _open_named(folder, self.name, list(ids))
        remarks = tuple(f"{part} has {describe_counts(source_of_part)}" for part, source_of_part in parts.items())
        return Contents.from_source(source, folder, remarks=remarks)

    def _is_in(self, folder: Path) -> bool:
        return bool(self._find_severities(folder))

    def _find_severities(self, folder: Path) -> dict[float, str]:
        """Return the folder of each severity in percent, in order."""
        with report_unreadable():
            matches = [re.fullmatch(r"(\d+(?:\.\d+)?)pct", name) for name in scan(folder).folders]
        return dict(sorted((float(match[1]), match[0]) for match in matches if match))

    def _open_part(self, folder: Path, part: str, name: str) -> FolderSource:
        """Open the images below a folder. Raises UsageError if there are none, or if a name contradicts its folder."""
        if not (folder / part).is_dir():
            self.refuse(folder, f"there is no folder {part}/")
        with report_unreadable():
            ids = images_below(folder, [part])[0]
        if not ids:
            self.refuse(folder, f"no images below {part}/")
        source = _open_named(folder, name, ids)
        assert source.bias is not None
        for identifier, is_aligned in zip(ids, (source.bias == source.y).tolist(), strict=True):
            if identifier.split("/")[1] == ("conflict" if is_aligned else "align"):
                self.refuse(folder, f"{identifier} is {ALIGNED if is_aligned else CONFLICTING} by its name")
        return source


_BESIDE = {"valid": VALIDATION, "test": TEST}


def _open_named(folder: Path, name: str, ids: list[str]) -> FolderSource:
    """Open images with the labels in their names. Raises UsageError for other names."""
    matches = [NAMED.search(identifier) for identifier in ids]
    labels = [(int(match[1]), int(match[2])) for match in matches if match]
    if len(labels) < len(ids):
        wrong = ids[matches.index(None)]
        raise UsageError(f"{folder / wrong}: expected a name that ends in _<class>_<bias>, each 0 or 1")
    y, bias = np.array(labels, dtype=np.int64).T
    return FolderSource(name=name, classes=CLASSES, y=y, bias=bias, ids=ids, root=folder)


@dataclass(frozen=True)
class Sizes:
    """Number of images of each class in each part; half of the test images conflict."""

    train: int = 9_000
    validation: int = 1_000
    test: int = 1_000


class LabelledFace(NamedTuple):
    """Face of a table. label, bias: positions in `CLASSES`."""

    image: str  # path below the folder
    label: int
    bias: int


class ComposedBFFHQ(OnDisk, BiasedData):
    """Align-Conflict paper's composition of FFHQ's images (Lim et al. 2023), by a table of image, age and gender.

    18,000 images train, 2,000 validate at the same severity, and 2,000 test, of which half conflict.
    """

    name = "bffhq_ac"
    version_of = "bffhq"
    bias_type = "gender"
    file = "attributes.csv"
    defaults: ClassVar[Mapping[str, Any]] = {"data.severity": SEVERITY}
    sizes = Sizes()

    def parts(self, data_dir: Path, request: DivisionRequest) -> Division:
        share = request.severity_or(SEVERITY)
        source = self._open_all(self.folder(data_dir))
        rows = self._draw_parts(source, share, np.random.default_rng([request.seed, *b"bffhq"]))
        train = source.subset(rows[TRAIN], self.name)
        validation = source.subset(rows[VALIDATION], f"{self.name}_val")
        test = source.subset(rows[TEST], f"{self.name}_test")
        return Division(train, validation, test, share, is_drawn=True)

    def contents(self, data_dir: Path) -> Contents:
        source = self._open_all(self.folder(data_dir))
        return Contents.from_source(source, source.root, remarks=(f"has {describe_counts(source)}",))

    def _is_in(self, folder: Path) -> bool:
        return (folder / self.file).is_file()

    def _draw_parts(self, source: FolderSource, share: float, generator: np.random.Generator) -> dict[str, np.ndarray]:
        """Draw the rows of each part, sorted. Raises UsageError, which names the groups with too few images.

        The test is drawn first, so that it is the same at every severity.
        """
        assert source.bias is not None
        sizes = self.sizes
        totals = {TEST: sizes.test, VALIDATION: sizes.validation, TRAIN: sizes.train}
        conflicting = {
            TEST: sizes.test // 2,
            VALIDATION: number_of_conflicting(share, sizes.validation),
            TRAIN: number_of_conflicting(share, sizes.train),
        }
        aligned = {part: totals[part] - conflicting[part] for part in totals}
        rows: dict[str, list[np.ndarray]] = {part: [] for part in totals}
        images: dict[str, tuple[int, int]] = {}  # available and needed, by group
        for y, label in enumerate(CLASSES):
            for kind, counts in ((ALIGNED, aligned), (CONFLICTING, conflicting)):
                members = np.flatnonzero((source.y == y) & ((source.bias == y) == (kind == ALIGNED)))
                order = generator.permutation(members)
                images[f"{label} {kind}"] = len(members), sum(counts.values())
                for part, count in counts.items():
                    rows[part].append(order[:count])
                    order = order[count:]
        refuse_too_few(f"{self.name} at {share:g} %", images)
        return {part: np.sort(np.concatenate(groups)) for part, groups in rows.items()}

    def _open_all(self, folder: Path) -> TableSource:
        """Open all images of the two classes. Raises UsageError if the table is wrong or a file is missing."""
        faces = sorted(face._replace(image=posixpath.normpath(face.image)) for face in self._read_faces(folder))
        ids = [face.image for face in faces]
        if not faces:
            ages = " or ".join(f"{low} to {high} years" for low, high in AGES.values())
            raise UsageError(f"{folder / self.file} has nobody of {ages}")
        check_files(folder, self.file, ids)
        y, bias = np.array([(face.label, face.bias) for face in faces], dtype=np.int64).T
        return TableSource(name=self.name, classes=CLASSES, y=y, bias=bias, ids=ids, root=folder)

    def _read_faces(self, folder: Path) -> Iterator[LabelledFace]:
        """Yield the faces whose age belongs to a class."""
        for line, row in read_rows(folder / self.file, ("image", "age", "gender")):
            try:
                age, gender = int(float(row["age"])), GENDERS[row["gender"].lower()]
            except (KeyError, ValueError, OverflowError):
                raise UsageError(
                    f"{folder / self.file}, line {line}: expected an age in years and {' or '.join(GENDERS)}, not "
                    f"'{row['age']}' and '{row['gender']}'"
                ) from None
            for number, label in enumerate(CLASSES):
                if AGES[label][0] <= age <= AGES[label][1]:
                    yield LabelledFace(row["image"], number, gender)
