"""Reading runs: by SQL in a local database, and through MLflow's client if a private interface has changed.

A test of a table or of the request that fails names what has changed in a new version of MLflow.
"""

from __future__ import annotations

import inspect
import math
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient

from biasbed import record
from biasbed.tracking import run_reader
from biasbed.tracking.run_reader import (
    ClientReader,
    RunInfo,
    StoredRun,
    Unusable,
    find_runs,
)
from biasbed.tracking.server import database


@pytest.fixture
def client(tracking: str) -> MlflowClient:
    """A client of runs of two kinds in two experiments: one is deleted, one has a NaN, two started together."""
    client = MlflowClient(tracking)
    for number in range(6):
        experiment = client.get_experiment_by_name(f"e{number % 2}")
        place = client.create_experiment(f"e{number % 2}") if experiment is None else experiment.experiment_id
        tags = {record.KIND: "study" if number == 3 else "train", record.STUDY: f"s{number // 2}"}
        made = client.create_run(place, start_time=1000 - number // 2, tags=tags)
        client.log_param(made.info.run_id, "config/seed", number)
        client.log_metric(made.info.run_id, "val/accuracy/val", math.nan if number == 4 else number / 7)
        if number == 5:
            client.delete_run(made.info.run_id)
        elif number != 2:
            client.set_terminated(made.info.run_id)
    return client


def described(run: Any) -> tuple[Any, ...]:
    """All that biasbed reads of a run; metrics as text, where NaN equals NaN."""
    info = [getattr(run.info, name) for name in RunInfo.__dataclass_fields__]
    return info, run.data.tags, run.data.params, repr(sorted(run.data.metrics.items()))


@pytest.mark.parametrize(
    ("tags", "count"),
    [
        ({"kind": "train"}, 4),
        ({"kind": "train", "study": "s1"}, 1),
        ({}, 5),
    ],
)
def test_runs_found_by_sql_are_those_that_mlflow_finds_in_its_order(
    client: MlflowClient, tracking: str, tags: dict[str, str], count: int
) -> None:
    ours = find_runs(tracking, **tags)
    theirs = ClientReader(tracking).find_runs({f"biasbed.{name}": value for name, value in tags.items()})
    assert len(ours) == len(theirs) == count
    assert all(isinstance(run, StoredRun) for run in ours)
    assert [described(run) for run in ours] == [described(run) for run in theirs]


def test_a_database_of_another_schema_is_searched_by_mlflow(
    client: MlflowClient, tracking: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_reader, "RUNS", run_reader.RUNS.replace("start_time", "began"))
    found = find_runs(tracking, kind="train")
    assert len(found) == 4
    assert not any(isinstance(run, StoredRun) for run in found)


def test_pages_are_turned(client: MlflowClient, tracking: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_reader, "PAGE", 1)
    by_sql = [run.info.run_id for run in find_runs(tracking, kind="train")]
    by_client = ClientReader(tracking).find_runs({record.KIND: "train"})
    assert [run.info.run_id for run in by_client] == by_sql


# --- private interfaces -----------------------------------------------------------------------------------------------


VALUES = (0.5, math.nan, math.inf, -math.inf, 0.25)


@pytest.fixture
def run_id(tracking: str) -> str:
    """Run with a tag, a parameter and a metric of five steps, one of them written twice."""
    client = MlflowClient(tracking)
    run = client.create_run(client.create_experiment("private"), start_time=5, tags={"biasbed.kind": "train"})
    client.log_param(run.info.run_id, "config/seed", "0")
    for step, value in enumerate(VALUES):
        client.log_metric(run.info.run_id, "val/loss/val", value, timestamp=10, step=step)
    client.log_metric(run.info.run_id, "val/loss/val", 0.75, timestamp=9, step=4)
    client.set_terminated(run.info.run_id)
    return str(run.info.run_id)


@pytest.fixture
def file(tracking: str) -> Path:
    path = database(tracking)
    assert path is not None
    return path


def test_table_of_metrics(run_id: str, tracking: str, file: Path) -> None:
    history = MlflowClient(tracking).get_metric_history(run_id, "val/loss/val")
    expected = sorted((m.key, m.step, m.timestamp, m.value) for m in history)
    (rows,) = run_reader.read_rows(file, [run_id])
    assert len(rows) == len(VALUES) + 1
    assert repr(rows) == repr(expected)  # as text, where NaN equals NaN


def test_the_route_of_the_bulk_request() -> None:
    import mlflow.server

    routes = inspect.getsource(mlflow.server)
    assert f'"{run_reader.BULK_HISTORY}"' in routes


def test_parameters_and_limits_of_the_bulk_request() -> None:
    from mlflow.server import handlers

    source = inspect.getsource(handlers.get_metric_history_bulk_handler)
    assert all(f'"{name}"' in source for name in ("run_id", "metric_key", "max_results", "metrics"))
    assert f"MAX_RUN_IDS_PER_REQUEST = {run_reader.MAX_RUNS}\n" in source
    assert f"MAX_HISTORY_RESULTS = {run_reader.MAX_ROWS}\n" in source


def test_function_that_sends_requests() -> None:
    from mlflow.utils.credentials import get_default_host_creds
    from mlflow.utils.rest_utils import http_request

    assert [*inspect.signature(http_request).parameters][:3] == ["host_creds", "endpoint", "method"]
    assert get_default_host_creds("http://127.0.0.1:9").host == "http://127.0.0.1:9"


def test_another_database_is_unusable(tmp_path: Path) -> None:
    (tmp_path / "other.db").write_text("no database " * 20)
    with pytest.raises(Unusable):
        run_reader.read_runs(tmp_path / "other.db", ["1"], {})
    with pytest.raises(Unusable):
        list(run_reader.read_rows(tmp_path / "missing.db", ["1"]))
