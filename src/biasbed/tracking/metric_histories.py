"""Metric histories of tracked runs: one interface, and a backend for databases and one for servers.

A local database is read by SQL. MLflow's client has no call for more than one metric of one run, so the request that
MLflow's own pages make fetches a metric of a hundred runs from a server. Neither the tables nor that request are
public. If they are absent or not as expected (`Unusable`), the client reads everything.
Histories from a server are cached on this machine.

Answers: How are metrics read back from MLflow?
"""

from __future__ import annotations

import contextlib
import functools
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from biasbed import record
from biasbed.system import places
from biasbed.system.files import atomic_file
from biasbed.system.terminal import ProgressBar
from biasbed.tracking.run_reader import Unusable, connect, expected_interface
from biasbed.tracking.server import database, guarded, writer

if TYPE_CHECKING:
    from mlflow import MlflowClient

LARGEST = sys.float_info.max  # as which stores return infinity
MANY_RUNS = 100  # from this number on reading shows its progress
CLIENT_THREADS, BULK_THREADS = 16, 4
CACHE_VERSION = "2"
CACHE_COLUMNS = {"metric": "str", "step": "int64", "value": "float64"}

HISTORY = (
    "SELECT key, step, timestamp, CASE WHEN is_nan THEN NULL ELSE value END FROM metrics WHERE run_uuid = ? "
    "ORDER BY key, step, timestamp, value"
)
BULK_HISTORY = "/ajax-api/2.0/mlflow/metrics/get-history-bulk"
MAX_RUNS, MAX_ROWS = 100, 25_000  # of one request; the server silently cuts longer answers

MetricRow = tuple[str, int, int, float]  # metric, step, timestamp in ms, value
MetricHistory = list[tuple[str, int, float]]  # metric, step, value
IsRead = Callable[[str], bool]  # True for the metrics to read


class HistoryReader(Protocol):
    """Interface to the metrics of one tracking server."""

    def read_histories(self, runs: Sequence[Any], is_read: IsRead) -> dict[str, MetricHistory]:
        """Return the complete history of the runs' metrics that `is_read` accepts, keyed by run id (`tidy_history`)."""


def open_reader(tracking_uri: str) -> HistoryReader:
    """Return the reader for this tracking URI."""
    client_reader = ClientReader(tracking_uri)
    file = database(tracking_uri)
    return client_reader if file is None else DatabaseReader(file, client_reader)


# --- a server ---------------------------------------------------------------------------------------------------------


