"""Settings of every command but `train`, whose are in `config`. Light: `--help` imports it.

Answers: Which settings do the other commands have?
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from biasbed.config import Aggregation, Auto, Config
from biasbed.errors import UsageError
from biasbed.settings import refuse_unknown, setting, specs


@dataclass(frozen=True)
class ImportOptions:
    """Published or reported results, or runs from another server, as tracked runs."""

    source: str = setting(
        "biasbed",
        "paper whose results are imported; a file that `export` wrote (.zip); or a sweep of DomainBed's own code: a "
        "folder of results.jsonl, or a CSV",
    )
    study: str = setting(
        "auto", "study of a sweep's trials or of reported results (auto: named after the folder or file)"
    )

    @property
    def is_path(self) -> bool:
        """True for a path; the name of a paper has neither a slash nor a dot."""
        return "/" in self.source or "." in self.source


@dataclass(frozen=True)
class TestOptions:
    """The test suite."""

    slow: bool = setting(False, "also the slow checks")
    slice: str = setting("none", "also a part of the slow checks: 3/10 has every tenth of them, from the third")
    algorithm: str = setting("all", "only the conformance suite, on one method: its name, or <file>.py:<Class>")

    def __post_init__(self) -> None:
        if self.slice != "none":
            part, _, parts = self.slice.partition("/")
            if not (part.isdecimal() and parts.isdecimal() and 1 <= int(part) <= int(parts)):
                raise ValueError(f"slice: 3/10, for the third of ten parts, or none; not {self.slice!r}")


# Settings that preparing shares with training, by the same names, besides the suite's own.
PREPARE_SHARED = (
    *("suite", "data_dir", "train", "sets", "image_size", "seed", "prepared_dir", "device", "corrupt"),
    "data.packed",
)


# Settings that testing shares with training, by the same names, besides the suite's own.
EVALUATE_SHARED = (
    *("suite", "preset", "data_dir", "sets", "train", "output_dir", "prepared_dir", "study", "row", "cell"),
    *("experiment", "precision", "device", "nproc", "workers", "eval_batch_size", "corrupt", "tracking"),
    *("corrupted.sets", "corrupted.seed", "corrupted.frost", "reliance.sets", "reliance.every_strength"),
    *("limit", "mean", "std", "data.packed", "cache.gb"),
    *("scores.keep", "scores.calibrate", "scores.alpha"),
    "init_seen",
)


@dataclass(frozen=True)
class EvaluateOptions:
    """The model that `evaluate` tests; its other flags are those of `train`."""

    model: str = setting(
        "none",
        "checkpoint, tracked run id, torchvision:<name>, timm:<name>, transformers:<id>, or decisions (.csv, .parquet)",
    )
    weights: str = setting(
        "none", "for a library's model: weights file (<file>#<part> of several), or name of published weights"
    )
    label_map: str | dict[str, Any] = setting(
        "none", "YAML file that says what the model's outputs stand for, or its content in braces"
    )
    algorithm: str = setting("auto", "the checkpoint's method, if it is your own: <file>.py:<Class>")
    report: str = setting("none", "file of the card, one page with the numbers, their meaning and examples: card.html")
    image_size: int | Auto = setting("auto", "pixels per side (auto: as the model was trained or published)")
    categories: Aggregation | Auto = setting(
        "auto", "how the scores of 1000 ImageNet classes become those of 16 categories (auto: as the suite has it)"
    )
    overlaps: Literal["none"] | tuple[str, ...] = setting(
        "none", "test conditions that resemble the model's training images, as gaussian_noise,shot_noise"
    )
    resume: Literal["auto", "never", "once"] = setting(
        "auto", "auto: continue an unfinished test; never: start anew; once: also keep a finished one"
    )


@dataclass(frozen=True)
class ListOptions:
    """Kind of thing that is listed."""

    what: Literal["methods", "suites", "sets", "presets", "rules", "tables", "formats"] = setting(
        "methods", "kind of thing: tables are those of studies, and layouts of published ones; formats are of files"
    )
    words: Literal["none"] | tuple[str, ...] = setting("none", "only lines with all of these words, by commas")


@dataclass(frozen=True)
class PrepareOptions:
    """Thing to prepare; each maker has settings of its own, and other flags are those of `train`."""

    what: str = setting(
        "none",
        "a network (style_network, cae_network, edsr_network), images (stylized, conflicts, deepaug_cae, "
        "deepaug_edsr, corruptions), a data set (waterbirds), packed: a suite's images in few files, unpacked: an "
        "image folder of shards, <file>.py:<Class> of your own, or check: whether the data are complete",
    )

    def __post_init__(self) -> None:
        """Check nothing: classes with settings of their own call this before their own checks."""

    def refuse_below(self, **least: int) -> None:
        """Raise ValueError for a setting below its bound. least: bounds by the settings' names."""
        for name, bound in least.items():
            value = getattr(self, name)
            if value != "auto" and value < bound:
                raise ValueError(f"{name}={value}: should be at least {bound}")


