"""Plan of a sweep: a search per method, cell and repeat, checked before anything is started."""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from biasbed import algorithms, measures, record, registry, suites
from biasbed.config import Config, plain
from biasbed.errors import UsageError
from biasbed.options import SEARCHES, SweepOptions
from biasbed.settings import flatten, refuse_unknown
from biasbed.studies.cells import StudyCell, expand_cells
from biasbed.studies.launchers import Launcher
from biasbed.studies.plan import Lacking, PlannedRun, name_cells, plan_cells, plan_trainings
from biasbed.studies.search import trials
from biasbed.studies.search.space import Default, Space, read_space
from biasbed.studies.study_table import Overrides, check_methods
from biasbed.tracking import folder as run_folder

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

    from biasbed.training.job import Job

QUEUED_TRIALS = 8  # at a time for `workers=auto`, if a cluster's queue takes any number of trainings


@dataclass(frozen=True)
class Search:
    """Search of a method's settings in a cell with one seed: an Optuna study of several trials."""

    sweep: str  # the biasbed study that it belongs to
    name: str  # of the Optuna study
    overrides: Overrides  # settings of `train` that all trials share
    space: Space
    run: PlannedRun  # with the default parameters
    cell_name: str  # from `cells.expand_cells`
    repeat: int | None  # number of the repeat, if there are several
    metric: str
    unit: str  # of the metric
    maximize: bool
    is_oracle: bool  # the metric is measured on test sets
    trials: int
    sampler: str
    pruner: str
    default: Default  # the method's default settings
    description: Mapping[str, Any]  # a command can only join a search with an equal one

    @property
    def algorithm(self) -> str:
        return self.run.algorithm

    @property
    def seed(self) -> int:
        return self.run.seed

    @property
    def cell(self) -> str:
        """Cell that its trials train on, if the sweep has several."""
        return self.run.cell

    @property
    def subject(self) -> str:
        """Name of the method in the cell, shared by all repeats."""
        return " in ".join(filter(None, (self.algorithm, self.cell)))

    @property
    def title(self) -> str:
        return self.subject if self.repeat is None else f"{self.subject} repeat {self.repeat}"

    @property
    def space_hash(self) -> str:
        """Hash of the space and of how it is searched: equal in all repeats, and in all cells of a data set."""
        excluded = {"sweep", "cell", "seed"}
        return record.digest({name: value for name, value in self.description.items() if name not in excluded})

    def trial_name(self, position: int) -> str:
        """Return a trial's name among those of its method in its cell: `3`, or `r1-3` in repeat 1."""
        return str(position) if self.repeat is None else f"r{self.repeat}-{position}"

    def settings(self, trial: FrozenTrial) -> Overrides:
        """Return a trial's values of the searched settings, as on a command line."""
        if trials.DEFAULT in trial.user_attrs:
            return self.default.overrides
        return self.space.to_settings(trial.params)

    def plan_trial(self, overrides: Overrides, position: int, launcher: Launcher) -> PlannedRun:
        """Plan the training of a trial. overrides: its searched settings. UsageError if they do not fit together."""
        (run,) = plan_trainings({**self.overrides, **overrides}, [self.seed], launcher).runs
        tags = {record.KIND: "trial", record.TRIAL: self.trial_name(position), record.REPEAT: str(self.repeat or 0)}
        tags[record.SPACE] = self.space_hash
        if self.is_oracle:
            tags[record.ORACLE] = self.metric
        return dataclasses.replace(run, label=self._label(position), environment={record.GIVEN_TAGS: json.dumps(tags)})

    def find_training(self, base: str, position: int) -> PlannedRun:
        """Return the training of a trial by its folder."""
        return dataclasses.replace(self.run, base=Path(base), label=self._label(position))

    def _label(self, position: int) -> str:
        return f"{self.run.group}-trial{self.trial_name(position)}"


