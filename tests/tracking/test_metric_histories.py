"""Private interfaces of MLflow through which metric histories are read.

A test of the table or of the request that fails names what has changed in a new version of MLflow.
"""

from __future__ import annotations

import inspect
import math
from pathlib import Path

import pytest
from mlflow import MlflowClient

from biasbed.tracking import metric_histories
from biasbed.tracking.run_reader import Unusable
from biasbed.tracking.server import database

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
    (rows,) = metric_histories.read_rows(file, [run_id])
    assert len(rows) == len(VALUES) + 1
    assert repr(rows) == repr(expected)  # as text, where NaN equals NaN


def test_the_route_of_the_bulk_request() -> None:
    import mlflow.server

    routes = inspect.getsource(mlflow.server)
    assert f'"{metric_histories.BULK_HISTORY}"' in routes


def test_parameters_and_limits_of_the_bulk_request() -> None:
    from mlflow.server import handlers

    source = inspect.getsource(handlers.get_metric_history_bulk_handler)
    assert all(f'"{name}"' in source for name in ("run_id", "metric_key", "max_results", "metrics"))
    assert f"MAX_RUN_IDS_PER_REQUEST = {metric_histories.MAX_RUNS}\n" in source
    assert f"MAX_HISTORY_RESULTS = {metric_histories.MAX_ROWS}\n" in source


def test_function_that_sends_requests() -> None:
    from mlflow.utils.credentials import get_default_host_creds
    from mlflow.utils.rest_utils import http_request

    assert [*inspect.signature(http_request).parameters][:3] == ["host_creds", "endpoint", "method"]
    assert get_default_host_creds("http://127.0.0.1:9").host == "http://127.0.0.1:9"


def test_a_database_that_is_missing_is_unusable(tmp_path: Path) -> None:
    with pytest.raises(Unusable):
        list(metric_histories.read_rows(tmp_path / "missing.db", ["1"]))
