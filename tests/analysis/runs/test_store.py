"""Reading from the tracking server: complete, each value once, cached, and clear when it fails."""

from __future__ import annotations

import contextlib
import math
import random
import shutil
import sqlite3
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from biasbed import record
from biasbed.analysis.runs.store import RunStore, is_read
from biasbed.system import places
from biasbed.tracking import metric_histories
from biasbed.tracking.metric_histories import ClientReader, DatabaseReader, MetricHistory, tidy_history
from biasbed.tracking.run_reader import Unusable
from helpers.toy_runs import Recorder

HISTORY = [("test/accuracy/a", 1, 5, 0.1), ("test/accuracy/a", 0, 4, 0.2)]


# --- histories --------------------------------------------------------------------------------------------------------


def test_infinity_is_recognised_and_nan_stays() -> None:
    largest = sys.float_info.max  # stands for infinity in MLflow's databases
    rows = [("test/accuracy/a", step, 0, value) for step, value in enumerate((largest, -largest, math.nan))]
    assert repr([value for _, _, value in tidy_history(rows)]) == "[inf, -inf, nan]"


@pytest.fixture
def through_client(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reads as from a server: through MLflow's client, and cached."""
    monkeypatch.setattr(metric_histories, "HISTORY", "SELECT nothing")


@pytest.mark.usefixtures("through_client")
def test_histories_are_complete_and_read_once(recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    run_id = recorder.train("erm", 0)
    recorder.client.log_metric(run_id, "test/accuracy/edge", 0.123, timestamp=99_999, step=3)
    store = RunStore(recorder.uri)
    runs = store.runs("train")
    first = store.histories(runs)[run_id]
    curve = {step: value for metric, step, value in first if metric == "test/accuracy/edge"}
    assert curve == pytest.approx({0: 0.125, 1: 0.25, 2: 0.375, 3: 0.123})
    assert len({metric for metric, *_ in first}) == 8
    monkeypatch.setattr("mlflow.MlflowClient.get_metric_history", lambda *arguments: pytest.fail("read again"))
    assert store.histories(runs)[run_id] == first


@pytest.mark.usefixtures("through_client")
def test_the_cache_notices_a_change_and_survives_damage(recorder: Recorder) -> None:
    run_id = recorder.train("erm", 0)
    store = RunStore(recorder.uri)
    before = store.histories(store.runs("train"))[run_id]
    recorder.client.log_metric(run_id, "test/accuracy/edge", 0.9, step=4)
    after = store.histories(store.runs("train"))[run_id]
    assert len(after) == len(before) + 1
    files = list((places.home(recorder.uri) / "cache").iterdir())
    assert len(files) == 2
    for file in files:
        file.write_bytes(file.read_bytes()[:100])
    assert store.histories(store.runs("train"))[run_id] == after


@pytest.mark.usefixtures("through_client")
def test_a_home_that_cannot_be_written_only_costs_time(recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    blocked = recorder.folder / "file"
    blocked.write_text("")
    monkeypatch.setenv("BIASBED_HOME", str(blocked / "home"))
    run_id = recorder.train("erm", 0)
    store = RunStore(recorder.uri)
    assert len(store.histories(store.runs("train"))[run_id]) == 32


# --- a local database -------------------------------------------------------------------------------------------------


def awkward_runs(recorder: Recorder) -> list[Any]:
    """Runs with NaN, infinities, values written twice, metrics that are not read, and no metric at all."""
    generator = random.Random(0)
    for seed in range(3):
        values = [generator.choice([generator.random(), math.nan, math.inf, -math.inf]) for _ in range(6)]
        run_id = recorder.train("erm", seed, metrics={"val/loss/val": values, "train/loss": values, "my own": values})
        for timestamp in (99_999, 5):
            recorder.client.log_metric(run_id, "test/accuracy/edge", generator.random(), timestamp=timestamp, step=2)
    empty = recorder.client.create_run(recorder.experiment, tags={record.KIND: "train"})
    recorder.client.set_terminated(empty.info.run_id)
    return RunStore(recorder.uri).runs("train")


def test_sql_and_the_client_give_the_same(recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = awkward_runs(recorder)
    by_sql = RunStore(recorder.uri).histories(runs)
    assert not (places.home(recorder.uri) / "cache").exists()
    monkeypatch.setattr(metric_histories, "HISTORY", "SELECT nothing")
    by_client = RunStore(recorder.uri).histories(runs)
    assert by_sql.keys() == by_client.keys() == {run.info.run_id for run in runs}
    assert repr(by_sql) == repr(by_client)  # as text, where NaN equals NaN
    from_cache = RunStore(recorder.uri).histories(runs)
    assert repr(from_cache) == repr(by_client)
    assert "nan" in repr(by_sql)
    assert "inf" in repr(by_sql)


@pytest.mark.parametrize(
    "harm",
    [
        "DELETE FROM metrics WHERE step = 3",  # the last values are not those that MLflow gave
        "ALTER TABLE metrics RENAME COLUMN is_nan TO not_a_number",
        "DROP TABLE metrics",
    ],
)
def test_a_database_that_is_other_than_expected_is_left_to_the_client(recorder: Recorder, harm: str) -> None:
    """The client goes on to read the unharmed database; what is asked by SQL is a harmed copy."""
    recorder.train("erm", 0)
    store = RunStore(recorder.uri)
    runs = store.runs("train")
    intact, copy = recorder.folder / "mlflow.db", recorder.folder / "harmed.db"
    assert DatabaseReader(intact, ClientReader(store.uri))._read_rows(runs, is_read)
    shutil.copy(intact, copy)
    with contextlib.closing(sqlite3.connect(copy)) as connection:
        connection.execute("PRAGMA foreign_keys = OFF")
        connection.execute(harm)
        connection.commit()
    reader = DatabaseReader(copy, ClientReader(store.uri))
    with pytest.raises(Unusable):
        reader._read_rows(runs, is_read)
    assert reader.read_histories(runs, is_read) == store.histories(runs)


# --- a server ---------------------------------------------------------------------------------------------------------


class Pages:
    """A server's answers to the request of MLflow's pages, from a local store; longer ones are cut at `limit`."""

    def __init__(self, recorder: Recorder, limit: int = metric_histories.MAX_ROWS) -> None:
        self.client, self.limit, self.requests, self.status = recorder.client, limit, 0, 200

    def request(self, credentials: Any, path: str, method: str, params: dict[str, Any]) -> Any:
        assert (path, method) == (metric_histories.BULK_HISTORY, "GET")
        assert len(params["run_id"]) <= metric_histories.MAX_RUNS
        self.requests += 1
        rows = [
            {**dict(metric), "run_id": run_id}
            for run_id in sorted(params["run_id"])
            for metric in self.client.get_metric_history(run_id, params["metric_key"])
        ]
        return SimpleNamespace(status_code=self.status, json=lambda: {"metrics": rows[: self.limit]})


@pytest.fixture
def pages(recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> Pages:
    served = Pages(recorder)
    monkeypatch.setattr("mlflow.utils.rest_utils.http_request", served.request)
    return served


def ask_server(recorder: Recorder, runs: list[Any]) -> dict[str, MetricHistory] | None:
    reader = ClientReader("http://x")
    reader.client = recorder.client
    return reader._fetch_in_bulk(runs, is_read)


def test_a_server_gives_in_bulk_what_a_database_gives(recorder: Recorder, pages: Pages) -> None:
    runs = awkward_runs(recorder)
    histories = ask_server(recorder, runs)
    assert pages.requests == 9  # one for each metric, for all runs together
    expected = DatabaseReader(recorder.folder / "mlflow.db", ClientReader(recorder.uri))._read_rows(runs, is_read)
    assert histories is not None
    assert {k: repr(v) for k, v in histories.items()} == {k: repr(tidy_history(v)) for k, v in expected.items()}


def test_answers_that_were_cut_are_asked_for_in_halves(
    recorder: Recorder, pages: Pages, monkeypatch: pytest.MonkeyPatch
) -> None:
    for seed in range(3):
        recorder.train("erm", seed)
    runs = RunStore(recorder.uri).runs("train")
    complete = ask_server(recorder, runs)
    pages.limit = 5  # a run has four values of each metric
    monkeypatch.setattr(metric_histories, "MAX_ROWS", 5)
    assert ask_server(recorder, runs) == complete
    pages.limit = 4
    monkeypatch.setattr(metric_histories, "MAX_ROWS", 4)
    assert ask_server(recorder, runs) is None


def test_a_server_that_does_not_know_the_request_is_left_to_the_client(recorder: Recorder, pages: Pages) -> None:
    recorder.train("erm", 0)
    runs = RunStore(recorder.uri).runs("train")
    assert ask_server(recorder, runs)
    pages.limit = 3  # the last value is missing, and nothing says so
    assert ask_server(recorder, runs) is None
    pages.limit, pages.status = metric_histories.MAX_ROWS, 404
    assert ask_server(recorder, runs) is None
