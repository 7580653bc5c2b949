"""How far each run of a plan is, and how long the rest will take: by journals, locks and what the server has."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from biasbed import measures, record
from biasbed.studies import attempts
from biasbed.studies.plan import PlannedRun, StudyPlan
from biasbed.tracking.folder import RunFolder

Status = Literal["done", "not sent", "elsewhere", "unfinished", "to do"]


@dataclass(frozen=True)
class RunStatus:
    """How far a run is, by its folder, or by the server where this machine has no folder of it."""

    state: Status
    reached: int = 0  # epochs or steps
    best: float | None = None  # value of the monitor, where this machine has the run's folder
    per_unit: float | None = None  # seconds per epoch or step, evaluation included
    note: str = ""  # who trains it now, or why it ended early
    beside: float | None = None  # of an ended run: seconds of a start beside its epochs, as importing, saving, sending
    tests: str = ""  # shape bias and a test score at the best evaluation so far, in words


@dataclass(frozen=True)
class Finished:
    """A run that the server has, finished."""

    run_id: str
    metrics: Mapping[str, float]  # the last value of each


def standing(run: PlannedRun, finished: Mapping[tuple[str, str], Finished]) -> RunStatus:
    """How far a run is. finished: the study's finished runs on the server, by their identity."""
    folder = run.folder()
    if not folder.is_done and run.identity in finished:
        return RunStatus("done", run.total, per_unit=seconds_per_unit(run, finished[run.identity].metrics))
    records = folder.read_journal()
    reached = run.reached(records)
    values = [entry["metrics"][run.monitor] for entry in records if run.monitor in entry["metrics"]]
    best = measures.best(values, run.higher_is_better)
    seconds = sum(_seconds(entry["metrics"]) + entry["metrics"].get(EARLIER, 0.0) for entry in records)
    per_unit = seconds / reached if reached else None
    told = folder.read_state()
    holder, error = folder.holder(), told.get("tags", {}).get(record.ERROR, "")
    state: Status = "to do"
    if folder.is_done:
        state = "done" if not run.tracked or told.get("sent") else "not sent"
    elif holder is not None:
        state = "elsewhere"
    elif told:
        state = "unfinished"
    beside = _beside(folder, seconds) if folder.is_done else None
    return RunStatus(state, reached, best, per_unit, holder or error, beside, tests_of(records))


def _beside(folder: RunFolder, seconds: float) -> float | None:
    """Of each start; None where nobody has timed them. seconds: of all epochs."""
    tries = attempts.read(folder)
    occupied = sum(entry["end"] - entry["start"] for entry in tries)
    return max(0.0, occupied - seconds) / len(tries) if tries else None


SHOWN = 2  # of what is tested


def tests_of(records: Iterable[Mapping[str, Any]]) -> str:
    """`shape bias 31.2, sketch 40.1`: what a protocol has first of the best evaluation so far; empty before one."""
    found: dict[str, str] = {}
    for entry in records:
        metrics = entry["metrics"]
        tested = [own for name in metrics if (own := record.parse_metric(name)) and own.phase == "test"]
        for name in (name for name in metrics if name.startswith(f"{record.BEST}/")):
            short, value = name.removeprefix(f"{record.BEST}/"), metrics[name]
            ways = [m.measure for m in tested if short in (m.set, m.measure) and metrics[str(m)] == value]
            if ways:
                found[short] = f"{short.replace('_', ' ')} {measures.shown(value, measures.of(ways[0]).unit)}"
    return ", ".join(list(found.values())[:SHOWN])


def survey(plan: StudyPlan, finished: Mapping[tuple[str, str], Finished]) -> list[tuple[PlannedRun, RunStatus]]:
    """Every run with how far it is."""
    return [(run, standing(run, finished)) for run in plan.runs]


EARLIER = "time/stages_seconds"  # of the stages before the one whose epochs count


def seconds_per_unit(run: PlannedRun, last: Mapping[str, float]) -> float | None:
    """Of an epoch or step with its evaluation, by the last values of a finished run of the kind; None without any."""
    return _seconds(last) / run.cadence + last.get(EARLIER, 0.0) / max(run.total, 1) or None


def _seconds(metrics: Mapping[str, float]) -> float:
    """Of training and evaluation, up to one evaluation from the one before."""
    return metrics.get("time/epoch_seconds", 0.0) + metrics.get("time/evaluation_seconds", 0.0)


# --- how long the rest will take --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Estimate:
    """Seconds that are left, by what has been timed so far."""

    seconds: float | None  # on the clock, None without any basis
    process_seconds: float  # times training processes
    guessed: tuple[str, ...]  # rows that have no epoch yet, taken as the mean of the others


def estimate(runs: Iterable[tuple[PlannedRun, RunStatus]], workers: int) -> Estimate:
    """What is left of these runs, by the mean time per epoch of each row, in the same cell where it is known there.

    And what every start takes beside, once a run has ended.
    """
    runs = list(runs)
    times: dict[str, list[float]] = {}
    for run, standing in runs:
        if standing.per_unit:
            for whose in {run.place, run.row}:
                times.setdefault(whose, []).append(standing.per_unit)
    means = {whose: sum(values) / len(values) for whose, values in times.items()}
    open_runs = [(run, run.total - s.reached) for run, s in runs if s.state not in ("done", "not sent")]
    guessed = tuple(dict.fromkeys(run.row for run, _ in open_runs if run.row not in means))
    if not open_runs:
        return Estimate(0.0, 0.0, ())
    if not means:
        return Estimate(None, 0.0, guessed)
    known = [means[row] for row in dict.fromkeys(run.row for run, _ in runs) if row in means]
    usual = sum(known) / len(known)
    each = [status.beside for _, status in runs if status.beside is not None]
    start = sum(each) / len(each) if each else 0.0
    seconds = [means.get(run.place, means.get(run.row, usual)) * left + start for run, left in open_runs]
    process_seconds = sum(s * run.processes for s, (run, _) in zip(seconds, open_runs, strict=True))
    return Estimate(max(sum(seconds) / workers, *seconds, 0.0), process_seconds, guessed)
