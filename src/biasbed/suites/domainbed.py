"""DomainBed's protocol (Gulrajani & Lopez-Paz 2021): train on all domains of a data set but those that are held out.

`train=<data set>` is one of its seven (`datasets/domains.py`), or a folder `data_dir/<data set>/<domain>/<class>/`
of your own. The seed of a training divides every domain anew: a fifth of its images is the out part, the others are the
in part. The out part of a training domain validates. Of a held-out domain the in part is reported, and the oracle looks
at the out part. The protocol depends on neither seed nor held-out domains, so repeats and domains share a table.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from biasbed import record
from biasbed.algorithms.presets import OPEN
from biasbed.algorithms.requests import StreamRequest
from biasbed.config import Auto, DataSettings, Interpolation
from biasbed.data import transforms
from biasbed.data.source import Source
from biasbed.datasets import domains as domain_data
from biasbed.datasets.domains import DomainDataSet
from biasbed.errors import UsageError
from biasbed.settings import setting
from biasbed.suites.domains import HoldingOut, HoldingOutSettings
from biasbed.suites.sets import EvaluationSet
from biasbed.suites.suite import OpenSuite
from biasbed.tasks import MULTI_CLASS

DIGITS = ("colored_mnist", "rotated_mnist")
# Defaults of all methods on photographs, then changes for digits (their appendix D, and their code).
PHOTOGRAPHS: Mapping[str, Any] = {
    **{"backbone": "resnet50", "init": "named:IMAGENET1K_V1", "image_size": 224, "steps": 5001, "evaluate_every": 300},
    **{"batch_size": 32, "optim.name": "adam", "optim.lr": 5e-5, "optim.lr_batch": None, "optim.weight_decay": 0.0},
    **{"optim.schedule": "constant", "optim.warmup": 0.0, "augment.crop_scale": 0.7, "augment.jitter": 0.3},
    **{"augment.grey": 0.1, "network.freeze_statistics": True},
}
# What the programs of SWAD and MIRO, both forks of DomainBed's, train photographs with, beside the settings that one of
# them fixes. DomainNet takes 15,001 steps there.
SWAD_AND_MIRO: Mapping[str, Any] = {
    **PHOTOGRAPHS,
    **{"network": OPEN, "augment": OPEN, "augment.crop": True, "augment.flip": True, "optim": OPEN, "epochs": None},
    **{"precision": "fp32", "label_smoothing": 0.0, "average_from": OPEN, "ema": OPEN, "hparams": OPEN},
}
SWAD: Mapping[str, Any] = {
    **SWAD_AND_MIRO,
    **{"network.dropout": 0.0, "evaluate_every": 100},
    **{"average": "swad", "swad.optimum_patience": 3, "swad.overfit_patience": 6, "swad.tolerance": 1.3},
}
MIRO: Mapping[str, Any] = {
    **SWAD_AND_MIRO,
    **{"optim.lr": 3e-5, "optim.weight_decay": OPEN, "evaluate_every": 200, "average": "none", "swad": OPEN},
}
DIGIT_CHANGES: Mapping[str, Any] = {
    **{"backbone": "mnist_convnet", "init": "scratch", "image_size": 28, "evaluate_every": 100, "batch_size": 64},
    **{"optim.lr": 1e-3, "augment.crop": False, "augment.flip": False, "augment.jitter": 0.0, "augment.grey": 0.0},
    **{"network.freeze_statistics": False, "network.scale": "unit"},
}


@dataclass(frozen=True)
class DomainBedData(DataSettings):
    """Settings of how images are made and divided."""

    seed: int | Auto = setting("auto", "seed of in and out parts, and of the digits' colours (auto: the training's)")
    holdout: float = setting(0.2, "share of the out part of every domain", gt=0, lt=1)
    interpolation: Interpolation = setting("bilinear", "of rotated_mnist's rotations")
    training_parts: bool = setting(False, "also measure the in parts of training domains", identity=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.seed != "auto" and not 0 <= int(self.seed) < 2**31:
            raise ValueError(f"data.seed={self.seed}: should be from 0 to {2**31 - 1}")


@dataclass(frozen=True)
class DomainBedSettings(HoldingOutSettings):
    """Settings of this suite only."""

    data: DomainBedData = DomainBedData()
    augmented_validation: bool = setting(
        False, "validate on randomly changed images, as published, in place of plain ones"
    )


class DomainBed(HoldingOut[DomainBedSettings]):
    """Suite of one data set of several domains under DomainBed's protocol."""

    Settings = DomainBedSettings
    # Settings of published numbers in which methods don't differ: of DomainBed's tables, and of later papers.
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "paper2020": {"augmented_validation": True, "data.interpolation": "bicubic"},
        "swad": SWAD,
        "miro": MIRO,
    }

    @classmethod
    def defaults_for(cls, flags: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the defaults for a data set, the same for all methods."""
        data = domain_data.DATA_SETS.identifier(str(flags.get("train", "")))
        defaults = dict(PHOTOGRAPHS)
        if data in DIGITS:
            defaults.update(DIGIT_CHANGES)
        if data in domain_data.DATA_SETS:
            channels = domain_data.DATA_SETS.declare(data).channels
            if channels != 3:
                defaults["network.channels"] = channels
        if data == "domainnet":
            defaults["evaluate_every"] = 1000
        if flags.get("init", defaults["init"]) == "scratch":
            defaults["network.freeze_statistics"] = False  # without weights there are no statistics to keep
        return defaults

    @functools.cached_property
    def set_of_domains(self) -> DomainDataSet:
        """Data set of several domains. Raises UsageError if none is named, or its folder does not exist."""
        data: DomainDataSet = domain_data.DATA_SETS.make(self.config.train, lambda: self.data_root)
        return data.with_interpolation(self.config.data.interpolation)

    @property
    def folder(self) -> Path:
        return self.set_of_domains.find(self.data_root) or self.data_root / self.config.train

    @property
    def data(self) -> str:
        return self.set_of_domains.name

    def domains(self) -> tuple[str, ...]:
        return tuple(self.set_of_domains.domains(self.data_root))

    def data_sets(self) -> tuple[DomainDataSet, ...]:
        """Return the data set that the settings name, or all seven."""
        if self.config.train not in ("auto", "none"):
            return (self.set_of_domains,)
        return tuple(domain_data.DATA_SETS.make(name, lambda: self.data_root) for name in domain_data.DATA_SETS)

    def open(self) -> OpenSuite:
        """Return the suite with its images open.

        Raises UsageError if images are missing, or the domains disagree on the classes.
        """
        config, held_out = self.config, self.held_out()
        domains = self.set_of_domains.open_domains(self.data_root, self._seed, config.image_size)
        augmented, plain = (
            transforms.TrainingTransform(config.image_size, config.augment),
            transforms.SquareResize(config.image_size),
        )
        in_parts, ins, outs = {}, [], []
        for number, (name, source) in enumerate(domains.items()):
            in_parts[name], out_part = self._split(number, source)
            transform = augmented if config.augmented_validation and name not in held_out else plain
            ins.append(self._set(name, "", in_parts[name], transform))
            outs.append(replace(self._set(name, record.OUT_PART, out_part, transform), counts=False))
        return OpenSuite(
            name=self.name,
            classes=next(iter(domains.values())).classes,
            task=MULTI_CLASS,
            training={self.data: functools.cache(lambda: self.training(in_parts))},
            train_name=self.data,
            train_transform=augmented,
            validation=(*outs, *(ins if config.data.training_parts else ())),
            sets=(*ins, *outs),
            monitor=str(record.DOMAINS_MONITOR),
            fingerprint=self.set_of_domains.fingerprint(self.data_root),
            store=self.store,
            cell=self.cell(),
            test_domains=held_out,
            derivations=(record.mean_of_training_domains((part.name, part.domain) for part in outs),),
            selection_rules=record.DOMAIN_RULES,
            remarks=self._describe_differences(domains),
            usual=StreamRequest(per_domain=True, replacement=True),
        )

    def _describe_differences(self, domains: Mapping[str, Source]) -> tuple[str, ...]:
        """Return a line about each domain whose number of images differs from the release's."""
        counts = {name: len(source) for name, source in domains.items()}
        num_classes = len(next(iter(domains.values())).classes)
        differences = self.set_of_domains.compare(counts, num_classes).differences
        return tuple(f"{self.data}: {difference}" for difference in differences)

    @property
    def _seed(self) -> int:
        """Seed of the division into parts, and of the digits' colours."""
        seed = self.config.data.seed
        return self.config.seed if seed == "auto" else int(seed)

    def _split(self, number: int, source: Source) -> tuple[Source, Source]:
        """Return the in and the out part of the domain with this number; classes are not balanced (appendix D)."""
        key = [self._seed, int(record.digest(self.data), 16) % 2**32, number, 0xD0]
        order = np.random.default_rng(key).permutation(len(source))
        size = int(self.config.data.holdout * len(source))
        if not 0 < size < len(source):
            raise UsageError(f"'{source.name}' has {len(source)} image(s): too few for an in and an out part")
        rows = np.sort(order[size:]), np.sort(order[:size])
        return source.subset(rows[0], source.name), source.subset(rows[1], source.name + record.OUT_PART)

    def _set(self, domain: str, part: str, source: Source, transform: transforms.Transform) -> EvaluationSet:
        aliases = self.set_of_domains.domains(self.data_root)[domain]
        return EvaluationSet(
            f"{self.data}-{domain}{part}",
            source,
            transform,
            preprocessing=f"resized to {self.config.image_size} x {self.config.image_size}, bilinear",
            block=self.data,
            domain=domain,
            aliases=tuple(map(record.slug, aliases)),
        )
