"""The stack of server/compose.yaml without containers: its own commands, on a PostgreSQL of the test's own."""

from __future__ import annotations

import json
import math
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from mlflow import MlflowClient

from biasbed import record
from biasbed.analysis.runs.store import RunStore, is_read
from biasbed.tracking.folder import RunFolder
from biasbed.tracking.metric_histories import ClientReader, tidy_history
from helpers.commands import ROOT
from helpers.postgres import PASSWORD, USER, Cluster
from helpers.tracking_server import Server

COMPOSE = ROOT / "server" / "compose.yaml"
WRITERS, EPOCHS = 3, 60
METRICS = [f"{phase}/{measure}/s{i}" for phase in ("val", "test") for measure in ("accuracy", "loss") for i in range(3)]

pytestmark = pytest.mark.slow


@dataclass
class Team:
    """Servers and who writes to them."""

    postgres: Cluster
    server: Server
    url: str
    folder: Path


def compose_words(service: str, replace: dict[str, str]) -> list[str]:
    """A service's command as this machine runs it."""
    words = yaml.safe_load(COMPOSE.read_text())["services"][service]["command"]
    for old, new in replace.items():
        words = [word.replace(old, new) for word in words]
    return [sys.executable, "-m", *words]


@pytest.fixture(scope="module")
def team(postgres: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Team]:
    folder = tmp_path_factory.mktemp("team")
    url = postgres.new_database("mlflow")
    server = Server(folder, url)
    replace = {
        "//database/": f"//127.0.0.1:{postgres.port}/",
        "=/artifacts": f"={folder / 'artifacts'}",
        "=0.0.0.0": "=127.0.0.1",
        "=5000": f"={server.port}",
        "${ALLOWED_HOSTS:-localhost}": "localhost",
    }
    server.words = compose_words("server", replace)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PGUSER", USER)
        patch.setenv("PGPASSWORD", PASSWORD)
        subprocess.run(compose_words("migrate", replace), check=True, capture_output=True, cwd=folder)
        server.start()
        yield Team(postgres, server, url, folder)
        server.stop()


def write(folder: Path, number: int, uri: str) -> None:
    """A pretended training: all that is sent of one, without the training."""
    os.environ |= {"MLFLOW_TRACKING_URI": uri, "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0"}
    from biasbed.tracking import tracker as tracking

    tracking.RETRY_AFTER = 0.3
    tracker = tracking.Tracker(RunFolder(folder))
    tags = {record.KIND: "train", record.STUDY: folder.parent.name}
    inputs = [("training", "photo", "0123456789abcdef")]
    tracker.start(folder.name, folder.parent.name, tags, {"seed": number}, inputs)
    for step in range(1, EPOCHS + 1):
        metrics = {name: math.sin(step * (number + 1) + index) for index, name in enumerate(METRICS)}
        metrics[METRICS[0]] = {10: math.nan, 11: math.inf}.get(step, metrics[METRICS[0]])
        tracker.log({"step": step, "timestamp": int(time.time() * 1000), "metrics": metrics})
        time.sleep(0.02)
    tracker.finish()


@contextmanager
def writing(team: Team, study: str) -> Iterator[Callable[[int], None]]:
    """Several at once; in the block they are at it, and its value waits until all have so many records."""
    folders = [team.folder / study / f"run{number}" for number in range(WRITERS)]
    context = multiprocessing.get_context("forkserver")
    writers = []
    for number, folder in enumerate(folders):
        folder.mkdir(parents=True)
        writers.append(context.Process(target=write, args=(folder, number, team.server.uri)))
        writers[-1].start()

    def wait(count: int) -> None:
        deadline = time.monotonic() + 600
        while min(len(RunFolder(folder).read_journal()) for folder in folders) < count:
            assert all(writer.is_alive() for writer in writers), "a writer ended early"
            assert time.monotonic() < deadline
            time.sleep(0.02)

    yield wait
    for writer in writers:
        writer.join(600)
    assert [writer.exitcode for writer in writers] == [0] * WRITERS


def assert_each_record_is_there_once(team: Team, study: str) -> None:
    """The database's rows are the journals'."""
    states = [RunFolder(team.folder / study / f"run{number}").read_state() for number in range(WRITERS)]
    journals = {
        state["run_id"]: RunFolder(team.folder / study / f"run{number}").read_journal()
        for number, state in enumerate(states)
    }
    names = ", ".join(f"'{run_id}'" for run_id in journals)
    text = f"SELECT run_uuid, key, step, timestamp, value, is_nan FROM metrics WHERE run_uuid IN ({names})"
    rows = team.postgres.query(team.url, text)
    expected = [
        (run_id, name, entry["step"], entry["timestamp"], *_as_stored(value))
        for run_id, records in journals.items()
        for entry in records
        for name, value in entry["metrics"].items()
    ]
    assert len(expected) == WRITERS * EPOCHS * len(METRICS)
    assert sorted(rows) == sorted(expected)
    found = MlflowClient(team.server.uri).search_runs(
        [team.postgres.query(team.url, f"SELECT experiment_id FROM experiments WHERE name = '{study}'")[0][0]]
    )
    assert {run.info.run_id: run.info.status for run in found} == dict.fromkeys(journals, "FINISHED")


def _as_stored(value: float) -> tuple[float, bool]:
    return (0.0, True) if math.isnan(value) else (min(value, 1.7976931348623157e308), False)


def test_several_writers_at_once_and_what_analysis_reads(
    team: Team, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with writing(team, "calm"):
        pass
    assert_each_record_is_there_once(team, "calm")
    monkeypatch.setenv("BIASBED_HOME", str(tmp_path))
    store, client = RunStore(team.server.uri), MlflowClient(team.server.uri)
    runs = [run for run in store.runs("train") if run.data.tags[record.STUDY] == "calm"]
    assert len(runs) == WRITERS
    read = store.histories(runs)
    for run in runs:
        answers = [(m.key, m.step, m.timestamp, m.value) for k in METRICS for m in _history(client, run, k)]
        assert json.dumps(read[run.info.run_id]) == json.dumps(tidy_history(answers))  # NaN equals itself in JSON
    assert ClientReader(team.server.uri)._fetch_in_bulk(runs, is_read) is not None


def _history(client: MlflowClient, run: object, key: str) -> list[object]:
    return list(client.get_metric_history(run.info.run_id, key))  # type: ignore[attr-defined]


def test_server_killed_in_the_middle(team: Team) -> None:
    with writing(team, "server") as wait:
        wait(15)
        team.server.stop()
        wait(30)  # they go on without it
        team.server.start()
    assert_each_record_is_there_once(team, "server")


def test_database_crashes_under_the_server(team: Team) -> None:
    with writing(team, "database") as wait:
        wait(15)
        team.postgres.stop(signal.SIGQUIT)
        wait(30)
        team.postgres.start()
    assert_each_record_is_there_once(team, "database")
