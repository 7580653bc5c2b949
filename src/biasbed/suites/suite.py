"""Contract of suites: `Suite` (settings, defaults, presets) and `OpenSuite` (with its images open).

Answers: What is in a suite?
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, TypeVar

from biasbed import measures, record
from biasbed.config import Config, ScoreSettings, layered
from biasbed.errors import UsageError
from biasbed.settings import flatten, nearest, refuse_unknown, specs, word
from biasbed.suites import derived
from biasbed.suites.registered import REGISTRY
from biasbed.system import places

if TYPE_CHECKING:
    import numpy as np

    from biasbed.algorithms.requests import StreamRequest
    from biasbed.data.image_store import ImageStore
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
    """Protocol in one file: its settings, defaults and presets, and how its images are opened.

    Settings: a subclass of `Config` with the settings of this suite only. defaults: settings by dotted name whose
    default differs from that of `Config` and `Settings`; a method's defaults win. presets: further named settings.
    """

    Settings: ClassVar[type[Config]] = Config
    defaults: ClassVar[Mapping[str, Any]] = {}
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    set_names: ClassVar[Collection[str]] = ()  # of evaluation sets, if they don't depend on the settings

    def __init__(self, config: C, name: str) -> None:
        """Keep the configuration. name: what the suite's runs are filed under."""
        self.config, self.name = config, name

    @classmethod
    def defaults_for(cls, flags: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the defaults for a data set (`train`), for a method (`algorithm`), or for one on the other.

        They win over `defaults` and over the method's own, `hparams.*` included; presets and flags win over them.
        flags: the settings that the user gave, as text or values.
        """
        return {}

    @classmethod
    def defaults_without_method(cls, flags: Mapping[str, Any]) -> dict[str, Any]:
        """Return the defaults of a command that trains no method. flags: the settings that the user gave."""
        defaults = layered([cls.defaults, cls.defaults_for(flags)])
        return {name: value for name, value in defaults.items() if not name.startswith("hparams.")}

    def open(self) -> OpenSuite:
        """Return the suite with its images open. Raises UsageError if images are missing or don't fit."""
        raise NotImplementedError

    def domains(self) -> tuple[str, ...]:
        """Return the identifiers of the domains that a training may hold out, in order; empty if there are none.

        A suite with domains has the setting `test_domains`, which names those held out.
        """
        return ()

    def data_sets(self) -> tuple[OnDisk, ...]:
        """Return the data sets that the suite looks for under `data_dir`; empty if it computes its images."""
        return ()

    @property
    def data_root(self) -> Path:
        """Folder `data_dir`. Raises MissingData if it is not given or does not exist."""
        return places.data_root(self.config.data_dir, f"the suite '{self.name}'")

    @property
    def store(self) -> PreparedStore:
        """Store of networks and images that are prepared from the suite's images."""
        from biasbed.data import prepared

        return prepared.PreparedStore(places.prepared_home(self.config.prepared_dir) / self.name, self._flags())

    def _flags(self) -> tuple[tuple[str, str], ...]:
        """Return the flags with which another command uses the same training data."""
        flags = [("suite", self.config.suite)]
        train = {} if self.config.train == "auto" else {"train": self.config.train}
        general = {name: spec.default for name, spec in specs(self.Settings).items()}
        usual = {**general, **self.defaults_without_method({**dict(flags), **train})}
        for name, value in flatten(self.config).items():
            names_data = name in ("data_dir", "train", "test_domains", "image_size", "prepared_dir")
            if (names_data or name.startswith("data.")) and value not in (usual[name], "none"):
                flags.append((name, word(value)))
        return tuple(flags)


@dataclass(frozen=True, eq=False)
class OpenSuite:
    """Suite whose images are open."""

    name: str
    classes: tuple[str, ...]
    task: Task
    training: Mapping[str, Callable[[], Source]]  # the suite's own training data by name, opened on first use
    train_name: str  # the one that algorithms call "train"
    train_transform: Transform
    validation: tuple[EvaluationSet, ...]
    sets: tuple[EvaluationSet, ...]
    monitor: str  # metric name
    fingerprint: str  # of all images that a run may see
    store: PreparedStore  # of what is prepared from the training images
    unsplit: Callable[[], Source] | None = None  # images that training and validation are split from, if they are
    cell: str = ""  # data set, severity or held-out domains of a run, if the suite has several
    test_domains: tuple[str, ...] = ()  # the domains that are held out of training
    derivations: tuple[record.Derived, ...] = ()  # values that follow from measured ones
    # Numbers of images, which derivations may use too: `train/images/<data set>:<group>`, `val/aligned_images/..`
    counts: Mapping[str, int] = field(default_factory=dict)
    recount: Callable[[OpenSuite], Mapping[str, int]] | None = None  # counts of a suite on a part of its images
    bias_type: str = ""  # kind of bias in the training images (colour, background), if known
    left_out: Mapping[str, str] = field(default_factory=dict)  # missing evaluation sets -> reason
    remarks: tuple[str, ...] = ()  # what else a user should know about the images
    files: Mapping[str, str] = field(default_factory=dict)  # kept with a training in `record.DATA_FOLDER`: name -> text
    usual: StreamRequest | None = None  # default for how training images are drawn
    limit: int | None = None  # images of each set at most (`suites.limited`)
    images: ImageStore | None = None  # that pictures are opened through; None before `with_store`
    selection_rules: tuple[str, ...] = record.SELECTION_RULES  # rules that apply here, the default first

    @property
    def validating(self) -> tuple[EvaluationSet, ...]:
        """Sets that a run is validated on: those of `validation` that show no held-out domain."""
        return tuple(member for member in self.validation if member.domain not in self.test_domains)

    @property
    def testing(self) -> tuple[EvaluationSet, ...]:
        """Sets that a run is tested on. Sets that show a domain are kept only if that domain is held out."""
        if not self.test_domains:
            return self.sets
        return tuple(member for member in self.sets if not member.domain or member.domain in self.test_domains)

    @property
    def tested(self) -> tuple[EvaluationSet, ...]:
        """Sets that a run's model is evaluated on, each once: a set may both validate and test."""
        return tuple(dict.fromkeys((*self.validating, *self.testing)))

    @property
    def text_files(self) -> dict[str, str]:
        """Text files that are kept with a training, by their path within its artifacts."""
        files = {f"{record.DATA_FOLDER}/{name}": text for name, text in self.files.items()}
        if self.counts:
            return {record.COUNTS_FILE: json.dumps(dict(self.counts), indent=2) + "\n", **files}
        return files

    def with_cadences(self, settings: Sequence[str]) -> OpenSuite:
        """Return the suite with new cadences of some sets. Raises UsageError for an unknown set or a bad cadence.

        settings: `<set>:<n>` (at every n-th evaluation) or `<set>:end` (best and last weights only).
        """
        names = [evaluation_set.name for evaluation_set in self.sets]
        cadences = dict(_parse_cadence(setting, names) for setting in settings)
        changed = [member for member in self.sets if member.name in cadences]
        return self.with_sets({member: replace(member, cadence=cadences[member.name]) for member in changed})

    def check_calibration(self, scores: ScoreSettings) -> None:
        """Raise UsageError if `scores.calibrate` names no evaluation set, or if no scores are stored."""
        scores.refuse_unknown_calibration([evaluation_set.name for evaluation_set in (*self.sets, *self.validation)])
        if scores.calibrate != "auto" and not scores.is_kept:
            raise UsageError(
                f"scores.calibrate={scores.calibrate}: no scores are stored to calibrate with: add scores.keep=fp16"
            )

    def with_sets(self, replacements: Mapping[EvaluationSet, EvaluationSet]) -> OpenSuite:
        """Return the suite with some evaluation sets replaced, in `sets` and in `validation`."""
        sets = tuple(replacements.get(old, old) for old in self.sets)
        validation = tuple(replacements.get(old, old) for old in self.validation)
        return replace(self, sets=sets, validation=validation)

    def protocol(self, config: Config) -> record.Protocol:
        """Return the protocol that is written with each run, so that analysis need not import the suite.

        Raises UsageError if a derived value has an input that no set gives.
        """
        protocol = record.Protocol(
            suite=self.name,
            sets=tuple(self._record(evaluation_set) for evaluation_set in self.sets),
            training_sets=(self.train_name,),
            validation_sets=tuple(evaluation_set.name for evaluation_set in self.validation),
            monitor=self.monitor,
            monitor_higher_is_better=self._is_better_higher(self.monitor),
            step_unit=config.unit,
            selection_rules=self.selection_rules,
            default_selection=self.selection_rules[0],
            derived=self.derivations,
            limit=self.limit,
        )
        return derived.check_protocol(protocol, self.derivation_inputs())

    def _record(self, evaluation_set: EvaluationSet) -> record.SetRecord:
        """Return a set's record; a headline that is derived has a direction of its own and no chance level."""
        set_record = evaluation_set.record()
        headline = str(record.MetricName("test", set_record.headline, set_record.name))
        if headline not in {derivation.metric for derivation in self.derivations}:
            return set_record
        return replace(set_record, higher_is_better=self._is_better_higher(headline), chance=0.0)

    def _is_better_higher(self, metric: str) -> bool:
        """Return True if a higher value of a metric is better: as its derivation says, else as its measure says."""
        declared = {derivation.metric: derivation.higher_is_better for derivation in self.derivations}
        return declared.get(metric, measures.find_measure(metric).higher_is_better)

    def measured(self) -> set[str]:
        """Return the names of the metrics that the sets give."""
        metrics: set[str] = set()
        for phase, sets in (("val", self.validation), ("test", self.sets)):
            for evaluation_set in sets:
                metrics.update(derived.list_metrics(evaluation_set.record(), phase))
        return metrics

    def derivation_inputs(self) -> set[str]:
        """Return the names of all inputs of derived values: measured metrics and numbers of images."""
        return self.measured() | set(self.counts)

    def tested_hash(self, protocol: record.Protocol) -> str:
        """Return the hash of all that a model is tested on: sets, images, classes, label maps and derived values.

        Images that a seed draws or makes count as those of any other seed, because repeats share a table.
        """
        images = []
        for evaluation_set in self.sets:
            images.append(evaluation_set.source.origin or evaluation_set.source.fingerprint())
        return record.digest({"tested": protocol.tested, "classes": self.classes, "images": images})

    def training_data(self, shares: Mapping[str, float]) -> dict[str, float]:
        """Return an algorithm's training data by the suite's names."""
        named = {self.train_name if name == "train" else name: share for name, share in shares.items()}
        if len(named) < len(shares):
            raise UsageError(f"the training data '{self.train_name}' has the name of what is prepared of it: rename it")
        return named

    def provides(self, training_data: Iterable[str]) -> frozenset[str]:
        """Return the needs of methods (`algorithms.requests.NEEDS`) that these training data fulfil."""
        sources = [self.source(name) for name in training_data]
        validation = [evaluation_set.source for evaluation_set in self.validation]
        fulfilled = {
            "bias": all(source.bias is not None for source in sources),
            "domain": all(source.domain is not None and len(source.domains) > 1 for source in sources),
            "bias_type": bool(self.bias_type),
            "validation_bias": bool(validation) and all(source.bias is not None for source in validation),
        }
        return frozenset(name for name, is_fulfilled in fulfilled.items() if is_fulfilled)

    def source(self, name: str) -> Source:
        """Return training data by name: the suite's own, or prepared from it. Raises UsageError for an unknown name."""
        if name not in self._sources:
            if name in self.training and self.unsplit is not None:
                self.material()  # opened first: it is a part of it, and packs are found by the whole's fingerprint
            self._sources[name] = self._attach(self._open_source(name))
        return self._sources[name]

    @cached_property
    def _sources(self) -> dict[str, Source]:
        """Training data that is open, by name. One object each, because examples are numbered by their objects."""
        return {}

    def _open_source(self, name: str) -> Source:
        """Open training data: the suite's own, or what was prepared from them."""
        from biasbed.data.prepared import MAKERS

        if name in self.training:
            return self.training[name]()
        has_own = self.train_name in self.training
        if has_own and (name in MAKERS or self.store.has_images(self.material(), name)):
            return self.store.open_images(self.material(), name, self.training[self.train_name]())
        hint = nearest(name, {*self.training, *MAKERS})
        raise UsageError(f"the suite '{self.name}' has no training data '{name}'{hint}")

    def material(self) -> Source:
        """Return the images that copies and networks are prepared from: training data before validation is split off.

        Raises UsageError if the suite has no training images.
        """
        if self.train_name not in self.training:
            raise UsageError(f"the suite '{self.name}' has no training images here: name them with train=")
        return self._material

    @cached_property
    def _material(self) -> Source:
        return self._attach((self.unsplit or self.training[self.train_name])())

    def _attach(self, source: Source) -> Source:
        return source if self.images is None else self.images.attach(source)

    def with_store(self, images: ImageStore) -> OpenSuite:
        """Return the suite with all its pictures opened through a store, also those that are opened later."""
        suite = replace(self, images=images, fingerprint=images.mark(self.fingerprint))
        # Large sources come first, because a part of a source is found in the pack of the whole.
        if suite.unsplit is not None:
            suite.material()
        sets = dict.fromkeys((*suite.sets, *suite.validation))
        sources = sorted(dict.fromkeys(member.source for member in sets), key=len, reverse=True)
        attached = {source: images.attach(source) for source in sources}
        return suite.with_sets({member: replace(member, source=attached[member.source]) for member in sets})

    def network(self, kind: str) -> Path:
        """Return the file of a prepared network. Raises UsageError with the command that prepares it."""
        return self.store.existing_network(self.material(), kind)

    def views(self, request: StreamRequest, source: Source) -> tuple[ViewTransform, ...]:
        """Return the transforms that make a request's views of an image; empty if it asks for plain images."""
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
        """Return the stream of training images that a method requests. Raises UsageError if it can't be drawn or made.

        shares: of the training data, by the suite's names. batch_size: unless the request has one. apart: equal parts
        of domains come one after the other in a batch. table: returns the values of a method's table, by its name, for
        a source's images; None before there are any.
        """
        from biasbed.data import streams, transforms

        drawn = request if self.usual is None else request.with_defaults(self.usual)
        transform = self.train_transform
        if request.clean:
            transform = (*self.validation, *self.sets)[0].transform
        if request.image_size is not None:
            transform = transforms.with_size(transform, request.image_size)
        parts = [
            streams.Part(self.source(name), share, transform, drawn.by or (), bool(drawn.replacement))
            for name, share in shares.items()
        ]
        if request.weights and table is not None:
            parts = [streams.weighted(part, table(request.weights, part.source), request.weights) for part in parts]
        size, images = request.size or batch_size, None
        if drawn.per_domain:
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
            apart=bool(drawn.per_domain) and apart,
            labelled=request.labelled,
            drop_last=bool(drawn.drop_last),
        )


