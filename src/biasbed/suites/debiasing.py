"""Align-Conflict protocol: train where a bias nearly always goes with the class, test where it goes less or not at all.

`train=<data set>` is one of `datasets/biased.py`, or a folder of your own with a `metadata.csv`; `data.severity` is the
percentage of bias-conflicting training images. Data set and severity make the cell. The block is the data set, because
its severities are not independent data. Images are drawn by `data.seed`, whatever the training's seed.

Answers: How is the Align-Conflict score (AC) computed, and of which images?
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from biasbed import record
from biasbed.algorithms.requests import StreamRequest
from biasbed.config import Auto, Config, DataSettings
from biasbed.data import transforms
from biasbed.data.source import Source
from biasbed.datasets import biased
from biasbed.datasets.base import OnDisk
from biasbed.datasets.biased import (
    ALIGNED,
    COLOUR_NOISE,
    CONFLICTING,
    CORRUPTION,
    HALF,
    BiasedData,
    Division,
    DivisionRequest,
)
from biasbed.errors import UsageError
from biasbed.record import Derived, MetricName
from biasbed.settings import setting
from biasbed.suites.corrupted_sets import frost_folder
from biasbed.suites.sets import EvaluationSet
from biasbed.suites.suite import OpenSuite, Suite, choose
from biasbed.tasks import MULTI_CLASS

# Selection rules: by the AC score, then those that need fewer labels of the validation images, or others.
RULES: tuple[str, ...] = (
    "best_validation",
    "validation_accuracy",
    "worst_class",
    "worst_group",
    "last_n",
    "best_epoch",
)
BIAS_RULES = ("worst_group",)  # rules among them that need bias labels of the validation images
EMBEDDED = "figures"  # the default data set
AC_SCORE = "ac_score"
UNDEFINED = "equality_of_opportunity_undefined"  # number of classes without it: no images of a kind, or none right
IMAGES_FILE = "images.csv"  # kept with a run: the part of each image
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
# Defaults of all methods on all data sets; docs/debiasing.md says what is known of the published runs.
COMMON: Mapping[str, Any] = {
    **{"optim.name": "adam", "optim.lr_batch": None, "optim.weight_decay": 0.0},
    **{"optim.schedule": "constant", "optim.warmup": 0.0},
}
METHOD_DEFAULTS: Mapping[str, Mapping[str, Any]] = {"group_dro": {"hparams.groups": "group"}}
PHOTOGRAPHS: Mapping[str, Any] = {
    **{"backbone": "resnet18", "image_size": 224, "epochs": 100, "batch_size": 64, "optim.lr": 1e-4},
    **{"augment.crop": False, "augment.padding": 4},
}


@dataclass(frozen=True)
class DebiasingData(DataSettings):
    """Settings of the images that are drawn or made."""

    severity: float | Auto = setting(
        "auto", "percent of bias-conflicting training images (auto: 5, or what the files have)", cell=True
    )
    seed: int = setting(
        0, "seed of everything that is drawn of the images, whatever the training's seed", ge=0, le=2**31 - 1
    )
    colour_noise: float = setting(
        COLOUR_NOISE, "colored_mnist_10: deviation of its colours (authors: to 0.002)", ge=0, le=1, cell=True
    )
    corruption_severity: int = setting(
        CORRUPTION, "corrupted_cifar10: of its corruptions (authors: 2 to 5)", ge=1, le=5, cell=True
    )
    halve_validation: bool = setting(
        False,
        "half of each group's validation images selects; the other is there to train on, as 'validation_half'",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.severity != "auto" and not 0 < float(self.severity) < 100:
            raise ValueError(f"data.severity={self.severity}: percent, above 0 and below 100")


@dataclass(frozen=True)
class DebiasingSettings(Config):
    """Settings of this suite only."""

    data: DebiasingData = DebiasingData()


class Debiasing(Suite[DebiasingSettings]):
    """Suite of one biased data set at one severity."""

    Settings = DebiasingSettings

    @classmethod
    def defaults_for(cls, flags: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the defaults for a data set, the same for all methods but those of `METHOD_DEFAULTS`."""
        name = biased.DATA_SETS.identifier(_data_set_name(str(flags.get("train", "auto"))))
        by_data = biased.DATA_SETS.declare(name).defaults if name in biased.DATA_SETS else {}
        by_method = METHOD_DEFAULTS.get(str(flags.get("algorithm")), {})
        return {**COMMON, **PHOTOGRAPHS, **by_data, **by_method}

    @functools.cached_property
    def data_set(self) -> BiasedData:
        """Data set that the settings name. Raises UsageError if there is none of that name."""
        data: BiasedData = biased.DATA_SETS.make(_data_set_name(self.config.train), lambda: self.data_root)
        return data

    def data_sets(self) -> tuple[OnDisk, ...]:
        """Return the data set that the settings name, or all of them; only those on disk."""
        names = biased.DATA_SETS if self.config.train in ("auto", "none") else [self.config.train]
        data_sets = (biased.DATA_SETS.make(name, lambda: self.data_root) for name in names)
        return tuple(data_set for data_set in data_sets if isinstance(data_set, OnDisk))

    def open(self) -> OpenSuite:
        """Return the suite with its images open.

        Raises UsageError if images are missing, or a part has no aligned or no conflicting ones.
        """
        config, data = self.config, self.data_set
        parts = self._divide_images()
        train, names = parts.train, (f"{data.name}_val", f"{data.name}_test")
        validation, test = map(self._make_set, names, (parts.validation, parts.test))
        choose([test.name], config.sets)
        is_labelled, images = train.bias is not None, (train, validation.source, test.source, parts.validation_half)
        if validation.source.bias is not None:
            monitor, rules = AC_SCORE, RULES
        else:
            monitor, rules = MULTI_CLASS.measures[0], tuple(rule for rule in RULES if rule not in BIAS_RULES)
        half = parts.validation_half
        training: dict[str, Callable[[], Source]] = {data.name: lambda: train}
        if half is not None:
            training[HALF] = lambda: half
        return OpenSuite(
            name=self.name,
            classes=train.classes,
            task=MULTI_CLASS,
            training=training,
            train_name=data.name,
            train_transform=transforms.TrainingTransform(config.image_size, config.augment),
            validation=(validation,),
            sets=(test,),
            monitor=str(MetricName("val", monitor, validation.name)),
            fingerprint=record.digest([source.fingerprint() for source in images if source is not None]),
            store=self.store,
            cell=record.slug(f"{data.name}-{parts.severity:g}{_cell_suffix(config.data)}"),
            derivations=(*_derive("val", validation, is_labelled), *_derive("test", test, is_labelled)),
            counts=_count_images(train, validation, test),
            recount=lambda suite: _count_images(suite.source(data.name), *suite.validation, *suite.sets),
            bias_type=data.bias_type,
            usual=StreamRequest(drop_last=True),
            selection_rules=rules,
            remarks=(*parts.remarks, *_one_sided_remarks(train, validation, test)),
            files={IMAGES_FILE: parts.listing()} if parts.is_drawn else {},
        )

    def _divide_images(self) -> Division:
        """Return the images that the settings ask for, in parts. Raises UsageError for a setting of other data sets."""
        settings, data = self.config.data, self.data_set
        if settings.colour_noise != COLOUR_NOISE and not data.is_coloured:
            noise = f"data.colour_noise={settings.colour_noise:g}"
            raise UsageError(f"{noise}: the images of '{data.name}' are not coloured here")
        if settings.corruption_severity != CORRUPTION and not data.is_corrupted:
            severity = f"data.corruption_severity={settings.corruption_severity}"
            raise UsageError(f"{severity}: the images of '{data.name}' are not corrupted here")
        request = DivisionRequest(
            None if settings.severity == "auto" else float(settings.severity),
            settings.seed,
            self.config.image_size,
            settings.colour_noise,
            settings.corruption_severity,
            frost_folder(self.config),
            self.store.hint,
        )
        parts = data.parts(self.data_root if isinstance(data, OnDisk) else Path(), request)
        return biased.halve_validation(parts, settings.seed) if settings.halve_validation else parts

    def _make_set(self, name: str, source: Source) -> EvaluationSet:
        is_labelled = source.bias is not None
        return EvaluationSet(
            name,
            biased.with_groups(source) if is_labelled else source,
            transforms.SquareResize(self.config.image_size),
            measures=MEASURES if is_labelled else (*MULTI_CLASS.measures, "worst_class_accuracy"),
            preprocessing=f"resized to {self.config.image_size} x {self.config.image_size}, bilinear",
            block=self.data_set.name,
            version_of=self.data_set.version_of,
            by_cell=self.data_set.tested_by_severity,
        )


