"""Data sets whose training images have a bias: a second attribute that nearly always goes with the class.

An image is *aligned* where its bias value is the one that goes with its class, else *conflicting*. Bias values are
numbered as the classes that they suggest, so that aligned images are those with `bias == y`. The *severity* is the
percentage of conflicting images among those that train.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, TypeVar

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
        "waterbirds": "biasbed.datasets.tables:Waterbirds",
        "waterbirds_ac": "biasbed.datasets.waterbirds:ComposedWaterbirds",
        "celeba": "biasbed.datasets.tables:CelebA",
        "bffhq": "biasbed.datasets.faces:BFFHQ",
        "bffhq_ac": "biasbed.datasets.faces:ComposedBFFHQ",
        "bar": "biasbed.datasets.bar:Bar",
        "bar_ac": "biasbed.datasets.bar:BarSplit",
    },
    user_class="biasbed.datasets.tables:OwnTable",
    aliases={
        **{"coloredmnist": "colored_mnist_10", "corruptedcifar10type0": "corrupted_cifar10"},
        **{"cifar10c0": "corrupted_cifar10", "cifar10c1": "corrupted_cifar10_type1"},
    },
)
ALIGNED, CONFLICTING = "aligned", "conflicting"
HALF = "validation_half"  # what was taken of the validation images, as training data are called
COLOUR_NOISE = 0.05
CORRUPTION = 5  # severity of corruptions: what Nam et al. 2020 count as 4
HELD_OUT = 10  # one of so many images is for validation, where files have none
S = TypeVar("S", bound=Source)


@dataclass(frozen=True)
class Wanted:
    """Which images are asked for.

    severity: percent of conflicting images in training and validation; None: the usual one. seed: of all that is drawn.
    image_size: of images that are made. colour_noise: deviation of the colours of images that are coloured here.
    corruption: severity of corruptions that go with a class. frost: the folder of frost's photographs, there or not.
    prepare: the command that prepares something of this name for these images.
    """

    severity: float | None
    seed: int
    image_size: int
    colour_noise: float = COLOUR_NOISE
    corruption: int = CORRUPTION
    frost: Path = Path("frost")
    prepare: Callable[[str], str] = "biasbed prepare --what {}".format

    def severity_or(self, usual: float) -> float:
        """The severity in percent, which is the usual one where none is asked for."""
        return usual if self.severity is None else self.severity


@dataclass(frozen=True, eq=False)
class Division:
    """The images of a data set, with their bias where it is known. severity: what it came to, in percent.

    Validation and test have bias labels both or neither. is_drawn: whether files are divided by the seed, so that it is
    to be kept which are where. remarks: what a user should know. lent: validation images that were taken to train on.
    """

    train: Source
    validation: Source
    test: Source
    severity: float
    is_drawn: bool = False
    remarks: tuple[str, ...] = ()
    lent: Source | None = None

    def listing(self) -> str:
        """A CSV table of all images: image, class, split and, where it is known, whether it is aligned."""
        text = io.StringIO()
        table = csv.writer(text, lineterminator="\n")
        table.writerow(["image", "class", "split", "alignment"])
        parts = {"train": self.train, "val": self.validation, "test": self.test, HALF: self.lent}
        for split, source in ((name, part) for name, part in parts.items() if part is not None):
            words = [""] * len(source)
            if source.bias is not None:
                words = np.where(source.bias == source.y, ALIGNED, CONFLICTING).tolist()
            labels = [source.classes[label] for label in source.y]
            table.writerows(zip(source.ids, labels, [split] * len(source), words, strict=True))
        return text.getvalue()


class BiasedData:
    """A data set with a bias, as a suite opens it; one that is in files is an `OnDisk` besides.

    defaults: settings that go with its images, by dotted name. bias_type: what kind of thing its bias is.
    is_coloured: whether its images are given their colours here, with noise. is_corrupted: whether they are corrupted
    here. tested_by_severity: whether the severity says how many images are left to test on. version_of: of which images
    there are several such data sets.
    """

    name: str
    bias_type: str
    is_coloured: ClassVar[bool] = False
    is_corrupted: ClassVar[bool] = False
    tested_by_severity: ClassVar[bool] = False
    version_of: ClassVar[str] = ""
    defaults: ClassVar[Mapping[str, Any]] = {}

    def parts(self, data_dir: Path, wanted: Wanted) -> Division:
        """The three parts; UsageError where images are missing, or can't be had as wanted."""
        raise NotImplementedError


def halved(parts: Division, seed: int) -> Division:
    """The same with half of the validation images taken to train on, of each class and bias value; one more selects."""
    source = parts.validation
    order = np.random.default_rng([seed, *HALF.encode()]).permutation(len(source))
    known = source.y[order] if source.bias is None else np.stack([source.y, source.bias], axis=1)[order]
    group = np.unique(known, axis=0, return_inverse=True)[1]
    is_lent = np.zeros(len(order), dtype=bool)
    for number in np.unique(group):
        is_lent[order[group == number][1::2]] = True
    selects, lent = source.subset(np.flatnonzero(~is_lent), source.name), source.subset(np.flatnonzero(is_lent), HALF)
    return replace(parts, validation=selects, lent=lent, is_drawn=True)


