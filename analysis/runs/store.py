"""The tracking server as analysis sees it: runs by tag, whole metric histories, small text artifacts.

With bulk.py the only file of analysis that reads from MLflow. Everything that a dead or strange server can do wrong
becomes one `Failure` with one line.
"""

from __future__ import annotations

import contextlib
import functools
import math
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from biasbed import record
from biasbed.analysis.runs import bulk
from biasbed.system import places
from biasbed.system.files import whole
from biasbed.system.terminal import ProgressBar
from biasbed.tracking.archive import MetricRow
from biasbed.tracking.finding import PAGE, FoundRun, find_runs, pages
from biasbed.tracking.server import artifact_bytes, artifact_text, database, guarded

if TYPE_CHECKING:
    from mlflow import MlflowClient

PHASES_READ = ("val", "test")  # the metrics that analysis uses; the others may be many and are left on the server
MAX_HTTP_THREADS = 16
LARGEST = sys.float_info.max
MANY_VALUES = 30  # of a tag; each is a join of the database's query, which allows 64
MANY_RUNS = 100  # from here on reading shows its progress
CACHE_VERSION = "2"
# Under this name stands what a method's biased classifier scores, or the stage that trains it (`Algorithm.predictors`):
# read are its accuracies of validation images of either kind, and the loss that a stage alone has.
BIASED = "biased"
_BIASED = re.compile(rf"{BIASED}/(loss|(aligned|conflicting)_accuracy/[a-z0-9_-]+)")
HISTORY_COLUMNS = {"metric": "str", "step": "int64", "value": "float64"}

MetricRows = list[tuple[str, int, float]]  # metric, step, value


