"""The contract of a suite: what its file says, and what comes of it once its images are opened."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, TypeVar

from biasbed import measures, record
from biasbed.config import Config, layered
from biasbed.errors import MissingData, UsageError
from biasbed.settings import flatten, nearest, specs, word
from biasbed.suites import derived

if TYPE_CHECKING:
    import numpy as np

    from biasbed.algorithms.requests import StreamRequest
    from biasbed.data.prepared import PreparedStore
    from biasbed.data.source import Source
    from biasbed.data.streams import Stream
    from biasbed.data.transforms import Transform
    from biasbed.data.views import ViewTransform
    from biasbed.datasets.base import OnDisk
    from biasbed.suites.sets import EvaluationSet
    from biasbed.tasks import Task

C = TypeVar("C", bound=Config)


class Suite(Generic[C]):
    """A protocol, as one file says it: its settings, its defaults and presets, how its images are opened.

    Settings: a subclass of `Config` with what this suite alone can be told. defaults: settings that it chooses
    otherwise than `Config` and `Settings`, by dotted name, unless a method does. presets: named settings besides them.
    """

    Settings: ClassVar[type[Config]] = Config
    defaults: ClassVar[Mapping[str, Any]] = {}
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {}

    def __init__(self, config: C, name: str) -> None:
        """name: what its runs are filed under."""
        self.config, self.name = config, name

    @classmethod
    def defaults_for(cls, given: Mapping[str, Any]) -> Mapping[str, Any]:
        """Settings that it chooses for a data set (`train`), for a method (`algorithm`), or for one on the other.

        They win over `defaults` and over the method's own, `hparams.*` too; presets and flags win over them. given: the
        flags, as words or values; what is left open is not among them.
        """
        return {}

    @classmethod
    def usual(cls, given: Mapping[str, Any]) -> dict[str, Any]:
        """Its settings where no method is trained. given: the flags."""
        found = layered([cls.defaults, cls.defaults_for(given)])
        return {name: value for name, value in found.items() if not name.startswith("hparams.")}

    def open(self) -> OpenSuite:
        """The suite with its images; UsageError where they are missing or don't fit."""
        raise NotImplementedError

    def domains(self) -> tuple[str, ...]:
        """Identifiers of the domains that a training may hold out, in order; none where there is nothing to hold out.

        Named by the setting `test_domains`, which such a suite has.
        """
        return ()

    def data_sets(self) -> tuple[OnDisk, ...]:
        """What it looks for under `data_dir`; none where it computes its images."""
        return ()

    def known_classes(self) -> Mapping[str, tuple[str, ...]]:
        """Return the classes of the sets that are tested, by set, as far as they are known before an image is opened.

        A model that fits none of them is then refused at once. Empty if opening the suite takes no time.
        """
        return {}

    @property
    def data_root(self) -> Path:
        """The folder `data_dir`; UsageError where it is not given or not there."""
        if self.config.data_dir is None:
            raise MissingData(f"the suite '{self.name}' needs data_dir=<the folder that holds its data sets>")
        root = Path(self.config.data_dir).expanduser()
        if not root.is_dir():
            raise MissingData(f"data_dir={root}: there is no such folder")
        return root

    @property
    def store(self) -> PreparedStore:
        """What is prepared of its images."""
        from biasbed.data import prepared

        return prepared.PreparedStore(prepared.base(self.config.prepared_dir) / self.name, self._flags())

    def _flags(self) -> tuple[tuple[str, str], ...]:
        """What names the same training data in another command."""
        chosen = [("suite", self.config.suite)]
        train = {} if self.config.train == "auto" else {"train": self.config.train}
        general = {name: spec.default for name, spec in specs(self.Settings).items()}
        usual = {**general, **self.usual({**dict(chosen), **train})}
        for name, value in flatten(self.config).items():
            names_data = name in ("data_dir", "train", "test_domains", "image_size", "prepared_dir")
            if (names_data or name.startswith("data.")) and value not in (usual[name], "none"):
                chosen.append((name, word(value)))
        return tuple(chosen)