def _one_sided_remarks(train: Source, *sets: EvaluationSet) -> Iterator[str]:
    """Yield a remark about each of these whose classes have only aligned or only conflicting images."""
    remarks = [biased.describe_one_sided(train, "no training image tells the two apart there")]
    remarks += [biased.describe_one_sided(evaluation_set.source) for evaluation_set in sets]
    yield from filter(None, remarks)


def _cell_suffix(data: DebiasingData) -> str:
    """Return the settings that a cell's name adds to data set and severity; empty at the defaults."""
    suffix = ""
    if data.colour_noise != COLOUR_NOISE:
        suffix += f"-noise-{data.colour_noise:g}"
    if data.corruption_severity != CORRUPTION:
        suffix += f"-corruption-{data.corruption_severity}"
    return suffix


def _data_set_name(train: str) -> str:
    return EMBEDDED if train == "auto" else train


def _count_images(train: Source, validation: EvaluationSet, test: EvaluationSet) -> dict[str, int]:
    """Return the numbers of aligned and conflicting images: of each training class, and of each evaluation set."""
    counts: dict[str, int] = {}
    if train.bias is not None:
        for label, name in enumerate(record.slugs(train.classes).values()):
            biases = train.bias[train.y == label]
            for kind, images in ((ALIGNED, biases == label), (CONFLICTING, biases != label)):
                counts[_name_training_count(test.block, f"{name}-{kind}")] = int(images.sum())
    for phase, evaluation_set in (("val", validation), ("test", test)):
        source = evaluation_set.source
        if source.bias is not None:
            is_aligned = source.bias == source.y
            for kind, images in ((ALIGNED, is_aligned), (CONFLICTING, ~is_aligned)):
                counts[str(MetricName(phase, f"{kind}_images", evaluation_set.name))] = int(images.sum())
    return counts


