"""The contract between training and analysis: every name that is written to the tracking server.

Training builds names here and analysis parses them here, so neither can drift. Standard library only: analysis
must not load torch, and training must not load pandas.

Answers: What is a metric, a tag or a file of a run called?
"""

from __future__ import annotations

import functools
import hashlib
import json
import re
import sys
import types
import typing
from collections.abc import Collection, Iterable, Mapping
from dataclasses import MISSING, asdict, dataclass, field, fields, is_dataclass, replace
from typing import Any

SCHEMA = "1"

# --- tags -------------------------------------------------------------------------------------------------------------

KIND = "biasbed.kind"
TABLED = ("train", "evaluate")  # kinds of a study's runs that make its table; a sweep's are `trial`
STUDY = "biasbed.study"
SUITE = "biasbed.suite"
PROTOCOL_HASH = "biasbed.protocol"
ALGORITHM = "biasbed.algorithm"
ROW = "biasbed.row"  # name of what the run is one of in tables: a method, or one way to train or start it
CELL = "biasbed.cell"  # name of what the run trains on, where a suite or a study tells several apart
DISPLAY_NAME = "biasbed.display_name"  # name of the row as papers print it; groups of MLflow's pages are named by it
SEED = "biasbed.seed"
TEST_DOMAINS = "biasbed.test_domains"  # held out of training, separated by commas
NEEDS = "biasbed.needs"  # what the method needs of its training data, separated by commas (`algorithms.requests.NEEDS`)
PROVIDES = "biasbed.provides"  # what of that its training data have
TESTED = "biasbed.tested"  # hash of all that it is tested on: sets, images, classes, label maps
PARAMETERS = "biasbed.parameters"  # number of the model's parameters
CONFIG_HASH = "biasbed.config_hash"
RUN_KEY = "biasbed.run_key"
FOLDER_ID = "biasbed.folder"  # of the run's folder, drawn once: by it the folder's run is found on any server
DATA_FINGERPRINT = "biasbed.data_fingerprint"
CODE_HASH = "biasbed.code_hash"
GIT_COMMIT = "biasbed.git_commit"
GIT_DIRTY = "biasbed.git_dirty"
ATTEMPTS = "biasbed.attempts"
SCHEMA_TAG = "biasbed.schema"
TRAINING_DATA = "biasbed.training_data"  # JSON object: data set -> share of each batch
OVERLAPS = "biasbed.overlaps"  # kinds of condition that training resembles, separated by commas
SELECTION = "biasbed.selection"  # published runs: the rule (see SELECTION_RULES) behind the printed numbers
SELECTION_N = "biasbed.selection_n"  # published runs under last_n: over how many epochs
SOURCE = "biasbed.source"  # published runs: the paper
SUMMARY = "biasbed.summary"  # published means in place of runs: JSON object, the spread that was printed and its ddof
WEIGHTS = "biasbed.weights"  # evaluations: content hash of the tested model
INIT = "biasbed.init"  # JSON object: what training started from (`networks.origin`)
NORMALISATION = "biasbed.normalisation"  # JSON object: mean and std of the network's input, and where they come from
METHOD_FACTS = "biasbed.method_facts"  # JSON object of the trained method: hash of a text classifier, its prompts
LIMIT = "biasbed.limit"  # of a run on a part of the images: the most of each set
QUICK = "biasbed.quick"  # of a study that only shows how things go, and of its runs
SKIPPED_IMAGES = "biasbed.skipped_images"  # corrupt=skip: JSON object, images that could not be read by phase
TRIAL = "biasbed.trial"  # of a sweep: which of its search's trials, `3`, or `r1-3` in repeat 1
REPEAT = "biasbed.repeat"  # of a trial: number of the search's repeat
SPACE = "biasbed.space"  # of a trial: hash of the search that it belongs to, the same in all repeats
TRIAL_STATE = "biasbed.trial_state"  # how it ended: complete, pruned, failed
SWEEP = "biasbed.sweep"  # the sweep that chose the hyper-parameters
ORACLE = "biasbed.oracle"  # the metric of test sets by which hyper-parameters were chosen
BEST_VALUES = "biasbed.best"  # trainings: JSON object, exact values of `best/*`, which are rounded for MLflow's pages
ENDED_BY = "biasbed.ended_by"  # the signal that ended a run early
ERROR = "biasbed.error"  # why a run failed
USAGE_ERROR = "biasbed.usage_error"  # `mlflow run` opened a run for a command that was refused
REPRODUCES = "biasbed.reproduces"  # reproductions: id of the run that was trained again
VERDICT = "biasbed.verdict"  # reproductions: bit-equal, within the spread, ...
IMPORT = "biasbed.import"  # imported runs: the machine that imported them
ORIGIN_RUN = "biasbed.origin_run"  # imported runs: their id where they were trained
ORIGIN_SERVER = "biasbed.origin_server"  # imported runs: the tracking server they were exported from