class RunStore:
    """One tracking server, for reading (and, through `client`, for logging results)."""

    def __init__(self, tracking_uri: str) -> None:
        self.uri = tracking_uri
        self.home = places.home(tracking_uri)
        self._listed: dict[tuple[str, str], frozenset[str]] = {}  # (run, folder) -> what is in it

    @functools.cached_property
    def client(self) -> MlflowClient:
        """MLflow's client, made when it is needed: making it makes a local database that does not exist."""
        from mlflow import MlflowClient

        with guarded(self.uri):
            return MlflowClient(tracking_uri=self.uri)

    @property
    def is_new(self) -> bool:
        """Whether this is a local database that nobody has written to yet."""
        file = database(self.uri)
        return file is not None and not file.exists()

    def runs(self, kind: str) -> list[FoundRun]:
        """All MLflow runs with this `biasbed.kind`, over all experiments, in the order in which they started."""
        return find_runs(self.uri, kind=kind)

    def find(self, tags: Mapping[str, str], without: Mapping[str, Sequence[str]] | None = None) -> Any | None:
        """Any one run, trained or published, with these tags and without those values; None where there is none.

        None, too, for values that MLflow's filters can't express.
        """
        wanted = [(key, "=", value) for key, value in tags.items()]
        wanted += [(key, "!=", value) for key, values in (without or {}).items() for value in values]
        if self.is_new or any("'" in value or "\\" in value for _, _, value in wanted):
            return None
        with guarded(self.uri):
            ids = [one.experiment_id for one in pages(self.client.search_experiments, max_results=PAGE)]
            for kind in ("train", "published"):
                text = " AND ".join(f"tags.`{key}` {sign} '{value}'" for key, sign, value in wanted)
                found = self.client.search_runs(ids, f"tags.`{record.KIND}` = '{kind}' AND {text}", max_results=1)
                if found:
                    return found[0]
        return None

    def one_of_each(self, tag: str) -> Iterator[Any]:
        """A run for every value of a tag, at most `MANY_VALUES`: each asked for by what it must not be."""
        seen: list[str] = []
        while len(seen) < MANY_VALUES and (run := self.find({}, {tag: seen or [""]})) is not None:
            seen.append(run.data.tags[tag])
            yield run

    def text(self, run_id: str, path: str) -> str | None:
        """A text artifact, None where the run has none of this name; Failure where it can't be had."""
        return artifact_text(self.uri, run_id, path)

    def file(self, run_id: str, path: str) -> bytes | None:
        """The same of any artifact. Of what lies in a folder's folder, the outer one is listed once for each run."""
        folder = os.path.dirname(path)
        outer = os.path.dirname(folder)
        if outer and folder not in self._listing(run_id, outer):
            return None
        return artifact_bytes(self.uri, run_id, path)

    def _listing(self, run_id: str, folder: str) -> frozenset[str]:
        found = self._listed.get((run_id, folder))
        if found is None:
            with guarded(self.uri):
                found = frozenset(entry.path for entry in self.client.list_artifacts(run_id, folder))
            self._listed[run_id, folder] = found
        return found

    def histories(self, runs: Sequence[Any]) -> dict[str, MetricRows]:
        """The complete history of every finished run's val and test metrics: run id -> rows metric, step, value.

        In the order of metrics and steps, one row for each: where a crash left two, the one with the last timestamp.
        Infinity, which stores return as the largest double, is infinity again. A local database is read by SQL, which
        takes no longer than reading a cache; what comes through the client is read once, then kept on this machine.
        """
        file = database(self.uri)
        if file is not None and runs:
            with guarded(self.uri), ProgressBar(len(runs), "run", silent=len(runs) < MANY_RUNS) as progress:
                found = bulk.from_database(file, runs, is_read, self.client, progress)
            if found is not None:
                return {run_id: tidy_history(rows) for run_id, rows in found.items()}
        cached = {run.info.run_id: self._cached(run) for run in runs}
        missing = [run for run in runs if cached[run.info.run_id] is None]
        with guarded(self.uri):
            fetched = self._fetch_in_bulk(missing) or self._fetch(missing)
        for run in missing:
            self._keep(run, fetched[run.info.run_id])
        return {run_id: fetched[run_id] if rows is None else rows for run_id, rows in cached.items()}

    def _fetch_in_bulk(self, runs: Sequence[Any]) -> dict[str, MetricRows] | None:
        """From a server that allows it."""
        if not (self.uri.startswith("http") and runs):
            return None
        total = sum(is_read(key) for run in runs for key in run.data.metrics)
        with ProgressBar(total, "metric", silent=len(runs) < MANY_RUNS) as progress:
            found = bulk.from_server(self.uri, runs, is_read, self.client, progress)
        return None if found is None else {run_id: tidy_history(rows) for run_id, rows in found.items()}

    def _fetch(self, runs: Sequence[Any]) -> dict[str, MetricRows]:
        """Through MLflow's client, which has no call for more than one metric of one run."""
        wanted = [(run.info.run_id, key) for run in runs for key in sorted(run.data.metrics) if is_read(key)]
        rows: dict[str, list[MetricRow]] = {run.info.run_id: [] for run in runs}
        # Threads hide the latency of HTTP; a database answers slower to many threads than to one.
        threads = MAX_HTTP_THREADS if self.uri.startswith("http") else 1
        with (
            ProgressBar(len(wanted), "metric", silent=len(runs) < MANY_RUNS) as progress,
            ThreadPoolExecutor(threads) as pool,
        ):
            answers = pool.map(lambda pair: self.client.get_metric_history(*pair), wanted)
            for (run_id, key), metrics in zip(wanted, answers, strict=True):
                rows[run_id] += [(key, m.step, m.timestamp, m.value) for m in metrics]
                progress.tick()
        return {run_id: tidy_history(entries) for run_id, entries in rows.items()}

    def _cache_file(self, run: Any) -> Path:
        """Named after all that changes when a run is reopened or gets further metrics."""
        state = [CACHE_VERSION, run.info.end_time, sorted((k, repr(v)) for k, v in run.data.metrics.items())]
        return self.home / "cache" / f"{run.info.run_id}-{record.digest(state)}.parquet"

    def _cached(self, run: Any) -> MetricRows | None:
        try:
            frame = pd.read_parquet(self._cache_file(run))
        except (OSError, ValueError, ImportError):  # absent, cut short by a full disk, or no parquet reader
            return None
        if list(frame.columns) != list(HISTORY_COLUMNS):
            return None
        # Lists: iterating over a pandas column takes several times as long.
        return list(zip(*(frame[name].tolist() for name in HISTORY_COLUMNS), strict=True))

    def _keep(self, run: Any, history: MetricRows) -> None:
        """Writes the cache; a folder that can't be written only costs the next analysis its time."""
        path = self._cache_file(run)
        with contextlib.suppress(OSError, ImportError):
            path.parent.mkdir(parents=True, exist_ok=True)
            # Written aside and renamed: another analysis may read or write the same file at this moment.
            with whole(path) as temporary:
                pd.DataFrame(history, columns=list(HISTORY_COLUMNS)).astype(HISTORY_COLUMNS).to_parquet(temporary)


@functools.cache
def is_read(key: str) -> bool:
    """Whether a metric is one of ours that analysis uses."""
    name = record.parse_metric(key)
    return name.phase in PHASES_READ if name is not None else _BIASED.fullmatch(key) is not None


def tidy_history(rows: Iterable[MetricRow]) -> MetricRows:
    """Rows (metric, step, timestamp, value) as one row per metric and step, in that order: the last written counts."""
    last = {(metric, step): value for metric, step, _, value in sorted(rows)}
    # Most values are finite, and there may be millions: they are told from others without a call.
    return [
        (metric, step, value if -LARGEST < value < LARGEST else _with_infinity(value))
        for (metric, step), value in last.items()
    ]


def _with_infinity(value: float) -> float:
    return value if math.isnan(value) else math.copysign(math.inf, value)


def parameters(run: Any) -> Mapping[str, str]:
    """The resolved config of a run; MLflow's own record of the command line is left out."""
    prefix = record.CONFIG_PARAMETER
    return {k.removeprefix(prefix): v for k, v in run.data.params.items() if k.startswith(prefix)}
