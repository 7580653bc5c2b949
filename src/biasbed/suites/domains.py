"""Suite of a user's own domains: train on some, test on those that are held out; same classes in all.

Images are `data_dir/<data set>/<domain>/<class>/<image>` with `train=<data set>`, else
`data_dir/<domain>/<class>/<image>`. A part of each training domain, drawn by `data.seed`, validates; a held-out domain
is tested on all its images. Protocol and fingerprint do not depend on which domains are held out.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from biasbed import record
from biasbed.config import Config, DataSettings, Preprocess
from biasbed.data import folders, transforms
from biasbed.data.folders import FolderSource
from biasbed.data.listing import report_unreadable, scan
from biasbed.data.source import Source
from biasbed.datasets.base import DataSet
from biasbed.datasets.domains import OwnDomains, unite_domains
from biasbed.errors import MissingData, UsageError, listed
from biasbed.settings import nearest, refuse_unknown, setting, word
from biasbed.suites.folders import ImageFolder, holds_runs, nested_remarks
from biasbed.suites.sets import EvaluationSet
from biasbed.suites.suite import OpenSuite, Suite
from biasbed.tasks import MultiClass


@dataclass(frozen=True)
class DomainData(DataSettings):
    """Settings of the division of images."""

    seed: int = setting(0, "of the draw of each domain's validation images", ge=0, le=2**31 - 1)
    val_fraction: float = setting(0.2, "part of each class of each domain that is for validation", gt=0, lt=1)


@dataclass(frozen=True)
class HoldingOutSettings(Config):
    """Settings of suites that hold domains out of training."""

    test_domains: tuple[str, ...] = setting(
        (),
        "domains that are held out of training together, to be tested on, as a+b; in studies a cell for each by commas",
        cell=True,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        domains = "+".join(self.test_domains).split("+") if self.test_domains else []
        names = sorted(map(record.slug, domains))
        if len(set(names)) < len(names):
            raise ValueError(f"test_domains={'+'.join(domains)}: two names of one domain")
        # Sorted, so that a training has one key whatever the order on the command line.
        object.__setattr__(self, "test_domains", tuple(names))


@dataclass(frozen=True)
class DomainsSettings(HoldingOutSettings):
    """Settings of this suite only."""

    data: DomainData = DomainData()
    preprocess: Preprocess = Preprocess()


H = TypeVar("H", bound=HoldingOutSettings)
D = TypeVar("D", bound=DomainsSettings)


class HoldingOut(Suite[H]):
    """Base of suites that hold domains out of training."""

    @property
    def folder(self) -> Path:
        """Folder of the data set."""
        raise NotImplementedError

    @property
    def data(self) -> str:
        """Identifier of the data set."""
        raise NotImplementedError

    def held_out(self) -> tuple[str, ...]:
        """Return the domains that are held out, in order. Raises UsageError for an unknown domain."""
        config, domains = self.config, self.domains()
        if config.sets not in ("auto", "all"):
            raise UsageError(f"sets={word(config.sets)}: domains are tested that test_domains= holds out")
        for name in config.test_domains:
            refuse_unknown(
                name, domains, f"test_domains={','.join(config.test_domains)}: {self.folder} has no domain '{name}'"
            )
        return config.test_domains

    def training(self, parts: Mapping[str, Source]) -> Source:
        """Return the images to train on: the parts of the domains that are not held out.

        Raises UsageError if no domain is held out, or all are.
        """
        trained = {name: part for name, part in parts.items() if name not in self.config.test_domains}
        if len(trained) == len(parts):
            raise UsageError(f"say which domains are held out, and tested: test_domains=<of {listed(parts)}>")
        if not trained:
            raise UsageError(f"test_domains={','.join(parts)}: all domains are held out, and none is left to train on")
        return unite_domains(trained, self.data)

    def cell(self) -> str:
        """Return the cell's name: the data set and the held-out domains."""
        return "-".join((self.data, *self.config.test_domains))


class Domains(HoldingOut[D]):
    """Suite of one data set of several domains."""

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
        """Folder of the data set."""
        root, name = self.data_root, self.config.train
        if name in ("auto", "none"):
            return root
        with report_unreadable():
            names = scan(root).folders
        if name not in names:
            raise MissingData(f"train={name}: {root} has no such data set{nearest(name, ['auto', *names])}")
        return root / name

    @property
    def data(self) -> str:
        """Identifier of the data set."""
        return record.slug(Path(os.path.abspath(self.folder)).name)  # abspath, because a link counts by its own name

    @functools.cached_property
    def _folders(self) -> dict[str, Path]:
        """Folder of each domain, in order."""
        folders = OwnDomains(self.folder).folders(self.folder, self.data_root)
        return {name: folder for name, folder in folders.items() if not holds_runs(folder, self.config)}

    def domains(self) -> tuple[str, ...]:
        """Return the names of the data set's folders."""
        return tuple(self._folders)

    def data_sets(self) -> tuple[DataSet, ...]:
        """Return every domain as it is: nothing is known of what it should hold."""
        return tuple(map(ImageFolder, self._folders.values()))

    def open(self) -> OpenSuite:
        """Return the suite with its images open.

        Raises UsageError if folders are missing or empty, or disagree on the classes.
        """
        config, held_out = self.config, self.held_out()
        first = next(iter(self._folders.values()))
        classes = tuple(folders.class_folders(first))
        remarks = nested_remarks(first, classes)
        try:
            domains = {name: folders.open_folder(path, name, classes) for name, path in self._folders.items()}
        except UsageError as error:
            raise UsageError("; ".join((str(error), *remarks))) from None
        test_as = functools.partial(self._set, *transforms.make_photo_transform(config.image_size, config.preprocess))
        train_parts, validation = {}, []
        for name, source in domains.items():
            train_parts[name], held_back = self._split(source)
            validation.append(test_as(f"{self.data}-{name}_val", held_back, name))
        return OpenSuite(
            name=self.name,
            classes=classes,
            task=MultiClass(),
            training={self.data: functools.cache(lambda: self.training(train_parts))},
            train_name=self.data,
            train_transform=transforms.TrainingTransform(config.image_size, config.augment),
            validation=tuple(validation),
            sets=tuple(test_as(f"{self.data}-{name}", source, name) for name, source in domains.items()),
            monitor=str(record.DOMAINS_MONITOR),
            fingerprint=record.digest([source.fingerprint() for source in domains.values()]),
            store=self.store,
            cell=self.cell(),
            test_domains=held_out,
            remarks=remarks,
            derivations=(record.mean_of_training_domains((part.name, part.domain) for part in validation),),
        )

    def _split(self, source: FolderSource) -> folders.SplitSource[FolderSource]:
        """Return a domain's training and validation images: the same for all held-out domains and training seeds."""
        data = self.config.data
        return folders.split(source, data.val_fraction, data.seed, (source.name, f"{source.name}-val"))

    def _set(
        self, transform: transforms.Transform, description: str, name: str, source: FolderSource, domain: str
    ) -> EvaluationSet:
        return EvaluationSet(name, source, transform, preprocessing=description, block=self.data, domain=domain)