GIVEN_TAGS = "BIASBED_TAGS"  # environment variable: tags, as JSON, that a study gives its trainings
KINDS = ("train", "trial", "reproduction", "evaluate", "published", "study", "analysis")
ADHOC = "adhoc"  # the study of runs that were started by hand

# --- parameters and artifacts -----------------------------------------------------------------------------------------

CONFIG_PARAMETER = "config/"  # + dotted name of the resolved config
CONFIG_FILE, PROTOCOL_FILE = "config.yaml", "protocol.json"
ENVIRONMENT_FILE = "environment.txt"
PICTURES_FOLDER = "pictures"
DATA_FOLDER = "data"  # which images were drawn for what
COUNTS_FILE = f"{DATA_FOLDER}/counts.json"  # JSON object: metric-like name -> how many images there are of its kind
CHECKPOINT_FOLDER = "checkpoints"
BEST_CHECKPOINT = "best.ckpt"
PREDICTION_EPOCHS = ("best", "last")
NOT_APPLICABLE_FILE = "not_applicable.json"  # of a study: row -> cell -> what the row's method needs and is not there

# Columns of a file of predictions, one row per image, in their order; those from `bias` on where a set has them.
PREDICTIONS = {
    "image": "the image's id in its data set",
    "label": "its class; of several labels their names, joined by +",
    "decision": "the model's",
    "correct": "whether both are equal",
    "confidence": "probability of the decision among the set's classes",
    "rank": "place of the label among all the model's outputs, 1 for the best",
    "loss": "of the image; NaN where the label map gives no logits",
    "top5": "the most probable classes, best first",
    "top5_score": "their probabilities",
    "epoch": "number of the evaluation",
    "bias": "class that the set's shortcut suggests",
    "bias_rank": "its place among all the model's outputs",
    "group": "group that the image belongs to",
    "condition": "condition that it is shown under",
    "targets": "of several labels those that this image has",
    "scores": "there: probability of each label",
    "log_probability": "of each class, where `scores.keep` asks for it; the metadata `classes` has their names",
    "energy": "there: logarithm of the summed exponentials of all the model's outputs",
    "max_softmax": "there: largest probability among all the model's outputs",
}

# Tables of an evaluation without training: per set, per class under cue conflict, per pair of observers.
EVALUATION_FILES = ("evaluation.csv", "shape_bias.csv", "error_consistency.csv")
EVALUATION_FILE, SHAPE_BIAS_FILE, CONSISTENCY_FILE = EVALUATION_FILES
EXAMPLES_FILE = "examples.parquet"  # what a method believes of each training image
REPRODUCTION_FILE = "reproduction.csv"  # what a reproduction concludes, per metric
DIFFERENCES_FILE = "differences.csv"


def predictions_file(set_name: str, which: str) -> str:
    """Return the path, within a run's artifacts, of the per-image decisions of one evaluation set."""
    return f"predictions/{set_name}/{which}.parquet"


# --- metrics ----------------------------------------------------------------------------------------------------------

PHASES = ("train", "val", "test", "time", "memory")
SHAPE_BIAS = "shape_bias"  # the measure that the whole is about
BY_LABEL = "ap"  # of each label, after the colon
BY_CONDITION = "accuracy_by_condition"  # a measure of its own, so that MLflow's pages show it apart from headlines
MAP_BY_CONDITION = "map_by_condition"  # the same of images with several labels


