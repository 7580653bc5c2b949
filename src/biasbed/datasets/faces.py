"""BFFHQ: faces whose age goes with gender (Kim, Lee and Choo 2021): the authors' files, or composed from FFHQ's.

The class is young or old, the bias the gender: young women and old men are aligned.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from biasbed.data.folders import FolderSource
from biasbed.data.listing import images_below, reading, scan
from biasbed.datasets.base import Contents, OnDisk, some
from biasbed.datasets.biased import (
    ALIGNED,
    CONFLICTING,
    BiasedData,
    Division,
    Wanted,
    counted,
    number_of_conflicting,
    short,
)
from biasbed.datasets.tables import TableSource, check_files
from biasbed.errors import UsageError
from biasbed.system.tables import read_rows

CLASSES = ("young", "old")
AGES: Mapping[str, tuple[int, int]] = {"young": (10, 29), "old": (40, 59)}  # in years; all others are in no class
GENDERS: Mapping[str, int] = {"female": 0, "male": 1}  # the class that each goes with
SEVERITY = 0.5  # percent, of the authors' first experiment
TRAIN, VALIDATION, TEST = "train", "val", "test"
NAMED = re.compile(r"_([01])_([01])\.\w+$")  # the end of an author's file: class and bias


class BFFHQ(OnDisk, BiasedData):
    """The authors' folders: `<severity>pct/{align,conflict}/<class>/` to train on, `valid/` and `test/` beside them.

    Labels are the last two numbers of a file's name.
    """

    name = "bffhq"
    version_of = "bffhq"
    bias_type = "gender"
    images = 0  # how many severities somebody has is open
    places = ("bffhq", "BFFHQ/bffhq")
    archives = ("bffhq.zip",)
    kind = "folders by severity"
    licence = "FFHQ's: CC BY-NC-SA 4.0"
    source = "https://github.com/kakaoenterprise/Learning-Debiased-Disentangled"
    defaults: ClassVar[Mapping[str, Any]] = {"data.severity": SEVERITY}

    @property
    def num_classes(self) -> int:
        return len(CLASSES)

    def parts(self, data_dir: Path, wanted: Wanted) -> Division:
        folder, share = self.folder(data_dir), wanted.severity_or(SEVERITY)
        there = self._severities(folder)
        if share not in there:
            known = ", ".join(f"{value:g}" for value in there)
            raise UsageError(f"data.severity={share:g}: {folder} has {known} % only, each in a folder <percent>pct")
        train = self._part(folder, there[share], self.name)
        validation, test = (self._part(folder, part, f"{self.name}_{name}") for part, name in _BESIDE.items())
        return Division(train, validation, test, share)

    def contents(self, data_dir: Path) -> Contents:
        folder = self.folder(data_dir)
        parts = {part: self._part(folder, part, part) for part in (*self._severities(folder).values(), *_BESIDE)}
        whole = _source(folder, self.name, [i for source in parts.values() for i in source.ids])
        remarks = tuple(f"{part} has {counted(source)}" for part, source in parts.items())
        return Contents(folder, whole.ids, len(whole), whole.num_labels, whole.fingerprint, remarks=remarks)

    def _is_in(self, folder: Path) -> bool:
        return bool(self._severities(folder))

    def _severities(self, folder: Path) -> dict[float, str]:
        """Percent -> its folder, in order."""
        with reading():
            matches = (re.fullmatch(r"(\d+(?:\.\d+)?)pct", name) for name in scan(folder)[0])
        return dict(sorted((float(found[1]), found[0]) for found in matches if found))

    def _part(self, folder: Path, part: str, name: str) -> FolderSource:
        """Images below one folder; UsageError where there are none, or where name and folder disagree."""
        if not (folder / part).is_dir():
            self.refuse(folder, f"there is no folder {part}/")
        with reading():
            ids = images_below(folder, [part])[0]
        if not ids:
            self.refuse(folder, f"no images below {part}/")
        source = _source(folder, name, ids)
        assert source.bias is not None
        for identifier, is_aligned in zip(ids, (source.bias == source.y).tolist(), strict=True):
            if identifier.split("/")[1] == ("conflict" if is_aligned else "align"):
                self.refuse(folder, f"{identifier} is {ALIGNED if is_aligned else CONFLICTING} by its name")
        return source


_BESIDE = {"valid": VALIDATION, "test": TEST}


def _source(folder: Path, name: str, ids: list[str]) -> FolderSource:
    """Images with the labels of their names; UsageError for another name."""
    found = [NAMED.search(identifier) for identifier in ids]
    labels = [(int(match[1]), int(match[2])) for match in found if match]
    if len(labels) < len(ids):
        wrong = ids[found.index(None)]
        raise UsageError(f"{folder / wrong}: expected a name that ends in _<class>_<bias>, each 0 or 1")
    y, bias = np.array(labels, dtype=np.int64).T
    return FolderSource(name=name, classes=CLASSES, y=y, bias=bias, ids=ids, root=folder)


@dataclass(frozen=True)
class Sizes:
    """Images of each class in each part; half of the test's are conflicting."""

    train: int = 9_000
    validation: int = 1_000
    test: int = 1_000


