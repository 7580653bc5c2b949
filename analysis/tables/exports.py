"""Exports of trackers: tables of runs that wandb's and MLflow's pages write, and curves, which are no scores."""

from __future__ import annotations

import re

from biasbed.analysis.tables.grid import Grid, select
from biasbed.errors import UsageError

# Columns that trackers add, none of which is a score.
BOOKKEEPING = {
    *("state", "notes", "user", "tags", "created", "runtime", "sweep", "id", "hostname", "commit", "github"),
    *("group", "job type", "updated", "end time", "_step", "_runtime", "_timestamp", "relative time (wall)"),
    *("start time", "duration", "run id", "source type", "source name", "status", "run name", "models", "version"),
    *("run_id", "experiment_id", "artifact_uri", "start_time", "end_time", "name", "experiment id", "artifact uri"),
}
FINISHED = {"finished", "completed", "success", "done"}
_CURVE = re.compile(r" - |__MIN$|__MAX$|__STD$")
_STEPS = {
    *("step", "steps", "epoch", "epochs", "wall time", "global_step"),
    *("relative time (process)", "relative time (wall)"),
}


def refuse_curves(grid: Grid) -> None:
    """Raise UsageError for values over steps: a panel of wandb, a scalar of TensorBoard, a metric history of MLflow."""
    heads = [head.strip() for head in grid.rows[0]]
    folded = [head.casefold() for head in heads]
    is_panel = folded[0] in _STEPS and any(map(_CURVE.search, heads[1:]))
    is_scalar = {"wall time", "step", "value"} <= set(folded)
    is_history = {"timestamp", "step", "value"} <= set(folded)
    if is_panel or is_scalar or is_history:
        tracker = "TensorBoard"
        if is_panel:
            tracker = "wandb panel"
        elif is_history and not is_scalar:
            tracker = "MLflow metric history"
        raise UsageError(
            f"{grid.source}: holds curves over steps ({tracker} export), no final scores: export the table of runs"
        )


def finished_runs(grid: Grid) -> tuple[Grid, list[str]] | None:
    """Return the finished runs of a tracker's table, and a note; None for a table of another kind."""
    folded = [head.strip().casefold() for head in grid.rows[0]]
    present = set(folded)
    wandb = {"name", "state"} <= present and bool(present & {"runtime", "created", "user"})
    page = {"run id", "status"} <= present or {"start time", "status"} <= present
    searched = {"run_id", "experiment_id", "status"} <= present
    if not (wandb or page or searched):
        return None
    tracker = "wandb" if wandb else "MLflow"
    state = folded.index("state" if wandb else "status")
    kept = [0]
    for row in range(1, len(grid.rows)):
        if grid.rows[row][state].casefold() in FINISHED:
            kept.append(row)
    others = len(grid.rows) - len(kept)
    note = f"an export of {tracker}: {len(kept) - 1} finished runs"
    if others:
        note += f" ({others} that did not finish are left out)"
    if len(kept) == 1:
        raise UsageError(f"{grid.source}: {note}")
    has_name = "run name" if "run name" in present else "name"
    columns = [column for column, head in enumerate(folded) if head not in BOOKKEEPING or head == has_name]
    runs = select(grid, kept, columns)
    runs.rows[0] = ["Run Name" if folded[column] == "name" else runs.rows[0][n] for n, column in enumerate(columns)]
    return runs, [note]
