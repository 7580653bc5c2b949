"""Suites: which images train, which test, and how it is judged. Only the files of this folder know a suite's name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from biasbed import measures, record
from biasbed.errors import UsageError
from biasbed.registry import Registry
from biasbed.settings import nearest

if TYPE_CHECKING:
    from biasbed.config import Config
    from biasbed.data.folders import FolderSource
    from biasbed.data.prepared import PreparedStore
    from biasbed.data.source import Source
    from biasbed.data.streams import Stream
    from biasbed.data.transforms import Transform
    from biasbed.datasets.base import DataSet
    from biasbed.suites.sets import EvaluationSet
    from biasbed.tasks import Task

REGISTRY = Registry(
    "suite",
    {
        "demo": "biasbed.suites.demo",
        "folders": "biasbed.suites.folders",
        "biasbed": "biasbed.suites.biasbed",
    },
)


@dataclass(frozen=True, eq=False)
class Suite:
    """A protocol, with its images opened."""

    name: str
    classes: tuple[str, ...]
    task: Task
    training: Mapping[str, Callable[[], Source]]  # the suite's own data to train on; opened when used
    train_name: str  # the one that algorithms mean by "train"
    train_transform: Transform
    validation: tuple[EvaluationSet, ...]
    sets: tuple[EvaluationSet, ...]
    monitor: str  # metric name
    fingerprint: str  # of all images that a run may see
    whole: Callable[[], Source] | None = None  # all images that training and validation are split from, if they are
    store: PreparedStore | None = None  # what is prepared of them; `open_suite` sets it
    left_out: Mapping[str, str] = field(default_factory=dict)  # evaluation sets that are not there, and why
    remarks: tuple[str, ...] = ()  # what else a user should know about the images
    domains: tuple[str, ...] = ()  # that `test_domains` may hold out

    @property
    def tested(self) -> tuple[EvaluationSet, ...]:
        """All that a model is tested on, each once: validation may be on one of the sets."""
        return tuple(dict.fromkeys((*self.validation, *self.sets)))

    def protocol(self, config: Config) -> record.Protocol:
        """What is written with each run, so that analysis knows the suite without importing it."""
        return record.Protocol(
            suite=self.name,
            sets=tuple(entry.record() for entry in self.sets),
            training_sets=(self.train_name,),
            validation_sets=tuple(entry.name for entry in self.validation),
            monitor=self.monitor,
            monitor_higher_is_better=measures.of(self.monitor).higher_is_better,
            step_unit=config.unit,
        )

    def training_data(self, wanted: Mapping[str, float]) -> dict[str, float]:
        """An algorithm's training data by the suite's names; UsageError where the suite has none of that name."""
        named = {self.train_name if name == "train" else name: share for name, share in wanted.items()}
        if len(named) < len(wanted):
            raise UsageError(f"the training data '{self.train_name}' has the name of what is prepared of it: rename it")
        for name in named:
            self.source(name)
        return named

    def source(self, name: str) -> Source:
        """Training data by name: the suite's own, or prepared from it; UsageError where there is none."""
        from biasbed.data.prepared import IMAGES

        if name in self.training:
            return self.training[name]()
        if self.train_name == "none":
            raise UsageError("train=none is for testing a model: name the images that are to be trained on")
        if name not in IMAGES or self.store is None or self.train_name not in self.training:
            known = {*self.training, *IMAGES}
            raise UsageError(f"the suite '{self.name}' has no training data '{name}'{nearest(name, known)}")
        return self.store.open_images(self.material(), name, self.training[self.train_name]())

    def material(self) -> Source:
        """The images that are prepared for training: all that this suite's training data may be split from."""
        if self.train_name not in self.training:
            raise UsageError(f"the suite '{self.name}' has no training images here: name them with train=")
        return (self.whole or self.training[self.train_name])()

    def network(self, kind: str) -> Path:
        """The file of a prepared network; UsageError with the command that prepares it."""
        assert self.store is not None
        return self.store.existing_network(self.material(), kind)

    def stream(self, training_data: Mapping[str, float], batch_size: int, views: int) -> Stream:
        """The main stream: every data set with its share."""
        from biasbed.data.streams import Part, Stream

        parts = [Part(self.source(name), share, self.train_transform) for name, share in training_data.items()]
        return Stream(tuple(parts), batch_size, views)


def defaults(name: str) -> Mapping[str, Any]:
    """The settings that a suite chooses otherwise than `Config`; UsageError for an unknown suite."""
    return dict(REGISTRY.load(name).DEFAULTS)