ALLOWANCES = ("data", "protocol")  # differences that stop a reproduction unless they are allowed


@dataclass(frozen=True)
class ReproduceOptions:
    """The run, and where things are on this machine."""

    run: str = setting("none", "id of the tracked run")
    allow: Literal["none"] | tuple[str, ...] = setting(
        "none", f"differences that don't stop it before the training: {', '.join(ALLOWANCES)}"
    )
    alpha: float = setting(0.05, "level at which a metric is called different from the run's", gt=0, lt=1)
    algorithm: str = setting("auto", "the run's method, if it is your own: <file>.py:<Class>")
    suite: str = setting("auto", "the run's suite, if it is your own: <file>.py:<Class>")
    data_dir: str = setting("auto", "folder of the images (auto: as recorded)")
    prepared_dir: str = setting("auto", "folder of prepared images and networks (auto: as recorded)")
    init: str = setting("auto", "initial weights, if their file is elsewhere (auto: as recorded)")
    device: Literal["cpu", "cuda"] | Auto = setting("auto", "where to train (auto: as recorded)")
    output_dir: str = setting("auto", "folder of runs (auto: $BIASBED_HOME, or one in the home folder)")

    def __post_init__(self) -> None:
        if self.allow != "none":
            for word in self.allow:
                refuse_unknown(word, ALLOWANCES, f"allow={word}")

    def allows(self, difference: str) -> bool:
        """Return True if this difference is accepted."""
        return self.allow != "none" and difference in self.allow

    @property
    def places(self) -> dict[str, str]:
        """Settings that say where things are on this machine, if they are given."""
        values = {name: getattr(self, name) for name in ("data_dir", "prepared_dir", "init", "device")}
        return {name: value for name, value in values.items() if value != "auto"}


def _refuse_number(name: str, number: int | Auto) -> None:
    """Raise ValueError for a number below 1, or of more than a million."""
    if number == "auto" or 1 <= int(number) <= 10**6:
        return
    upper = ", at most a million" if int(number) > 1 else ""
    raise ValueError(f"{name}={number}: should be at least 1{upper}")


Workers = int | Auto


@dataclass(frozen=True)
class StudyOptions:
    """Carrying out of a study's trainings."""

    workers: Workers = setting("auto", "trainings at a time (auto: as many as GPUs or cores allow)")
    retries: int = setting(2, "how often a failed training is started again, from its last checkpoint", ge=0)
    launcher: str = setting(
        "local",
        "where trainings run: local: as processes of this machine; docker: in containers; slurm: as jobs of a cluster; "
        "or <file>.py:<Class> of your own",
    )

    def __post_init__(self) -> None:
        _refuse_number("workers", self.workers)


@dataclass(frozen=True)
class CellOptions(StudyOptions):
    """Settings that studies and sweeps share."""

    test_domains: str = setting(
        "auto", "domains held out, a cell for each by commas; a+b: both in one; each: every domain; pairs: every two"
    )
    loader_workers: int | Auto = setting("auto", "loader processes per training process (the `workers` of train)")
    dry_run: bool = setting(False, "list what is done, unfinished and to do, and estimate what is left; start nothing")


@dataclass(frozen=True)
class BenchmarkOptions(CellOptions):
    """A study of rows, cells and seeds; its other flags are those of `train`, for every run."""

    table: str = setting("none", "the study's YAML: a name in sweeps/studies/ (biasbed_paper), or a file of yours")
    from_study: str = setting("none", "name of a sweep whose best settings are trained with fresh seeds")
    suite: str = setting("auto", "protocol (auto: the table's, else demo)")
    algorithms: tuple[str, ...] | Auto = setting("auto", "methods, or rows of the table, by commas (auto: the table's)")
    seeds: str = setting("auto", "seeds of each row: how many, or which: 5, 0..4 or 0,1,5 (auto: the table's, else 3)")
    study: str = setting("auto", "name that the runs are filed under (auto: the table's, else benchmark)")
    protocol: Literal["settings", "day"] = setting(
        "settings",
        "settings: every row with its settings and every seed; day: a short search for each method, cell and seed, as "
        "one GPU pays it (docs/domainbed.md)",
    )


@dataclass(frozen=True)
class MainOptions(StudyOptions):
    """The whole story on the embedded suite."""

    seeds: str = setting(
        "auto", "seeds of each method: how many, or which: 2 or 0,1 (auto: as sweeps/studies/main.yaml)"
    )
    quick: bool = setting(False, "a quick check in less than two minutes; no numbers for a paper")
    output_dir: str = setting("auto", "folder of runs and of the report")


# Settings of `train` that a study sets for each of its trainings, and those that it passes on to all of them.
SET_BY_STUDY = ("algorithm", "seed", "resume", "workers", "suite", "study", "row", "cell")
STUDY_SHARED = tuple(name for name in specs(Config) if name not in SET_BY_STUDY)


