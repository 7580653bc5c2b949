"""What a sweep consists of: a search per method and repeat, checked before anything is started."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from biasbed import measures, record, registry, suites
from biasbed.config import Config, plain
from biasbed.errors import UsageError
from biasbed.options import SweepOptions
from biasbed.settings import nearest
from biasbed.studies.launchers import Launcher
from biasbed.studies.plan import PlannedRun, runs_of
from biasbed.studies.search import trials
from biasbed.studies.search.space import Default, Parameters, Space, read_space
from biasbed.studies.table import Words, methods
from biasbed.tracking import folder as run_folder

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

    from biasbed.training.job import Job

WAITING_TRIALS = 8  # at a time, that `auto` means where a cluster's queue takes any number of trainings


@dataclass(frozen=True)
class Search:
    """The trials of one method with one seed: one Optuna study."""

    sweep: str  # the biasbed study that it belongs to
    name: str  # the Optuna study's
    words: Words  # settings of `train` that all trials share
    space: Space
    run: PlannedRun  # with the default parameters
    repeat: int | None  # number of the repeat, where there are several
    metric: str
    maximize: bool
    is_oracle: bool  # the metric is one of test sets
    trials: int
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
    def title(self) -> str:
        return self.algorithm if self.repeat is None else f"{self.algorithm} repeat {self.repeat}"

    def trial(self, place: int) -> str:
        """What a trial is called among those of its algorithm: `3`, or `r1-3` in repeat 1."""
        return str(place) if self.repeat is None else f"r{self.repeat}-{place}"

    def settings(self, trial: FrozenTrial) -> Words:
        """Its settings, of those that are searched over, as the words of a command line."""
        return self.default.words if trials.DEFAULT in trial.user_attrs else self.space.words(trial.params)

    def parameters(self, trial: FrozenTrial) -> Parameters:
        """The same as Optuna has them, so far as they lie in the space."""
        return self.default.parameters if trials.DEFAULT in trial.user_attrs else trial.params

    def planned(self, words: Words, place: int, launcher: Launcher) -> PlannedRun:
        """The training of a trial. words: its own settings. UsageError where they don't fit together."""
        (run,) = runs_of({**self.words, **words}, [self.seed], launcher)[1]
        tags = {record.KIND: "trial", record.TRIAL: self.trial(place)}
        tags |= {record.ORACLE: self.metric} if self.is_oracle else {}
        label = f"{self.algorithm}-trial{self.trial(place)}"
        return dataclasses.replace(run, label=label, environment={record.GIVEN_TAGS: json.dumps(tags)})

    def in_folder(self, base: str, place: int) -> PlannedRun:
        """The same training, found again by its folder."""
        return dataclasses.replace(self.run, base=Path(base), label=f"{self.algorithm}-trial{self.trial(place)}")


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
    for algorithm in methods(options.algorithms):
        words = {**settings, "suite": registry.settled(options.suite), "study": options.study}
        words["algorithm"] = registry.settled(algorithm)
        try:
            config, own, said = _searches_of(options, words, launcher)
        except UsageError as error:
            raise UsageError(f"{algorithm}: {error}") from None
        searches += own
        configs.append(config)
        messages += said
    workers = min(_workers(options, launcher, configs), sum(search.trials for search in searches))
    suite = suites.identifier(options.suite)
    return Sweep(options.study, suite, tuple(searches), settings, configs[0], workers, tuple(messages))


def _workers(options: SweepOptions, launcher: Launcher, configs: Sequence[Config]) -> int:
    """Sampler and pruner learn from trials that have ended only: so few at a time where a queue takes any number."""
    if options.workers != "auto":
        return int(options.workers)
    fitting = min(map(launcher.capacity, configs))
    return min(fitting, WAITING_TRIALS) if launcher.detached else fitting


def _searches_of(options: SweepOptions, words: Words, launcher: Launcher) -> tuple[Config, list[Search], list[str]]:
    """The searches of one method, a repeat each, and what a user should know of them."""
    space = read_space(options.space, {name: value for name, value in words.items() if value != "auto"})
    repeats, trials = int(options.settled("repeats")), int(options.settled("trials"))
    seeds = range(options.seed, options.seed + repeats)
    job, runs = runs_of(words, seeds, launcher)
    metric, maximize = choose_objective(options.objective, job.protocol, options.oracle)
    messages = []
    default = space.default(job.config)
    if options.settled("sampler") == "brute_force" and not space.is_finite:
        raise UsageError("sampler=brute_force needs a finite space: whole numbers, choices, or steps")
    outside = int(not default.is_inside)  # one trial more than the space has points
    points = space.points(at_most=trials) + outside
    if points < trials:
        besides = ", and its default" if outside else ""
        messages.append(
            f"{job.algorithm}: its space has {points - outside} points only{besides}: {points} trials are made of it"
        )
    found = []
    for repeat, run in enumerate(runs):
        name = f"{options.study}/{job.algorithm}" + (f"/r{repeat}" if repeats > 1 else "")
        search = Search(
            sweep=options.study,
            name=name,
            words={**run.words, "seed": str(run.seed)},
            space=space,
            run=run,
            repeat=repeat if repeats > 1 else None,
            metric=metric,
            maximize=maximize,
            is_oracle=metric.startswith("test/"),
            trials=min(points, trials),
            sampler=str(options.settled("sampler")),
            pruner=str(options.settled("pruner")),
            default=default,
            description={},
        )
        found.append(dataclasses.replace(search, description=_description(search, job, options.heartbeat)))
    return job.config, found, messages


def _description(search: Search, job: Job, heartbeat: int) -> Mapping[str, Any]:
    """As JSON gives it back. Commands with unlike heartbeats would take trials from one another."""
    what = {name: value for name, value in plain(job.config).items() if name in job.config.what()}
    settings = {name: value for name, value in what.items() if name not in search.space.names}
    settings |= {"suite": job.suite.name, "algorithm": job.algorithm}  # wherever a user's files lie
    described = {
        "suite": job.suite.name,
        "objective": search.metric,
        "space": search.space.plain(),
        "settings": {**settings, "protocol": job.protocol.hash, "data": job.fingerprint},
        "sampler": search.sampler,
        "pruner": search.pruner,
        "seed": search.seed,
        "heartbeat": heartbeat,
    }
    found: Mapping[str, Any] = json.loads(json.dumps(described))
    return found


def choose_objective(given: str, protocol: record.Protocol, oracle: bool) -> tuple[str, bool]:
    """(metric, whether more is better). UsageError for one that the suite does not have, or is of test sets unasked."""
    if given == "auto":
        return protocol.monitor, protocol.monitor_higher_is_better
    tests = {entry.name: entry for entry in protocol.sets}
    known = [f"val/{measure}/{name}" for name in protocol.validation_sets for measure in ("accuracy", "loss")]
    known += [f"test/{measure}/{name}" for name, entry in tests.items() for measure in entry.measures]
    if given not in dict.fromkeys([*known, protocol.monitor]):
        raise UsageError(f"objective={given}: the suite measures no such thing{nearest(given, known)}")
    if given.startswith("test/") and not oracle:
        raise UsageError(
            f"objective={given} would choose parameters on the test images, which no practice can: "
            f"{protocol.monitor} is the suite's own; oracle=yes does it, and marks every number"
        )
    return given, measures.of(given).higher_is_better
