"""What a sweep consists of: a search per method, cell and repeat, checked before anything is started."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from biasbed import algorithms, measures, record, registry, suites
from biasbed.config import Config, plain
from biasbed.errors import NotApplicable, UsageError
from biasbed.options import SEARCHES, SweepOptions
from biasbed.settings import nearest
from biasbed.studies.cells import expand
from biasbed.studies.launchers import Launcher
from biasbed.studies.plan import PlannedRun, runs_of
from biasbed.studies.search import stages, trials
from biasbed.studies.search.space import Default, Parameters, Space, read_space
from biasbed.studies.table import Words, methods
from biasbed.tracking import folder as run_folder

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

    from biasbed.training.job import Job

WAITING_TRIALS = 8  # at a time, that `auto` means where a cluster's queue takes any number of trainings


@dataclass(frozen=True)
class Search:
    """The trials of one method in one cell with one seed: one Optuna study."""

    sweep: str  # the biasbed study that it belongs to
    name: str  # the Optuna study's
    words: Words  # settings of `train` that all trials share
    space: Space
    run: PlannedRun  # with the default parameters
    expanded: str  # what `cells.expand` calls its cell
    repeat: int | None  # number of the repeat, where there are several
    metric: str
    unit: str  # of the metric
    maximize: bool
    is_oracle: bool  # the metric is one of test sets
    stages: tuple[stages.SearchStage, ...]  # one after the other
    sampler: str
    pruner: str
    default: Default  # the method's own settings
    description: Mapping[str, Any]  # what must be equal for a command to join the search

    @property
    def algorithm(self) -> str:
        return self.run.algorithm

    @property
    def seed(self) -> int:
        return self.run.seed

    @property
    def trials(self) -> int:
        """How many it has."""
        return self.stages[-1].end

    @property
    def cell(self) -> str:
        """What its trials train on, where several such things are told apart."""
        return self.run.cell

    @property
    def subject(self) -> str:
        """What is searched: a method in a cell. All repeats have it."""
        return " in ".join(filter(None, (self.algorithm, self.cell)))

    @property
    def title(self) -> str:
        return self.subject if self.repeat is None else f"{self.subject} repeat {self.repeat}"

    @property
    def space_hash(self) -> str:
        """Of what is searched and how: the same in all repeats, and in all cells of one data set."""
        aside = ("sweep", "cell", "seed", "heartbeat")
        said = {name: value for name, value in self.description.items() if name not in aside}
        if [stage.sampler for stage in self.stages] == [self.sampler]:  # as it was before there were stages
            said.pop("stages", None)
        return record.digest(said)

    def trial(self, place: int) -> str:
        """What a trial is called among those of its method in its cell: `3`, or `r1-3` in repeat 1."""
        return str(place) if self.repeat is None else f"r{self.repeat}-{place}"

    def settings(self, trial: FrozenTrial) -> Words:
        """Its settings, of those that are searched over, as the words of a command line."""
        if trials.DEFAULT in trial.user_attrs:
            return self.default.words
        return self.in_order({**stages.given_to(trial).words, **self.space.words(trial.params)})

    def parameters(self, trial: FrozenTrial) -> Parameters:
        """The same as Optuna has them, so far as they lie in the space."""
        if trials.DEFAULT in trial.user_attrs:
            return self.default.parameters
        return {**stages.given_to(trial).parameters, **trial.params}

    def in_order(self, words: Words) -> Words:
        """These settings as the space has them in order."""
        return {name: words[name] for name in self.space.names if name in words}

    def planned(self, words: Words, place: int, launcher: Launcher) -> PlannedRun:
        """The training of a trial. words: its own settings. UsageError where they don't fit together."""
        (run,) = runs_of({**self.words, **words}, [self.seed], launcher)[1]
        tags = {record.KIND: "trial", record.TRIAL: self.trial(place), record.REPEAT: str(self.repeat or 0)}
        tags |= {record.SPACE: self.space_hash, **({record.ORACLE: self.metric} if self.is_oracle else {})}
        return dataclasses.replace(run, label=self._label(place), environment={record.GIVEN_TAGS: json.dumps(tags)})

    def in_folder(self, base: str, place: int) -> PlannedRun:
        """The same training, found again by its folder."""
        return dataclasses.replace(self.run, base=Path(base), label=self._label(place))

    def _label(self, place: int) -> str:
        return f"{self.run.place}-trial{self.trial(place)}"


@dataclass(frozen=True)
class Sweep:
    """All searches, checked: every one could start."""

    study: str
    suite: str
    searches: tuple[Search, ...]
    settings: Words  # of all trials of all methods
    config: Config  # of one of its trainings
    workers: int
    messages: tuple[str, ...]
    lacking: Mapping[str, Mapping[str, Sequence[str]]]  # method -> cell without searches -> what is not there

    @property
    def folder(self) -> Path:
        """Of what is kept about the sweep as a whole."""
        return run_folder.home(self.config) / "studies" / record.slug(self.study)

    @property
    def seeds(self) -> tuple[int, ...]:
        """Of all trainings."""
        return tuple(sorted({search.seed for search in self.searches}))

    @property
    def oracle(self) -> str:
        """The objective, where it is one of test sets."""
        return next((search.metric for search in self.searches if search.is_oracle), "")


