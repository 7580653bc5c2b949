"""Checks at the end of a life: everything as in a training that was never disturbed, and nothing besides."""

from __future__ import annotations

import fcntl
import sqlite3
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from biasbed import record
from biasbed.tracking.folder import RunFolder
from faults import DOUBLED, LEFT, LOST, UNEQUAL, WRONG, Life
from helpers.runs import run_folders, timeless

CHECKPOINTS = ("last.ckpt", "best.ckpt")
CLOCKED = ("seconds", "waited")  # parts of a checkpoint that a clock filled
STALE = (record.ENDED_BY, record.ERROR)
OWN_TAGS = (record.ATTEMPTS, record.FOLDER_ID, *STALE)  # of one run; and what must be gone at the end
# Of the folder: what is there of an undisturbed training too, and may come and go.
UPLOADING = ".artifact.uploading."  # MLflow's own: a kill while it copies a file to a folder of artifacts leaves one
MAY_COME = ("claim", "train.log", "runner.json", "attempts.jsonl")


@dataclass(frozen=True)
class Result:
    """Folder of a training, and the database of its tracking server."""

    home: Path
    store: Path
    artifacts: Path | None = None  # where a server keeps those of all runs

    @property
    def folder(self) -> Path:
        (folder,) = run_folders(self.home)
        return folder

    def artifacts_of(self, uri: str) -> Path:
        """Return the folder of a run's artifacts, by what the database says of it."""
        if self.artifacts is not None:
            return self.artifacts / uri.removeprefix("mlflow-artifacts:").lstrip("/")
        return Path(uri.removeprefix("file://"))


def hold(life: Life, result: Result, reference: Result) -> None:
    """Blame whatever is not as in the reference."""
    folders = run_folders(result.home)
    if len(folders) != 1:
        life.blame(LEFT, f"{len(folders)} run folders")
        return
    _compare_folders(life, result.folder, reference.folder)
    _compare_runs(life, result, reference)
    left = [path.name for path in (result.home.parent / "tmp").glob("*") if _is_left(path)]
    if left:
        life.blame(LEFT, f"in the folder of temporary files: {sorted(left)[:3]}")


def _is_left(path: Path) -> bool:
    """Return True if the file should not be there. A kill may leave a lock, which the next command removes."""
    if path.suffix != ".lock":
        return path.name.startswith(("biasbed-", "tmp"))
    with path.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return True
    return False


def hold_rows(life: Life, result: Result, runs: Sequence[Mapping[str, Any]]) -> None:
    """Check without a reference: one run, whose rows are those of the folder's journal. runs: as `runs_of` has them."""
    if len(runs) != 1:
        life.blame(LOST if not runs else LEFT, f"{len(runs)} runs of {result.folder.name} on the server")
        return
    life.rows += compare_rows(life, runs[0]["rows"], _rows_of_journal(result.folder, clocked=True))


# --- the folder -------------------------------------------------------------------------------------------------------


def _compare_folders(life: Life, folder: Path, reference: Path) -> None:
    names, expected_names = _files(folder), _files(reference)
    for name in sorted(names - expected_names):
        life.blame(LEFT, f"the file {name}")
    for name in sorted(expected_names - names):
        life.blame(LOST if name.startswith("predictions") else UNEQUAL, f"there is no {name}")
    for name in sorted(names & expected_names):
        if name in CHECKPOINTS:
            try:
                where = difference(plain(folder / name), plain(reference / name))
            except RuntimeError as error:
                where = f"it can't be read: {error}"[:200]
            if where is not None:
                life.blame(UNEQUAL, f"{name}: {where}")
        elif _is_fixed(name) and (folder / name).read_bytes() != (reference / name).read_bytes():
            life.blame(UNEQUAL, name)
    if RunFolder(folder).holder() is not None:
        life.blame(LEFT, "the lock is held")
    own_rows, their_rows = _rows_of_journal(folder), _rows_of_journal(reference)
    if {key: value for key, value in own_rows.items() if key in their_rows} != their_rows:
        life.blame(WRONG, "the journal's history")


def _is_fixed(name: str) -> bool:
    """Return True if a file of a run has the same bytes whenever it is written."""
    return name.endswith((".parquet", ".png", ".csv")) or name in (record.PROTOCOL_FILE, record.CONFIG_FILE)


