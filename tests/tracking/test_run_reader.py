"""Reading runs: by SQL in a local database, and through MLflow's client if a private interface has changed.

A test of a table that fails names what has changed in a new version of MLflow.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient

from biasbed import record
from biasbed.tracking import run_reader
from biasbed.tracking.run_reader import (
    RunInfo,
    StoredRun,
    Unusable,
    find_by_client,
    find_runs,
    read_runs,
)


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
    theirs = find_by_client(tracking, {f"biasbed.{name}": value for name, value in tags.items()})
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
    by_client = find_by_client(tracking, {record.KIND: "train"})
    assert [run.info.run_id for run in by_client] == by_sql


def test_another_database_is_unusable(tmp_path: Path) -> None:
    (tmp_path / "other.db").write_text("no database " * 20)
    with pytest.raises(Unusable):
        read_runs(tmp_path / "other.db", ["1"], {})
