"""A user's own domains: train on some, test on those that are held out; same classes in all.

`data_dir/<data set>/<domain>/<class>/<image>` with `train=<data set>`, or `data_dir/<domain>/<class>/<image>` without.
A part of every domain's images, drawn by `data.seed`, is for validation where the domain trains; a held-out domain is
tested on all its images. What is held out changes neither the protocol nor the fingerprint.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from biasbed import record
from biasbed.config import Config, Preprocess
from biasbed.data import folders, transforms
from biasbed.data.folders import FolderSource
from biasbed.data.listing import reading, scan
from biasbed.data.source import Source
from biasbed.datasets.base import DataSet
from biasbed.datasets.domains import OwnDomains, united
from biasbed.errors import MissingData, UsageError, listed
from biasbed.holding_out import MONITOR, mean_of_training
from biasbed.settings import nearest, setting, word
from biasbed.suites.folders import ImageFolder, holds_runs, nested
from biasbed.suites.sets import EvaluationSet
from biasbed.suites.suite import OpenSuite, Suite
from biasbed.tasks import MultiClass


@dataclass(frozen=True)
class DomainData:
    """How the images are divided."""

    seed: int = setting(0, "of the draw of each domain's validation images", ge=0, le=2**31 - 1)
    val_fraction: float = setting(0.2, "part of each class of each domain that is for validation", gt=0, lt=1)


@dataclass(frozen=True)
class HoldingOutSettings(Config):
    """What suites that hold domains out of training can be told."""

    test_domains: tuple[str, ...] = setting(
        (), "domains that are held out of training, to be tested on; in studies also each, or pairs", cell=True
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        found = sorted(map(record.slug, self.test_domains))
        if len(set(found)) < len(found):
            raise ValueError(f"test_domains={','.join(self.test_domains)}: two names of one domain")
        # In one order, whichever they are given in: one training, one key.
        object.__setattr__(self, "test_domains", tuple(found))


@dataclass(frozen=True)
class DomainsSettings(HoldingOutSettings):
    """What this suite alone can be told."""

    data: DomainData = DomainData()
    preprocess: Preprocess = Preprocess()


H = TypeVar("H", bound=HoldingOutSettings)
D = TypeVar("D", bound=DomainsSettings)


class HoldingOut(Suite[H]):
    """What suites have in common that hold domains out of training."""

    @property
    def folder(self) -> Path:
        """Of the data set."""
        raise NotImplementedError

    @property
    def data(self) -> str:
        """Identifier of the data set."""
        raise NotImplementedError

    def held_out(self) -> tuple[str, ...]:
        """The domains that are held out, in order; UsageError for one that there is not."""
        config, known = self.config, self.domains()
        if config.sets not in ("auto", "all"):
            raise UsageError(f"sets={word(config.sets)}: domains are tested that test_domains= holds out")
        for name in config.test_domains:
            if name not in known:
                hint = "; each and pairs are for studies (benchmark, sweep)"
                hint = hint if name in ("each", "pairs") else nearest(name, known)
                raise UsageError(
                    f"test_domains={','.join(config.test_domains)}: {self.folder} has no domain '{name}'{hint}"
                )
        return config.test_domains

    def training(self, parts: Mapping[str, Source]) -> Source:
        """The images to train on, of these parts of all domains; UsageError where none is held out, or all are."""
        trained = {name: part for name, part in parts.items() if name not in self.config.test_domains}
        if len(trained) == len(parts):
            raise UsageError(f"say which domains are held out, and tested: test_domains=<of {listed(parts)}>")
        if not trained:
            raise UsageError(f"test_domains={','.join(parts)}: all domains are held out, and none is left to train on")
        return united(trained, self.data)

    def cell(self) -> str:
        """What it trains on."""
        return "-".join((self.data, *self.config.test_domains))


class Domains(HoldingOut[D]):
    """The suite of one data set of several domains."""

    Settings = DomainsSettings
    defaults: ClassVar[Mapping[str, Any]] = {
        "backbone": "resnet18",
        "image_size": 112,
        "epochs": 30,
        "batch_size": 64,
        "optim.warmup": 1.0,
    }

    @property
    def folder(self) -> Path:
        """Of the data set."""
        root, name = self.data_root, self.config.train
        if name in ("auto", "none"):
            return root
        with reading():
            names = scan(root)[0]
        if name not in names:
            raise MissingData(f"train={name}: {root} has no such data set{nearest(name, ['auto', *names])}")
        return root / name

    @property
    def data(self) -> str:
        """Identifier of the data set."""
        return record.slug(Path(os.path.abspath(self.folder)).name)  # of a link its own name

    @functools.cached_property
    def _folders(self) -> dict[str, Path]:
        """Domain -> its folder, in order."""
        folders = OwnDomains(self.folder).folders(self.folder, self.data_root)
        return {name: folder for name, folder in folders.items() if not holds_runs(folder, self.config)}

    def domains(self) -> tuple[str, ...]:
        """Every folder of the data set."""
        return tuple(self._folders)

    def data_sets(self) -> tuple[DataSet, ...]:
        """Every domain, as it is: nothing is known of what it should hold."""
        return tuple(map(ImageFolder, self._folders.values()))

    def open(self) -> OpenSuite:
        """UsageError where folders are missing or empty, or disagree on the classes."""
        config, held_out = self.config, self.held_out()
        first = next(iter(self._folders.values()))
        classes = tuple(folders.class_folders(first))
        remarks = nested(first, classes)
        try:
            whole = {name: folders.open_folder(path, name, classes) for name, path in self._folders.items()}
        except UsageError as error:
            raise UsageError("; ".join((str(error), *remarks))) from None
        parts = {name: self._split(source) for name, source in whole.items()}
        test_as = functools.partial(self._set, *transforms.natural(config.image_size, config.preprocess))
        kept = {name: part[0] for name, part in parts.items()}
        validation = tuple(test_as(f"{self.data}-{name}_val", part[1], name) for name, part in parts.items())
        return OpenSuite(
            name=self.name,
            classes=classes,
            task=MultiClass(),
            training={self.data: functools.cache(lambda: self.training(kept))},
            train_name=self.data,
            train_transform=transforms.training(config.image_size, config.augment),
            validation=validation,
            sets=tuple(test_as(f"{self.data}-{name}", source, name) for name, source in whole.items()),
            monitor=str(MONITOR),
            fingerprint=record.digest([source.fingerprint() for source in whole.values()]),
            store=self.store,
            cell=self.cell(),
            test_domains=held_out,
            remarks=remarks,
            derivations=(mean_of_training((entry.name, entry.domain) for entry in validation),),
        )

    def _split(self, source: FolderSource) -> tuple[FolderSource, FolderSource]:
        """(training, validation) images of a domain, the same whatever is held out and whatever the training's seed."""
        data = self.config.data
        return folders.split(source, data.val_fraction, data.seed, (source.name, f"{source.name}-val"))

    def _set(
        self, transform: transforms.Transform, words: str, name: str, source: FolderSource, domain: str
    ) -> EvaluationSet:
        return EvaluationSet(name, source, transform, preprocessing=words, block=self.data, domain=domain)
