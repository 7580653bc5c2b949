"""DomainBed's protocol (Gulrajani & Lopez-Paz 2021): train on all domains of a data set but those that are held out.

`train=<data set>` is one of its seven (`datasets/domains.py`), or a folder `data_dir/<data set>/<domain>/<class>/`
of your own. The seed of a training divides every domain anew: a fifth of its images, the out part, is for validation
where the domain trains; where it is held out, the others, the in part, are what is reported, and the out part is what
the oracle looks at. What a training is filed under depends on neither, so that repeats and domains stand in one table.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from biasbed import record
from biasbed.algorithms.requests import StreamRequest
from biasbed.config import Auto, Interpolation
from biasbed.data import transforms
from biasbed.data.source import Source
from biasbed.datasets import domains as domain_data
from biasbed.datasets.domains import DomainDataSet
from biasbed.errors import UsageError
from biasbed.holding_out import MONITOR, OUT, RULES, mean_of_training
from biasbed.settings import setting
from biasbed.suites.domains import HoldingOut, HoldingOutSettings
from biasbed.suites.sets import EvaluationSet
from biasbed.suites.suite import OpenSuite
from biasbed.tasks import MULTI_CLASS

DIGITS = ("colored_mnist", "rotated_mnist")
# Their appendix D and their code: what all methods have on photographs, and what else on digits and on DomainNet.
PHOTOGRAPHS: Mapping[str, Any] = {
    **{"backbone": "resnet50", "init": "named:IMAGENET1K_V1", "image_size": 224, "steps": 5001, "evaluate_every": 300},
    **{"batch_size": 32, "optim.name": "adam", "optim.lr": 5e-5, "optim.lr_batch": None, "optim.weight_decay": 0.0},
    **{"optim.schedule": "constant", "optim.warmup": 0.0, "augment.crop_scale": 0.7, "augment.jitter": 0.3},
    **{"augment.grey": 0.1, "network.freeze_statistics": True},
}
OF_DIGITS: Mapping[str, Any] = {
    **{"backbone": "mnist_convnet", "init": "scratch", "image_size": 28, "evaluate_every": 100, "batch_size": 64},
    **{"optim.lr": 1e-3, "augment.crop": False, "augment.flip": False, "augment.jitter": 0.0, "augment.grey": 0.0},
    **{"network.freeze_statistics": False, "network.scale": "unit"},
}


@dataclass(frozen=True)
class DomainBedData:
    """How images are made and divided."""

    seed: int | Auto = setting("auto", "of in and out parts, and of the digits' colours (auto: the training's)")
    holdout: float = setting(0.2, "share of the out part of every domain", gt=0, lt=1)
    interpolation: Interpolation = setting("bilinear", "of rotated_mnist's rotations")
    training_parts: bool = setting(False, "also measure what domains that train have in their in parts", identity=False)

    def __post_init__(self) -> None:
        if self.seed != "auto" and not 0 <= int(self.seed) < 2**31:
            raise ValueError(f"data.seed={self.seed}: should be from 0 to {2**31 - 1}")


@dataclass(frozen=True)
class DomainBedSettings(HoldingOutSettings):
    """What this suite alone can be told."""

    data: DomainBedData = DomainBedData()
    augmented_validation: bool = setting(
        False, "evaluate domains that train on images changed at random, as published, in place of plain ones"
    )


class DomainBed(HoldingOut[DomainBedSettings]):
    """The suite of one data set of several domains, in the way that most have compared methods on them."""

    Settings = DomainBedSettings
    # The published numbers', so far as methods don't differ in it.
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "paper2020": {"augmented_validation": True, "data.interpolation": "bicubic"}
    }

    @classmethod
    def defaults_for(cls, given: Mapping[str, Any]) -> Mapping[str, Any]:
        """One protocol for all methods, whatever they have elsewhere."""
        data = domain_data.DATA_SETS.identifier(str(given.get("train", "")))
        found = {**PHOTOGRAPHS, **(OF_DIGITS if data in DIGITS else {})}
        if data in domain_data.DATA_SETS:
            channels = domain_data.DATA_SETS.load(data).channels
            found |= {} if channels == 3 else {"network.channels": channels}
        if data == "domainnet":
            found["evaluate_every"] = 1000
        # Without weights there are no statistics to keep.
        starts = given.get("init", found["init"])
        return {**found, "network.freeze_statistics": found["network.freeze_statistics"] and starts != "scratch"}

    @functools.cached_property
    def set_of_domains(self) -> DomainDataSet:
        """The data set; UsageError where none is named, or the folder is not there."""
        if self.config.train in ("auto", "none"):
            names = ", ".join(domain_data.DATA_SETS)
            raise UsageError(f"the suite '{self.name}' needs train=<data set>: {names}, or a folder under data_dir")
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
        """The one that is named; else the seven."""
        if self.config.train not in ("auto", "none"):
            return (self.set_of_domains,)
        return tuple(domain_data.DATA_SETS.make(name, lambda: self.data_root) for name in domain_data.DATA_SETS)

    def open(self) -> OpenSuite:
        """UsageError where images are missing, or the domains disagree on the classes."""
        config, held_out = self.config, self.held_out()
        whole = self.set_of_domains.open_domains(self.data_root, self._seed, config.image_size)
        parts = {name: self._split(number, source) for number, (name, source) in enumerate(whole.items())}
        changed = transforms.training(config.image_size, config.augment)
        trained_as = changed if config.augmented_validation else transforms.SquareResize(config.image_size)
        hows = {name: transforms.SquareResize(config.image_size) if name in held_out else trained_as for name in whole}
        ins = [self._set(name, "", inner, hows[name]) for name, (inner, _) in parts.items()]
        outs = [replace(self._set(name, OUT, o, hows[name]), counts=False) for name, (_, o) in parts.items()]
        return OpenSuite(
            name=self.name,
            classes=next(iter(whole.values())).classes,
            task=MULTI_CLASS,
            training={self.data: functools.cache(lambda: self.training({n: own[0] for n, own in parts.items()}))},
            train_name=self.data,
            train_transform=changed,
            validation=(*outs, *(ins if config.data.training_parts else ())),
            sets=(*ins, *outs),
            monitor=str(MONITOR),
            fingerprint=self.set_of_domains.fingerprint(self.data_root),
            store=self.store,
            cell=self.cell(),
            test_domains=held_out,
            derivations=(mean_of_training((entry.name, entry.domain) for entry in outs),),
            selection_rules=RULES,
            usual=StreamRequest(per_domain=True, replacement=True),
        )

    @property
    def _seed(self) -> int:
        """Of what is drawn of the data set."""
        seed = self.config.data.seed
        return self.config.seed if seed == "auto" else int(seed)

    def _split(self, number: int, source: Source) -> tuple[Source, Source]:
        """(in part, out part) of the domain with this number; classes are not balanced (appendix D)."""
        key = [self._seed, int(record.digest(self.data), 16) % 2**32, number, 0xD0]
        order = np.random.default_rng(key).permutation(len(source))
        size = int(self.config.data.holdout * len(source))
        if not 0 < size < len(source):
            raise UsageError(f"'{source.name}' has {len(source)} image(s): too few for an in and an out part")
        rows = np.sort(order[size:]), np.sort(order[:size])
        return source.subset(rows[0], source.name), source.subset(rows[1], source.name + OUT)

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
