"""Time and memory of analysing many runs: finding and reading them beside raw SQL of the same rows, the report, memory.

    PYTHONPATH=src python benchmarks/all.py analysing

The database is MLflow's own, local, filled by SQL (logging as many runs would take hours): methods x seeds on ten sets,
with the tags that trainings have and forty parameters each. Ours is from nothing to every run's curves, with MLflow's
search for runs in it; raw SQL fetches every row of the same runs: runs, tags, parameters, last values and histories.
Then the whole of `analyze`, in a process of its own: seconds of all that comes after reading (statistics, tables,
figures, report, logging), and the memory of all its processes at its highest (PSS: what they share counts once). A
study of 45 methods x 10 seeds goes the same way, whose 990 pairs are what takes time; and ten thousand runs, with nine
epochs in place of ninety, so that there are as many values as of a thousand.

The goals of a report are 5, 15 and 20 seconds. They were set on a machine that imports torch, torchvision and mlflow in
five seconds, so they stand here as one, three and four of such imports, which take turns with the report.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
from sides import Goal, Row, Work, interleaved, ratios, seconds
from starting import LIBRARIES, command

from biasbed import record
from biasbed.analysis.inputs import read_histories
from biasbed.analysis.runs.store import RunStore
from biasbed.system.garbage import without_collection

TITLE = "Analysis"
HOW = (
    "`benchmarks/analysing.py`: a local database of synthetic runs, wall clock, in turn; the report is all that "
    "`analyze` does after reading, in a process of its own, imports included."
)
SETS = tuple(f"set{number}" for number in range(10))
NOTES = (
    "Rules, statistics and figures are computed in copies of the process, beside its own share, so that a report is "
    "shorter with more processors than two. With two, both are busy nearly all the time. About two fifths of a report "
    "of 1,000 runs are matplotlib's: measuring, drawing and writing each figure for the page and for print."
)
STUDY, METRICS = "analysing", 1 + len(SETS)
GOALS = {  # (runs, methods) -> the report by imports of five seconds, MiB
    (1000, 10): (Goal(1.0), None),
    (450, 45): (Goal(3.0), None),
    (10_000, 10): (Goal(4.0), Goal(1536.0)),
}
LOOK = 0.25  # seconds between two looks at memory
TABLES = {  # what is read of a run, and the column that says whose a row is
    "runs": "run_uuid",
    "tags": "run_uuid",
    "params": "run_uuid",
    "latest_metrics": "run_uuid",
    "metrics": "run_uuid",
}


# --- the database -----------------------------------------------------------------------------------------------------


def protocol() -> record.Protocol:
    sets = [record.SetRecord(name, "accuracy", 5000, 10, 0.1) for name in SETS]
    return record.Protocol("analysing", tuple(sets), SETS, ("val",), "val/accuracy/val")


def tags(method: str, seed: int) -> dict[str, str]:
    """Return the tags of one training."""
    return {
        record.KIND: "train",
        record.STUDY: STUDY,
        record.SUITE: "analysing",
        record.PROTOCOL_HASH: protocol().hash,
        record.ALGORITHM: method,
        record.ROW: method,
        record.SEED: str(seed),
        record.CONFIG_HASH: record.digest([method]),
        record.RUN_KEY: record.digest([method, seed]),
        record.DATA_FINGERPRINT: "data",
        record.CODE_HASH: "code",
        record.GIT_COMMIT: "0" * 40,
        record.SCHEMA_TAG: record.SCHEMA,
        "mlflow.runName": f"{method}-seed{seed}",
    }


def values(generator: random.Random, run: str, epochs: int) -> Iterator[tuple[Any, ...]]:
    """Yield rows of a run's metrics, metric by metric."""
    for name in ("val/accuracy/val", *(f"test/accuracy/{set_name}" for set_name in SETS)):
        level = generator.uniform(0.5, 0.9)
        for epoch in range(1, epochs + 1):
            yield name, level + generator.gauss(0, 0.02), 1000 * epoch, run, epoch


