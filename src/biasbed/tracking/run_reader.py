"""Tracked runs by their tags: read from a local database by SQL, and from a server through MLflow's client.

SQL, read-only, is a hundred times faster than MLflow's client. The tables are not public: if they are absent or not as
expected (`Unusable`), the client reads.

Answers: How are runs found in MLflow?
"""

from __future__ import annotations

import contextlib
import itertools
import math
import re
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from biasbed.tracking.server import database, guarded, writer

if TYPE_CHECKING:
    from mlflow import MlflowClient

PAGE = 1000  # runs in an answer

# In the order of MLflow's search: runs without a start last, equal starts by id.
RUNS = (
    "SELECT run_uuid, name, CAST(experiment_id AS TEXT), status, start_time, end_time FROM runs "
    "WHERE lifecycle_stage = 'active' AND experiment_id IN ({experiments}){tagged} "
    "ORDER BY start_time IS NULL, start_time, run_uuid"
)
TAGGED = " AND run_uuid IN (SELECT run_uuid FROM tags WHERE key = ? AND value = ?)"
PAIRS = "SELECT key, value FROM {} WHERE run_uuid = ?"
LAST_VALUES = "SELECT key, CASE WHEN is_nan THEN NULL ELSE value END FROM latest_metrics WHERE run_uuid = ?"
_UNEXPECTED = (sqlite3.Error, ImportError, OSError, AttributeError, KeyError, TypeError, ValueError)


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
def expected_interface() -> Iterator[None]:
    """Raise Unusable for any error inside the block that another form of the interface can cause."""
    from mlflow.exceptions import MlflowException

    try:
        yield
    except (MlflowException, *_UNEXPECTED) as error:
        raise Unusable(str(error)) from error


def find_runs(tracking_uri: str, **tags: str) -> list[Any]:
    """Return the active runs with these tags (`study="main"` means biasbed.study), in the order of their start.

    A local database that does not exist yet has none, and is not made. Raises Failure if the server can't be used.
    """
    full_tags = {f"biasbed.{name}": value for name, value in tags.items()}
    file = database(tracking_uri)
    if file is None:
        return find_by_client(tracking_uri, full_tags)
    if not file.exists():
        return []
    with guarded(tracking_uri), contextlib.suppress(Unusable):
        experiments = list_experiments(writer(tracking_uri))
        return read_runs(file, experiments, full_tags) if experiments else []
    return find_by_client(tracking_uri, full_tags)


def find_by_client(tracking_uri: str, tags: Mapping[str, str]) -> list[Any]:
    """Return the active runs of all experiments with these tags, in the order of their start."""
    with guarded(tracking_uri):
        client = writer(tracking_uri)
        experiments = list_experiments(client)
        if not experiments:
            return []
        text = " and ".join(match_tag(name, value) for name, value in tags.items())
        order = ["attributes.start_time ASC"]
        runs = read_pages(client.search_runs, experiments, text, max_results=PAGE, order_by=order)
        return [run for run in runs if tags.items() <= run.data.tags.items()]


def connect(file: Path) -> sqlite3.Connection:
    """Open a database read-only."""
    return sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True)


def read_runs(file: Path, experiments: Sequence[str], tags: Mapping[str, str]) -> list[StoredRun]:
    """Read the active runs of these experiments that have all of these tags. Raises Unusable."""
    query = RUNS.format(experiments=", ".join("?" * len(experiments)), tagged=TAGGED * len(tags))
    with expected_interface(), closing(connect(file)) as connection:
        values = (*map(int, experiments), *itertools.chain.from_iterable(tags.items()))
        rows = connection.execute(query, values).fetchall()
        return [StoredRun(RunInfo(*row), _read_data(connection, row[0])) for row in rows]


def _read_data(connection: sqlite3.Connection, run_id: str) -> RunData:
    tags = dict(connection.execute(PAIRS.format("tags"), (run_id,)))
    params = dict(connection.execute(PAIRS.format("params"), (run_id,)))
    values = connection.execute(LAST_VALUES, (run_id,))
    return RunData(tags, params, {key: math.nan if value is None else float(value) for key, value in values})


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
