"""A sweep's jobs as a tracking server would have them after an import, without one: for what only reads runs."""

from __future__ import annotations

import csv
import io
import json
import zipfile
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from biasbed.analysis.runs.store import RunStore
from biasbed.published import sweep_runs, sweeps
from biasbed.published.sweeps import SweepJob
from biasbed.tracking.metric_histories import tidy_history


class SweepStore(RunStore):
    """Runs that `import` would send, read from the file that it sends."""

    def __init__(self, jobs: Sequence[SweepJob], folder: Path, study: str = "sweep") -> None:
        super().__init__(f"sqlite:///{folder / 'none.db'}")
        file = folder / "sweep.zip"
        sweep_runs.write_archive(jobs, file, study, "somewhere")
        self.trials, self.rows, self.protocols = [], {}, {}
        with zipfile.ZipFile(file) as packed:
            for run_id in json.loads(packed.read("manifest.json"))["runs"]:
                run = json.loads(packed.read(f"runs/{run_id}/run.json"))
                self.trials.append(_as_mlflow(run))
                lines = csv.reader(io.StringIO(packed.read(f"runs/{run_id}/metrics.csv").decode()))
                next(lines)
                self.rows[run_id] = [(key, int(step), int(time), float(value)) for key, step, time, value in lines]
                self.protocols[run_id] = packed.read(f"runs/{run_id}/artifacts/protocol.json").decode()

    def runs(self, kind: str) -> list[Any]:
        return self.trials if kind == "trial" else []

    def text(self, run_id: str, path: str) -> str | None:
        return self.protocols[run_id] if path == "protocol.json" else None

    def histories(self, runs: Sequence[Any]) -> dict[str, list[tuple[str, int, float]]]:
        return {run.info.run_id: tidy_history(self.rows[run.info.run_id]) for run in runs}


def _as_mlflow(run: dict[str, Any]) -> Any:
    info = SimpleNamespace(
        run_id=run["run_id"],
        run_name=run["name"],
        experiment_id="1",
        status=run["status"],
        start_time=run["start_time"],
        end_time=run["end_time"],
    )
    return SimpleNamespace(info=info, data=SimpleNamespace(tags=run["tags"], params=run["params"], metrics={}))


def of_csv(file: Path, folder: Path) -> SweepStore:
    return SweepStore(sweeps.read_sweep(file), folder)