def fill(folder: Path, runs: int, epochs: int, methods: int) -> str:
    """Return a database with the runs, copies of one that MLflow has made; its URI."""
    from mlflow import MlflowClient

    uri, generator = f"sqlite:///{folder / 'mlflow.db'}", random.Random(0)
    client = MlflowClient(uri)
    experiment = client.create_experiment("analysing", artifact_location=(folder / "artifacts").as_uri())
    first = client.create_run(experiment).info.run_id
    client.set_terminated(first)
    with contextlib.closing(sqlite3.connect(folder / "mlflow.db")) as connection:
        columns = [row[1] for row in connection.execute("PRAGMA table_info(runs)")]
        (template,) = connection.execute("SELECT * FROM runs").fetchall()
        for number in range(runs):
            run = f"{number:032x}"
            copy = dict(zip(columns, template, strict=True))
            copy |= {"run_uuid": run, "name": f"run{number}"}
            copy["artifact_uri"] = str(copy["artifact_uri"]).replace(first, run)
            copy |= {"start_time": copy["start_time"] + number}
            _insert(connection, "runs", columns, [tuple(copy.values())])
            _describe(connection, run, f"method{number % methods}", number // methods)
            rows = list(values(generator, run, epochs))
            _insert(connection, "metrics", ("key", "value", "timestamp", "run_uuid", "step"), rows)
            last = rows[epochs - 1 :: epochs]
            _insert(connection, "latest_metrics", ("key", "value", "timestamp", "run_uuid", "step"), last)
            if number < methods:
                path = folder / "artifacts" / run / "artifacts" / record.PROTOCOL_FILE
                path.parent.mkdir(parents=True)
                path.write_text(protocol().to_json())
        connection.commit()
    client.delete_run(first)
    return uri


def _describe(connection: sqlite3.Connection, run: str, method: str, seed: int) -> None:
    said = tags(method, seed).items()
    _insert(connection, "tags", ("key", "value", "run_uuid"), [(key, value, run) for key, value in said])
    settings = {f"{record.CONFIG_PARAMETER}setting{number}": str(number) for number in range(40)}
    _insert(connection, "params", ("key", "value", "run_uuid"), [(key, value, run) for key, value in settings.items()])


def _insert(connection: sqlite3.Connection, table: str, columns: Any, rows: list[tuple[Any, ...]]) -> None:
    if table in ("metrics", "latest_metrics"):
        columns, rows = (*columns, "is_nan"), [(*row, False) for row in rows]
    marks = ", ".join("?" * len(columns))
    connection.executemany(f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({marks})", rows)


# --- reading ----------------------------------------------------------------------------------------------------------


def raw(uri: str) -> Work:
    """Read every row of the runs as a tuple."""

    def work() -> None:
        with contextlib.closing(sqlite3.connect(uri.removeprefix("sqlite:///"))) as connection:
            for table in TABLES:
                connection.execute(f"SELECT * FROM {table}").fetchall()

    return work


def read(uri: str, runs: int, epochs: int) -> Work:
    """From nothing to every run's curves."""

    def work() -> None:
        store = RunStore(uri)
        histories = read_histories(store, store.runs("train"), {})
        assert len(histories) == runs, f"{len(histories)} of {runs} runs"

    return work


def parts(uri: str) -> dict[str, float]:
    """Return seconds of finding the runs and of reading their histories."""
    store, began = RunStore(uri), time.perf_counter()
    runs = store.runs("train")
    finding = time.perf_counter() - began
    read_histories(store, runs, {})
    return {"finding": finding, "reading": time.perf_counter() - began - finding}


# --- the whole command ------------------------------------------------------------------------------------------------


def analyse_in_parts(uri: str, study: str) -> None:
    """In a process of its own: prints the seconds of reading and of all, and the processor's."""
    began = time.perf_counter()
    with without_collection():  # as the command line does
        from biasbed.analysis import command, result
        from biasbed.analysis.options import AnalyzeOptions

    took = {
        "reading": _timed(result, "gather"),
        "computing": _timed(command, "compute"),
        "writing": _timed(command, "write"),
    }
    with contextlib.redirect_stdout(sys.stderr):
        command.analyze(AnalyzeOptions(study=study, tracking_uri=uri))
    seconds_of_parts = {name: sum(seconds) for name, seconds in took.items()}
    seconds_of_parts["computing"] -= seconds_of_parts["reading"]
    times = os.times()
    processor = times.user + times.system + times.children_user + times.children_system
    print(json.dumps({**seconds_of_parts, "all": time.perf_counter() - began, "processor": processor}))


def _timed(module: Any, name: str) -> list[float]:
    """Note the seconds of each call of a module's function from now on."""
    took, plain = [], getattr(module, name)

    def timed(*arguments: Any) -> Any:
        start = time.perf_counter()
        result = plain(*arguments)
        took.append(time.perf_counter() - start)
        return result

    setattr(module, name, timed)
    return took


def analysed(uri: str, folder: Path, rounds: int, study: str = STUDY) -> tuple[dict[str, list[float]], float]:
    """Seconds of whole analyses, round by round: of reading, of computing and writing files after it, of the rest and
    of all, of the processor, and of an import of the libraries in turn. Then the highest memory in MiB, of a further
    analysis, as looking at it takes a tenth of the time.
    """
    import_libraries = command([LIBRARIES], dict(os.environ), module=False)
    import_libraries()  # reads their files from the disk
    times: dict[str, list[float]] = {}
    for _ in range(rounds):
        seconds_of_parts, _ = _run(uri, folder, study, is_watched=False)
        seconds_of_parts |= {
            "rest": seconds_of_parts["all"] - seconds_of_parts["reading"],
            "imports": seconds(import_libraries, time.perf_counter),
        }
        for name, value in seconds_of_parts.items():
            times.setdefault(name, []).append(value)
    _, peak = _run(uri, folder, study, is_watched=True)
    return times, peak


def _run(uri: str, folder: Path, study: str, is_watched: bool) -> tuple[dict[str, float], float]:
    """Return what `analyse_in_parts` prints, and the highest memory in MiB; 0 if it is not watched."""
    env = {**os.environ, "BIASBED_HOME": str(folder / "home"), "MLFLOW_TRACKING_URI": uri}
    words = [sys.executable, __file__, uri, study]
    with (folder / "log").open("w") as log:
        process = psutil.Popen(words, env=env, stdout=subprocess.PIPE, stderr=log, text=True)
    peak = 0.0
    while is_watched and process.poll() is None:
        with contextlib.suppress(psutil.Error):
            everyone = (process, *process.children(recursive=True))
            peak = max(peak, sum(process_of_family.memory_full_info().pss for process_of_family in everyone) / 2**20)
        time.sleep(LOOK)
    if process.wait():
        raise SystemExit((folder / "log").read_text()[-2000:])
    return json.loads(process.stdout.read()), peak


def of_runs(runs: int, epochs: int, methods: int, rounds: int) -> list[Row]:
    words = f"{runs:,} runs of {methods} methods"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ["BIASBED_HOME"] = str(folder / "home")
        uri = fill(folder, runs, epochs, methods)
        times = interleaved({"ours": read(uri, runs, epochs), "raw": raw(uri)}, rounds, time.perf_counter)
        shares_of_reading, sql = parts(uri), Row.of("", times["raw"]).ratio
        times_of_analysis, peak = analysed(uri, folder, rounds)
    size = f"{runs * METRICS * epochs:,} values, {epochs} epochs; SQL {sql:.2f} s"
    shares = f"finding runs {shares_of_reading['finding'] / sql:.2f}, curves {shares_of_reading['reading'] / sql:.2f}"
    share = Goal(2.0) if runs == 1000 else None
    imports, memory = GOALS.get((runs, methods), (None, None))
    took = {name: statistics.median(values) for name, values in times_of_analysis.items()}
    note = (
        f"of it computing {took['computing']:.1f} s, tables, figures and pages {took['writing']:.1f} s; after "
        f"{took['reading']:.1f} s of reading; {took['processor']:.1f} s of the processor in all"
    )
    return [
        Row.of(f"{words}: reading / raw SQL", ratios(times, "ours", "raw"), share, f"{size}; {shares}"),
        Row.of(f"{words}: the report", times_of_analysis["rest"], None, note, "s"),
        Row.of(
            f"{words}: the report / {LIBRARIES}",
            ratios(times_of_analysis, "rest", "imports"),
            imports,
            f"the import takes {took['imports']:.1f} s",
        ),
        Row.of(f"{words}: peak memory", [peak], memory, "of all processes of the whole command (PSS)", "MiB"),
    ]


def rows(quick: bool = False) -> list[Row]:
    if quick:
        return of_runs(40, 3, 4, 1)
    return [*of_runs(1000, 90, 10, 3), *of_runs(450, 90, 45, 3), *of_runs(10_000, 9, 10, 3)]


if __name__ == "__main__":  # the process that `rows` measures
    analyse_in_parts(*sys.argv[1:])
