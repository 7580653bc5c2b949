"""Status of a study's runs, read from journals, locks and the server, and an estimate of the time that is left."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from biasbed import measures, record
from biasbed.studies.ledger import read_attempts
from biasbed.studies.plan import PlannedRun, RunIdentity, StudyPlan
from biasbed.tracking.folder import RunFolder

ProgressState = Literal["done", "not sent", "elsewhere", "unfinished", "to do"]
EARLIER = "time/stages_seconds"  # of the stages before the one whose epochs count


@dataclass(frozen=True)
class RunStatus:
    """Progress of a run, by its folder, or by the server if this machine has no folder of it."""

    state: ProgressState
    reached: int = 0  # epochs or steps
    best: float | None = None  # value of the monitor, if this machine has the run's folder
    per_unit: float | None = None  # seconds per epoch or step, evaluation included
    note: str = ""  # who trains it now, or why it ended early
    overhead: float | None = None  # of an ended run: seconds per start for importing, saving, sending


@dataclass(frozen=True)
class Finished:
    """A finished run on the server."""

    run_id: str
    metrics: Mapping[str, float]  # the last value of each


class StudyRunStatus(NamedTuple):
    """A planned run with its status."""

    run: PlannedRun
    status: RunStatus


def read_status(run: PlannedRun, finished: Mapping[RunIdentity, Finished]) -> RunStatus:
    """Read a run's status from its folder. If the folder is not done, a finished run on the server counts.

    finished: the study's finished runs on the server, by identity.
    """
    folder = run.folder()
    if not folder.is_done and run.identity in finished:
        return RunStatus("done", run.total, per_unit=seconds_per_unit(run, finished[run.identity].metrics))
    records = folder.read_journal()
    reached = run.reached(records)
    values = [step["metrics"][run.monitor] for step in records if run.monitor in step["metrics"]]
    best = measures.best(values, run.higher_is_better)
    seconds = sum(_epoch_seconds(step["metrics"]) + step["metrics"].get(EARLIER, 0.0) for step in records)
    units = run.total if folder.is_done else reached  # one that ends early, as a probe, costs what it took
    per_unit = seconds / units if units else None
    run_state = folder.read_state()
    holder, error = folder.holder(), run_state.get("tags", {}).get(record.ERROR, "")
    state: ProgressState = "to do"
    if folder.is_done:
        state = "done" if not run.tracked or run_state.get("sent") else "not sent"
    elif holder is not None:
        state = "elsewhere"
    elif run_state:
        state = "unfinished"
    overhead = _overhead(folder, seconds) if folder.is_done else None
    return RunStatus(state, reached, best, per_unit, holder or error, overhead)


def _overhead(folder: RunFolder, seconds: float) -> float | None:
    """Return the mean seconds of a start that are no epochs; None without starts. seconds: of all epochs together."""
    attempts = read_attempts(folder)
    if not attempts:
        return None
    occupied = sum(attempt["end"] - attempt["start"] for attempt in attempts)
    return max(0.0, occupied - seconds) / len(attempts)


def read_statuses(plan: StudyPlan, finished: Mapping[RunIdentity, Finished]) -> list[StudyRunStatus]:
    """Read the status of every run of a plan."""
    return [StudyRunStatus(run, read_status(run, finished)) for run in plan.runs]


def seconds_per_unit(run: PlannedRun, last: Mapping[str, float]) -> float | None:
    """Return a finished run's seconds per epoch or step, evaluation included; None if it has no such metrics.

    last: the last value of each of its metrics.
    """
    seconds = _epoch_seconds(last) / run.cadence + last.get(EARLIER, 0.0) / max(run.total, 1)
    return seconds or None


def _epoch_seconds(metrics: Mapping[str, float]) -> float:
    """Return the seconds of training and evaluation since the evaluation before."""
    return metrics.get("time/epoch_seconds", 0.0) + metrics.get("time/evaluation_seconds", 0.0)


# --- how long the rest will take --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Estimate:
    """Estimate of the time that is left, by the epochs timed so far."""

    seconds: float | None  # on the clock, None if nothing has been timed
    process_seconds: float  # times training processes
    guessed: tuple[str, ...]  # rows without a timed epoch, for which the mean of the others is assumed


def estimate(runs: Iterable[tuple[PlannedRun, RunStatus]], workers: int) -> Estimate:
    """Estimate the time left by each row's mean time per epoch, in the same cell if it is known there.

    The mean overhead of a start is added for each run, once it is known from a run that has ended.
    """
    runs = list(runs)
    means = _mean_times(runs)
    open_runs = []  # with the number of their epochs or steps that are left
    for run, status in runs:
        if status.state not in ("done", "not sent"):
            open_runs.append((run, run.total - status.reached))
    rows = dict.fromkeys(run.row for run, _ in open_runs)
    guessed = tuple(row for row in rows if row not in means)
    if not open_runs:
        return Estimate(0.0, 0.0, ())
    if not means:
        return Estimate(None, 0.0, guessed)
    row_means = [means[row] for row in dict.fromkeys(run.row for run, _ in runs) if row in means]
    overall = sum(row_means) / len(row_means)
    overheads = [status.overhead for _, status in runs if status.overhead is not None]
    overhead = sum(overheads) / len(overheads) if overheads else 0.0
    seconds, process_seconds = [], 0.0
    for run, left in open_runs:
        per_unit = means.get(run.group, means.get(run.row, overall))
        seconds.append(per_unit * left + overhead)
        process_seconds += seconds[-1] * run.processes
    return Estimate(max(sum(seconds) / workers, *seconds, 0.0), process_seconds, guessed)


def _mean_times(runs: Sequence[tuple[PlannedRun, RunStatus]]) -> dict[str, float]:
    """Return the mean seconds per epoch or step of each row, and of each row in each cell."""
    times: dict[str, list[float]] = {}
    for run, status in runs:
        if status.per_unit:
            for name in {run.group, run.row}:
                times.setdefault(name, []).append(status.per_unit)
    return {name: sum(values) / len(values) for name, values in times.items()}
