"""What reading the histories of many runs costs: ours beside plain SQL over the same rows and MLflow's client.

    PYTHONPATH=src python benchmarks/reading.py [--runs 300] [--metrics 100] [--epochs 30] [--rounds 3]

Makes a local tracking database in a temporary folder: runs by MLflow, their values by SQL, as logging them would take
minutes. Ours is from runs to curves; SQL is one SELECT of the same rows; the client is timed on a few runs, scaled up.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from biasbed import record
from biasbed.analysis.inputs import read_histories
from biasbed.analysis.runs.store import RunStore

CLIENT_RUNS = 3
INSERT = "INSERT INTO {} (run_uuid, key, step, timestamp, value, is_nan) VALUES (?, ?, ?, ?, ?, 0)"
SELECT = "SELECT run_uuid, key, step, timestamp, value, is_nan FROM metrics"


def fill(folder: Path, num_runs: int, num_metrics: int, num_epochs: int) -> RunStore:
    """A database with the runs."""
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
    """The floor: every row as a tuple."""
    file = store.uri.removeprefix("sqlite:///")
    with contextlib.closing(sqlite3.connect(file)) as connection:
        return len(connection.execute(SELECT).fetchall())


def seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def main() -> None:
    """Prints the medians and the ratios."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, default in (("runs", 300), ("metrics", 100), ("epochs", 30), ("rounds", 3)):
        parser.add_argument(f"--{name}", type=int, default=default)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        os.environ["BIASBED_HOME"] = str(Path(place) / "home")
        store = fill(Path(place), options.runs, options.metrics, options.epochs)
        runs = store.runs("train")
        found = seconds(lambda: store.runs("train"))
        few = runs[:CLIENT_RUNS]
        client = seconds(lambda: store._fetch(few)) / len(few) * len(runs)
        for frame in store.histories(runs).values():
            assert len(frame) == options.metrics * options.epochs
        sides = (lambda: plain_sql(store)), (lambda: read_histories(store, runs, {}))
        rounds = [[seconds(side) for side in sides] for _ in range(options.rounds)]
        sql, ours = (statistics.median(times) for times in zip(*rounds, strict=True))
        fetched = store._fetch(few)
        for run in few:
            store._keep(run, fetched[run.info.run_id])
        cache = seconds(lambda: [store._cached(run) for run in few]) / len(few) * len(runs)
    print(f"{options.runs} runs x {options.metrics} metrics x {options.epochs} epochs")
    print(f"finding the runs   {found:8.2f} s  (MLflow's search, once for each kind of run)")
    print(f"plain SQL          {sql:8.2f} s")
    print(f"ours               {ours:8.2f} s  {ours / sql:6.1f} x SQL")
    print(f"reading our cache  {cache:8.2f} s  {cache / sql:6.1f} x SQL  (what a server's second analysis takes)")
    print(f"MLflow's client    {client:8.2f} s  {client / sql:6.1f} x SQL, {client / ours:.0f} x ours")


if __name__ == "__main__":
    main()
