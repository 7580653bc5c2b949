"""Private interfaces of MLflow: the tables of a local database, and requests that its own pages make of a server.

MLflow's client needs longer to search a thousand runs than SQL needs to read all of their histories, and it has no call
for more than one metric of one run. None of these interfaces is public. So `run_reader` compares samples of what they
return with the client's answers, and reads through the client if they differ or if `Unusable` is raised here.
`tests/tracking/test_mlflow_private.py` names the interface that breaks when MLflow changes.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from biasbed.tracking.archive import MetricRow

# In the order of MLflow's search: runs without a start last, equal starts by id.
RUNS = (
    "SELECT run_uuid, name, CAST(experiment_id AS TEXT), status, start_time, end_time FROM runs "
    "WHERE lifecycle_stage = 'active' AND experiment_id IN ({experiments}){tagged} "
    "ORDER BY start_time IS NULL, start_time, run_uuid"
)
TAGGED = " AND run_uuid IN (SELECT run_uuid FROM tags WHERE key = ? AND value = ?)"
PAIRS = "SELECT key, value FROM {} WHERE run_uuid = ?"
LAST_VALUES = "SELECT key, CASE WHEN is_nan THEN NULL ELSE value END FROM latest_metrics WHERE run_uuid = ?"
HISTORY = (
    "SELECT key, step, timestamp, CASE WHEN is_nan THEN NULL ELSE value END FROM metrics WHERE run_uuid = ? "
    "ORDER BY key, step, timestamp, value"
)
BULK_HISTORY = "/ajax-api/2.0/mlflow/metrics/get-history-bulk"
MAX_RUNS, MAX_ROWS = 100, 25_000  # of one request; the server silently cuts longer answers
_UNEXPECTED = (sqlite3.Error, ImportError, OSError, AttributeError, KeyError, TypeError, ValueError)


class Unusable(Exception):
    """A private interface is absent, or not as expected."""


@dataclass(frozen=True)
class RunInfo:
    """Fields of MLflow's `RunInfo` that biasbed reads."""

    run_id: str
    run_name: str
    experiment_id: str
    status: str
    start_time: int | None
    end_time: int | None


@dataclass(frozen=True)
class RunData:
    """Fields of MLflow's `RunData`, with the last value of each metric."""

    tags: Mapping[str, str]
    params: Mapping[str, str]
    metrics: Mapping[str, float]


@dataclass(frozen=True)
class StoredRun:
    """Run with the fields of MLflow's `Run` that biasbed reads."""

    info: RunInfo
    data: RunData


@contextlib.contextmanager
def _expected() -> Iterator[None]:
    """Raise Unusable for any error inside the block that another form of the interface can cause."""
    from mlflow.exceptions import MlflowException

    try:
        yield
    except (MlflowException, *_UNEXPECTED) as error:
        raise Unusable(str(error)) from error


# --- a local database -------------------------------------------------------------------------------------------------


def connect(file: Path) -> sqlite3.Connection:
    """Open a database read-only."""
    return sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True)


def read_runs(file: Path, experiments: Sequence[str], tags: Mapping[str, str]) -> list[StoredRun]:
    """Read the active runs of these experiments that have all of these tags. Raises Unusable."""
    query = RUNS.format(experiments=", ".join("?" * len(experiments)), tagged=TAGGED * len(tags))
    with _expected(), closing(connect(file)) as connection:
        values = (*map(int, experiments), *itertools.chain.from_iterable(tags.items()))
        rows = connection.execute(query, values).fetchall()
        return [StoredRun(RunInfo(*row), _read_data(connection, row[0])) for row in rows]


def _read_data(connection: sqlite3.Connection, run_id: str) -> RunData:
    tags = dict(connection.execute(PAIRS.format("tags"), (run_id,)))
    params = dict(connection.execute(PAIRS.format("params"), (run_id,)))
    values = connection.execute(LAST_VALUES, (run_id,))
    return RunData(tags, params, {key: math.nan if value is None else float(value) for key, value in values})


def read_histories(file: Path, run_ids: Iterable[str]) -> Iterator[list[MetricRow]]:
    """Yield the rows of all metrics of each run, sorted by `HISTORY`. Raises Unusable."""
    with _expected(), closing(connect(file)) as connection:
        for run_id in run_ids:
            rows = connection.execute(HISTORY, (run_id,)).fetchall()
            yield [(k, step, time, math.nan if value is None else float(value)) for k, step, time, value in rows]


# --- a server ---------------------------------------------------------------------------------------------------------


def _get(uri: str, path: str, **params: Any) -> Any:
    """Send a GET request as MLflow's client does, with its credentials and retries."""
    from mlflow.utils.credentials import get_default_host_creds
    from mlflow.utils.rest_utils import http_request

    return http_request(get_default_host_creds(uri), path, "GET", **params)


def request_histories(uri: str, metric: str, run_ids: Sequence[str]) -> list[tuple[str, MetricRow]]:
    """Return (run id, row) of one metric of at most `MAX_RUNS` runs.

    Raises Unusable for an unexpected answer, or if one run alone fills it.
    """
    with _expected():
        params = {"run_id": list(run_ids), "metric_key": metric, "max_results": MAX_ROWS}
        answer = _get(uri, BULK_HISTORY, params=params)
        if answer.status_code != 200:
            raise Unusable(f"{BULK_HISTORY} answers {answer.status_code}")
        rows = answer.json()["metrics"]
        if len(rows) < MAX_ROWS:
            return [(m["run_id"], (metric, int(m["step"]), int(m["timestamp"]), float(m["value"]))) for m in rows]
    if len(run_ids) == 1:
        raise Unusable(f"a run has {MAX_ROWS} values of {metric} or more")
    half = len(run_ids) // 2
    return [*request_histories(uri, metric, run_ids[:half]), *request_histories(uri, metric, run_ids[half:])]
