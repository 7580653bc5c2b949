"""Suites as a user would write them, trained in a second: `suite=tests/helpers/toy_suite.py:Shades`, `:Fogs`, `:Marks`.

Shades: training images whose colour gives the class away but for a share of them; a severity is a cell, and colours are
labelled where `data.labels` says so. Fogs: one test set under six conditions, with values that are derived of them.
Marks: several labels per image.
"""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from torch import Tensor

from biasbed import record
from biasbed.config import Config
from biasbed.data import transforms
from biasbed.data.source import MemorySource, Picture
from biasbed.record import Derived, MetricName
from biasbed.settings import setting
from biasbed.suites.sets import EvaluationSet
from biasbed.suites.suite import OpenSuite, Suite
from biasbed.tasks import MultiClass, MultiLabel

CLASSES = ("dark", "grey", "light")
SIZE = 16  # pixels
QUICK: Mapping[str, Any] = {
    **{"backbone": "resnet10", "image_size": SIZE, "epochs": 2, "batch_size": 16, "eval_batch_size": 128},
    **{"optim.lr": 0.05, "optim.lr_batch": None, "augment.crop": False, "augment.flip": False},
    **{"workers": 0, "log_model": False},
}


def pictures(y: np.ndarray, colour: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """Return noise [N,3,16,16] uint8 as bright as each image's class, with more of the channel that its colour says."""
    noise = generator.normal(0, 20, (len(y), 3, SIZE, SIZE)) + 60 + 50 * y[:, None, None, None]
    noise[np.arange(len(y)), colour] += 60
    return noise.clip(0, 255).astype(np.uint8)


def metric(measure: str, name: str, phase: str = "test", group: str | None = None) -> str:
    return str(MetricName(phase, measure, name, group))


# --- shades -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ShadesData:
    """Training images of the suite."""

    conflicting: float = setting(0.1, "part of each class whose colour suggests another one", gt=0, le=1)
    labels: bool = setting(False, "the training images' colours are known")
    seed: int = setting(0, "of which images there are", ge=0)


@dataclass(frozen=True)
class ShadesSettings(Config):
    """Settings of this suite alone."""

    data: ShadesData = ShadesData()


class Shades(Suite[ShadesSettings]):
    """Brightness is the class, colour the shortcut; what counts is a mean over aligned and conflicting images."""

    Settings = ShadesSettings
    defaults: ClassVar[Mapping[str, Any]] = QUICK

    def open(self) -> OpenSuite:
        config, data = self.config, self.config.data
        train = shades("train", 16, data.conflicting, data.seed, data.labels)
        transform = transforms.SquareResize(config.image_size)
        validation, test = (self._set(f"shades_{part}", data.seed, transform) for part in ("val", "test"))
        return OpenSuite(
            name=self.name,
            classes=CLASSES,
            task=MultiClass(),
            training={"shades": lambda: train, "validation_half": functools.partial(lent, data.seed)},
            train_name="shades",
            train_transform=transforms.TrainingTransform(config.image_size, config.augment),
            validation=(validation,),
            sets=(test,),
            monitor=metric("ac_score", validation.name, "val"),
            fingerprint=record.digest([s.fingerprint() for s in (train, validation.source, test.source)]),
            store=self.store,
            cell=f"shades_{record.slug(f'{data.conflicting:g}')}",
            derivations=(*ac_score("val", validation), *ac_score("test", test)),
            bias_type="colour",
        )

    def _set(self, name: str, seed: int, transform: transforms.Transform) -> EvaluationSet:
        """Return a set of which a quarter of each class is aligned, however few of the training images are not."""
        source = shades(name, 24, 0.75, seed, labels=True)
        return EvaluationSet(name, source, transform, headline="ac_score", block="shades")


def lent(seed: int) -> MemorySource:
    """Return images like those of validation, to train on."""
    return shades("shades_lent", 12, 0.75, seed, labels=True)


@functools.cache
def shades(name: str, per_class: int, conflicting: float, seed: int, labels: bool) -> MemorySource:
    """At least one image of each class is conflicting; its colour is that of any other class."""
    generator = np.random.default_rng([seed, *name.encode()])
    y = np.repeat(np.arange(len(CLASSES)), per_class)
    is_conflicting = np.tile(np.arange(per_class) < max(1, round(conflicting * per_class)), len(CLASSES))
    colour = np.where(is_conflicting, (y + generator.integers(1, len(CLASSES), len(y))) % len(CLASSES), y)
    alignment = np.where(is_conflicting, "conflicting", "aligned")
    group = np.array([f"{CLASSES[label]}-{word}" for label, word in zip(y, alignment, strict=True)])
    return MemorySource(
        name=name,
        classes=CLASSES,
        y=y,
        ids=[f"{name}/{number}" for number in range(len(y))],
        bias=colour if labels else None,
        group=group,
        roles={g: dict(zip(("class", "alignment"), g.split("-"), strict=True)) for g in sorted(set(group.tolist()))},
        images=pictures(y, colour, generator),
    )


def ac_score(phase: str, evaluated: EvaluationSet) -> tuple[Derived, ...]:
    """Return the harmonic mean of the accuracies on aligned and on conflicting images; every class counts alike."""
    derived: list[Derived] = []
    for word in ("aligned", "conflicting"):
        inputs = tuple(metric("accuracy", evaluated.name, phase, f"{name}-{word}") for name in CLASSES)
        derived.append(Derived(phase, f"{word}_accuracy", evaluated.name, "mean", inputs))
    return *derived, Derived(phase, "ac_score", evaluated.name, "harmonic_mean", tuple(part.metric for part in derived))


# --- fogs -------------------------------------------------------------------------------------------------------------

FOGS = ("haze_1", "haze_2", "haze_3", "mist_1", "mist_2", "mist_3")
# Errors of a model that stands for all others, by condition.
REFERENCES = (0.3, 0.4, 0.5, 0.35, 0.45, 0.55)


class Fogs(Suite[Config]):
    """Images as they are, and one test set in which each is shown under six conditions."""

    defaults: ClassVar[Mapping[str, Any]] = QUICK

    def open(self) -> OpenSuite:
        config = self.config
        train, test_as = fogs("train", 16), functools.partial(self._set, transforms.SquareResize(config.image_size))
        validation, clear = test_as("val", fogs("val", 12)), test_as("clear", fogs("clear", 12))
        fogged = test_as("fogged", fogs("fogged", 8, FOGS), "relative_error", block="fogged")
        used = [train, *(entry.source for entry in (validation, clear, fogged))]
        return OpenSuite(
            name=self.name,
            classes=CLASSES,
            task=MultiClass(),
            training={"train": lambda: train},
            train_name="train",
            train_transform=transforms.TrainingTransform(config.image_size, config.augment),
            validation=(validation,),
            sets=(clear, fogged),
            monitor=metric("accuracy", "val", "val"),
            fingerprint=record.digest([source.fingerprint() for source in used]),
            store=self.store,
            derivations=fog_values(),
        )

    def _set(
        self,
        transform: transforms.Transform,
        name: str,
        source: MemorySource,
        headline: str = "accuracy",
        block: str = "",
    ) -> EvaluationSet:
        return EvaluationSet(name, source, transform, headline=headline, block=block)


class Watched(Fogs):
    """The same; the file that $SEEN names says which image is opened, and how often."""

    def open(self) -> OpenSuite:
        suite = super().open()
        sets = (dataclasses.replace(entry, source=_Watched(**vars(entry.source))) for entry in suite.sets)
        return dataclasses.replace(suite, sets=tuple(sets))


class _Watched(MemorySource):
    def open(self, row: int) -> Picture:
        self._tell([row])
        return super().open(row)

    def load_all(self, rows: np.ndarray) -> Tensor:
        self._tell(rows)
        return super().load_all(rows)

    def _tell(self, rows: Iterable[int]) -> None:
        with open(os.environ["SEEN"], "a") as file:
            file.writelines(f"{self.ids[row]}\n" for row in rows)


def fog_values() -> tuple[Derived, ...]:
    """Errors by those of the reference, as headline of the set; and the plain mean, as a column of its own."""
    inputs = tuple(metric(record.BY_CONDITION, "fogged", group=name) for name in FOGS)
    ratio = Derived(
        *("test", "relative_error", "fogged", "error_ratio", inputs), references=REFERENCES, higher_is_better=False
    )
    return ratio, Derived("test", "accuracy", "fog_mean", "mean", inputs, block="fogged")


@functools.cache
def fogs(name: str, per_class: int, conditions: Sequence[str] = ()) -> MemorySource:
    """Images of every class in all colours; under each condition all of them, the fainter the higher its number."""
    generator = np.random.default_rng([*name.encode()])
    y = np.repeat(np.arange(len(CLASSES)), per_class)
    images = pictures(y, generator.integers(0, 3, len(y)), generator)
    ids = [f"{name}/{number}" for number in range(len(y))]
    if not conditions:
        return MemorySource(name=name, classes=CLASSES, y=y, ids=ids, images=images)
    shown = [_fogged(images, int(word[-1]) / 5 - 0.1 * word.startswith("mist")) for word in conditions]
    return MemorySource(
        name=name,
        classes=CLASSES,
        y=np.tile(y, len(conditions)),
        ids=[f"{word}/{image}" for word in conditions for image in ids],
        condition=np.repeat(np.arange(len(conditions)), len(y)),
        conditions=tuple(conditions),
        images=np.concatenate(shown),
    )


def _fogged(images: np.ndarray, share: float) -> np.ndarray:
    """Return a mixture with grey."""
    return ((1 - share) * images + share * 130).astype(np.uint8)


# --- marks ------------------------------------------------------------------------------------------------------------

MARKS = ("light", "red side", "striped")
MARKED = tuple(map(record.slug, MARKS))  # as metrics and decisions call them


class Marks(Suite[Config]):
    """Images with any number of labels, none at all too; in one of the sets nothing is striped."""

    defaults: ClassVar[Mapping[str, Any]] = QUICK

    def open(self) -> OpenSuite:
        config, task = self.config, MultiLabel()
        train, transform = marks("train", 96), transforms.SquareResize(config.image_size)
        names = {"val": 40, "marked": 60, "plain": 24}
        validation, *sets = (EvaluationSet(n, marks(n, size), transform, task=task) for n, size in names.items())
        used = [train, *(entry.source for entry in (validation, *sets))]
        return OpenSuite(
            name=self.name,
            classes=MARKS,
            task=task,
            training={"train": lambda: train},
            train_name="train",
            train_transform=transforms.TrainingTransform(config.image_size, config.augment),
            validation=(validation,),
            sets=tuple(sets),
            monitor=metric(task.measures[0], "val", "val"),
            fingerprint=record.digest([source.fingerprint() for source in used]),
            store=self.store,
        )


@functools.cache
def marks(name: str, size: int) -> MemorySource:
    """Noise with more of everything, of red on the left, and in every second row, each for about half of the images."""
    generator = np.random.default_rng([*name.encode()])
    y = (generator.random((size, len(MARKS))) < 0.5).astype(np.int64)
    y[:, -1] *= name != "plain"
    light, red, striped = (y[:, k, None, None] for k in range(len(MARKS)))
    images = generator.normal(0, 15, (size, 3, SIZE, SIZE)) + 70 + 40 * light[:, None]
    images[:, 0, :, : SIZE // 2] += 50 * red
    images[:, :, ::2] += 40 * striped[:, None]
    ids = [f"{name}/{number}" for number in range(size)]
    return MemorySource(name=name, classes=MARKS, y=y, ids=ids, images=images.clip(0, 255).astype(np.uint8))
