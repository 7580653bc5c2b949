"""Embedded demo suite: digits whose texture reveals the class in training, and six test sets that mirror BiasBed's.

Nothing is downloaded; `biasbed.datasets.digits` makes the images. `train=stylized` and `train=texture` are controls:
training images without any texture cue, and without any shape cue.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from biasbed import record
from biasbed.config import Config, StimuliPreprocess
from biasbed.data import transforms
from biasbed.data.source import MemorySource
from biasbed.datasets.digits import CLASSES, digits
from biasbed.settings import refuse_unknown
from biasbed.suites.sets import CUE_MEASURES, EvaluationSet
from biasbed.suites.suite import OpenSuite, Suite, choose
from biasbed.tasks import MultiClass

SETS = ("in_domain", "silhouette", "edge", "sketch", "cue_conflict", "stylized")
TRAINING = {"train": "train", "stylized": "stylized_train", "texture": "texture_train"}


@dataclass(frozen=True)
class DemoSettings(Config):
    """Settings of this suite only."""

    stimuli: StimuliPreprocess = StimuliPreprocess()


class Demo(Suite[DemoSettings]):
    """Suite of digits at the configured image size."""

    Settings = DemoSettings
    set_names = SETS
    defaults: ClassVar[Mapping[str, Any]] = {
        "backbone": "resnet10",
        "image_size": 40,
        "epochs": 10,
        "batch_size": 64,
        "augment.crop_scale": 0.7,
        "augment.flip": False,  # a mirrored digit is not a digit
        "workers": 0,
    }

    def open(self) -> OpenSuite:
        config = self.config
        train_name = {"auto": "train", "none": "none"}.get(config.train, config.train)
        refuse_unknown(
            train_name, (*TRAINING, "none"), f"train={config.train}: the suite 'demo' has no such training data"
        )
        images = functools.partial(_digits, size=config.image_size)
        same_size, description = transforms.make_stimulus_transform(config.image_size, config.stimuli)
        names = choose(SETS, config.sets)
        sets = tuple(_evaluation_set(name, images(name), same_size, description) for name in names)
        validation = EvaluationSet("val", images("val"), same_size, preprocessing=description)
        sources = [evaluation_set.source for evaluation_set in (*sets, validation)]
        if train_name != "none":
            sources.append(images(TRAINING[train_name]))
        return OpenSuite(
            name=self.name,
            classes=CLASSES,
            task=MultiClass(),
            training={name: functools.partial(images, split) for name, split in TRAINING.items()},
            train_name=train_name,
            train_transform=transforms.TrainingTransform(config.image_size, config.augment),
            validation=(validation,),
            sets=sets,
            monitor=str(record.MetricName("val", "accuracy", "val")),
            fingerprint=record.digest([source.fingerprint() for source in sources]),
            store=self.store,
        )


@functools.cache
def _digits(split: str, size: int) -> MemorySource:
    return digits(split, image_size=size)


def _evaluation_set(
    name: str, source: MemorySource, transform: transforms.Transform, description: str
) -> EvaluationSet:
    """Return one of the six sets, all drawn from the same handwritten digits."""
    return EvaluationSet(
        name,
        source,
        transform,
        measures=CUE_MEASURES if name == "cue_conflict" else EvaluationSet.measures,
        made_by="stylized" if name == "stylized" else None,
        source_images="test_digits",
        preprocessing=description,
    )
