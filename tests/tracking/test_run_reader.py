"""Reading runs: by SQL in a local database, and through MLflow's client whenever that returns something else."""

from __future__ import annotations

import contextlib
import math
import sqlite3

import pytest
from mlflow import MlflowClient

from biasbed import record
from biasbed.tracking import mlflow_private, run_reader
from biasbed.tracking.mlflow_private import StoredRun
from biasbed.tracking.run_reader import ClientReader, DatabaseReader, find_runs, open_reader


@pytest.fixture
def client(tracking: str) -> MlflowClient:
    """Of a server with runs of two kinds in two experiments: one is deleted, one has a NaN, two started together."""
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


@pytest.mark.parametrize(
    ("tags", "count"),
    [
        ({"kind": "train"}, 4),
        ({"kind": "study"}, 1),
        ({"kind": "published"}, 0),
        ({"study": "s0"}, 2),
        ({"kind": "train", "study": "s1"}, 1),
        ({"kind": "study", "study": "s0"}, 0),
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
    assert all(run_reader.is_same_run(run, other) for run, other in zip(ours, theirs, strict=True))


@pytest.mark.parametrize(
    "harm",
    [
        "UPDATE tags SET value = 's9' WHERE key = 'biasbed.study'",
        "UPDATE params SET value = 'other'",
        "UPDATE latest_metrics SET value = 0.123",
        "UPDATE runs SET name = 'other'",
    ],
)
def test_where_mlflow_says_otherwise_of_a_run_it_searches_itself(
    client: MlflowClient, tracking: str, harm: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = {run.info.run_id: client.get_run(run.info.run_id) for run in find_runs(tracking, kind="train")}
    monkeypatch.setattr(client, "get_run", known.__getitem__)  # what it said before the harm
    monkeypatch.setattr(run_reader, "writer", lambda uri: client)
    with contextlib.closing(sqlite3.connect(tracking.removeprefix("sqlite:///"))) as connection:
        connection.execute(harm)
        connection.commit()
    found = find_runs(tracking, kind="train")
    assert len(found) == 4
    assert not any(isinstance(run, StoredRun) for run in found)


def test_a_database_of_another_schema_is_searched_by_mlflow(
    client: MlflowClient, tracking: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mlflow_private, "RUNS", mlflow_private.RUNS.replace("start_time", "began"))
    found = find_runs(tracking, kind="train")
    assert len(found) == 4
    assert not any(isinstance(run, StoredRun) for run in found)


def test_pages_are_turned(client: MlflowClient, tracking: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_reader, "PAGE", 1)
    by_sql = [run.info.run_id for run in find_runs(tracking, kind="train")]
    by_client = ClientReader(tracking).find_runs({record.KIND: "train"})
    assert [run.info.run_id for run in by_client] == by_sql


def test_the_backend_follows_from_the_address(tracking: str) -> None:
    assert isinstance(open_reader(tracking), DatabaseReader)
    assert isinstance(open_reader("http://127.0.0.1:9"), ClientReader)
    assert isinstance(open_reader("postgresql://team/db"), ClientReader)