@dataclass(frozen=True)
class Sweep:
    """Searches of a sweep that have all been checked, so that each could start."""

    study: str
    suite: str
    searches: tuple[Search, ...]
    settings: Overrides  # of all trials of all methods
    config: Config  # of one of its trainings
    workers: int
    messages: tuple[str, ...]
    lacking: Lacking

    @property
    def folder(self) -> Path:
        """Folder of the sweep's own files."""
        return run_folder.home(self.config) / "studies" / record.slug(self.study)

    @property
    def seeds(self) -> tuple[int, ...]:
        """Seeds of all trainings."""
        return tuple(sorted({search.seed for search in self.searches}))

    @property
    def oracle(self) -> str:
        """Objective if it is measured on test sets, else empty."""
        return next((search.metric for search in self.searches if search.is_oracle), "")


def make_sweep(options: SweepOptions, settings: Overrides, launcher: Launcher) -> Sweep:
    """Plan the searches that the options ask for. Raises UsageError if one could not start."""
    general = {**SEARCHES[options.search].settings, **settings}
    general |= {"suite": registry.with_whole_path(options.suite), "study": options.study}
    methods = check_methods(options.algorithms)
    for method in methods:
        algorithms.REGISTRY.refuse_unknown(method)
    cells = expand_cells(general, {})
    searches: list[Search] = []
    configs: list[Config] = []
    messages: list[str] = []
    lacking: dict[str, dict[int, Sequence[str]]] = {}
    names: dict[int, str] = {}  # index of a cell -> its name in runs
    for method in methods:
        planned = plan_cells(method, cells, functools.partial(_plan_searches, options, method, general, launcher))
        for index, plan in planned.plans.items():
            searches += plan.searches
            configs.append(plan.config)
            messages += [*plan.remarks, *(f"{plan.searches[0].subject}: {message}" for message in plan.messages)]
            names[index] = plan.searches[0].cell
        messages += [f"not applicable: {reason}" for reason in planned.refusals]
        if planned.plans and method not in algorithms.REGISTRY:
            messages += _describe_unsearched(next(iter(planned.plans.values())))
        lacking[algorithms.identifier(method)] = planned.lacking
    return Sweep(
        study=options.study,
        suite=suites.identifier(options.suite),
        searches=tuple(searches),
        settings=settings,
        config=configs[0],
        workers=min(_count_workers(options, launcher, configs), sum(search.trials for search in searches)),
        messages=tuple(dict.fromkeys(messages)),
        lacking=name_cells(lacking, names),
    )


def _count_workers(options: SweepOptions, launcher: Launcher, configs: Sequence[Config]) -> int:
    """Return the number of trials at a time.

    It is small for a queue that takes any number: sampler and pruner learn only from trials that have ended.
    """
    if options.workers != "auto":
        return int(options.workers)
    fitting = min(map(launcher.capacity, configs))
    return min(fitting, QUEUED_TRIALS) if launcher.detached else fitting


class PlannedSearches(NamedTuple):
    """Searches of a method in a cell, a repeat each, messages about them for the user, and remarks on the data."""

    config: Config
    searches: list[Search]
    messages: list[str]
    remarks: Sequence[str]


def _plan_searches(
    options: SweepOptions, method: str, general: Overrides, launcher: Launcher, cell: StudyCell
) -> PlannedSearches:
    """Plan the searches of a method in a cell. Raises UsageError, or NotApplicable, if there can be none."""
    overrides = {**general, **cell.overrides, "algorithm": registry.with_whole_path(method)}
    space = read_space(options.space, {name: value for name, value in overrides.items() if value != "auto"})
    repeats = int(options.value_or_default("repeats"))
    job, runs = plan_trainings(overrides, range(options.seed, options.seed + repeats), launcher)
    objective = choose_objective(options.objective, list_objectives(job), job.protocol.monitor, options.oracle)
    default = space.find_default(job.config)
    sampler, requested = str(options.value_or_default("sampler")), int(options.value_or_default("trials"))
    if sampler == "brute_force" and not space.is_finite:
        raise UsageError("sampler=brute_force needs a finite space: whole numbers, choices, or steps")
    num_trials, messages = _limit_trials(space, default, requested)
    searches = []
    for repeat, run in enumerate(runs):
        parts = (options.study, job.algorithm, job.cell, f"r{repeat}" if repeats > 1 else "")
        search = Search(
            sweep=options.study,
            name="/".join(filter(None, parts)),
            overrides={**run.overrides, "seed": str(run.seed)},
            space=space,
            run=run,
            cell_name=cell.name,
            repeat=repeat if repeats > 1 else None,
            metric=objective.metric,
            unit=measures.describe_metric(job.protocol, objective.metric).unit,
            maximize=objective.maximize,
            is_oracle=objective.metric.startswith("test/"),
            trials=num_trials,
            sampler=sampler,
            pruner=str(options.value_or_default("pruner")),
            default=default,
            description={},
        )
        searches.append(dataclasses.replace(search, description=_describe(search, job)))
    return PlannedSearches(job.config, searches, messages, job.suite.remarks)


