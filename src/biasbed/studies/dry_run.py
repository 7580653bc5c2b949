"""Output of `dry_run`: every run of a study with its status, or the grid alone if the data are missing."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from biasbed import registry, suites
from biasbed.errors import Failure, MissingData
from biasbed.studies.cells import HELD_OUT, StudyCell, expand
from biasbed.studies.plan import PlannedRun, merge_settings
from biasbed.studies.status import Estimate, RunStatus, StudyRunStatus
from biasbed.studies.study_table import Overrides, StudyTable
from biasbed.system.terminal import clock
from biasbed.training.resolve import resolve


def list_runs(statuses: Sequence[StudyRunStatus], left: Estimate, workers: int) -> list[str]:
    """Return the runs by status, a line per row and cell, then what is left."""
    states = [status.state for _, status in statuses]
    lines = []
    for state in dict.fromkeys(states):
        lines += [f"{state}:", *_list_state([(run, status) for run, status in statuses if status.state == state])]
    counts = ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states))
    lines.append(f"{len(statuses)} runs: {counts}; {workers} at a time")
    if left.seconds is None:
        lines.append("how long that takes is not known: no epoch of this study has been timed yet")
    elif left.seconds:
        hours = left.process_seconds / 3600
        guess = f"; not timed yet, taken as the others: {', '.join(left.guessed)}" if left.guessed else ""
        lines.append(f"about {clock(left.seconds)} left, {hours:.2f} device hours, by the epochs timed so far{guess}")
    else:
        lines.append("nothing is left to train")
    return lines


def _list_state(statuses: Sequence[tuple[PlannedRun, RunStatus]]) -> list[str]:
    """Return a line per row and cell with its seeds, and one for each run of which there is more to say."""
    seeds: dict[str, list[str]] = {}
    others = []
    for run, status in statuses:
        details = _describe_progress(run, status)
        if details or run.label or run.kind != "train":
            others.append(f"  {run.name}{details}")
        else:
            seeds.setdefault(run.group, []).append(str(run.seed))
    width = max(map(len, seeds), default=0)
    lines = [
        f"  {group:{width}} seed{'s' * (len(numbers) > 1)} {', '.join(numbers)}" for group, numbers in seeds.items()
    ]
    return lines + others


def _describe_progress(run: PlannedRun, status: RunStatus) -> str:
    is_partial = status.reached and status.state not in ("done", "not sent")
    progress = f" at {run.unit} {status.reached} of {run.total}" if is_partial else ""
    note = f" ({status.note})" if status.note and status.state != "done" else ""
    return progress + note


# --- without the data -------------------------------------------------------------------------------------------------


class CountedCells(NamedTuple):
    """Cells of a study and their number in words."""

    cells: tuple[StudyCell, ...]
    text: str
    is_counted: bool  # False if only the data know how many there are: `cells` then holds one for all


def describe_grid(table: StudyTable, reason: MissingData | Failure) -> list[str]:
    """Return rows, cells, seeds and the number of runs, then the missing data. reason: why the runs cannot be planned.

    Raises UsageError for a setting that would be refused if the data were there.
    """
    counted = _count_cells(table)
    width = max(map(len, table.rows))
    lines, number = [], 0
    for row, overrides in table.rows.items():
        is_tested = "model" in overrides
        number += len(counted.cells) * (1 if is_tested else len(table.seeds))
        settings = [merge_settings(table, row, cell) for cell in counted.cells]
        text = overrides["model"] if is_tested else _describe_trainings(settings, table.seeds[0])
        lines.append(f"  {row:{width}}  {text}")
    seeds = f"{len(table.seeds)} seed{'s' * (len(table.seeds) != 1)}"
    runs = f"{number} runs" if counted.is_counted else f"{number} runs in each"
    suite = suites.identifier(table.suite)
    head = f"{table.study}: {len(table.rows)} rows x {counted.text} x {seeds}: {runs} of the suite {suite}"
    return [head, *lines, *list_missing(reason)]


def list_missing(reason: MissingData | Failure) -> list[str]:
    """Return the missing data, a line each."""
    parts = re.split(r"; (?=')", str(reason))
    return ["cannot plan the runs: data missing", *(f"- {part}" for part in parts)]


def _describe_trainings(settings: Sequence[Overrides], seed: int) -> str:
    """Describe network, duration, batch and image size of a row's trainings."""
    texts = set()
    for overrides in settings:
        config = resolve({**overrides, "seed": str(seed)})
        duration = f"{config.epochs or config.steps} {config.unit}s"
        texts.add(f"{config.backbone}, {duration}, batch {config.batch_size}, {config.image_size} px")
    return "; ".join(sorted(texts))


def _count_cells(table: StudyTable) -> CountedCells:
    try:
        cells = expand({**table.settings, "suite": registry.with_whole_path(table.suite)}, table.cells)
    except MissingData:
        held_out = table.settings.get(HELD_OUT, "")
        placeholder = StudyCell("", {HELD_OUT: "none"})
        return CountedCells((placeholder,), f"the cells of {HELD_OUT}={held_out}", is_counted=False)
    return CountedCells(cells, f"{len(cells)} cell{'s' * (len(cells) != 1)}", is_counted=True)
