"""Align-Conflict protocol: train where a bias goes with nearly every class, test where it tells less or nothing.

`train=<data set>` is one of `datasets/biased.py`, or a folder of your own with a `metadata.csv`; `data.severity` is the
percentage of bias-conflicting training images. Data set and severity make the cell; the block is the data set, since
its severities are no independent data. What is drawn follows from `data.seed`, whatever the training's seed.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from biasbed import record
from biasbed.algorithms.requests import StreamRequest
from biasbed.config import Auto, Config
from biasbed.data import transforms
from biasbed.data.source import Source
from biasbed.datasets import biased
from biasbed.datasets.base import OnDisk
from biasbed.datasets.biased import ALIGNED, COLOUR_NOISE, CONFLICTING, CORRUPTION, HALF, BiasedData, Division, Wanted
from biasbed.errors import UsageError
from biasbed.record import Derived, MetricName
from biasbed.settings import setting
from biasbed.suites.corrupted_sets import frost_folder
from biasbed.suites.sets import EvaluationSet
from biasbed.suites.suite import OpenSuite, Suite, choose
from biasbed.tasks import MULTI_CLASS

# What epochs may be chosen by: the AC score, then what takes fewer labels of the validation images, or others.
RULES = ("best_validation", "validation_accuracy", "worst_class", "worst_group", "last_n", "best_epoch")
OF_BIASES = ("worst_group",)  # among these: for validation images with bias labels
EMBEDDED = "figures"  # what is trained on unless a data set is named
AC_SCORE = "ac_score"
UNDEFINED = "equality_of_opportunity_undefined"  # of how many classes it is not: no images of a kind, or none right
IMAGES_FILE = "images.csv"  # of a run: which image is in which part
MEASURES = (
    *MULTI_CLASS.measures,
    *(
        "aligned_accuracy",
        "conflicting_accuracy",
        "worst_group_accuracy",
        "mean_group_accuracy",
        "worst_class_accuracy",
    ),
)
# What all methods have on all data sets; see docs/debiasing.md for what is known of the published runs.
EVERYWHERE: Mapping[str, Any] = {
    **{"optim.name": "adam", "optim.lr_batch": None, "optim.weight_decay": 0.0},
    **{"optim.schedule": "constant", "optim.warmup": 0.0},
}
OF_METHODS: Mapping[str, Mapping[str, Any]] = {"group_dro": {"hparams.over": "group"}}
PHOTOGRAPHS: Mapping[str, Any] = {
    **{"backbone": "resnet18", "image_size": 224, "epochs": 100, "batch_size": 64, "optim.lr": 1e-4},
    **{"augment.crop": False, "augment.padding": 4},
}


@dataclass(frozen=True)
class DebiasingData:
    """Which images there are."""

    severity: float | Auto = setting(
        "auto", "percent of bias-conflicting training images (auto: 5, of a table what it has)", cell=True
    )
    seed: int = setting(0, "of all that is drawn of the images, whatever the training's seed", ge=0, le=2**31 - 1)
    colour_noise: float = setting(
        COLOUR_NOISE, "colored_mnist_10: deviation of its colours (authors: to 0.002)", ge=0, le=1, cell=True
    )
    corruption_severity: int = setting(
        CORRUPTION, "corrupted_cifar10: of its corruptions (authors: 2 to 5)", ge=1, le=5, cell=True, later=True
    )
    halve_validation: bool = setting(
        False,
        "half of each group's validation images selects; the other is there to train on, as 'validation_half'",
        later=True,
    )

    def __post_init__(self) -> None:
        if self.severity != "auto" and not 0 < float(self.severity) < 100:
            raise ValueError(f"data.severity={self.severity}: percent, above 0 and below 100")


@dataclass(frozen=True)
class DebiasingSettings(Config):
    """What this suite alone can be told."""

    data: DebiasingData = DebiasingData()


class Debiasing(Suite[DebiasingSettings]):
    """The suite of one biased data set at one severity."""

    Settings = DebiasingSettings

    @classmethod
    def defaults_for(cls, given: Mapping[str, Any]) -> Mapping[str, Any]:
        """One protocol for all methods, by data set; there are no domains, only groups."""
        name = biased.DATA_SETS.identifier(_named(str(given.get("train", "auto"))))
        own = biased.DATA_SETS.load(name).defaults if name in biased.DATA_SETS else {}
        return {**EVERYWHERE, **PHOTOGRAPHS, **own, **OF_METHODS.get(str(given.get("algorithm")), {})}

    @functools.cached_property
    def data_set(self) -> BiasedData:
        """The data set; UsageError where there is none of that name."""
        if self.config.train == "none":
            raise UsageError(f"the suite '{self.name}' needs train=<data set>: {', '.join(biased.DATA_SETS)}")
        data: BiasedData = biased.DATA_SETS.make(_named(self.config.train), lambda: self.data_root)
        return data

    def data_sets(self) -> tuple[OnDisk, ...]:
        """The one that is named, if it is in files; else all that are."""
        names = biased.DATA_SETS if self.config.train in ("auto", "none") else [self.config.train]
        found = (biased.DATA_SETS.make(name, lambda: self.data_root) for name in names)
        return tuple(data for data in found if isinstance(data, OnDisk))

    def open(self) -> OpenSuite:
        """UsageError where images are missing, or a part has no aligned or no conflicting ones."""
        config, data = self.config, self.data_set
        parts = self._parts()
        train, names = parts.train, (f"{data.name}_val", f"{data.name}_test")
        validation, test = map(self._set, names, (parts.validation, parts.test))
        choose([test.name], config.sets)
        is_labelled, images = train.bias is not None, (train, validation.source, test.source, parts.lent)
        monitor = AC_SCORE if validation.source.bias is not None else MULTI_CLASS.measures[0]
        return OpenSuite(
            name=self.name,
            classes=train.classes,
            task=MULTI_CLASS,
            training={data.name: lambda: train, HALF: functools.partial(_lent, parts.lent)},
            train_name=data.name,
            train_transform=transforms.training(config.image_size, config.augment),
            validation=(validation,),
            sets=(test,),
            monitor=str(MetricName("val", monitor, validation.name)),
            fingerprint=record.digest([source.fingerprint() for source in images if source is not None]),
            store=self.store,
            cell=record.slug(f"{data.name}-{parts.severity:g}{_unusual(config.data)}"),
            derivations=(*_derived("val", validation, is_labelled), *_derived("test", test, is_labelled)),
            counts=_counts(train, validation, test),
            recount=lambda suite: _counts(suite.source(data.name), *suite.validation, *suite.sets),
            bias_type=data.bias_type,
            usual=StreamRequest(drop_last=True),
            selection_rules=RULES if monitor == AC_SCORE else tuple(name for name in RULES if name not in OF_BIASES),
            remarks=(*parts.remarks, *_one_sided(train, validation, test)),
            files={IMAGES_FILE: parts.listing()} if parts.is_drawn else {},
        )

    def _parts(self) -> Division:
        """The images that the settings say; UsageError for a setting of other data sets than this."""
        own, data = self.config.data, self.data_set
        if own.colour_noise != COLOUR_NOISE and not data.is_coloured:
            noise = f"data.colour_noise={own.colour_noise:g}"
            raise UsageError(f"{noise}: the images of '{data.name}' are not coloured here")
        if own.corruption_severity != CORRUPTION and not data.is_corrupted:
            severity = f"data.corruption_severity={own.corruption_severity}"
            raise UsageError(f"{severity}: the images of '{data.name}' are not corrupted here")
        wanted = Wanted(
            None if own.severity == "auto" else float(own.severity),
            own.seed,
            self.config.image_size,
            own.colour_noise,
            own.corruption_severity,
            frost_folder(self.config),
            self.store.hint,
        )
        parts = data.parts(self.data_root if isinstance(data, OnDisk) else Path(), wanted)
        return biased.halved(parts, own.seed) if own.halve_validation else parts

    def _set(self, name: str, source: Source) -> EvaluationSet:
        is_labelled = source.bias is not None
        return EvaluationSet(
            name,
            biased.grouped(source) if is_labelled else source,
            transforms.SquareResize(self.config.image_size),
            measures=MEASURES if is_labelled else (*MULTI_CLASS.measures, "worst_class_accuracy"),
            preprocessing=f"resized to {self.config.image_size} x {self.config.image_size}, bilinear",
            block=self.data_set.name,
            version_of=self.data_set.version_of,
            by_cell=self.data_set.tested_by_severity,
        )


def _one_sided(train: Source, *sets: EvaluationSet) -> Iterator[str]:
    """What a user should know of classes with images of one kind alone, in training and in what is tested."""
    untold = biased.one_sided(train, "no training image tells the two apart there")
    yield from filter(None, (untold, *(biased.one_sided(entry.source) for entry in sets)))


def _unusual(data: DebiasingData) -> str:
    """What a cell's name says besides data set and severity."""
    noisy = "" if data.colour_noise == COLOUR_NOISE else f"-noise-{data.colour_noise:g}"
    return noisy if data.corruption_severity == CORRUPTION else f"{noisy}-corruption-{data.corruption_severity}"