def _describe_unsearched(plan: PlannedSearches) -> list[str]:
    """Return a message, as a list, if none of the method's own settings is searched; empty otherwise."""
    space = plan.searches[0].space
    hparams = [name for name in flatten(plan.config) if name.startswith("hparams.")]
    if not hparams or not set(hparams).isdisjoint(space.names):
        return []
    name = space.algorithm
    return [f"{name}: {', '.join(hparams)} not searched; ranges go into {name}.yaml beside its file (docs/sweeps.md)"]


class TrialLimit(NamedTuple):
    """Number of a search's trials, and a message if it is smaller than requested."""

    number: int
    messages: list[str]


def _limit_trials(space: Space, default: Default, requested: int) -> TrialLimit:
    """Limit the number of trials to the points of a finite space, and the default if that lies outside of it."""
    num_points = space.count_points(at_most=requested)
    num_settings = num_points if default.is_inside else num_points + 1
    if num_settings >= requested:
        return TrialLimit(requested, [])
    besides = "" if default.is_inside else " besides its default"
    message = f"its space has {num_points} points only{besides}, so it has {num_settings} trials"
    return TrialLimit(num_settings, [message])


def _describe(search: Search, job: Job) -> Mapping[str, Any]:
    """Return the description of a search (`Search.description`), with the types that JSON has."""
    config, values = job.config, plain(job.config)
    settings = {name: values[name] for name in config.identity_settings() if name not in search.space.names}
    settings |= {"suite": job.suite.name, "algorithm": job.algorithm}  # without the place of the user's files
    cell = {name: values[name] for name in config.variant() if name != "seed"}
    description = {
        "sweep": search.sweep,
        "suite": job.suite.name,
        "objective": search.metric,
        "space": search.space.plain(),
        "settings": {**settings, "protocol": job.protocol.hash, "data": job.fingerprint},
        "sampler": search.sampler,
        "pruner": search.pruner,
        "seed": search.seed,
    }
    if cell:
        description["cell"] = cell
    parsed: Mapping[str, Any] = json.loads(json.dumps(description))
    return parsed


class SearchObjective(NamedTuple):
    """Metric that a search optimizes, and whether more is better."""

    metric: str
    maximize: bool


def list_objectives(job: Job) -> dict[str, bool]:
    """Return the metrics that measure trials in this cell: metric -> True if more is better."""
    suite, protocol = job.suite, job.protocol
    names = []
    for phase, image_sets in (("val", suite.validating), ("test", suite.testing)):
        for image_set in image_sets:
            names += [f"{phase}/{measure}/{image_set.name}" for measure in image_set.measured]
    metrics = {name: measures.find_measure(name).higher_is_better for name in names}
    for derived in protocol.derived:
        if set(derived.inputs_without(suite.test_domains)) <= set(metrics):
            metrics[derived.metric] = derived.higher_is_better
    return {**metrics, protocol.monitor: protocol.monitor_higher_is_better}


def choose_objective(objective: str, metrics: Mapping[str, bool], monitor: str, oracle: bool) -> SearchObjective:
    """Choose the objective; `auto` is the monitor. metrics: from `list_objectives`.

    Raises UsageError for an unknown metric, and for a metric of test sets without `oracle`.
    """
    metric = monitor if objective == "auto" else objective
    refuse_unknown(metric, metrics, f"objective={objective}: the suite does not measure it here")
    if objective.startswith("test/") and not oracle:
        raise UsageError(
            f"objective={objective} would choose parameters on the test images, which no practice can: "
            f"{monitor} is the suite's own; oracle=yes does it, and marks every number"
        )
    return SearchObjective(metric, metrics[metric])
