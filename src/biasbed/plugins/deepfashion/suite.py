"""DeepFashion Remixed (Hendrycks et al. 2021, The Many Faces of Robustness): garments with several labels per image.

It has nine splits: one like the training images and eight that differ from it in one attribute. The eight are one block
of a statistical test, because they are parts of one data set and share images.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Literal

from biasbed.algorithms.requests import StreamRequest
from biasbed.data import transforms
from biasbed.plugins.deepfashion.data_set import CLASSES, SHIFTS, DeepFashionRemixed
from biasbed.record import Derived, MetricName
from biasbed.settings import refuse_unknown, setting
from biasbed.suites.files import FileSettings, FileSuite
from biasbed.suites.sets import EvaluationSet
from biasbed.suites.suite import OpenSuite, choose
from biasbed.tasks import TASKS

TASK = TASKS["multi_label"]
OOD = "ood"
DATA = DeepFashionRemixed()


@dataclass(frozen=True)
class DeepFashionSettings(FileSettings):
    """Settings of this suite only."""

    # Like `sets`, both are in the protocol.
    headline: Literal["map", "map_reference"] = setting(
        "map", "headline of a set: mean average precision, or that of the authors' program", identity=False
    )
    joined: bool = setting(
        False, "add training images of which no garment trains to the eight shifts (authors: all)", identity=False
    )


class DeepFashion(FileSuite[DeepFashionSettings]):
    """Suite of the images under `data_dir`."""

    Settings = DeepFashionSettings
    defaults: ClassVar[Mapping[str, Any]] = {
        "init": "named:IMAGENET1K_V1",
        "image_size": 256,
        "augment.crop_scale": 0.5,
        "epochs": 80,
        "batch_size": 100,
        "optim.name": "adam",
        "optim.lr": 1e-5,
        "optim.lr_batch": None,
        "optim.head_factor": 10.0,
        "optim.weight_decay": 0.0,
        "optim.schedule": "constant",
        "val_fraction": 0.02,
    }

    def data_sets(self) -> tuple[DeepFashionRemixed, ...]:
        return (DATA,)

    def open(self) -> OpenSuite:
        """Return the suite with its images open. Raises UsageError if DeepFashion2's files are missing or don't fit."""
        config, folder = self.config, DATA.folder(self.data_root)
        names = ("auto", "none", DATA.name)
        refuse_unknown(config.train, names, f"train={config.train}: the suite '{self.name}' has no such training data")
        splits = DATA.tests(folder, config.joined)
        size = config.image_size
        test = partial(
            EvaluationSet,
            transform=transforms.SquareResize(size),
            preprocessing=f"resized to {size} x {size}, whatever the shape, bilinear",
            task=TASK,
            measures=(*TASK.measures, "map_reference"),
            headline=config.headline,
        )
        sets = [
            test(name, splits[name], block=OOD if name in SHIFTS else "", source_images="deepfashion_validation")
            for name in choose(splits, config.sets)
        ]
        images = None if config.train == "none" else DATA.train(folder)
        suite = self.of_files(CLASSES, sets, images, partial(test, "val"), TASK)
        derivations = (self._mean(),) if {*SHIFTS} <= {shift.name for shift in sets} else ()
        return replace(suite, derivations=derivations, usual=StreamRequest(drop_last=True))

    def _mean(self) -> Derived:
        """Return the plain mean of the eight shifts."""
        inputs = tuple(str(MetricName("test", self.config.headline, name)) for name in SHIFTS)
        return Derived("test", self.config.headline, f"{OOD}_mean", "mean", inputs, block=OOD)