class ClientReader:
    """Reader through MLflow's client, which works for every server. Histories are cached."""

    def __init__(self, uri: str) -> None:
        self.uri = uri

    @functools.cached_property
    def client(self) -> MlflowClient:
        return writer(self.uri)

    def read_histories(self, runs: Sequence[Any], is_read: IsRead) -> dict[str, MetricHistory]:
        """Return the runs' histories: from the cache, else from the server, and write these to the cache."""
        cached = {run.info.run_id: self._read_cache(run) for run in runs}
        missing = [run for run in runs if cached[run.info.run_id] is None]
        with guarded(self.uri):
            fetched = self._fetch_in_bulk(missing, is_read) or self._fetch(missing, is_read)
        for run in missing:
            self._write_cache(run, fetched[run.info.run_id])
        return {run_id: fetched[run_id] if history is None else history for run_id, history in cached.items()}

    def _fetch_in_bulk(self, runs: Sequence[Any], is_read: IsRead) -> dict[str, MetricHistory] | None:
        """Fetch each metric for many runs at once; None if the server does not support it."""
        if not (self.uri.startswith("http") and runs):
            return None
        by_metric: dict[str, list[str]] = {}
        for run in runs:
            for metric in filter(is_read, run.data.metrics):
                by_metric.setdefault(metric, []).append(run.info.run_id)
        requests: list[BulkRequest] = []
        for metric, ids in by_metric.items():
            starts = range(0, len(ids), MAX_RUNS)
            requests += [BulkRequest(metric, ids[start : start + MAX_RUNS]) for start in starts]
        rows: dict[str, list[MetricRow]] = {run.info.run_id: [] for run in runs}
        request = functools.partial(_request_histories, self.uri)
        try:
            with (
                ProgressBar(sum(map(len, by_metric.values())), "metric", silent=len(runs) < MANY_RUNS) as progress,
                ThreadPoolExecutor(BULK_THREADS) as pool,
            ):
                answers = pool.map(request, *zip(*requests, strict=True)) if requests else ()
                for bulk_request, answer in zip(requests, answers, strict=True):
                    for run_id, row in answer:
                        rows[run_id].append(row)
                    progress.tick(len(bulk_request.run_ids))
        except (Unusable, KeyError):  # KeyError: a run that was not requested
            return None
        for run_id in rows:
            rows[run_id].sort()
        return tidy_histories(rows) if _is_complete(rows, runs, is_read) else None

    def _fetch(self, runs: Sequence[Any], is_read: IsRead) -> dict[str, MetricHistory]:
        """Fetch through MLflow's client, which has no call for more than one metric of one run."""
        pairs: list[tuple[str, str]] = []
        for run in runs:
            pairs += [(run.info.run_id, metric) for metric in sorted(run.data.metrics) if is_read(metric)]
        rows: dict[str, list[MetricRow]] = {run.info.run_id: [] for run in runs}
        # Threads hide the latency of HTTP; a database answers many threads more slowly than one.
        threads = CLIENT_THREADS if self.uri.startswith("http") else 1
        with (
            ProgressBar(len(pairs), "metric", silent=len(runs) < MANY_RUNS) as progress,
            ThreadPoolExecutor(threads) as pool,
        ):
            answers = pool.map(lambda pair: self.client.get_metric_history(*pair), pairs)
            for (run_id, metric), values in zip(pairs, answers, strict=True):
                rows[run_id] += [(metric, value.step, value.timestamp, value.value) for value in values]
                progress.tick()
        return tidy_histories(rows)

    def _cache_file(self, run: Any) -> Path:
        """Return the path of a run's cache, which changes when the run is reopened or gets further metrics."""
        state = [CACHE_VERSION, run.info.end_time, sorted((k, repr(v)) for k, v in run.data.metrics.items())]
        return places.home(self.uri) / "cache" / f"{run.info.run_id}-{record.digest(state)}.parquet"

    def _read_cache(self, run: Any) -> MetricHistory | None:
        """Return a run's history from the cache; None if it is not there or can't be read."""
        import pandas as pd

        try:
            frame = pd.read_parquet(self._cache_file(run))
        except (OSError, ValueError, ImportError):  # absent, cut short by a full disk, or no parquet reader
            return None
        if list(frame.columns) != list(CACHE_COLUMNS):
            return None
        # Lists: iterating over a pandas column takes several times as long.
        return list(zip(*(frame[name].tolist() for name in CACHE_COLUMNS), strict=True))

    def _write_cache(self, run: Any, history: MetricHistory) -> None:
        """Write the cache. If the folder can't be written, the next analysis only takes longer."""
        import pandas as pd

        path = self._cache_file(run)
        with contextlib.suppress(OSError, ImportError):
            path.parent.mkdir(parents=True, exist_ok=True)
            # Written aside and renamed: another analysis may read or write the same file at this moment.
            with atomic_file(path) as temporary:
                pd.DataFrame(history, columns=list(CACHE_COLUMNS)).astype(CACHE_COLUMNS).to_parquet(temporary)


def _get(uri: str, path: str, **params: Any) -> Any:
    """Send a GET request as MLflow's client does, with its credentials and retries."""
    from mlflow.utils.credentials import get_default_host_creds
    from mlflow.utils.rest_utils import http_request

    return http_request(get_default_host_creds(uri), path, "GET", **params)


class BulkRequest(NamedTuple):
    """Request for one metric of at most `MAX_RUNS` runs."""

    metric: str
    run_ids: list[str]


class RunRow(NamedTuple):
    """Row of a run's metric."""

    run_id: str
    row: MetricRow


