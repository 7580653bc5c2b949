"""What a study consists of, how far each of its runs is, and how long the rest will take."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from biasbed import measures, record, registry, suites
from biasbed.config import Config
from biasbed.errors import UsageError
from biasbed.studies.launchers import Launcher
from biasbed.studies.table import StudyTable, Words
from biasbed.tracking.folder import RunFolder, folder_for, home
from biasbed.training.resolve import resolve, run_key

if TYPE_CHECKING:
    from biasbed.training.job import Job

Records = Sequence[Mapping[str, Any]]  # of a journal: {"step", "timestamp", "metrics"}


@dataclass(frozen=True)
class PlannedRun:
    """One training of a study."""

    algorithm: str
    seed: int
    words: Words  # the settings of `train` that make it
    study: str
    config_hash: str
    run_key: str
    base: Path  # its folder, or the first of several (`folder_for`)
    monitor: str
    unit: str  # epoch or step
    total: int  # of these units
    cadence: int  # of these units between two evaluations
    processes: int
    tracked: bool  # whether its results go to a server
    label: str = ""  # its name, where that is not made of method and seed
    environment: Mapping[str, str] = field(default_factory=dict)  # variables of its own training

    @property
    def name(self) -> str:
        return self.label or f"{self.algorithm}-seed{self.seed}"

    def folder(self) -> RunFolder:
        """Where it is trained, or has been."""
        return folder_for(self.base, "once", self.tracked, self.study)


@dataclass(frozen=True)
class StudyPlan:
    """A study, checked: every run could start."""

    table: StudyTable
    runs: tuple[PlannedRun, ...]
    config: Config  # of one of its runs
    workers: int

    @property
    def suite(self) -> str:
        """What its suite's runs are filed under."""
        return suites.identifier(self.config.suite)

    @property
    def folder(self) -> Path:
        """Of what is kept about the study as a whole."""
        return home(self.config) / "studies" / record.slug(self.table.study)


def make_plan(table: StudyTable, launcher: Launcher, workers: int | str) -> StudyPlan:
    """The grid of a table, seed by seed, so that an unfinished study has its first seeds of every method.

    Raises UsageError where a run could not start: nothing has been started then.
    """
    if not table.algorithms or not table.seeds:
        raise UsageError("the study is empty: give algorithms and seeds")
    runs: list[PlannedRun] = []
    configs: list[Config] = []
    for algorithm, own in table.algorithms.items():
        words = {**table.settings, **own, "study": table.study}
        words |= {"suite": registry.settled(table.suite), "algorithm": registry.settled(algorithm)}
        try:
            job, planned = runs_of(words, table.seeds, launcher)
        except UsageError as error:
            raise UsageError(f"{algorithm}: {error}") from None
        runs += planned
        configs.append(job.config)
    runs.sort(key=lambda run: table.seeds.index(run.seed))
    homes = {str(home(config)) for config in configs}
    if len(homes) > 1 or len({config.tracking for config in configs}) > 1:
        raise UsageError("output_dir and tracking are the whole study's: give them in its general settings")
    fitting = min(launcher.capacity(config) for config in configs) if workers == "auto" else int(workers)
    return StudyPlan(table, tuple(runs), configs[0], min(fitting, len(runs)))


def runs_of(words: Words, seeds: Sequence[int], launcher: Launcher) -> tuple[Job, list[PlannedRun]]:
    """The runs of one method, and the job of the first. They share a config_hash, so the images are looked at once.

    Raises UsageError where they could not start.
    """
    from biasbed.training import job

    config = launcher.settle(resolve({**words, "seed": str(seeds[0])}))
    words = {**words, "device": config.device, "nproc": str(config.nproc), "resume": "once"}
    first = job.plan(config)
    runs = []
    for seed in seeds:
        own = dataclasses.replace(config, seed=seed)
        key = run_key(own, first.config_hash)
        runs.append(
            PlannedRun(
                algorithm=first.algorithm,
                seed=seed,
                words={**words, "seed": str(seed)},
                study=config.study,
                config_hash=first.config_hash,
                run_key=key,
                base=dataclasses.replace(first, config=own, run_key=key).base,
                monitor=first.suite.monitor,
                unit=config.unit,
                total=config.steps or config.epochs or 0,
                cadence=config.cadence,
                processes=int(config.nproc),
                tracked=config.tracking == "on",
            )
        )
    return first, runs


