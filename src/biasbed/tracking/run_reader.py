"""Reader of tracked runs and their metric histories: one interface, and a backend for databases and one for servers.

`open_reader` chooses the backend. A server is read through MLflow's client, and histories are cached on this machine. A
local database is read by SQL, read-only. What SQL and a server's bulk request return is compared with the client's
answers; if anything differs, the client reads (`mlflow_private`).

Answers: How are runs read back from MLflow?
"""

from __future__ import annotations

import contextlib
import functools
import math
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from biasbed import record
from biasbed.system import places
from biasbed.system.files import atomic_file
from biasbed.system.terminal import ProgressBar
from biasbed.tracking import mlflow_private
from biasbed.tracking.archive import MetricRow
from biasbed.tracking.mlflow_private import StoredRun
from biasbed.tracking.server import database, guarded, writer

if TYPE_CHECKING:
    from mlflow import MlflowClient

PAGE = 1000  # runs in an answer
LARGEST = sys.float_info.max  # as which stores return infinity
MANY_RUNS = 100  # from this number on reading shows its progress
CLIENT_THREADS, BULK_THREADS = 16, 4
CACHE_VERSION = "2"
CACHE_COLUMNS = {"metric": "str", "step": "int64", "value": "float64"}

MetricHistory = list[tuple[str, int, float]]  # metric, step, value
IsRead = Callable[[str], bool]  # True for the metrics to read


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


# --- backends ---------------------------------------------------------------------------------------------------------


class ClientReader:
    """Reader through MLflow's client, which works for every server. Histories are cached."""

    def __init__(self, uri: str) -> None:
        self.uri = uri

    @functools.cached_property
    def client(self) -> MlflowClient:
        return writer(self.uri)

    def find_runs(self, tags: Mapping[str, str]) -> list[Any]:
        with guarded(self.uri):
            experiments = list_experiments(self.client)
            if not experiments:
                return []
            text = " and ".join(match_tag(name, value) for name, value in tags.items())
            order = ["attributes.start_time ASC"]
            runs = read_pages(self.client.search_runs, experiments, text, max_results=PAGE, order_by=order)
            return [run for run in runs if tags.items() <= run.data.tags.items()]

    def read_histories(self, runs: Sequence[Any], is_read: IsRead) -> dict[str, MetricHistory]:
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
        requests: list[tuple[str, list[str]]] = []
        for metric, ids in by_metric.items():
            starts = range(0, len(ids), mlflow_private.MAX_RUNS)
            requests += [(metric, ids[start : start + mlflow_private.MAX_RUNS]) for start in starts]
        rows: dict[str, list[MetricRow]] = {run.info.run_id: [] for run in runs}
        request = functools.partial(mlflow_private.request_histories, self.uri)
        try:
            with (
                ProgressBar(sum(map(len, by_metric.values())), "metric", silent=len(runs) < MANY_RUNS) as progress,
                ThreadPoolExecutor(BULK_THREADS) as pool,
            ):
                answers = pool.map(request, *zip(*requests, strict=True)) if requests else ()
                for (_, ids), answer in zip(requests, answers, strict=True):
                    for run_id, row in answer:
                        rows[run_id].append(row)
                    progress.tick(len(ids))
        except (mlflow_private.Unusable, KeyError):  # KeyError: a run that was not requested
            return None
        for run_id in rows:
            rows[run_id].sort()
        return tidy_histories(rows) if agrees(rows, runs, is_read, self.client) else None

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
        """Return a path that changes whenever a run is reopened or gets further metrics."""
        state = [CACHE_VERSION, run.info.end_time, sorted((k, repr(v)) for k, v in run.data.metrics.items())]
        return places.home(self.uri) / "cache" / f"{run.info.run_id}-{record.digest(state)}.parquet"

    def _read_cache(self, run: Any) -> MetricHistory | None:
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