def training_flags(shared: Mapping[str, str], loader_workers: int | Auto) -> dict[str, str]:
    """Return the flags of every training of a study. shared: those of the study's flags that are its trainings'."""
    flags = {name: value for name, value in shared.items() if value != "auto"}
    if loader_workers != "auto":
        flags["workers"] = str(loader_workers)
    return flags


Samplers = Literal["tpe", "random", "brute_force"]


Pruners = Literal["median", "hyperband", "successive_halving", "none"]


class SearchKind(NamedTuple):
    """Defaults of a kind of search: what `auto` stands for, and settings of its trainings."""

    sampler: str
    pruner: str
    trials: int
    repeats: int
    settings: Mapping[str, str]


SEARCHES: Mapping[str, SearchKind] = {
    "auto": SearchKind("tpe", "median", 20, 1, {}),
    # Gulrajani & Lopez-Paz 2021, 5.1: random, repeated with all random choices made anew. It needs little disk.
    "domainbed": SearchKind("random", "none", 20, 3, {"keep": "best", "log_model": "false"}),
    # The defaults and five draws, three times; recorded sweeps chose it (benchmarks/day_protocol.py).
    "day": SearchKind("random", "successive_halving", 6, 3, {"keep": "best", "log_model": "false"}),
}


@dataclass(frozen=True)
class SweepOptions(CellOptions):
    """A search per method and cell; its other flags are those of `train`, for every trial."""

    suite: str = setting(Config.suite, "protocol: demo, folders, domains, biasbed, or <file>.py:<Class> of your own")
    algorithms: tuple[str, ...] = setting(("erm",), "methods, separated by commas: each is searched separately")
    trials: int | Auto = setting("auto", "trainings per method, cell and repeat (auto: 20; day: 6)")
    repeats: int | Auto = setting("auto", "times that it is made, with other seeds (auto: 1; domainbed, day: 3)")
    search: Literal["auto", "domainbed", "day"] = setting(
        "auto", "domainbed: its random search of 20 trials, three times; day: six of them, ended early"
    )
    sampler: Samplers | Auto = setting("auto", "how the next parameters are chosen (auto: tpe; domainbed, day: random)")
    pruner: Pruners | Auto = setting(
        "auto", "which trials are ended early (auto: median; domainbed: none; day: successive_halving)"
    )
    space: str = setting(
        "auto", "search space, a YAML (auto: <suite>/<data set>/<algorithm>.yaml, <suite>/.. or .. in sweeps/spaces/)"
    )
    objective: str = setting("auto", "metric whose best epoch counts (auto: the suite's monitor)")
    oracle: bool = setting(False, "allow an objective on test sets; its numbers are marked everywhere")
    study: str = setting("sweep", "name that the trials are filed under")
    seed: int = setting(0, "seed of the search and its trainings; each repeat has the next one", ge=0, le=2**30)

    def __post_init__(self) -> None:
        super().__post_init__()
        _refuse_number("trials", self.trials)
        _refuse_number("repeats", self.repeats)
        if not self.algorithms:
            raise ValueError("algorithms: name at least one method")
        if SEARCHES[self.search].pruner == "none" and self.pruner not in ("auto", "none"):
            raise ValueError(f"pruner={self.pruner}: search={self.search} needs every trial's whole course")

    def value_or_default(self, name: str) -> str | int:
        """Return `trials`, `repeats`, `sampler` or `pruner` as given; for `auto` the default of the kind of search."""
        value: str | int = getattr(self, name)
        if value == "auto":
            value = getattr(SEARCHES[self.search], name)
        return value


@dataclass(frozen=True)
class ExportOptions:
    """Runs to export, the format, and the file or folder."""

    file: str = setting("none", "file to write, <name>.zip; for other formats a new folder")
    run: Literal["none"] | tuple[str, ...] = setting("none", "ids of runs, separated by commas")
    study: str = setting("none", "study whose runs are exported")
    format: str = setting("zip", "zip: for `import` elsewhere; others: for other tools (docs/sharing.md)")

    def __post_init__(self) -> None:
        if (self.run == "none") == (self.study == "none"):
            raise UsageError("say what to export: run=<id>,... or study=<name>, one of both")


@dataclass(frozen=True)
class ZipOptions(ExportOptions):
    """Settings of the format zip."""

    checkpoints: bool = setting(False, "zip: also checkpoints and models, which are most of a run's bytes")

    def __post_init__(self) -> None:
        if not self.file.endswith(".zip"):
            raise UsageError(f"file={self.file}: give a name that ends in .zip")
        super().__post_init__()


@dataclass(frozen=True)
class SyncOptions:
    """Folders of the journals."""

    output_dir: str = setting("auto", "folder of runs (auto: this server's, and that of offline runs)")
    algorithm: str = setting("auto", "<file>.py:<Class> of your own whose runs are also to be logged as MLflow models")