# --- how far it is ----------------------------------------------------------------------------------------------------

Status = Literal["done", "not sent", "elsewhere", "unfinished", "to do"]


@dataclass(frozen=True)
class RunStatus:
    """How far a run is, by its folder, or by the server where this machine has no folder of it."""

    state: Status
    reached: int = 0  # epochs or steps
    best: float | None = None  # value of the monitor, where this machine has the run's folder
    per_unit: float | None = None  # seconds per epoch or step, evaluation included
    note: str = ""  # who trains it now, or why it ended early


@dataclass(frozen=True)
class Finished:
    """A run that the server has, finished."""

    run_id: str
    metrics: Mapping[str, float]  # the last value of each


def standing(run: PlannedRun, finished: Mapping[str, Finished]) -> RunStatus:
    """How far a run is. finished: the study's finished runs on the server, by run key."""
    folder = run.folder()
    if not folder.is_done and run.run_key in finished:
        last = _seconds(finished[run.run_key].metrics)
        return RunStatus("done", run.total, per_unit=last / run.cadence or None)
    records = folder.read_journal()
    reached = int(records[-1]["step"]) if records else 0
    values = [entry["metrics"][run.monitor] for entry in records if run.monitor in entry["metrics"]]
    best = measures.best(run.monitor, values)
    per_unit = sum(_seconds(entry["metrics"]) for entry in records) / reached if reached else None
    told = folder.read_state()
    holder, error = folder.holder(), told.get("tags", {}).get(record.ERROR, "")
    state: Status = "to do"
    if folder.is_done:
        state = "done" if not run.tracked or told.get("sent") else "not sent"
    elif holder is not None:
        state = "elsewhere"
    elif told:
        state = "unfinished"
    return RunStatus(state, reached, best, per_unit, holder or error)


def survey(plan: StudyPlan, finished: Mapping[str, Finished]) -> list[tuple[PlannedRun, RunStatus]]:
    """Every run with how far it is."""
    return [(run, standing(run, finished)) for run in plan.runs]


def _seconds(metrics: Mapping[str, float]) -> float:
    """Of training and evaluation, up to one evaluation from the one before."""
    return metrics.get("time/epoch_seconds", 0.0) + metrics.get("time/evaluation_seconds", 0.0)


# --- how long the rest will take --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Estimate:
    """Seconds that are left, by what has been timed so far."""

    seconds: float | None  # on the clock, None without any basis
    process_seconds: float  # times training processes
    guessed: tuple[str, ...]  # methods that have no epoch yet, taken as the mean of the others


def estimate(runs: Iterable[tuple[PlannedRun, RunStatus]], workers: int) -> Estimate:
    """What is left of these runs, by the mean time per epoch of each method."""
    runs = list(runs)
    times: dict[str, list[float]] = {}
    for run, standing in runs:
        if standing.per_unit:
            times.setdefault(run.algorithm, []).append(standing.per_unit)
    means = {algorithm: sum(values) / len(values) for algorithm, values in times.items()}
    open_runs = [(run, run.total - s.reached) for run, s in runs if s.state not in ("done", "not sent")]
    guessed = tuple(dict.fromkeys(run.algorithm for run, _ in open_runs if run.algorithm not in means))
    if not open_runs:
        return Estimate(0.0, 0.0, ())
    if not means:
        return Estimate(None, 0.0, guessed)
    usual = sum(means.values()) / len(means)
    seconds = [means.get(run.algorithm, usual) * left for run, left in open_runs]
    process_seconds = sum(s * run.processes for s, (run, _) in zip(seconds, open_runs, strict=True))
    return Estimate(max(sum(seconds) / workers, *seconds, 0.0), process_seconds, guessed)
