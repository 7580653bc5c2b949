"""Biased data sets: training images with a second attribute, the bias, that nearly always agrees with the class.

An image is *aligned* if its bias value is that of its class, and *conflicting* otherwise. A bias value has the number
of the class that it suggests, so that aligned images have `bias == y`. The *severity* is the percentage of conflicting
images among the training images.
"""

from __future__ import annotations

import csv
import io
import itertools
import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, TypeVar

import numpy as np

from biasbed import record
from biasbed.data.source import Source
from biasbed.datasets.base import DataSetRegistry
from biasbed.errors import UsageError

DATA_SETS = DataSetRegistry(
    {
        "figures": "biasbed.datasets.figures:Figures",
        "colored_mnist_10": "biasbed.datasets.colored_mnist:ColoredMNIST10",
        "corrupted_cifar10": "biasbed.datasets.corrupted_cifar10:CorruptedCIFAR10",
        "corrupted_cifar10_type1": "biasbed.datasets.corrupted_cifar10:CorruptedCIFAR10Type1",
        "waterbirds": "biasbed.datasets.metadata_csv:Waterbirds",
        "celeba": "biasbed.datasets.metadata_csv:CelebA",
        "bffhq": "biasbed.datasets.faces:BFFHQ",
        "bffhq_ac": "biasbed.datasets.faces:ComposedBFFHQ",
        "bar": "biasbed.datasets.bar:Bar",
        "bar_ac": "biasbed.datasets.bar:BarSplit",
    },
    user_class="biasbed.datasets.metadata_csv:OwnTable",
    offered_as="biased",
    aliases={
        **{"coloredmnist": "colored_mnist_10", "corruptedcifar10type0": "corrupted_cifar10"},
        **{"cifar10c0": "corrupted_cifar10", "cifar10c1": "corrupted_cifar10_type1"},
    },
)
ALIGNED, CONFLICTING = "aligned", "conflicting"
HALF = "validation_half"  # name of validation images that were moved to training
COLOUR_NOISE = 0.05
CORRUPTION = 5  # severity of corruptions, which Nam et al. 2020 count from 0 as 4
HELD_OUT = 10  # one image in so many validates, if the files have no validation images
S = TypeVar("S", bound=Source)


@dataclass(frozen=True)
class DivisionRequest:
    """Settings of a division into training, validation and test images."""

    severity: float | None  # percentage of conflicting images in training and validation; None for the default
    seed: int  # of all draws
    image_size: int  # of computed images, in pixels
    colour_noise: float = COLOUR_NOISE  # standard deviation of the colours of images that are coloured here
    corruption: int = CORRUPTION  # severity of the corruptions that go with classes
    frost: Path = Path("frost")  # folder of frost's photographs, which may be missing
    prepare: Callable[[str], str] = "biasbed prepare --what {}".format  # returns the command that prepares a product

    def severity_or(self, usual: float) -> float:
        """Return the severity in percent, by default `usual`."""
        return usual if self.severity is None else self.severity

    def severity_among(self, available: Collection[float], usual: float, name: str) -> float:
        """Return the severity in percent, by default `usual`.

        available: those that the data set `name` comes in. Raises UsageError for any other.
        """
        severity = self.severity_or(usual)
        if severity not in available:
            severities = ", ".join(f"{value:g}" for value in available)
            raise UsageError(f"data.severity={severity:g}: '{name}' is there at {severities} % only")
        return severity


