"""Reader of tracked runs and their metric histories: one interface, and a backend for databases and one for servers.

A local database is read by SQL, read-only, which is a hundred times faster than MLflow's client. A server is read
through MLflow's client, except for histories: the client has no call for more than one metric of one run, so the
request that MLflow's own pages make fetches a metric of a hundred runs. Neither the tables nor that request are public.
If they are absent or not as expected (`Unusable`), the client reads everything.
Histories from a server are cached on this machine.

Answers: How are runs read back from MLflow?
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import math
import re
import sqlite3
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from biasbed import record
from biasbed.system import places
from biasbed.system.files import atomic_file
from biasbed.system.terminal import ProgressBar
from biasbed.tracking.server import database, guarded, writer

if TYPE_CHECKING:
    from mlflow import MlflowClient

PAGE = 1000  # runs in an answer
LARGEST = sys.float_info.max  # as which stores return infinity
MANY_RUNS = 100  # from this number on reading shows its progress
CLIENT_THREADS, BULK_THREADS = 16, 4
CACHE_VERSION = "2"
CACHE_COLUMNS = {"metric": "str", "step": "int64", "value": "float64"}

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

MetricRow = tuple[str, int, int, float]  # metric, step, timestamp in ms, value
MetricHistory = list[tuple[str, int, float]]  # metric, step, value
IsRead = Callable[[str], bool]  # True for the metrics to read


class Unusable(Exception):
    """Error of a private interface of MLflow that is absent, or not as expected."""


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


class RunReader(Protocol):
    """Interface to the runs of one tracking server."""

    def find_runs(self, tags: Mapping[str, str]) -> list[Any]:
        """Return the active runs of all experiments with these tags, in the order of their start."""

    def read_histories(self, runs: Sequence[Any], is_read: IsRead) -> dict[str, MetricHistory]:
        """Return the complete history of the runs' metrics that `is_read` accepts, keyed by run id (`tidy_history`)."""


def open_reader(tracking_uri: str) -> RunReader:
    """Return the reader for this tracking URI."""
    client_reader = ClientReader(tracking_uri)
    file = database(tracking_uri)
    return client_reader if file is None else DatabaseReader(file, client_reader)


def find_runs(tracking_uri: str, **tags: str) -> list[Any]:
    """Return the runs with these tags (`study="main"` means biasbed.study), in the order of their start.

    A local database that does not exist yet has none, and is not made. Raises Failure if the server can't be used.
    """
    return open_reader(tracking_uri).find_runs({f"biasbed.{name}": value for name, value in tags.items()})


# --- a server ---------------------------------------------------------------------------------------------------------


class ClientReader:
    """Reader through MLflow's client, which works for every server. Histories are cached."""

    def __init__(self, uri: str) -> None:
        self.uri = uri

    @functools.cached_property
    def client(self) -> MlflowClient:
        return writer(self.uri)

    def find_runs(self, tags: Mapping[str, str]) -> list[Any]:
        """Return the active runs of all experiments with these tags, in the order of their start."""
        with guarded(self.uri):
            experiments = list_experiments(self.client)
            if not experiments:
                return []
            text = " and ".join(match_tag(name, value) for name, value in tags.items())
            order = ["attributes.start_time ASC"]
            runs = read_pages(self.client.search_runs, experiments, text, max_results=PAGE, order_by=order)
            return [run for run in runs if tags.items() <= run.data.tags.items()]

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
    with _expected():
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

    def find_runs(self, tags: Mapping[str, str]) -> list[Any]:
        if not self.file.exists():
            return []
        with guarded(self.fallback.uri), contextlib.suppress(Unusable):
            experiments = list_experiments(self.fallback.client)
            return read_runs(self.file, experiments, tags) if experiments else []
        return self.fallback.find_runs(tags)

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


def read_rows(file: Path, run_ids: Iterable[str]) -> Iterator[list[MetricRow]]:
    """Yield the rows of all metrics of each run, sorted by `HISTORY`. Raises Unusable."""
    with _expected(), closing(connect(file)) as connection:
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


def list_experiments(client: MlflowClient) -> list[str]:
    """Return the ids of all active experiments."""
    return [experiment.experiment_id for experiment in read_pages(client.search_experiments, max_results=PAGE)]


def read_pages(request: Callable[..., Any], *arguments: Any, **options: Any) -> Iterator[Any]:
    """Yield the items of all pages of an MLflow request."""
    token: str | None = None
    while True:
        page = request(*arguments, **options, page_token=token)
        yield from page
        token = page.token
        if not token:
            return


def match_tag(tag: str, value: str) -> str:
    """Return an MLflow filter that matches all runs with this tag, and some others if the value has an apostrophe.

    MLflow's filters can't express an apostrophe within quotes. It is replaced by `_`, which matches any character; so
    is a backslash, which PostgreSQL's LIKE would take for an escape.
    """
    if "'" not in value:
        return f"tags.`{tag}` = '{value}'"
    pattern = re.sub(r"['\\]", "_", value)
    return f"tags.`{tag}` LIKE '{pattern}'"


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