@dataclass(frozen=True)
class MetricName:
    """`<phase>/<measure>`, `<phase>/<measure>/<set>` or `<phase>/<measure>/<set>:<group>`."""

    phase: str
    measure: str
    set: str | None = None
    group: str | None = None

    @property
    def measured_on(self) -> str:
        """Set, as `<set>:<group>` if the metric is of a group; empty without a set."""
        return ":".join(filter(None, (self.set, self.group)))

    @functools.cached_property  # an analysis writes the same names thousands of times
    def _text(self) -> str:
        return "/".join(filter(None, (self.phase, self.measure, self.measured_on)))

    def __str__(self) -> str:
        return self._text


_METRIC = re.compile(r"(?P<phase>[a-z]+)/(?P<measure>[a-z0-9_]+)(?:/(?P<set>[a-z0-9_-]+)(?::(?P<group>[a-z0-9_-]+))?)?")


@functools.lru_cache(maxsize=100_000)  # thousands of runs have the same names
def parse_metric(name: str) -> MetricName | None:
    """Return the parts of a metric's name; None for a metric that is not ours (system metrics, a user's own)."""
    match = _METRIC.fullmatch(name)
    return MetricName(**match.groupdict()) if match is not None and match["phase"] in PHASES else None


# Phase of the short names of the main metrics at the best evaluation so far (`Protocol.best`). Their values are
# rounded, as MLflow's pages show all digits of a metric. Analysis reads the long names.
BEST = "best"


def is_finite(value: float) -> bool:
    """Return False for NaN and infinity, and for the largest double, which MLflow's stores return for infinity."""
    return abs(value) < sys.float_info.max


# --- names from users -------------------------------------------------------------------------------------------------


def slug(name: str) -> str:
    """Return a folder's or domain's name as an identifier of `[a-z0-9_-]`."""
    return re.sub(r"[^a-z0-9_-]+", "_", name.strip().lower()).strip("_") or "_"


def slugs(names: Iterable[str]) -> dict[str, str]:
    """Return each name's identifier. Raises ValueError if two names would share one."""
    result: dict[str, str] = {}
    names_by_slug: dict[str, str] = {}
    for name in names:
        identifier = slug(name)
        if names_by_slug.setdefault(identifier, name) != name:
            raise ValueError(
                f"the names '{names_by_slug[identifier]}' and '{name}' both become '{identifier}': rename one"
            )
        result[name] = identifier
    return result


# --- identity ---------------------------------------------------------------------------------------------------------


