"""Output of `dry_run`: every run of a study with its status, and the time that is left."""

from __future__ import annotations

from collections.abc import Sequence

from biasbed.studies.plan import PlannedRun
from biasbed.studies.status import Estimate, RunStatus, StudyRunStatus
from biasbed.system.terminal import format_duration


def list_runs(statuses: Sequence[StudyRunStatus], left: Estimate, workers: int) -> list[str]:
    """Return the lines of a dry run: the runs by status, a line per row and cell, then the time left."""
    states = [status.state for _, status in statuses]
    lines = []
    for state in dict.fromkeys(states):
        lines += [f"{state}:", *_list_state([(run, status) for run, status in statuses if status.state == state])]
    counts = ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states))
    lines.append(f"{len(statuses)} runs: {counts}; {workers} at a time")
    if left.seconds is None:
        lines.append("no estimate of the time yet: without dry_run, the command times the first training")
    elif left.seconds:
        hours = left.process_seconds / 3600
        guess = f"; not timed yet, taken as the others: {', '.join(left.guessed)}" if left.guessed else ""
        lines.append(
            f"about {format_duration(left.seconds)} left, {hours:.2f} device hours, by the epochs timed so far{guess}"
        )
    else:
        lines.append("nothing is left to train")
    return lines


def _list_state(statuses: Sequence[tuple[PlannedRun, RunStatus]]) -> list[str]:
    """Return a line per row and cell with its seeds, and a line for each run with a label, progress or note."""
    seeds: dict[str, list[str]] = {}
    others = []
    for run, status in statuses:
        details = _describe_progress(run, status)
        if details or run.label or run.kind != "train":
            others.append(f"  {run.name}{details}")
        else:
            seeds.setdefault(run.group, []).append(str(run.seed))
    width = max(map(len, seeds), default=0)
    lines = []
    for group, numbers in seeds.items():
        word = "seeds" if len(numbers) > 1 else "seed"
        lines.append(f"  {group:{width}} {word} {', '.join(numbers)}")
    return lines + others


def _describe_progress(run: PlannedRun, status: RunStatus) -> str:
    """Return ` at epoch 2 of 10 (<note>)`, or the part of it that is known and of interest."""
    is_partial = status.reached and status.state not in ("done", "not sent")
    progress = f" at {run.unit} {status.reached} of {run.total}" if is_partial else ""
    note = f" ({status.note})" if status.note and status.state != "done" else ""
    return progress + note
