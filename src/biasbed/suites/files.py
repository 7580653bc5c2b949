"""Suites of image files, of whose training images a part is held out for validation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, TypeVar

from biasbed import record
from biasbed.config import Auto, Config, Preprocess
from biasbed.errors import UsageError
from biasbed.settings import nearest, setting
from biasbed.suites.suite import OpenSuite, Suite
from biasbed.tasks import MULTI_CLASS

if TYPE_CHECKING:
    from biasbed.data.source import Source
    from biasbed.suites.sets import EvaluationSet
    from biasbed.tasks import Task


@dataclass(frozen=True)
class FileSettings(Config):
    """What such a suite can be told."""

    # Like `sets`, it is in the protocol.
    validation: str | Auto = setting(
        "auto", "validation images: auto: held out of the training images; or an evaluation set's name", identity=False
    )
    val_fraction: float = setting(0.2, "part of the training images held out for validation", gt=0, lt=1)
    preprocess: Preprocess = Preprocess()


F = TypeVar("F", bound=FileSettings)


class FileSuite(Suite[F]):
    """A suite of images in files.

    held_out_words: what `validation` may be besides a set's name: held-out training images, in one form or another.
    """

    Settings = FileSettings
    held_out_words: ClassVar[tuple[str, ...]] = ("auto",)

    def of_files(
        self,
        classes: tuple[str, ...],
        sets: Sequence[EvaluationSet],
        whole: Source | None,
        held_out: Callable[[Source], EvaluationSet],
        task: Task = MULTI_CLASS,
    ) -> OpenSuite:
        """The opened suite. whole: all images to train on; None: the suite is for testing a model.

        Validation is on a part of the training images, drawn by the seed, of which `held_out` makes an evaluation set;
        or on one of the suite's own sets, if `validation` names one: then all training images train.
        """
        from biasbed.data import transforms

        config = self.config
        train, validation = (None, None) if whole is None else self._trained_on(sets, whole, held_out)
        return OpenSuite(
            name=self.name,
            classes=classes,
            task=task,
            training={} if train is None else {train.name: lambda: train},
            train_name="none" if whole is None else whole.name,
            train_transform=transforms.training(config.image_size, config.augment),
            validation=() if validation is None else (validation,),
            sets=tuple(sets),
            monitor="" if validation is None else str(record.MetricName("val", task.measures[0], validation.name)),
            fingerprint=record.digest([s.fingerprint() for s in (whole, *(e.source for e in sets)) if s is not None]),
            unsplit=None if whole is None else lambda: whole,
            store=self.store,
        )

    def _trained_on(
        self, sets: Sequence[EvaluationSet], whole: Source, held_out: Callable[[Source], EvaluationSet]
    ) -> tuple[Source, EvaluationSet]:
        """(training images, validation)."""
        from biasbed.data import folders

        config, own = self.config, {entry.name: entry for entry in sets}
        if config.validation in self.held_out_words:
            train, rest = folders.split(whole, config.val_fraction, config.seed, (whole.name, "held-out"))
            return train, held_out(rest)
        if config.validation not in own:
            hint = nearest(config.validation, [*self.held_out_words, *own])
            raise UsageError(f"validation={config.validation}: there is no such evaluation set{hint}")
        return whole, own[config.validation]
