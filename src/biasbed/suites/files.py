"""Suites of image files that hold out a part of the training images for validation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, NamedTuple, TypeVar

from biasbed import record
from biasbed.config import Auto, Config, Preprocess
from biasbed.settings import refuse_unknown, setting
from biasbed.suites.suite import OpenSuite, Suite
from biasbed.tasks import MULTI_CLASS

if TYPE_CHECKING:
    from biasbed.data.source import Source
    from biasbed.suites.sets import EvaluationSet
    from biasbed.tasks import Task


@dataclass(frozen=True)
class FileSettings(Config):
    """Settings of suites of image files."""

    # Like `sets`, it is in the protocol.
    validation: str | Auto = setting(
        "auto", "validation images: auto: held out of the training images; or an evaluation set's name", identity=False
    )
    val_fraction: float = setting(0.2, "part of the training images held out for validation", gt=0, lt=1)
    preprocess: Preprocess = Preprocess()


F = TypeVar("F", bound=FileSettings)


class TrainingAndValidation(NamedTuple):
    """Images that train, and the set that validates."""

    train: Source
    validation: EvaluationSet


class FileSuite(Suite[F]):
    """Suite of images in files.

    held_out_words: values of `validation` that stand for held-out training images instead of an evaluation set.
    """

    Settings = FileSettings
    held_out_words: ClassVar[tuple[str, ...]] = ("auto",)

    def of_files(
        self,
        classes: tuple[str, ...],
        sets: Sequence[EvaluationSet],
        images: Source | None,
        held_out: Callable[[Source], EvaluationSet],
        task: Task = MULTI_CLASS,
    ) -> OpenSuite:
        """Return the opened suite. images: all training images; None if the suite is for testing a model.

        A seeded part of the training images validates, of which `held_out` makes an evaluation set. If `validation`
        names one of the suite's own sets, that set validates and all training images train.
        """
        from biasbed.data import transforms

        config = self.config
        train, validation = (None, None) if images is None else self._divide_images(sets, images, held_out)
        sources = [evaluation_set.source for evaluation_set in sets]
        if images is not None:
            sources.insert(0, images)
        return OpenSuite(
            name=self.name,
            classes=classes,
            task=task,
            training={} if train is None else {train.name: lambda: train},
            train_name="none" if images is None else images.name,
            train_transform=transforms.TrainingTransform(config.image_size, config.augment),
            validation=() if validation is None else (validation,),
            sets=tuple(sets),
            monitor="" if validation is None else str(record.MetricName("val", task.measures[0], validation.name)),
            fingerprint=record.digest([source.fingerprint() for source in sources]),
            unsplit=None if images is None else lambda: images,
            store=self.store,
        )

    def _divide_images(
        self, sets: Sequence[EvaluationSet], images: Source, held_out: Callable[[Source], EvaluationSet]
    ) -> TrainingAndValidation:
        """Return the images that train and the set that validates."""
        from biasbed.data import folders

        config = self.config
        if config.validation in self.held_out_words:
            train, rest = folders.split(images, config.val_fraction, config.seed, (images.name, "held-out"))
            return TrainingAndValidation(train, held_out(rest))
        by_name = {evaluation_set.name: evaluation_set for evaluation_set in sets}
        refuse_unknown(
            config.validation,
            [*self.held_out_words, *by_name],
            f"validation={config.validation}: there is no such evaluation set",
        )
        return TrainingAndValidation(images, by_name[config.validation])