def canonical_json(value: Any, allow_nan: bool = False) -> str:
    """Return JSON that is equal exactly when the values are: sorted keys, no spaces, no NaN unless it is allowed."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=allow_nan)


def digest(value: Any, allow_nan: bool = False) -> str:
    """Return the first 16 hex digits of the SHA-256 of `canonical_json(value)`."""
    return hashlib.sha256(canonical_json(value, allow_nan).encode()).hexdigest()[:16]


# --- protocol ---------------------------------------------------------------------------------------------------------

SCRATCH = "scratch"  # the start of a training without weights
SELECTION_RULES = ("best_validation", "last_n", "best_epoch")


@dataclass(frozen=True)
class SetRecord:
    """Record of one evaluation set: the facts that analysis needs."""

    name: str
    headline: str  # the measure that stands for the set in score tables
    images: int
    classes: int
    chance: float  # headline score of guessing
    measures: tuple[str, ...] = ("accuracy", "loss")
    higher_is_better: bool = True
    groups: Mapping[str, int] = field(default_factory=dict)  # group -> images
    made_by: str | None = None  # the training data set whose maker also made this one (strict setting)
    source_images: str | None = None  # sets with equal source_images are not independent blocks
    label_map: str = ""  # how the model's outputs become decisions
    preprocessing: str = ""  # how images are resized and cropped, in words
    block: str = ""  # the data set that it is a part of (empty: it is a whole one)
    domain: str = ""  # the domain that it shows, which a training may hold out
    conditions: Mapping[str, int] = field(default_factory=dict)  # condition -> images
    # Of each group what it stands for, by role: {"0-conflicting": {"class": "0", "alignment": "conflicting"}}
    roles: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    unit: str = ""  # of the headline (empty: as its measure or derivation has it)
    aliases: tuple[str, ...] = ()  # other names of its domain, or if it has none, of it
    labels: Mapping[str, int] = field(default_factory=dict)  # of images with several: label -> images
    counts: bool = True  # False: it is no column of tables, and only selection rules use it
    version_of: str = ""  # of several data sets with the same images; no table has two
    by_cell: bool = False  # its number of images depends on the cell, as on a severity


@dataclass(frozen=True)
class Derived:
    """Value `<phase>/<measure>/<name>` that is computed from others of the same evaluation by `derived_values.derive`.

    If `name` is that of a set, it may be the set's headline; any other in the phase `test` is a column of its own.
    """

    phase: str  # val or test
    measure: str
    name: str
    function: str  # of `derived_values.FUNCTIONS`
    inputs: tuple[str, ...]  # names of metrics; derived ones stand before those that they are inputs of
    references: tuple[float, ...] = ()  # constants of the function, if it has any
    training: tuple[str, ...] = ()  # of each input the domain that must be trained on for it to count; empty: all count
    unit: str = "%"
    higher_is_better: bool = True
    block: str = ""  # as `SetRecord.block`

    @property
    def metric(self) -> str:
        return str(MetricName(self.phase, self.measure, self.name))

    def inputs_without(self, test_domains: Collection[str]) -> tuple[str, ...]:
        """Return the inputs that remain if these domains are held out of training."""
        pairs = zip(self.inputs, self.training or [""] * len(self.inputs), strict=True)
        return tuple(name for name, domain in pairs if domain not in test_domains)


@dataclass(frozen=True)
class Protocol:
    """Tests of a run and how its epoch is chosen; runs that are `tested` alike may stand in one table."""

    suite: str
    sets: tuple[SetRecord, ...]  # in display order
    training_sets: tuple[str, ...]
    validation_sets: tuple[str, ...]
    monitor: str  # metric name, e.g. val/accuracy/val
    monitor_higher_is_better: bool = True
    step_unit: str = "epoch"
    selection_rules: tuple[str, ...] = SELECTION_RULES
    default_selection: str = "best_validation"
    start: str = SCRATCH  # from which weights training starts (`networks.start`)
    derived: tuple[Derived, ...] = ()
    limit: int | None = None  # of a part of the images: the most of each set
    schema: str = SCHEMA

    @functools.cached_property
    def hash(self) -> str:
        return digest(asdict(self))

    @property
    def tested(self) -> str:
        """Hash of everything that a model is tested on, however it was made: sets, classes, label maps, derived values.

        Preprocessing is left out, as it belongs to the model.
        """
        sets = [asdict(replace(member, preprocessing="")) for member in self.sets]
        derived = [asdict(member) for member in self.derived if member.phase == "test"]
        return digest({"sets": sets, "derived": derived, "limit": self.limit})

    @property
    def columns(self) -> tuple[SetRecord, ...]:
        """Columns of tables: the sets, then values that are derived from several sets, as sets without images."""
        names = {member.name for member in self.sets}
        derived = [member for member in self.derived if member.phase == "test" and member.name not in names]
        return (*(member for member in self.sets if member.counts), *map(_as_set, derived))

    def judged(self, test_domains: Collection[str]) -> tuple[SetRecord, ...]:
        """Return the columns that a run with these held-out domains fills.

        A set that shows a domain is one of them only if that domain is held out, and a derived value only if all of
        its inputs are. Without held-out domains a run fills all columns.
        """
        trained: set[str] = set()  # sets that show a domain of the training
        for member in self.sets:
            if test_domains and member.domain and member.domain not in test_domains:
                trained.add(member.name)
        undefined: set[str] = set()  # derived metrics that lack an input
        for derived in self.derived:
            inputs = derived.inputs_without(test_domains)
            sets = {name.rpartition("/")[2].partition(":")[0] for name in inputs}
            if not inputs or undefined.intersection(inputs) or trained & sets:
                undefined.add(derived.metric)
        columns = []
        for column in self.columns:
            headline = str(MetricName("test", column.headline, column.name))
            if column.name not in trained and headline not in undefined:
                columns.append(column)
        return tuple(columns)

    def derivation(self, metric: str) -> Derived | None:
        """Return how a metric is derived; None if it is measured."""
        return next((derived for derived in self.derived if derived.metric == metric), None)

    @property
    def best(self) -> dict[str, str]:
        """Main metrics by their short names: shape bias, every column's headline, the monitor; in that order.

        MLflow's pages show the first dozen characters of a name, in which `test/accuracy/cue_conflict` looks like any
        other.
        """
        monitor_name = parse_metric(self.monitor)
        monitor = {}
        if monitor_name is not None:
            monitor[f"{BEST}/{monitor_name.set or monitor_name.measure}"] = self.monitor
        headlines = {}
        for column in self.columns:
            short_name = f"{BEST}/{column.name}"
            if short_name not in monitor:  # it has the same set, which also validates
                headlines[short_name] = str(MetricName("test", column.headline, column.name))
        cue_sets = [member.name for member in self.sets if SHAPE_BIAS in member.measures]
        shape_bias = f"{BEST}/{SHAPE_BIAS}"
        is_unique = len(cue_sets) == 1 and shape_bias not in {**headlines, **monitor}
        shape = {}
        for name in cue_sets:
            shape[shape_bias if is_unique else f"{shape_bias}:{name}"] = str(MetricName("test", SHAPE_BIAS, name))
        return {**shape, **headlines, **monitor}

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=2, ensure_ascii=False) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Protocol:
        """Parse a protocol that anybody may have written. Raises ValueError of one line if it is invalid."""
        try:
            protocol: Protocol = _read(cls, json.loads(text), "the protocol")
            _ = protocol.hash  # raises ValueError for values that JSON can't hold: infinity, half a surrogate pair
        except RecursionError:
            raise ValueError("it is nested without end") from None
        return protocol


# Names of suites that hold domains out of training, and of imported sweeps of DomainBed's own code.
DOMAINS_MONITOR = MetricName("val", "accuracy", "training_domains")
OUT_PART = "_out"  # end of the name of a domain's out part
DOMAIN_RULES = ("training_domain_validation", "leave_one_domain_out", "test_domain_oracle")


def mean_of_training_domains(validation: Iterable[tuple[str, str]]) -> Derived:
    """Declare the mean of the validation accuracies over the domains that train.

    validation: (name of the validation set, its domain) for every domain.
    """
    pairs = list(validation)
    return Derived(
        phase=DOMAINS_MONITOR.phase,
        measure=DOMAINS_MONITOR.measure,
        name=str(DOMAINS_MONITOR.set),
        function="mean",
        inputs=tuple(str(MetricName("val", "accuracy", name)) for name, _ in pairs),
        training=tuple(domain for _, domain in pairs),
    )


def _as_set(derived: Derived) -> SetRecord:
    """Return a derived value as a column: a set without images, classes, chance level and measures."""
    return SetRecord(
        name=derived.name,
        headline=derived.measure,
        images=0,
        classes=0,
        chance=0.0,
        measures=(),
        higher_is_better=derived.higher_is_better,
        block=derived.block,
    )


_MOST = 2**63  # no number of a protocol is as large


def _read(kind: Any, value: Any, where: str) -> Any:
    """Return a JSON value as this type, that of a record or of its field. Raises ValueError if it has another type.

    where: names the value in messages.
    """
    outer, inner = typing.get_origin(kind), typing.get_args(kind)
    if is_dataclass(kind) and isinstance(value, dict):
        return _read_record(kind, value, where)
    if outer is tuple and isinstance(value, list):
        return tuple(_read(inner[0], part, where) for part in value)
    if outer is Mapping and isinstance(value, dict):
        return {name: _read(inner[1], part, where) for name, part in value.items()}
    kinds: tuple[Any, ...] = (kind,)
    if outer is types.UnionType:
        kinds = inner
    elif kind is float:
        kinds = (int, float)
    if type(value) not in kinds or (isinstance(value, int) and abs(value) >= _MOST):
        raise ValueError(f"{where} is not what it should be")
    return value


def _read_record(kind: Any, values: Mapping[str, Any], where: str) -> Any:
    """Return a JSON object as a record of this class. Raises ValueError for unknown, missing and wrong fields."""
    hints = typing.get_type_hints(kind)
    unknown = set(values) - set(hints)
    if unknown:
        raise ValueError(f"{where} was written by another version of biasbed: unknown {ascii(sorted(unknown))[:200]}")
    required = {f.name for f in fields(kind) if f.default is MISSING and f.default_factory is MISSING}
    missing = required - set(values)
    if missing:
        raise ValueError(f"{where} lacks {', '.join(sorted(missing))}")
    return kind(**{name: _read(hints[name], value, f"'{name}' of {where}") for name, value in values.items()})
