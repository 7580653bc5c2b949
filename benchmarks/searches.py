"""Cost of analysing whole searches: thousands of trials, of which rules choose one per row, cell and repeat.

    PYTHONPATH=src python benchmarks/searches.py [--methods 9] [--repeats 3] [--trials 20] [--evaluations 18]

Makes a local tracking database in a temporary folder, as sweeps over four held-out domains leave it: runs by MLflow,
their values by SQL, as logging them would take minutes. Then `analyze` of it all, in a process of its own as in
`analysing.py`, beside one SELECT of the same values.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import random
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from analysing import analysed
from sides import Row, seconds, show

from biasbed import record

TITLE = "Searches"
HOW = (
    "`benchmarks/searches.py`: trials of searches over four held-out domains in a local database; the whole of "
    "`analyze`, in a process of its own, imports included."
)
STUDY = "searches"
DOMAINS = ("art", "cartoon", "photo", "sketch")
VALIDATION = tuple(f"data-{domain}_val" for domain in DOMAINS)
METRIC = "INSERT INTO {} (run_uuid, key, step, timestamp, value, is_nan) VALUES (?, ?, ?, ?, ?, 0)"
PARAMETER = "INSERT INTO params (run_uuid, key, value) VALUES (?, ?, ?)"


def protocol() -> record.Protocol:
    """Four domains of one data set, monitored by the mean over those that train."""
    monitor = record.Derived(
        *("val", "accuracy", "training_domains", "mean"),
        inputs=tuple(f"val/accuracy/{name}" for name in VALIDATION),
        training=DOMAINS,
    )
    sets = [record.SetRecord(f"data-{d}", "accuracy", 500, 7, 1 / 7, block="data", domain=d) for d in DOMAINS]
    return record.Protocol("search", tuple(sets), ("data",), VALIDATION, monitor.metric, derived=(monitor,))


def tags(method: str, held_out: str, repeat: int, trial: int) -> dict[str, str]:
    """Return the tags of one trial."""
    return {
        record.KIND: "trial",
        record.STUDY: STUDY,
        record.SUITE: "search",
        record.PROTOCOL_HASH: protocol().hash,
        record.ALGORITHM: method,
        record.ROW: method,
        record.CELL: f"data-{held_out}",
        record.TEST_DOMAINS: held_out,
        record.SEED: str(repeat),
        record.REPEAT: str(repeat),
        record.SPACE: method,
        record.TRIAL: f"r{repeat}-{trial}",
        record.TRIAL_STATE: "complete",
        record.CONFIG_HASH: record.digest([method, trial]),
        record.RUN_KEY: record.digest([method, held_out, repeat, trial]),
        record.DATA_FINGERPRINT: "data",
        record.CODE_HASH: "code",
        "mlflow.runName": f"{method}-data-{held_out}-trialr{repeat}-{trial}",
    }


def values(generator: random.Random, run: str, held_out: str, evaluations: int) -> Iterator[tuple[Any, ...]]:
    """Rows of the run's metrics, metric by metric."""
    names = [f"val/{m}/{v}" for v, d in zip(VALIDATION, DOMAINS, strict=True) if d != held_out for m in MEASURES]
    names += [*(f"test/{m}/data-{held_out}" for m in MEASURES), "val/accuracy/training_domains"]
    for name in names:
        level = generator.uniform(0.5, 0.9)
        for step in range(evaluations):
            yield run, name, 300 * step, 1000 * step, level + generator.gauss(0, 0.02)


MEASURES = ("accuracy", "loss", "ece")


def fill(folder: Path, methods: int, repeats: int, trials: int, evaluations: int) -> str:
    """A database with the trials; its URI."""
    from mlflow import MlflowClient

    uri, generator = f"sqlite:///{folder / 'mlflow.db'}", random.Random(0)
    client = MlflowClient(uri)
    experiment = client.create_experiment(STUDY, artifact_location=str(folder / "artifacts"))
    places = itertools.product(range(methods), DOMAINS, range(repeats), range(trials))
    found = []
    for method, held_out, repeat, trial in places:
        run = client.create_run(experiment, tags=tags(f"method{method}", held_out, repeat, trial)).info.run_id
        client.set_terminated(run)
        found.append((run, held_out))
        if trial == 0:
            place = folder / "artifacts" / run / "artifacts" / record.PROTOCOL_FILE
            place.parent.mkdir(parents=True)
            place.write_text(protocol().to_json())
    with contextlib.closing(sqlite3.connect(folder / "mlflow.db")) as connection:
        for run, held_out in found:
            rows = list(values(generator, run, held_out, evaluations))
            connection.executemany(METRIC.format("metrics"), rows)
            connection.executemany(METRIC.format("latest_metrics"), rows[evaluations - 1 :: evaluations])
            drawn = {"optim.lr": generator.lognormvariate(-9, 1), "optim.weight_decay": generator.random()}
            connection.executemany(PARAMETER, [(run, f"config/{k}", repr(v)) for k, v in drawn.items()])
        connection.commit()
    return uri


def of_trials(methods: int, repeats: int, trials: int, evaluations: int, rounds: int) -> list[Row]:
    words = f"{methods * len(DOMAINS) * repeats * trials:,} trials"
    with tempfile.TemporaryDirectory() as place:
        uri = fill(Path(place), methods, repeats, trials, evaluations)

        def select() -> None:
            with contextlib.closing(sqlite3.connect(uri.removeprefix("sqlite:///"))) as connection:
                found.extend(connection.execute("SELECT run_uuid, key, step, value FROM metrics"))

        found: list[Any] = []
        sql = seconds(select, time.perf_counter)
        ours, peak = analysed(uri, Path(place), rounds, STUDY)
    reading = statistics.median(ours["reading"])
    note = f"{len(found):,} values, {evaluations} evaluations each; SQL {sql:.2f} s; {reading:.1f} s of reading"
    return [
        Row.of(f"{words}: the whole analysis", ours["all"], None, note, "s"),
        Row.of(f"{words}: peak memory", [peak], None, "of all processes of the whole command (PSS)", "MiB"),
    ]


def rows(quick: bool = False) -> list[Row]:
    return of_trials(2, 2, 3, 4, 1) if quick else of_trials(9, 3, 20, 18, 3)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("methods", 9), ("repeats", 3), ("trials", 20), ("evaluations", 18), ("rounds", 3)):
        parser.add_argument(f"--{name}", type=int, default=default)
    show(of_trials(**vars(parser.parse_args())))


if __name__ == "__main__":
    main()