def _files(folder: Path) -> set[str]:
    names = (str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
    return {name for name in names if name not in MAY_COME and UPLOADING not in name}


def plain(path: Path) -> dict[str, Any]:
    """Return a checkpoint without what a clock, or the place of the images, put into it."""
    state: dict[str, Any] = torch.load(path, weights_only=True)
    for part in CLOCKED:
        state.pop(part, None)
    if "position" in state:
        state["position"] = {name: value for name, value in state["position"].items() if name != "earlier"}
    if "history" in state:
        state["history"] = [{**line, "timestamp": 0, "metrics": timeless(line["metrics"])} for line in state["history"]]
    return state


def difference(left: Any, right: Any, where: str = "") -> str | None:
    """Return the first place where two values of a checkpoint differ in bits; None if they are equal."""
    if type(left) is not type(right):
        return f"{where}: {type(left).__name__}, not {type(right).__name__}"
    if isinstance(left, Mapping):
        if left.keys() != right.keys():
            return f"{where}: {sorted(map(str, left.keys() ^ right.keys()))[:3]} on one side"
        differences = (difference(left[name], right[name], f"{where}/{name}") for name in left)
        return next((where_differs for where_differs in differences if where_differs is not None), None)
    if isinstance(left, list | tuple):
        if len(left) != len(right):
            return f"{where}: {len(left)}, not {len(right)}"
        differences = (difference(*pair, f"{where}/{n}") for n, pair in enumerate(zip(left, right, strict=True)))
        return next((where_differs for where_differs in differences if where_differs is not None), None)
    if isinstance(left, torch.Tensor):
        same = left.dtype == right.dtype and left.shape == right.shape
        return None if same and _bits(left) == _bits(right) else where
    return None if repr(left) == repr(right) else f"{where}: {left!r}, not {right!r}"


def _bits(tensor: torch.Tensor) -> bytes:
    return tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes() if tensor.numel() else b""


def _rows_of_journal(folder: Path, clocked: bool = False) -> dict[tuple[str, int], float]:
    """Return the values by metric and step; without those of a clock unless they are asked for."""
    rows: dict[tuple[str, int], float] = {}
    for line in RunFolder(folder).read_journal():
        metrics = line["metrics"] if clocked else timeless(line["metrics"])
        rows |= {(name, line["step"]): value for name, value in metrics.items()}
    return rows


# --- the store --------------------------------------------------------------------------------------------------------


def _compare_runs(life: Life, result: Result, reference: Result) -> None:
    """One run, finished, with every row of the folder's history once; its tags and parameters are the reference's."""
    runs, (theirs,) = (runs_of(results.store, _id_of(results.folder)) for results in (result, reference))
    if len(runs) != 1:
        life.blame(LOST if not runs else LEFT, f"{len(runs)} runs on the server")
        return
    (run,) = runs
    if run["status"] != "FINISHED":
        life.blame(LEFT, f"the run is {run['status']}")
    for name in STALE:
        if name in run["tags"]:
            life.blame(WRONG, f"the tag {name} is still there")
    if run["params"] != theirs["params"]:
        life.blame(WRONG, "parameters")
    if run["tags"].keys() - set(OWN_TAGS) != theirs["tags"].keys() - set(OWN_TAGS):
        life.blame(WRONG, f"tags {sorted(run['tags'].keys() ^ theirs['tags'].keys())[:3]}")
    life.rows += compare_rows(life, run["rows"], _rows_of_journal(result.folder, clocked=True))
    artifacts, expected_artifacts = result.artifacts_of(run["artifacts"]), reference.artifacts_of(theirs["artifacts"])
    _compare_artifacts(life, artifacts, expected_artifacts, result.folder)


def _id_of(folder: Path) -> str:
    """As its run has it."""
    return str(RunFolder(folder).read_state().get("tags", {}).get(record.FOLDER_ID, ""))


def compare_rows(life: Life, rows: list[tuple[str, int, float]], expected: Mapping[tuple[str, int], float]) -> int:
    """Return the number of rows. rows: (metric, step, value) as the store has them."""
    counts = Counter((name, step) for name, step, _ in rows)
    stored = {(name, step): value for name, step, value in rows}
    for key in sorted(expected.keys() - stored.keys()):
        life.blame(LOST, f"{key}")
    for key, count in counts.items():
        if count > 1:
            life.blame(DOUBLED, f"{key}: {count} times")
        if key not in expected or repr(float(stored[key])) != repr(float(expected[key])):
            life.blame(WRONG, f"{key}: {stored[key]}, not {expected.get(key)}")
    return len(rows)


def runs_of(store: Path, folder_id: str) -> list[dict[str, Any]]:
    """Return the active runs of a folder, by its id, with all that the database says of them."""
    with sqlite3.connect(f"file:{store}?mode=ro", uri=True) as connection:

        def rows(columns: str, table: str, run_id: str) -> list[tuple[Any, ...]]:
            return connection.execute(f"select {columns} from {table} where run_uuid = ?", (run_id,)).fetchall()

        query = "select r.run_uuid, r.status, r.artifact_uri from runs r join tags t on t.run_uuid = r.run_uuid "
        query += "where r.lifecycle_stage = 'active' and t.key = ? and t.value = ?"
        matches = connection.execute(query, (record.FOLDER_ID, folder_id)).fetchall()
        return [
            {
                **{"status": status, "artifacts": artifacts, "tags": dict(rows("key, value", "tags", run_id))},
                **{"params": dict(rows("key, value", "params", run_id)), "rows": _metrics(rows, run_id)},
            }
            for run_id, status, artifacts in matches
        ]


def _metrics(rows: Any, run_id: str) -> list[tuple[str, int, float]]:
    metrics = rows("key, step, value, is_nan", "metrics", run_id)
    return [(name, step, float("nan") if is_nan else value) for name, step, value, is_nan in metrics]


def _compare_artifacts(life: Life, folder_of_run: Path, reference: Path, folder: Path) -> None:
    """The server has the files that it has of the reference, and those of results as they are in the folder."""
    names, expected_names = _files(folder_of_run), _files(reference)
    for name in sorted(expected_names - names):
        life.blame(LOST, f"the artifact {name}")
    for name in sorted(names - expected_names):
        life.blame(LEFT, f"the artifact {name}")
    for name in sorted(names & expected_names):
        local = folder / name.removeprefix(f"{record.CHECKPOINT_FOLDER}/")
        is_result = name.startswith(("predictions", record.CHECKPOINT_FOLDER)) and local.exists()
        if is_result and local.read_bytes() != (folder_of_run / name).read_bytes():
            life.blame(WRONG, f"the artifact {name}")
