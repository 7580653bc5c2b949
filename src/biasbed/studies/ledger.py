"""What a study cost: device hours per run, per row and cell, in all."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path

from biasbed.studies import attempts
from biasbed.studies.plan import PlannedRun, Records
from biasbed.system.files import write_whole
from biasbed.system.tables import original, read_rows, write_rows

HOURS = ("training", "evaluation", "other", "device")
HEADER = (
    *("run", "row", "cell", "algorithm", "seed", "state", "attempts", "reached", "unit", "processes"),
    *(f"{name}_hours" for name in HOURS),
)


@dataclass(frozen=True)
class Cost:
    """Hours, each times the training processes: device hours on GPUs, process hours without."""

    training: float = 0.0  # of the epochs that count
    evaluation: float = 0.0
    other: float = 0.0  # starting, saving, sending, and work that was lost with a killed training
    attempts: int = 0

    @property
    def total(self) -> float:
        return self.training + self.evaluation + self.other

    def __add__(self, other: Cost) -> Cost:
        return Cost(*(getattr(self, field.name) + getattr(other, field.name) for field in fields(self)))


@dataclass(frozen=True)
class Line:
    """One run of the ledger."""

    run: PlannedRun
    state: str
    reached: int
    cost: Cost


def cost(run: PlannedRun, records: Records) -> Cost:
    """Of one run: training and evaluation by its records, the rest by its attempts, as far as they were seen."""
    training, evaluation = (
        sum(entry["metrics"].get(name, 0.0) for entry in records for name in names) * run.processes / 3600
        for names in (("time/epoch_seconds", "time/stages_seconds"), ("time/evaluation_seconds", "time/late_seconds"))
    )
    tries = attempts.read(run.folder())
    occupied = sum((entry["end"] - entry["start"]) * entry["processes"] for entry in tries) / 3600
    return Cost(training, evaluation, max(0.0, occupied - training - evaluation), len(tries))


def write(path: Path, lines: Sequence[Line]) -> None:
    """The ledger as CSV: a row per run. Rows that are there already of other runs of the study stay."""
    own = {line.run.name for line in lines}
    there = read_rows(path, ()) if path.exists() else ()
    known = [{name: original(cell) for name, cell in entry.items()} for _, entry in there]
    others = [entry for entry in known if entry.get("run") and entry["run"] not in own]
    earlier = [{"row": entry.get("algorithm"), **entry} for entry in others]  # before there were rows
    file = io.StringIO(newline="")
    write_rows(file, HEADER, [*map(_entry, lines), *earlier])
    write_whole(path, file.getvalue())


def _entry(line: Line) -> dict[str, object]:
    run, cost = line.run, line.cost
    hours = zip(HOURS, (cost.training, cost.evaluation, cost.other, cost.total), strict=True)
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


def summary(lines: Sequence[Line], device: str) -> list[str]:
    """A table for the terminal: per row and cell, and in all."""
    what = "device hours" if device == "cuda" else "process hours (no GPU)"
    places = dict.fromkeys(line.run.place for line in lines)
    parts = [(place, [line for line in lines if line.run.place == place]) for place in places]
    width = max([24, *map(len, places)])
    shown = [f"{what:{width}} {'runs':>5} {'starts':>6} {'training':>9} {'testing':>9} {'other':>9} {'all':>9}"]
    for name, own in [*parts, ("in all", list(lines))]:
        total = sum((line.cost for line in own), Cost())
        hours = (total.training, total.evaluation, total.other, total.total)
        shown.append(f"{name:{width}} {len(own):5} {total.attempts:6} " + " ".join(f"{value:9.3f}" for value in hours))
    return shown