def _request_histories(uri: str, metric: str, run_ids: Sequence[str]) -> list[RunRow]:
    """Return all rows of one metric of at most `MAX_RUNS` runs.

    Raises Unusable for an unexpected answer, or if one run alone fills it.
    """
    with expected_interface():
        params = {"run_id": list(run_ids), "metric_key": metric, "max_results": MAX_ROWS}
        answer = _get(uri, BULK_HISTORY, params=params)
        if answer.status_code != 200:
            raise Unusable(f"{BULK_HISTORY} answers {answer.status_code}")
        rows = answer.json()["metrics"]
        if len(rows) < MAX_ROWS:
            parsed = []
            for row in rows:
                values = (metric, int(row["step"]), int(row["timestamp"]), float(row["value"]))
                parsed.append(RunRow(row["run_id"], values))
            return parsed
    if len(run_ids) == 1:
        raise Unusable(f"a run has {MAX_ROWS} values of {metric} or more")
    half = len(run_ids) // 2
    return [*_request_histories(uri, metric, run_ids[:half]), *_request_histories(uri, metric, run_ids[half:])]


# --- a local database -------------------------------------------------------------------------------------------------


class DatabaseReader:
    """Reader of a local database by SQL; MLflow's client reads if the tables are not as expected."""

    def __init__(self, file: Path, fallback: ClientReader) -> None:
        self.file, self.fallback = file, fallback

    def read_histories(self, runs: Sequence[Any], is_read: IsRead) -> dict[str, MetricHistory]:
        try:
            return tidy_histories(self._read_rows(runs, is_read)) if runs else {}
        except Unusable:
            return self.fallback.read_histories(runs, is_read)

    def _read_rows(self, runs: Sequence[Any], is_read: IsRead) -> dict[str, list[MetricRow]]:
        """Return the rows of each run. Raises Unusable, also if the last values are not those of the runs."""
        rows: dict[str, list[MetricRow]] = {}
        histories = read_rows(self.file, [run.info.run_id for run in runs])
        with ProgressBar(len(runs), "run", silent=len(runs) < MANY_RUNS) as progress:
            for run, history in zip(runs, histories, strict=True):
                rows[run.info.run_id] = [row for row in history if is_read(row[0])]
                progress.tick()
        if not _is_complete(rows, runs, is_read):
            raise Unusable("the table of metrics lacks values")
        return rows


def read_rows(file: Path, run_ids: Iterable[str]) -> Iterator[list[MetricRow]]:
    """Yield the rows of all metrics of each run, sorted by `HISTORY`. Raises Unusable."""
    with expected_interface(), closing(connect(file)) as connection:
        for run_id in run_ids:
            rows = connection.execute(HISTORY, (run_id,)).fetchall()
            yield [(k, step, time, math.nan if value is None else float(value)) for k, step, time, value in rows]


# --- helpers ----------------------------------------------------------------------------------------------------------


def _is_complete(rows: Mapping[str, Sequence[MetricRow]], runs: Iterable[Any], is_read: IsRead) -> bool:
    """Return True if the rows contain every metric of the runs, with the last value that the runs have.

    They don't if a server cuts its answers, or if metrics were written meanwhile. rows: sorted, by run id.
    """
    for run in runs:
        last = {metric: value for metric, _, _, value in rows[run.info.run_id]}
        expected = {metric: value for metric, value in run.data.metrics.items() if is_read(metric)}
        if last.keys() != expected.keys():
            return False
        if not all(is_same_value(last[metric], value) for metric, value in expected.items()):
            return False
    return True


def is_same_value(a: float, b: float) -> bool:
    return a == b or (math.isnan(a) and math.isnan(b))


def tidy_histories(rows: Mapping[str, Iterable[MetricRow]]) -> dict[str, MetricHistory]:
    return {run_id: tidy_history(run_rows) for run_id, run_rows in rows.items()}


def tidy_history(rows: Iterable[MetricRow]) -> MetricHistory:
    """Return one row per metric and step, sorted; of several the one with the last timestamp.

    The largest double, as which stores return infinity, becomes infinity again.
    """
    last = {(metric, step): value for metric, step, _, value in sorted(rows)}
    # Inline for speed: there may be millions of values, and most are finite.
    return [
        (metric, step, value if -LARGEST < value < LARGEST else _restore_infinity(value))
        for (metric, step), value in last.items()
    ]


def _restore_infinity(value: float) -> float:
    return value if math.isnan(value) else math.copysign(math.inf, value)