def make_sweep(options: SweepOptions, settings: Words, launcher: Launcher) -> Sweep:
    """The searches that the options ask for. Raises UsageError where one could not start."""
    searches: list[Search] = []
    configs: list[Config] = []
    messages: list[str] = []
    lacking: dict[str, dict[str, Sequence[str]]] = {}
    general = {**SEARCHES[options.search].settings, **settings}
    general |= {"suite": registry.settled(options.suite), "study": options.study}
    cells = expand(general, {})
    from biasbed.data.folders import opened_once

    with opened_once():
        for algorithm in methods(options.algorithms):
            refusals: list[str] = []
            for cell in cells:
                where = " in ".join(filter(None, (algorithm, cell.name)))
                words = {**general, **cell.words, "algorithm": registry.settled(algorithm)}
                try:
                    config, own, said = _searches_of(options, words, cell.name, launcher)
                except NotApplicable as error:
                    refusals.append(f"{where}: {error}")
                    lacking.setdefault(algorithms.identifier(algorithm), {})[cell.name] = error.lacking
                    continue
                except UsageError as error:
                    raise type(error)(f"{where}: {error}") from None
                searches += own
                configs.append(config)
                messages += [f"{own[0].subject}: {line}" for line in said]
            if len(refusals) == len(cells):
                raise UsageError(refusals[0])
            messages += [f"not applicable: {reason}" for reason in refusals]
    workers = min(_workers(options, launcher, configs), sum(search.trials for search in searches))
    suite = suites.identifier(options.suite)
    named = {search.expanded: search.cell for search in searches}
    by_name = {row: {named[cell]: what for cell, what in own.items() if cell in named} for row, own in lacking.items()}
    return Sweep(options.study, suite, tuple(searches), settings, configs[0], workers, tuple(messages), by_name)


def _workers(options: SweepOptions, launcher: Launcher, configs: Sequence[Config]) -> int:
    """Sampler and pruner learn from trials that have ended only: so few at a time where a queue takes any number."""
    if options.workers != "auto":
        return int(options.workers)
    fitting = min(map(launcher.capacity, configs))
    return min(fitting, WAITING_TRIALS) if launcher.detached else fitting


def _searches_of(
    options: SweepOptions, words: Words, expanded: str, launcher: Launcher
) -> tuple[Config, list[Search], list[str]]:
    """The searches of one method in one cell, a repeat each, and what a user should know of them."""
    space = read_space(options.space, {name: value for name, value in words.items() if value != "auto"})
    repeats = int(options.settled("repeats"))
    job, runs = runs_of(words, range(options.seed, options.seed + repeats), launcher)
    metric, maximize = choose_objective(options.objective, objectives(job), job.protocol.monitor, options.oracle)
    default = space.default(job.config)
    sampler, asked = str(options.settled("sampler")), int(options.settled("trials"))
    if sampler == "brute_force" and not space.is_finite:
        raise UsageError("sampler=brute_force needs a finite space: whole numbers, choices, or steps")
    try:
        planned, messages = stages.planned(space, default, SEARCHES[options.search].stages, sampler, asked)
    except UsageError as error:
        raise UsageError(f"search={options.search}: {error}") from None
    found = []
    for repeat, run in enumerate(runs):
        parts = (options.study, job.algorithm, job.cell, f"r{repeat}" if repeats > 1 else "")
        search = Search(
            sweep=options.study,
            name="/".join(filter(None, parts)),
            words={**run.words, "seed": str(run.seed)},
            space=space,
            run=run,
            expanded=expanded,
            repeat=repeat if repeats > 1 else None,
            metric=metric,
            unit=measures.described(job.protocol, metric).unit,
            maximize=maximize,
            is_oracle=metric.startswith("test/"),
            stages=planned,
            sampler=sampler,
            pruner=str(options.settled("pruner")),
            default=default,
            description={},
        )
        found.append(dataclasses.replace(search, description=_description(search, job, options.heartbeat)))
    return job.config, found, messages


def _description(search: Search, job: Job, heartbeat: int) -> Mapping[str, Any]:
    """As JSON gives it back. Commands with unlike heartbeats would take trials from one another."""
    config, values = job.config, plain(job.config)
    settings = {name: values[name] for name in config.what() if name not in search.space.names}
    settings |= {"suite": job.suite.name, "algorithm": job.algorithm}  # wherever a user's files lie
    cell = {name: values[name] for name in config.variant() if name != "seed"}
    described = {
        "sweep": search.sweep,
        "suite": job.suite.name,
        "objective": search.metric,
        "space": search.space.plain(),
        "settings": {**settings, "protocol": job.protocol.hash, "data": job.fingerprint},
        "sampler": search.sampler,
        "pruner": search.pruner,
        "stages": "; then ".join(stage.title for stage in search.stages),
        "seed": search.seed,
        "heartbeat": heartbeat,
        **({"cell": cell} if cell else {}),
    }
    found: Mapping[str, Any] = json.loads(json.dumps(described))
    return found


def objectives(job: Job) -> dict[str, bool]:
    """Metric -> whether more is better, of all that trials in this cell are measured by."""
    suite, protocol = job.suite, job.protocol
    names = [f"val/{measure}/{entry.name}" for entry in suite.validating for measure in entry.measured]
    names += [f"test/{measure}/{entry.name}" for entry in suite.testing for measure in entry.measured]
    found = {name: measures.of(name).higher_is_better for name in names}
    for entry in protocol.derived:
        if set(entry.inputs_without(suite.test_domains)) <= set(found):
            found[entry.metric] = entry.higher_is_better
    return {**found, protocol.monitor: protocol.monitor_higher_is_better}


def choose_objective(given: str, known: Mapping[str, bool], monitor: str, oracle: bool) -> tuple[str, bool]:
    """(metric, whether more is better). UsageError for one that is not known, or is of test sets unasked."""
    name = monitor if given == "auto" else given
    if name not in known:
        raise UsageError(f"objective={given}: the suite measures no such thing here{nearest(given, known)}")
    if given.startswith("test/") and not oracle:
        raise UsageError(
            f"objective={given} would choose parameters on the test images, which no practice can: "
            f"{monitor} is the suite's own; oracle=yes does it, and marks every number"
        )
    return name, known[name]
