"""Cost of a study: device hours per run, per row and cell, and in total, from journals and from the starts of runs."""

from __future__ import annotations

import contextlib
import io
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from biasbed.studies.plan import PlannedRun, Records
from biasbed.system.csv_tables import read_rows, unescape_formula, write_rows
from biasbed.system.files import append_line, write_whole
from biasbed.system.strict import parse_json, read_text
from biasbed.tracking.folder import RunFolder

ATTEMPTS, LOG = "attempts.jsonl", "train.log"  # in a run's folder
TRAINING_SECONDS = ("time/epoch_seconds", "time/stages_seconds")
EVALUATION_SECONDS = ("time/evaluation_seconds", "time/late_seconds")
HOURS = ("training", "evaluation", "other", "device")
HEADER = (
    *("run", "row", "cell", "algorithm", "seed", "state", "attempts", "reached", "unit", "processes"),
    *(f"{name}_hours" for name in HOURS),
)


# --- starts of a run --------------------------------------------------------------------------------------------------


def log_file(folder: RunFolder) -> Path:
    """Return the file with the output of all trainings in a folder, one after the other."""
    return folder.path / LOG


def read_attempts(folder: RunFolder) -> list[dict[str, Any]]:
    """Return the starts of a run: `start` and `end` (seconds since 1970), exit `code` and number of `processes`.

    If the launcher was killed, `code` is None and `end` is the time of the attempt's last written file.
    """
    path = folder.path / ATTEMPTS
    attempts: list[dict[str, Any]] = []
    for line in read_text(path, errors="replace").splitlines() if path.exists() else ():
        try:
            event = parse_json(line)
        except ValueError:  # cut off by a kill
            continue
        if "code" in event and attempts:
            attempts[-1] |= event
        elif "start" in event:
            attempts.append({**event, "code": None})
    for number, attempt in enumerate(attempts):
        is_last = number + 1 == len(attempts)
        next_start = time.time() if is_last else attempts[number + 1]["start"]
        attempt.setdefault("end", min(next_start, max(attempt["start"], _last_write(folder))))
    return attempts


def note_start(folder: RunFolder, processes: int) -> None:
    """Note a start. If the attempt before has no end, note the time at which it was last seen."""
    attempts = read_attempts(folder)
    if attempts and attempts[-1]["code"] is None:
        _append(folder, {"code": None, "end": attempts[-1]["end"]})
    _append(folder, {"start": time.time(), "processes": processes})


def note_end(folder: RunFolder, code: int) -> None:
    """Note the exit code of the last attempt, and that it ends now."""
    _append(folder, {"code": code, "end": time.time()})


def _append(folder: RunFolder, event: dict[str, Any]) -> None:
    append_line(folder.path / ATTEMPTS, json.dumps(event))


def _last_write(folder: RunFolder) -> float:
    """Return when a training last wrote anything into the folder."""
    times = [0.0]
    for path in folder.path.iterdir():
        with contextlib.suppress(FileNotFoundError):  # a new version on its way to its name
            times.append(path.stat().st_mtime)
    return max(times)


# --- the ledger -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Cost:
    """Cost in hours times training processes: device hours on GPUs, process hours without."""

    training: float = 0.0  # of the epochs that count
    evaluation: float = 0.0
    overhead: float = 0.0  # starting, saving, sending, and the work lost with a killed training
    attempts: int = 0

    @property
    def total(self) -> float:
        return self.training + self.evaluation + self.overhead

    def __add__(self, more: Cost) -> Cost:
        return Cost(
            self.training + more.training,
            self.evaluation + more.evaluation,
            self.overhead + more.overhead,
            self.attempts + more.attempts,
        )


@dataclass(frozen=True)
class Line:
    """Line of the ledger: a run and its cost."""

    run: PlannedRun
    state: str
    reached: int
    cost: Cost


def compute_cost(run: PlannedRun, records: Records) -> Cost:
    """Compute a run's cost: training and evaluation from its records, the rest from its attempts on this machine."""
    training = _sum_seconds(records, TRAINING_SECONDS) * run.processes / 3600
    evaluation = _sum_seconds(records, EVALUATION_SECONDS) * run.processes / 3600
    attempts = read_attempts(run.folder())
    occupied = sum((attempt["end"] - attempt["start"]) * attempt["processes"] for attempt in attempts) / 3600
    return Cost(training, evaluation, max(0.0, occupied - training - evaluation), len(attempts))


def _sum_seconds(records: Records, names: Sequence[str]) -> float:
    """Return the sum of these metrics over all records."""
    total = 0.0
    for journal_record in records:
        for name in names:
            total += journal_record["metrics"].get(name, 0.0)
    return total


def write_ledger(path: Path, lines: Sequence[Line]) -> None:
    """Write the ledger as CSV, a row per run. Rows of the study's other runs stay."""
    names = {line.run.name for line in lines}
    rows = [_make_row(line) for line in lines]
    for _, cells in read_rows(path, ()) if path.exists() else ():
        name = unescape_formula(cells.get("run", ""))
        if name and name not in names:
            rows.append({column: unescape_formula(cell) for column, cell in cells.items()})
    file = io.StringIO(newline="")
    write_rows(file, HEADER, rows)
    write_whole(path, file.getvalue())


def _make_row(line: Line) -> dict[str, object]:
    """Return a run as a row of the ledger, its cost in hours."""
    run, cost = line.run, line.cost
    hours = zip(HOURS, (cost.training, cost.evaluation, cost.overhead, cost.total), strict=True)
    return {
        "run": run.name,
        "row": run.row,
        "cell": run.cell,
        "algorithm": run.algorithm,
        "seed": run.seed if run.kind == "train" else "",
        "state": line.state,
        "attempts": cost.attempts,
        "reached": line.reached,
        "unit": run.unit,
        "processes": run.processes,
        **{f"{name}_hours": f"{value:.5f}" for name, value in hours},
    }


def format_summary(lines: Sequence[Line], device: str) -> list[str]:
    """Format the costs as a table for the terminal: a line per row and cell, then the total."""
    groups: dict[str, list[Line]] = {}
    for line in lines:
        groups.setdefault(line.run.group, []).append(line)
    width = max([24, *map(len, groups)])
    unit = "device hours" if device == "cuda" else "process hours (no GPU)"
    table = [f"{unit:{width}} {'runs':>5} {'starts':>6} {'training':>9} {'testing':>9} {'other':>9} {'all':>9}"]
    for name, members in [*groups.items(), ("in all", list(lines))]:
        total = sum((line.cost for line in members), Cost())
        hours = (total.training, total.evaluation, total.overhead, total.total)
        columns = " ".join(f"{value:9.3f}" for value in hours)
        table.append(f"{name:{width}} {len(members):5} {total.attempts:6} {columns}")
    return table