def _parse_cadence(setting: str, names: Sequence[str]) -> tuple[str, int | Literal["end"]]:
    """Return a set's name and its cadence."""
    name, _, cadence = setting.partition(":")
    refuse_unknown(name, names, f"test_every={setting}: there is no evaluation set '{name}'")
    if cadence == "end":
        return name, "end"
    if not cadence.isdecimal() or int(cadence) < 1:
        raise UsageError(f"test_every={setting}: should be <set>:<number of evaluations>, or <set>:end")
    return name, int(cadence)


def _hint_suite(name: str) -> str:
    """Say which suites have a set of this name; empty if none has."""
    having = [f"suite={suite}" for suite in REGISTRY if name in REGISTRY.load(suite).set_names]
    return f"; it is a set of {' and '.join(having)}" if having else ""


def choose(names: Iterable[str], selected: Sequence[str] | str, kind: str = "evaluation set") -> tuple[str, ...]:
    """Return the names that `sets=` selects, in the suite's order. Raises UsageError for an unknown name or none."""
    available = tuple(names)
    if selected in ("auto", "all"):
        return available
    if not selected:
        raise UsageError(f"sets= is empty: name {kind}s, or leave it out")
    for name in selected:
        if name not in available:
            hint = _hint_suite(name) or nearest(name, available)
            raise UsageError(f"sets={','.join(selected)}: there is no {kind} '{name}'{hint}")
    return tuple(name for name in available if name in selected)