class ComposedBFFHQ(OnDisk, BiasedData):
    """The Align-Conflict paper's composition, from FFHQ's images and a table `attributes.csv` of image, age and gender.

    18,000 images train, 2,000 validate at the same severity, 2,000 test, of which half conflict (Lim et al. 2023).
    """

    name = "bffhq_ac"
    version_of = "bffhq"
    bias_type = "gender"
    images = 0  # only those of the ages are used
    places = ("ffhq", "FFHQ/images1024x1024", "ffhq-dataset")
    kind = "images with a table"
    file = "attributes.csv"
    licence = "CC BY-NC-SA 4.0"
    source = "https://github.com/NVlabs/ffhq-dataset, with a table of ages and genders of your own"
    defaults: ClassVar[Mapping[str, Any]] = {"data.severity": SEVERITY}
    sizes = Sizes()

    @property
    def num_classes(self) -> int:
        return len(CLASSES)

    def parts(self, data_dir: Path, wanted: Wanted) -> Division:
        share = wanted.severity_or(SEVERITY)
        whole = self._whole(self.folder(data_dir))
        rows = self._drawn(whole, share, np.random.default_rng([wanted.seed, *b"bffhq"]))
        named = {TRAIN: self.name, VALIDATION: f"{self.name}_val", TEST: f"{self.name}_test"}
        train, validation, test = (whole.subset(np.sort(np.concatenate(rows[part])), named[part]) for part in named)
        return Division(train, validation, test, share, is_drawn=True)

    def contents(self, data_dir: Path) -> Contents:
        whole = self._whole(self.folder(data_dir))
        return Contents(
            whole.root, whole.ids, len(whole), whole.num_labels, whole.fingerprint, remarks=(f"has {counted(whole)}",)
        )

    def _is_in(self, folder: Path) -> bool:
        return (folder / self.file).is_file()

    def _drawn(self, whole: FolderSource, share: float, generator: np.random.Generator) -> dict[str, list[np.ndarray]]:
        """Rows of each part, of cell after cell; UsageError that names the cells with too few images.

        The test comes first, so that it is the same at every severity.
        """
        assert whole.bias is not None
        sizes = self.sizes
        conflicting = {
            **{TEST: sizes.test // 2, VALIDATION: number_of_conflicting(share, sizes.validation)},
            TRAIN: number_of_conflicting(share, sizes.train),
        }
        totals = {TEST: sizes.test, VALIDATION: sizes.validation, TRAIN: sizes.train}
        cells: dict[str, tuple[np.ndarray, list[int]]] = {}
        for y, label in enumerate(CLASSES):
            for kind in (ALIGNED, CONFLICTING):
                own = np.flatnonzero((whole.y == y) & ((whole.bias == y) == (kind == ALIGNED)))
                counts = [n if kind == CONFLICTING else totals[part] - n for part, n in conflicting.items()]
                cells[f"{label} {kind}"] = generator.permutation(own), counts
        short(f"{self.name} at {share:g} %", {cell: (len(own), sum(n)) for cell, (own, n) in cells.items()})
        divided = [np.split(own[: sum(n)], np.cumsum(n)[:-1]) for own, n in cells.values()]
        return dict(zip(conflicting, map(list, zip(*divided, strict=True)), strict=True))

    def _whole(self, folder: Path) -> TableSource:
        """All images of the two classes; UsageError where the table is wrong or a file is missing."""
        found = sorted((posixpath.normpath(name), y, bias) for name, y, bias in self._rows(folder))
        ids = [identifier for identifier, _, _ in found]
        if not found:
            raise UsageError(f"{folder / self.file} has nobody of {_AGES}")
        check_files(folder, self.file, ids)
        y, bias = np.array([labels for _, *labels in found], dtype=np.int64).T
        return TableSource(name=self.name, classes=CLASSES, y=y, bias=bias, ids=ids, root=folder)

    def _rows(self, folder: Path) -> Iterator[tuple[str, int, int]]:
        """(image, class, bias) of those whose age is one of a class."""
        for line, row in read_rows(folder / self.file, ("image", "age", "gender")):
            where, gender = f"{folder / self.file}, line {line}", row["gender"].lower()
            if gender not in GENDERS:
                raise UsageError(f"{where}: unknown gender '{row['gender']}': expected {some(list(GENDERS))}")
            try:
                age = int(float(row["age"]))
            except (ValueError, OverflowError):
                raise UsageError(f"{where}: expected an age in years, not '{row['age']}'") from None
            for number, label in enumerate(CLASSES):
                if AGES[label][0] <= age <= AGES[label][1]:
                    yield row["image"], number, GENDERS[gender]


_AGES = " or ".join(f"{low} to {high} years" for low, high in AGES.values())