@dataclass(frozen=True, eq=False)
class OpenSuite:
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
    store: PreparedStore  # what is prepared of them
    unsplit: Callable[[], Source] | None = None  # all images that training and validation are split from, if they are
    cell: str = ""  # what a run trains on, where the suite tells several apart: data set, severity, held-out domains
    test_domains: tuple[str, ...] = ()  # the domains that are held out of training
    derivations: tuple[record.Derived, ...] = ()  # what follows from the measured values
    # Numbers of images, of which values may be derived too: `train/images/<data set>:<group>`, `val/aligned_images/..`
    counts: Mapping[str, int] = field(default_factory=dict)
    recount: Callable[[OpenSuite], Mapping[str, int]] | None = None  # makes them anew, of a part of the images
    bias_type: str = ""  # what kind of thing biases the training images (colour, background), where that is known
    left_out: Mapping[str, str] = field(default_factory=dict)  # evaluation sets that are not there, and why
    remarks: tuple[str, ...] = ()  # what else a user should know about the images
    files: Mapping[str, str] = field(default_factory=dict)  # kept with a training in `record.DATA_FOLDER`: name -> text
    usual: StreamRequest | None = None  # how training images are drawn where a method leaves it open
    limit: int | None = None  # images of each set at most (`suites.limited`)
    selection_rules: tuple[str, ...] = record.SELECTION_RULES  # that make sense here, the usual one first

    @property
    def validating(self) -> tuple[EvaluationSet, ...]:
        """Of `validation`, what a run is validated on: no domain that it holds out."""
        return tuple(entry for entry in self.validation if entry.domain not in self.test_domains)

    @property
    def testing(self) -> tuple[EvaluationSet, ...]:
        """Of `sets`, what a run is tested on: where domains are held out, of the sets that show one those that do."""
        held_out = self.test_domains
        return tuple(e for e in self.sets if not (e.domain and held_out) or e.domain in held_out)

    @property
    def tested(self) -> tuple[EvaluationSet, ...]:
        """All that a run's model decides on, each once: validation may be on one of the sets."""
        return tuple(dict.fromkeys((*self.validating, *self.testing)))

    @property
    def kept(self) -> dict[str, str]:
        """What is kept with a training beside its metrics: path within its artifacts -> text."""
        counts = {record.COUNTS_FILE: json.dumps(dict(self.counts), indent=2) + "\n"} if self.counts else {}
        return {**counts, **{f"{record.DATA_FOLDER}/{name}": text for name, text in self.files.items()}}

    def with_cadences(self, words: Sequence[str]) -> OpenSuite:
        """The suite with some sets tested when these words say, `<set>:<n>` or `<set>:end`; UsageError for others."""
        wanted = dict(_cadence(word, [entry.name for entry in self.sets]) for word in words)
        sets = tuple(replace(e, cadence=wanted[e.name]) if e.name in wanted else e for e in self.sets)
        twins = {id(old): new for old, new in zip(self.sets, sets, strict=True)}
        return replace(self, sets=sets, validation=tuple(twins.get(id(entry), entry) for entry in self.validation))

    def protocol(self, config: Config) -> record.Protocol:
        """What is written with each run, so that analysis knows the suite without importing it.

        Raises UsageError where something is derived of what no set gives, or labels are not those of the task.
        """
        for entry in (*self.validation, *self.sets):
            if entry.task.name != self.task.name:
                raise UsageError(f"the suite '{self.name}' learns {self.task.words}, its set '{entry.name}' otherwise")
            self._check_labels(entry.source)
        found = record.Protocol(
            suite=self.name,
            sets=tuple(self._recorded(entry) for entry in self.sets),
            training_sets=(self.train_name,),
            validation_sets=tuple(entry.name for entry in self.validation),
            monitor=self.monitor,
            monitor_higher_is_better=self._is_better_higher(self.monitor),
            step_unit=config.unit,
            selection_rules=self.selection_rules,
            default_selection=self.selection_rules[0],
            derived=self.derivations,
            limit=self.limit,
        )
        return derived.checked(found, self.known())

    def _recorded(self, entry: EvaluationSet) -> record.SetRecord:
        """A set as analysis knows it; a headline that is derived has its own direction, and no chance level."""
        found = entry.record()
        headline = str(record.MetricName("test", found.headline, found.name))
        if headline not in {own.metric for own in self.derivations}:
            return found
        return replace(found, higher_is_better=self._is_better_higher(headline), chance=0.0)

    def _is_better_higher(self, metric: str) -> bool:
        """Whether more of a metric is better: as it is declared where it is derived, else as its measure has it."""
        declared = {own.metric: own.higher_is_better for own in self.derivations}
        return declared.get(metric, measures.of(metric).higher_is_better)

    def measured(self) -> set[str]:
        """The metrics that its sets give."""
        phases = [("val", entry) for entry in self.validation] + [("test", entry) for entry in self.sets]
        return {metric for phase, entry in phases for metric in derived.metrics_of(entry.record(), phase)}

    def known(self) -> set[str]:
        """All that something may be derived of: what its sets give, and numbers of images."""
        return self.measured() | set(self.counts)

    def tested_hash(self, protocol: record.Protocol) -> str:
        """Of all that a model is tested on: sets, their images, classes and label maps, and what is derived of them.

        Images that a seed draws or makes are those of another seed here: repeats stand in one table.
        """
        images = [entry.source.origin or entry.source.fingerprint() for entry in self.sets]
        return record.digest({"tested": protocol.tested, "classes": self.classes, "images": images})

    def training_data(self, wanted: Mapping[str, float]) -> dict[str, float]:
        """An algorithm's training data by the suite's names; UsageError where the suite has none of that name."""
        named = {self.train_name if name == "train" else name: share for name, share in wanted.items()}
        if len(named) < len(wanted):
            raise UsageError(f"the training data '{self.train_name}' has the name of what is prepared of it: rename it")
        for name in named:
            self._check_labels(self.source(name))
        return named

    def _check_labels(self, source: Source) -> None:
        """UsageError for labels in another form than the task's."""
        expected = (len(source), len(source.classes)) if self.task.several else (len(source),)
        if source.y.shape != expected:
            shape, wanted = (" x ".join(map(str, of)) for of in (source.y.shape, expected))
            raise UsageError(
                f"the suite '{self.name}' learns {self.task.words}: labels of '{source.name}' are {shape} numbers, "
                f"not {wanted}"
            )

    def provides(self, training_data: Iterable[str]) -> frozenset[str]:
        """Of what methods may need (`algorithms.needs.NEEDS`), what these training data have."""
        sources, validation = [self.source(name) for name in training_data], [entry.source for entry in self.validation]
        found = {
            "bias": all(source.bias is not None for source in sources),
            "domain": all(source.domain is not None and len(source.domains) > 1 for source in sources),
            "bias_type": bool(self.bias_type),
            "validation_bias": bool(validation) and all(source.bias is not None for source in validation),
        }
        return frozenset(name for name, is_there in found.items() if is_there)

    def source(self, name: str) -> Source:
        """Training data by name: the suite's own, or prepared from it; UsageError where there is none."""
        if name not in self._sources:
            self._sources[name] = self._opened(name)
        return self._sources[name]

    @cached_property
    def _sources(self) -> dict[str, Source]:
        """Training data that was asked for, by name: examples are numbered by the objects that they are in."""
        return {}

    def _opened(self, name: str) -> Source:
        from biasbed.data.prepared import MAKERS

        if name in self.training:
            return self.training[name]()
        if self.train_name == "none":
            raise UsageError("train=none is for testing a model: name the images that are to be trained on")
        has_own = self.train_name in self.training
        if not has_own or (name not in MAKERS and not self.store.has_images(self.material(), name)):
            known = {*self.training, *MAKERS}
            raise UsageError(f"the suite '{self.name}' has no training data '{name}'{nearest(name, known)}")
        return self.store.open_images(self.material(), name, self.training[self.train_name]())

    def material(self) -> Source:
        """The images that are prepared for training: all that this suite's training data may be split from."""
        if self.train_name not in self.training:
            raise UsageError(f"the suite '{self.name}' has no training images here: name them with train=")
        return (self.unsplit or self.training[self.train_name])()

    def network(self, kind: str) -> Path:
        """The file of a prepared network; UsageError with the command that prepares it."""
        return self.store.existing_network(self.material(), kind)

    def views(self, request: StreamRequest, source: Source) -> tuple[ViewTransform, ...]:
        """What makes the copies of a source's images that are asked for; none where these are as they are."""
        from biasbed.data import views

        if [view.name for view in request.views] == ["plain"]:
            return ()
        return tuple(views.make(view.name, view.settings, source.channels) for view in request.views)

    def stream(
        self,
        request: StreamRequest,
        shares: Mapping[str, float],
        batch_size: int,
        apart: bool = False,
        table: Callable[[str, Source], np.ndarray] | None = None,
    ) -> Stream:
        """A stream as it is asked for; UsageError where its images can't be drawn or made so.

        shares: of its data sets, by the suite's names. batch_size: unless it names its size. apart: equal parts of
        domains come one after the other. table: the values that a table of the method has for a source's images; None
        before there are any.
        """
        from biasbed.data import streams, transforms

        asked = request if self.usual is None else request.over(self.usual)
        transform = self.train_transform if not request.clean else (*self.validation, *self.sets)[0].transform
        if request.image_size is not None:
            transform = transforms.at_size(transform, request.image_size)
        parts = [
            streams.Part(self.source(name), share, transform, asked.by or (), bool(asked.replacement))
            for name, share in shares.items()
        ]
        if request.weights and table is not None:
            parts = [streams.weighted(part, table(request.weights, part.source), request.weights) for part in parts]
        size, images = request.size or batch_size, None
        if asked.per_domain:
            if len(parts) > 1:
                raise UsageError(f"{' and '.join(shares)} are drawn together: they have no domains in equal parts")
            images = len(parts[0])
            parts = list(streams.per_domain(parts[0]))
            size *= len(parts)
        return streams.Stream(
            tuple(parts),
            size,
            self.views(request, parts[0].source),
            shared=request.shared,
            images=images,
            apart=bool(asked.per_domain) and apart,
            labelled=request.labelled,
            drop_last=bool(asked.drop_last),
        )


def _cadence(words: str, names: Sequence[str]) -> tuple[str, int | Literal["end"]]:
    """A set's name and when it is tested."""
    name, _, when = words.partition(":")
    if name not in names:
        raise UsageError(f"test_every={words}: there is no evaluation set '{name}'{nearest(name, names)}")
    if when == "end":
        return name, "end"
    if not when.isdecimal() or int(when) < 1:
        raise UsageError(f"test_every={words}: should be <set>:<number of evaluations>, or <set>:end")
    return name, int(when)


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