@dataclass(frozen=True, eq=False)
class Division:
    """Training, validation and test images of a data set, with their bias labels if these are known.

    Validation and test either both have bias labels or both have none.
    """

    train: Source
    validation: Source
    test: Source
    severity: float  # of the training images, in percent
    is_drawn: bool = False  # True if the seed divides the files, so that the division is recorded
    remarks: tuple[str, ...] = ()  # messages to the user
    validation_half: Source | None = None  # validation images that were moved to training (`halve_validation`)

    def listing(self) -> str:
        """Return a CSV table of all images: image, class, split and, if it is known, alignment."""
        text = io.StringIO()
        table = csv.writer(text, lineterminator="\n")
        table.writerow(["image", "class", "split", "alignment"])
        parts = {"train": self.train, "val": self.validation, "test": self.test, HALF: self.validation_half}
        for split, source in parts.items():
            if source is None:
                continue
            alignments = [""] * len(source)
            if source.bias is not None:
                alignments = np.where(source.bias == source.y, ALIGNED, CONFLICTING).tolist()
            labels = [source.classes[label] for label in source.y]
            table.writerows(zip(source.ids, labels, [split] * len(source), alignments, strict=True))
        return text.getvalue()


class BiasedData:
    """Contract of a data set with a bias; a data set in files is a subclass of `OnDisk` too.

    defaults: settings that go with its images, by dotted name. bias_type: kind of the bias, e.g. background.
    is_coloured: True if its images are coloured here, with noise. is_corrupted: True if they are corrupted here.
    tested_by_severity: True if the number of test images depends on the severity. version_of: common name of data sets
    that are made of the same images.
    """

    name: str
    bias_type: str
    is_coloured: ClassVar[bool] = False
    is_corrupted: ClassVar[bool] = False
    tested_by_severity: ClassVar[bool] = False
    version_of: ClassVar[str] = ""
    defaults: ClassVar[Mapping[str, Any]] = {}

    def parts(self, data_dir: Path, request: DivisionRequest) -> Division:
        """Divide the images into the three parts. Raises UsageError if images are missing or don't fit the request."""
        raise NotImplementedError


def halve_validation(parts: Division, seed: int) -> Division:
    """Move half of the validation images of each class and bias value to `validation_half`; the odd one stays."""
    source = parts.validation
    order = np.random.default_rng([seed, *HALF.encode()]).permutation(len(source))
    labels = source.y[order] if source.bias is None else np.stack([source.y, source.bias], axis=1)[order]
    group = np.unique(labels, axis=0, return_inverse=True)[1]
    is_moved = np.zeros(len(order), dtype=bool)
    for number in np.unique(group):
        is_moved[order[group == number][1::2]] = True
    validation = source.subset(np.flatnonzero(~is_moved), source.name)
    half = source.subset(np.flatnonzero(is_moved), HALF)
    return replace(parts, validation=validation, validation_half=half, is_drawn=True)


# --- choice of conflicting images -------------------------------------------------------------------------------------


def number_of_conflicting(severity: float, images: int) -> int:
    """Return the number of conflicting images of one class, rounded up: 23 of 4500 at 0.5 %. severity: in percent."""
    return math.ceil(round(severity * images / 100, 9))  # rounding errors must not add an image


def refuse_tiny_severity(name: str, severity: float, images: int) -> None:
    """Raise UsageError if the severity is less than half an image of a class: one image would be far more."""
    if severity * images < 50:
        raise UsageError(
            f"data.severity={severity:g}: '{name}' has {images} training images of a class, one of which is "
            f"{100 / images:.2g} %, and without one that conflicts there is nothing to learn from: give that or more"
        )


def draw_biases(y: np.ndarray, severity: float, classes: int, generator: np.random.Generator) -> np.ndarray:
    """Draw the bias value [N] of images with the labels `y` [N], so that `severity` percent of each class conflict.

    A conflicting image gets any other class's value with equal probability. With the same generator, an image that
    conflicts at one severity also conflicts at every larger one, with the same value.
    """
    order, shift = generator.permutation(len(y)), generator.integers(1, classes, len(y))
    bias = y.astype(np.int64)
    for label in range(classes):
        members = order[y[order] == label]
        rows = members[: number_of_conflicting(severity, len(members))]
        bias[rows] = (label + shift[rows]) % classes
    return bias


class HoldOut(NamedTuple):
    """Rows of images that train and that validate, class by class."""

    train: np.ndarray
    validation: np.ndarray


