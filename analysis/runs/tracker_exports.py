"""Exports of trackers: CSV files that wandb's and MLflow's pages write, and frames of `mlflow.search_runs`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

# Columns that trackers add, none of which is a score.
WANDB = {
    *("Name", "State", "Notes", "User", "Tags", "Created", "Runtime", "Sweep", "ID", "Hostname", "Commit", "GitHub"),
    *("Group", "Job Type", "Updated", "End Time", "_step", "_runtime", "_timestamp", "Relative Time (Wall)"),
}
MLFLOW = {
    *("Start Time", "Duration", "Run ID", "Name", "Source Type", "Source Name", "User", "Status", "Created"),
    *("Run Name", "Dataset", "Models", "Version"),
}
SEARCHED = {"run_id", "experiment_id", "status", "artifact_uri", "start_time", "end_time"}
FINISHED = {"finished", "FINISHED"}
OF_TRAINING = re.compile(r"(train|training)[/_. ]", re.I)  # heads of metrics that are no test's
# Settings of trainings, which are numbers and no scores.
SETTINGS = {
    *("lr", "learning_rate", "batch_size", "epochs", "epoch", "steps", "step", "weight_decay", "momentum", "dropout"),
    *("num_workers", "workers", "warmup", "max_steps", "image_size", "width", "depth", "num_params", "parameters"),
}


class Exported(NamedTuple):
    """Part of an export that a table of scores is made of."""

    heads: tuple[str, ...]
    columns: tuple[int, ...]  # positions of the heads
    rows: tuple[int, ...]  # runs that finished
    scored: tuple[str, ...] | None  # heads of metrics, if the export tells them from settings
    note: str


def read_export(heads: Sequence[str], rows: Sequence[Sequence[Any]]) -> Exported | None:
    """Return the finished runs of an export, with settings and metrics; None for a table of another kind."""
    present = set(heads)
    if SEARCHED - {"artifact_uri", "end_time"} <= present:
        return _from_search(heads, rows)
    if {"Name", "State"} <= present and present & {"Runtime", "Created", "User"}:
        return _from_page("wandb", "State", WANDB, heads, rows)
    if {"Run ID", "Status"} <= present or {"Start Time", "Status", "User"} <= present:
        return _from_page("MLflow", "Status", MLFLOW, heads, rows)
    return None


def _from_page(
    tracker: str, status: str, bookkeeping: set[str], heads: Sequence[str], rows: Sequence[Sequence[Any]]
) -> Exported:
    """Return the export of a tracker's page, in which settings and metrics stand side by side."""
    kept = []
    for position, head in enumerate(heads):
        is_setting = head.rpartition(".")[2].casefold() in SETTINGS
        if head not in bookkeeping and not is_setting and not OF_TRAINING.match(head):
            kept.append(position)
    names = tuple(heads[position] for position in kept)
    return _finished(tracker, heads.index(status), names, kept, rows, None)


def _from_search(heads: Sequence[str], rows: Sequence[Sequence[Any]]) -> Exported:
    """Return a frame of `mlflow.search_runs`, whose heads say what are metrics and what parameters."""
    kept, names, scored = [], [], []
    for position, head in enumerate(heads):
        kind, _, name = head.partition(".")
        if OF_TRAINING.match(name):
            continue
        if kind in ("metrics", "params") and name not in names:
            kept.append(position)
            names.append(name)
        if kind == "metrics":
            scored.append(name)
    return _finished("MLflow", heads.index("status"), tuple(names), kept, rows, tuple(scored))


def _finished(
    tracker: str,
    status: int,
    names: tuple[str, ...],
    kept: Sequence[int],
    rows: Sequence[Sequence[Any]],
    scored: tuple[str, ...] | None,
) -> Exported:
    numbers = tuple(number for number, cells in enumerate(rows) if str(cells[status]) in FINISHED)
    others = len(rows) - len(numbers)
    note = f"an export of {tracker}: {len(numbers)} finished runs"
    if others:
        note += f" ({others} that did not finish are left out)"
    return Exported(names, tuple(kept), numbers, scored, note)