def _name_training_count(data_set: str, group: str) -> str:
    """Return the name of the number of a group's training images."""
    return str(MetricName("train", "images", record.slug(data_set), group))


def _derive(phase: str, evaluation_set: EvaluationSet, is_labelled: bool) -> Iterator[Derived]:
    """Yield the values that follow from the accuracies of aligned and conflicting images, pooled and by class.

    They include `adjusted_accuracy`, which papers on group robustness call average accuracy: each group of the set is
    weighted by its share of the training images (Sagawa et al. 2020, section 5). is_labelled: the training images have
    bias labels.
    """
    source = evaluation_set.source
    if source.bias is None:
        return

    def metric(measure: str, group: str | None = None) -> str:
        return str(MetricName(phase, measure, evaluation_set.name, group))

    def value(measure: str, function: str, *inputs: str, unit: str = "%", higher_is_better: bool = True) -> Derived:
        name = evaluation_set.name
        return Derived(phase, measure, name, function, inputs, unit=unit, higher_is_better=higher_is_better)

    aligned, conflicting = metric(f"{ALIGNED}_accuracy"), metric(f"{CONFLICTING}_accuracy")
    yield value(AC_SCORE, "harmonic_mean", aligned, conflicting)
    yield value("accuracy_difference", "difference", aligned, conflicting, higher_is_better=False)
    yield value("equality_of_opportunity_pooled", "mean_ratio", conflicting, aligned, unit="ratio")
    pairs, lacking = [], 0  # accuracies of the classes with both kinds of images; number of other classes
    for name in record.slugs(source.classes).values():
        groups = [f"{name}-{CONFLICTING}", f"{name}-{ALIGNED}"]
        if set(groups) <= set(source.roles):
            pairs += [metric("accuracy", group) for group in groups]
        else:
            lacking += 1
    if pairs:
        yield value("equality_of_opportunity", "mean_ratio", *pairs, unit="ratio")
        undefined = value(UNDEFINED, "undefined_ratios", *pairs, unit="classes", higher_is_better=False)
        yield replace(undefined, references=(float(lacking),))
    if is_labelled:
        weighted: list[str] = []
        for group in source.roles:
            weighted += [metric("accuracy", group), _name_training_count(evaluation_set.block, group)]
        yield value("adjusted_accuracy", "weighted_mean", *weighted)