def _lent(half: Source | None) -> Source:
    if half is None:
        raise UsageError(f"'{HALF}' is there with data.halve_validation=true alone: the other half then selects")
    return half


def _named(train: str) -> str:
    return EMBEDDED if train == "auto" else train


def _counts(train: Source, validation: EvaluationSet, test: EvaluationSet) -> dict[str, int]:
    """How many training images each class has of either kind, none too; and how many the sets have in all."""
    found: dict[str, int] = {}
    if train.bias is not None:
        for label, name in enumerate(record.slugs(train.classes).values()):
            own = train.bias[train.y == label]
            for word, images in ((ALIGNED, own == label), (CONFLICTING, own != label)):
                found[_of_training(test.block, f"{name}-{word}")] = int(images.sum())
    for phase, entry in (("val", validation), ("test", test)):
        if entry.source.bias is not None:
            is_aligned = entry.source.bias == entry.source.y
            for word, images in ((ALIGNED, is_aligned), (CONFLICTING, ~is_aligned)):
                found[str(MetricName(phase, f"{word}_images", entry.name))] = int(images.sum())
    return found


def _of_training(data_set: str, group: str) -> str:
    """What the number of a group's training images is called."""
    return str(MetricName("train", "images", record.slug(data_set), group))


def _derived(phase: str, entry: EvaluationSet, is_labelled: bool) -> Iterator[Derived]:
    """What follows from the accuracies of aligned and of conflicting images, pooled over classes and by class.

    Among it the accuracy that papers on group robustness call average: each group counts by its share of the training
    images (Sagawa et al. 2020, section 5), of those groups that the set has. is_labelled: whether these have biases.
    """
    if entry.source.bias is None:
        return

    def metric(measure: str, group: str | None = None) -> str:
        return str(MetricName(phase, measure, entry.name, group))

    def value(measure: str, function: str, *inputs: str, unit: str = "%", higher_is_better: bool = True) -> Derived:
        return Derived(phase, measure, entry.name, function, inputs, unit=unit, higher_is_better=higher_is_better)

    aligned, conflicting = (metric(f"{word}_accuracy") for word in (ALIGNED, CONFLICTING))
    yield value(AC_SCORE, "harmonic_mean", aligned, conflicting)
    yield value("accuracy_difference", "difference", aligned, conflicting, higher_is_better=False)
    yield value("equality_of_opportunity_pooled", "mean_ratio", conflicting, aligned, unit="ratio")
    pairs = [[f"{c}-{word}" for word in (CONFLICTING, ALIGNED)] for c in record.slugs(entry.source.classes).values()]
    both = [metric("accuracy", group) for pair in pairs if set(pair) <= set(entry.source.roles) for group in pair]
    if both:
        yield value("equality_of_opportunity", "mean_ratio", *both, unit="ratio")
        undefined = value(UNDEFINED, "undefined_ratios", *both, unit="classes", higher_is_better=False)
        yield replace(undefined, references=(float(len(pairs) - len(both) // 2),))
    if is_labelled:
        weighted = ((metric("accuracy", group), _of_training(entry.block, group)) for group in entry.source.roles)
        yield value("adjusted_accuracy", "weighted_mean", *(name for pair in weighted for name in pair))