# --- which images conflict --------------------------------------------------------------------------------------------


def number_of_conflicting(severity: float, images: int) -> int:
    """Of so many images of one class, rounded up: 23 of 4500 at 0.5 %. severity: in percent."""
    return math.ceil(round(severity * images / 100, 9))  # what is whole but for the last digits is whole


def refuse_tiny(name: str, severity: float, images: int) -> None:
    """UsageError for a severity of less than half an image of a class: one is drawn, much more than is said."""
    if severity * images < 50:
        raise UsageError(
            f"data.severity={severity:g}: '{name}' has {images} training images of a class, one of which is "
            f"{100 / images:.2g} %, and without one that conflicts there is nothing to learn from: give that or more"
        )


def drawn_biases(y: np.ndarray, severity: float, classes: int, generator: np.random.Generator) -> np.ndarray:
    """The bias value [N] of images with the labels `y` [N]; of conflicting ones each other value is as likely.

    With the same generator, an image that conflicts at one severity does so at every larger one, with the same value.
    """
    order, shift = generator.permutation(len(y)), generator.integers(1, classes, len(y))
    found = y.astype(np.int64)
    for label in range(classes):
        own = order[y[order] == label]
        rows = own[: number_of_conflicting(severity, len(own))]
        found[rows] = (label + shift[rows]) % classes
    return found


def held_out(y: np.ndarray, classes: int, most: int, name: str, generator: np.random.Generator) -> list[np.ndarray]:
    """The rows that train and those that validate, of as many images of each class as the rarest has, or `most`.

    y: labels [N]; name: of the images. UsageError where a class has too few.
    """
    per_class = min(most, int(np.bincount(y, minlength=classes).min()))
    held = per_class // HELD_OUT
    if not held:
        raise UsageError(f"{name} has {per_class} training images of a class here: at least {HELD_OUT} are needed")
    drawn = np.stack([generator.permutation(np.flatnonzero(y == label))[:per_class] for label in range(classes)])
    return [drawn[:, held:].ravel(), drawn[:, :held].ravel()]


def in_turn(y: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """The rows [n] in an order of which every beginning has the classes' shares of all, and first one of each class.

    Within a class they stay as they are. y: labels [N] of all images.
    """
    labels = y[rows]
    turn = np.empty(len(rows))
    for label in np.unique(labels):
        own = np.flatnonzero(labels == label)
        turn[own] = np.arange(len(own)) / len(own)
    return rows[np.argsort(turn, kind="stable")]


def short(what: str, images: Mapping[str, tuple[int, int]]) -> None:
    """UsageError where there are too few images. images: what they are -> (how many there are, are needed)."""
    lacking = [
        f"{there:,} {name} images where {needed:,} are needed, {needed - there:,} short"
        for name, (there, needed) in images.items()
        if there < needed
    ]
    if lacking:
        raise UsageError(f"too few images for '{what}': {'; '.join(lacking)}")


def counted(source: Source) -> str:
    """In words how many images of each class are aligned, and how many conflict; of those with bias labels."""
    assert source.bias is not None
    is_aligned = source.bias == source.y
    return ", ".join(
        f"{int(((source.y == y) & (is_aligned == (kind == ALIGNED))).sum()):,} {name} {kind}"
        for y, name in enumerate(source.classes)
        for kind in (ALIGNED, CONFLICTING)
    )


def one_sided(source: Source, so: str = "scores of both kinds rest on other classes") -> str:
    """What a user should know of classes that have aligned or conflicting images only; empty where there are none.

    so: what follows.
    """
    if source.bias is None:
        return ""
    kinds = {ALIGNED: source.bias == source.y, CONFLICTING: source.bias != source.y}
    lacking = [
        f"no {word} image of {', '.join(own)}"
        for word, images in kinds.items()
        if (own := [name for label, name in enumerate(source.classes) if not images[source.y == label].any()])
    ]
    return f"'{source.name}' has {' and '.join(lacking)}: {so}" if lacking else ""


def grouped(source: S) -> S:
    """The images in groups by class and alignment, which say what they are.

    Raises UsageError where there is no aligned or no conflicting image: then no score of both is defined.
    """
    assert source.bias is not None
    is_aligned = source.bias == source.y
    for word, images in ((ALIGNED, is_aligned.sum()), (CONFLICTING, (~is_aligned).sum())):
        if not images:
            raise UsageError(
                f"none of the {len(source)} images of '{source.name}' is {word}: there is no AC score, which takes "
                "both kinds to validate and to test"
            )
    try:
        slugs = list(record.slugs(source.classes).values())
    except ValueError as error:
        raise UsageError(f"'{source.name}': {error}") from None
    roles = {f"{c}-{word}": {"class": c, "alignment": word} for c in slugs for word in (ALIGNED, CONFLICTING)}
    group = np.array(list(roles), dtype=object)[2 * source.y + ~is_aligned]
    return replace(source, group=group, roles={name: roles[name] for name in roles if name in set(group.tolist())})
