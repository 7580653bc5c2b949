"""Cost of reading the histories of many runs: ours beside plain SQL over the same rows and MLflow's client.

    PYTHONPATH=src python benchmarks/all.py reading

Makes a local tracking database in a temporary folder: runs by MLflow, their values by SQL, as logging them would take
minutes. Ours is from runs to curves; SQL is one SELECT of the same rows; the client is timed on a few runs, scaled up.
"""

from __future__ import annotations

import contextlib
import os
import random
import sqlite3
import tempfile
import time
from pathlib import Path

from sides import Row, Work, interleaved, ratios

from biasbed import record
from biasbed.analysis.inputs import read_histories
from biasbed.analysis.runs.store import RunStore, is_read
from biasbed.tracking.metric_histories import ClientReader

TITLE = "Reading many metrics"
HOW = "`benchmarks/reading.py`: from runs to curves, without finding the runs; wall clock, in turn."
CLIENT_RUNS = 3
INSERT = "INSERT INTO {} (run_uuid, key, step, timestamp, value, is_nan) VALUES (?, ?, ?, ?, ?, 0)"
SELECT = "SELECT run_uuid, key, step, timestamp, value, is_nan FROM metrics"


def fill(folder: Path, num_runs: int, num_metrics: int, num_epochs: int) -> RunStore:
    """Return a database with the runs."""
    store = RunStore(f"sqlite:///{folder / 'mlflow.db'}")
    experiment = store.client.create_experiment("reading", artifact_location=str(folder / "artifacts"))
    generator = random.Random(0)
    names = ["val/accuracy/val", *(f"test/accuracy/set{i}" for i in range(1, num_metrics))]
    ids = []
    for _ in range(num_runs):
        run = store.client.create_run(experiment, tags={record.KIND: "train"})
        store.client.set_terminated(run.info.run_id)
        ids.append(run.info.run_id)
    with contextlib.closing(sqlite3.connect(folder / "mlflow.db")) as connection:
        for run_id in ids:
            rows = [(run_id, key, e, 1000 * e, generator.random()) for key in names for e in range(num_epochs)]
            connection.executemany(INSERT.format("metrics"), rows)
            connection.executemany(INSERT.format("latest_metrics"), rows[num_epochs - 1 :: num_epochs])
        connection.commit()
    return store


def plain_sql(store: RunStore) -> int:
    """Read every row as a tuple, which is the floor."""
    file = store.uri.removeprefix("sqlite:///")
    with contextlib.closing(sqlite3.connect(file)) as connection:
        return len(connection.execute(SELECT).fetchall())


def rows(quick: bool = False, *, runs: int = 300, metrics: int = 100, epochs: int = 30, rounds: int = 3) -> list[Row]:
    if quick:
        runs, metrics, epochs, rounds = 4, 3, 3, 1
    with tempfile.TemporaryDirectory() as scratch:
        os.environ["BIASBED_HOME"] = str(Path(scratch) / "home")
        store = fill(Path(scratch), runs, metrics, epochs)
        trainings = store.runs("train")
        for frame in store.histories(trainings).values():
            assert len(frame) == metrics * epochs
        few, client = trainings[:CLIENT_RUNS], ClientReader(store.uri)
        fetched = client._fetch(few, is_read)
        for run in few:
            client._write_cache(run, fetched[run.info.run_id])
        sides: dict[str, Work] = {
            "sql": lambda: plain_sql(store),
            "ours": lambda: read_histories(store, trainings, {}),
            "cache": lambda: [client._read_cache(run) for run in few],
            "client": lambda: client._fetch(few, is_read),
        }
        times = interleaved(sides, rounds, time.perf_counter)
    share = len(trainings) / len(few)  # what is timed on a few runs is scaled up
    size = f"{runs} runs x {metrics} metrics x {epochs} epochs"
    client = [share * ratio for ratio in ratios(times, "client", "sql")]
    cache = [share * ratio for ratio in ratios(times, "cache", "sql")]
    return [
        Row.of("ours / plain SQL", ratios(times, "ours", "sql"), None, size),
        Row.of("our cache / plain SQL", cache, None, "what a server's second analysis takes"),
        Row.of("MLflow's client / plain SQL", client, None, f"timed on {len(few)} runs"),
    ]
