"""Metric histories in bulk: MLflow's client has no call for more than one metric of one run.

A local database is read by SQL, read-only, a query for a run. A server is asked as MLflow's own pages ask it, for one
metric of many runs. Neither is part of MLflow's interface: so what comes is checked against what the client says, and
where anything is other than expected the answer is None and the client must read.
"""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from biasbed.system.terminal import ProgressBar
from biasbed.tracking.archive import MetricRow
from biasbed.tracking.finding import opened, same

if TYPE_CHECKING:
    from mlflow import MlflowClient

IsRead = Callable[[str], bool]

QUERY = (
    "SELECT key, step, timestamp, CASE WHEN is_nan THEN NULL ELSE value END FROM metrics WHERE run_uuid = ? "
    "ORDER BY key, step, timestamp, value"
)
REQUEST = "/ajax-api/2.0/mlflow/metrics/get-history-bulk"
MAX_RUNS, MAX_ROWS = 100, 25_000  # of one request; the server cuts longer answers without a word
THREADS = 4


def from_database(
    file: Path, runs: Sequence[Any], is_read: IsRead, client: MlflowClient, progress: ProgressBar
) -> dict[str, list[MetricRow]] | None:
    """Run id -> rows of the wanted metrics, in the order of `QUERY`."""
    found = {}
    try:
        with closing(opened(file)) as connection:
            for run in runs:
                answer = connection.execute(QUERY, (run.info.run_id,)).fetchall()
                rows = [(k, s, t, math.nan if v is None else float(v)) for k, s, t, v in answer if is_read(k)]
                found[run.info.run_id] = rows
                progress.tick()
    except (sqlite3.Error, TypeError, ValueError):
        return None
    return found if _agrees(found, runs, is_read, client) else None


def from_server(
    uri: str, runs: Sequence[Any], is_read: IsRead, client: MlflowClient, progress: ProgressBar
) -> dict[str, list[MetricRow]] | None:
    """Run id -> rows of the wanted metrics, in the order of `QUERY`."""
    from mlflow.exceptions import MlflowException

    having: dict[str, list[str]] = {}
    for run in runs:
        for key in filter(is_read, run.data.metrics):
            having.setdefault(key, []).append(run.info.run_id)
    parts = [(key, ids[i : i + MAX_RUNS]) for key, ids in having.items() for i in range(0, len(ids), MAX_RUNS)]
    found: dict[str, list[MetricRow]] = {run.info.run_id: [] for run in runs}
    try:
        with ThreadPoolExecutor(THREADS) as pool:
            for (_, ids), answer in zip(parts, pool.map(lambda part: _ask(uri, *part), parts), strict=True):
                for run_id, row in answer:
                    found[run_id].append(row)
                progress.tick(len(ids))
    except (MlflowException, ImportError, OSError, AttributeError, KeyError, TypeError, ValueError):
        return None
    found = {run_id: sorted(rows) for run_id, rows in found.items()}
    return found if _agrees(found, runs, is_read, client) else None


def _ask(uri: str, key: str, ids: Sequence[str]) -> list[tuple[str, MetricRow]]:
    """(run id, row) of one metric of some runs; ValueError for an answer that is none or too long for one run."""
    from mlflow.utils.credentials import get_default_host_creds
    from mlflow.utils.rest_utils import http_request

    wanted = {"run_id": list(ids), "metric_key": key, "max_results": MAX_ROWS}
    answer: Any = http_request(get_default_host_creds(uri), REQUEST, "GET", params=wanted)
    if answer.status_code != 200:
        raise ValueError(f"{REQUEST} answers {answer.status_code}")
    metrics = answer.json()["metrics"]
    if len(metrics) < MAX_ROWS:
        return [(m["run_id"], (key, int(m["step"]), int(m["timestamp"]), float(m["value"]))) for m in metrics]
    if len(ids) == 1:
        raise ValueError(f"a run has {MAX_ROWS} values of {key} or more")
    half = len(ids) // 2
    return [*_ask(uri, key, ids[:half]), *_ask(uri, key, ids[half:])]


def _agrees(
    found: Mapping[str, Sequence[MetricRow]], runs: Iterable[Any], is_read: IsRead, client: MlflowClient
) -> bool:
    """Whether MLflow itself says the same.

    Every run's metrics and their last values are compared with those that came with the run (this shows rows that are
    absent or new), and one whole history with `get_metric_history` (this shows another meaning of the columns).
    """
    for run in runs:
        last = {key: value for key, _, _, value in found[run.info.run_id]}
        given = {key: value for key, value in run.data.metrics.items() if is_read(key)}
        if last.keys() != given.keys() or not all(same(last[key], value) for key, value in given.items()):
            return False
    return _same_history(found, client)


def _same_history(found: Mapping[str, Sequence[MetricRow]], client: MlflowClient) -> bool:
    run_id = next((run_id for run_id, rows in found.items() if rows), None)
    if run_id is None:
        return True
    wanted = found[run_id][0][0]
    own = [row for row in found[run_id] if row[0] == wanted]
    theirs = sorted((m.key, m.step, m.timestamp, m.value) for m in client.get_metric_history(run_id, wanted))
    return len(own) == len(theirs) and all(
        a[:3] == b[:3] and same(a[3], b[3]) for a, b in zip(own, theirs, strict=True)
    )