class DatabaseReader:
    """Reader of a local database by SQL, which falls back on MLflow's client if that returns anything else."""

    def __init__(self, file: Path, fallback: ClientReader) -> None:
        self.file, self.fallback = file, fallback

    def find_runs(self, tags: Mapping[str, str]) -> list[Any]:
        if not self.file.exists():
            return []
        with guarded(self.fallback.uri), contextlib.suppress(mlflow_private.Unusable):
            experiments = list_experiments(self.fallback.client)
            runs = mlflow_private.read_runs(self.file, experiments, tags) if experiments else []
            # The first and the last run show whether the columns have another meaning.
            samples = (*runs[:1], *runs[1:][-1:])
            if all(is_same_run(run, self.fallback.client.get_run(run.info.run_id)) for run in samples):
                return runs
        return self.fallback.find_runs(tags)

    def read_histories(self, runs: Sequence[Any], is_read: IsRead) -> dict[str, MetricHistory]:
        with guarded(self.fallback.uri):
            rows = self.read_rows(runs, is_read) if runs else {}
        return self.fallback.read_histories(runs, is_read) if rows is None else tidy_histories(rows)

    def read_rows(self, runs: Sequence[Any], is_read: IsRead) -> dict[str, list[MetricRow]] | None:
        """Return the rows of each run by SQL; None if MLflow's client returns others."""
        rows: dict[str, list[MetricRow]] = {}
        histories = mlflow_private.read_histories(self.file, [run.info.run_id for run in runs])
        try:
            with ProgressBar(len(runs), "run", silent=len(runs) < MANY_RUNS) as progress:
                for run, history in zip(runs, histories, strict=True):
                    rows[run.info.run_id] = [row for row in history if is_read(row[0])]
                    progress.tick()
        except mlflow_private.Unusable:
            return None
        return rows if agrees(rows, runs, is_read, self.fallback.client) else None


# --- comparison with the client ---------------------------------------------------------------------------------------


def is_same_run(run: StoredRun, reference: Any) -> bool:
    """Return True if a run read by SQL equals the client's run."""
    metrics, expected = run.data.metrics, reference.data.metrics
    return (
        all(getattr(reference.info, name) == value for name, value in vars(run.info).items())
        and run.data.tags == reference.data.tags
        and run.data.params == reference.data.params
        and metrics.keys() == expected.keys()
        and all(is_same_value(value, expected[name]) for name, value in metrics.items())
    )


def is_same_value(a: float, b: float) -> bool:
    return a == b or (math.isnan(a) and math.isnan(b))


def agrees(rows: Mapping[str, Sequence[MetricRow]], runs: Iterable[Any], is_read: IsRead, client: MlflowClient) -> bool:
    """Return True if the rows (sorted, by run id) agree with MLflow.

    Every run's metrics and their last values are compared with those of the run (this shows missing and new rows), and
    one history with `get_metric_history` (this shows another meaning of the columns).
    """
    for run in runs:
        last = {metric: value for metric, _, _, value in rows[run.info.run_id]}
        expected = {metric: value for metric, value in run.data.metrics.items() if is_read(metric)}
        if last.keys() != expected.keys():
            return False
        if not all(is_same_value(last[metric], value) for metric, value in expected.items()):
            return False
    sample = next((run_id for run_id, history in rows.items() if history), None)
    return sample is None or _is_same_history(sample, rows[sample], client)


def _is_same_history(run_id: str, rows: Sequence[MetricRow], client: MlflowClient) -> bool:
    """Compare the history of the run's first metric with the client's."""
    metric = rows[0][0]
    history = [row for row in rows if row[0] == metric]
    expected = sorted((m.key, m.step, m.timestamp, m.value) for m in client.get_metric_history(run_id, metric))
    if len(history) != len(expected):
        return False
    pairs = zip(history, expected, strict=True)
    return all(row[:3] == other_row[:3] and is_same_value(row[3], other_row[3]) for row, other_row in pairs)


# --- helpers ----------------------------------------------------------------------------------------------------------


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
    """Return an MLflow filter that matches all runs with this tag, and perhaps some more.

    MLflow's filters can't express an apostrophe within quotes. If there is one, `_` replaces it, which matches any
    character; also a backslash, which PostgreSQL's LIKE would take for an escape.
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