def presets(name: str) -> Mapping[str, Mapping[str, Any]]:
    """Named settings that a suite has besides its defaults."""
    return dict(getattr(REGISTRY.load(name), "PRESETS", {}))


def open_suite(config: Config) -> Suite:
    """The suite with its images; UsageError where they are missing or don't fit."""
    suite: Suite = REGISTRY.load(config.suite).build(config)
    for name in config.test_domains or ():
        if name not in suite.domains:
            hint = nearest(name, suite.domains) if suite.domains else ": leave test_domains= out"
            raise UsageError(f"test_domains={name}: the suite '{suite.name}' has no such domain to hold out{hint}")
    return replace(suite, store=open_store(config))


def open_store(config: Config) -> PreparedStore:
    """What is prepared of the suite's images."""
    from biasbed.data import prepared

    return prepared.PreparedStore(prepared.base(config.prepared_dir) / config.suite, _flags(config))


def data_sets(config: Config) -> tuple[DataSet, ...]:
    """What the suite looks for under `data_dir`; none where it computes its images."""
    found: tuple[DataSet, ...] = REGISTRY.load(config.suite).data_sets(config)
    return found


def data_root(config: Config) -> Path:
    """The folder `data_dir`; UsageError where it is not given or not there."""
    if config.data_dir is None:
        raise UsageError(f"the suite '{config.suite}' needs data_dir=<the folder that holds its data sets>")
    root = Path(config.data_dir).expanduser()
    if not root.is_dir():
        raise UsageError(f"data_dir={root}: there is no such folder")
    return root


def folder_suite(
    config: Config,
    classes: tuple[str, ...],
    sets: Sequence[EvaluationSet],
    whole: FolderSource | None,
    held_out: Callable[[Source], EvaluationSet],
) -> Suite:
    """A suite of images in files. whole: all images to train on; None: the suite is for testing a model.

    Validation is on a part of the training images, drawn by the seed, of which `held_out` makes an evaluation set; or
    on one of the suite's own sets, if `validation` names one: then all training images train.
    """
    from biasbed.data import transforms
    from biasbed.tasks import MultiClass

    train, validation = (None, None) if whole is None else _trained_on(config, sets, whole, held_out)
    return Suite(
        name=config.suite,
        classes=classes,
        task=MultiClass(),
        training={} if train is None else {train.name: lambda: train},
        train_name="none" if whole is None else whole.name,
        train_transform=transforms.training(config.image_size, config.augment),
        validation=() if validation is None else (validation,),
        sets=tuple(sets),
        monitor="" if validation is None else str(record.MetricName("val", "accuracy", validation.name)),
        fingerprint=record.digest([s.fingerprint() for s in (whole, *(e.source for e in sets)) if s is not None]),
        whole=None if whole is None else lambda: whole,
    )


def _trained_on(
    config: Config, sets: Sequence[EvaluationSet], whole: FolderSource, held_out: Callable[[Source], EvaluationSet]
) -> tuple[FolderSource, EvaluationSet]:
    """(training images, validation)."""
    from biasbed.data import folders

    own = {entry.name: entry for entry in sets}
    if config.validation == "auto":
        train, rest = folders.split(whole, config.val_fraction, config.seed, (whole.name, "held-out"))
        return train, held_out(rest)
    if config.validation not in own:
        hint = nearest(config.validation, ["auto", *own])
        raise UsageError(f"validation={config.validation}: there is no such evaluation set{hint}")
    return whole, own[config.validation]


def _flags(config: Config) -> tuple[tuple[str, str], ...]:
    """What names the same training data in another command."""
    usual = {"train": "auto", "data_dir": None, "prepared_dir": "auto", **REGISTRY.load(config.suite).DEFAULTS}
    chosen = [("suite", config.suite)]
    for name in ("data_dir", "train", "image_size", "prepared_dir"):
        value = getattr(config, name)
        if value != usual.get(name) and (name, value) != ("train", "none"):
            chosen.append((name, str(value)))
    return tuple(chosen)


def choose(names: Iterable[str], wanted: Sequence[str] | str, what: str = "evaluation set") -> tuple[str, ...]:
    """Those names that `sets=` wants, in the suite's order; UsageError for an unknown one, or none."""
    if wanted in ("auto", "all"):
        return tuple(names)
    if not wanted:
        raise UsageError(f"sets= is empty: name {what}s, or leave it out")
    known = tuple(names)
    for name in wanted:
        if name not in known:
            raise UsageError(f"sets={','.join(wanted)}: there is no {what} '{name}'{nearest(name, known)}")
    return tuple(name for name in known if name in wanted)