def draw_hold_out(y: np.ndarray, classes: int, most: int, name: str, generator: np.random.Generator) -> HoldOut:
    """Draw equally many images of each class, at most `most`, and hold one in `HELD_OUT` of them out for validation.

    y: labels [N]. name: of the images, for the message. Raises UsageError if a class has too few images.
    """
    per_class = min(most, int(np.bincount(y, minlength=classes).min()))
    validating = per_class // HELD_OUT
    if not validating:
        raise UsageError(f"{name} has {per_class} training images of a class here: at least {HELD_OUT} are needed")
    drawn = np.stack([generator.permutation(np.flatnonzero(y == label))[:per_class] for label in range(classes)])
    return HoldOut(drawn[:, validating:].ravel(), drawn[:, :validating].ravel())


def interleave_classes(y: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Reorder rows [n] so that every leading part has the classes' overall shares; one row of each class comes first.

    The order within a class stays. y: labels [N] of all images.
    """
    labels = y[rows]
    position = np.empty(len(rows))  # within the class, from 0 to 1
    for label in np.unique(labels):
        members = np.flatnonzero(labels == label)
        position[members] = np.arange(len(members)) / len(members)
    return rows[np.argsort(position, kind="stable")]


def refuse_too_few(name: str, images: Mapping[str, tuple[int, int]]) -> None:
    """Raise UsageError if there are too few images of a kind. images: kind -> (available, needed)."""
    lacking = []
    for kind, (available, needed) in images.items():
        if available < needed:
            missing = needed - available
            lacking.append(f"{available:,} {kind} images where {needed:,} are needed, {missing:,} short")
    if lacking:
        raise UsageError(f"too few images for '{name}': {'; '.join(lacking)}")


def describe_counts(source: Source) -> str:
    """Describe how many images of each class are aligned and how many conflict: `35 cat aligned, 5 cat conflicting`."""
    assert source.bias is not None
    is_aligned = source.bias == source.y
    counts = []
    for y, name in enumerate(source.classes):
        aligned = is_aligned[source.y == y]
        counts += [f"{int(aligned.sum()):,} {name} {ALIGNED}", f"{int((~aligned).sum()):,} {name} {CONFLICTING}"]
    return ", ".join(counts)


def describe_one_sided(source: Source, consequence: str = "scores of both kinds rest on other classes") -> str:
    """Describe which classes have only aligned or only conflicting images, and the consequence; empty if none has."""
    if source.bias is None:
        return ""
    kinds = {ALIGNED: source.bias == source.y, CONFLICTING: source.bias != source.y}
    lacking = []
    for kind, is_of_kind in kinds.items():
        labels = np.unique(source.y[is_of_kind])
        classes = [name for label, name in enumerate(source.classes) if label not in labels]
        if classes:
            lacking.append(f"no {kind} image of {', '.join(classes)}")
    return f"'{source.name}' has {' and '.join(lacking)}: {consequence}" if lacking else ""


def with_groups(source: S) -> S:
    """Return the source with images grouped by class and alignment (`cat-conflicting`), which are the groups' roles.

    Raises UsageError if there is no aligned or no conflicting image, because no AC score is defined then.
    """
    assert source.bias is not None
    is_aligned = source.bias == source.y
    for kind, images in ((ALIGNED, is_aligned.sum()), (CONFLICTING, (~is_aligned).sum())):
        if not images:
            raise UsageError(
                f"none of the {len(source)} images of '{source.name}' is {kind}: there is no AC score, which takes "
                "both kinds to validate and to test"
            )
    try:
        slugs = list(record.slugs(source.classes).values())
    except ValueError as error:
        raise UsageError(f"'{source.name}': {error}") from None
    roles: dict[str, Mapping[str, str]] = {}
    for label, kind in itertools.product(slugs, (ALIGNED, CONFLICTING)):
        roles[f"{label}-{kind}"] = {"class": label, "alignment": kind}
    group = np.array(list(roles), dtype=object)[2 * source.y + ~is_aligned]
    occurring = set(group.tolist())
    return replace(source, group=group, roles={name: role for name, role in roles.items() if name in occurring})
