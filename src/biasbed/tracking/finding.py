"""Finding runs by their tags, whatever experiment they are in.

A server is asked through MLflow's client. A local database is read by SQL, read-only, a few queries for a run: MLflow's
search of a thousand runs takes longer than reading all of their histories. That is no part of MLflow's interface, so
the first and the last run are compared with what the client says of them, and where anything is other than expected
the client searches.
"""

from __future__ import annotations

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
# In the order in which MLflow's search gives them: without a start last, equal starts by id.
RUNS = (
    "SELECT run_uuid, name, CAST(experiment_id AS TEXT), status, start_time, end_time FROM runs "
    "WHERE lifecycle_stage = 'active' AND experiment_id IN ({experiments}){tagged} "
    "ORDER BY start_time IS NULL, start_time, run_uuid"
)
TAGGED = " AND run_uuid IN (SELECT run_uuid FROM tags WHERE key = ? AND value = ?)"
OF_RUN = "SELECT key, value FROM {} WHERE run_uuid = ?"
LAST = "SELECT key, CASE WHEN is_nan THEN NULL ELSE value END FROM latest_metrics WHERE run_uuid = ?"


@dataclass(frozen=True)
class Info:
    """What is read here of MLflow's `RunInfo`."""

    run_id: str
    run_name: str
    experiment_id: str
    status: str
    start_time: int | None
    end_time: int | None


@dataclass(frozen=True)
class Data:
    """MLflow's `RunData`, with the last value of each metric."""

    tags: Mapping[str, str]
    params: Mapping[str, str]
    metrics: Mapping[str, float]


@dataclass(frozen=True)
class FoundRun:
    """A run as MLflow's client has it, as far as it is read here."""

    info: Info
    data: Data


def find_runs(tracking_uri: str, **tags: str) -> list[FoundRun]:
    """The runs of all experiments with these tags (`study="main"` means biasbed.study), in the order of their start.

    A local database that does not exist yet has none, and is not made. Raises Failure where the server can't be used.
    """
    file = database(tracking_uri)
    if file is not None and not file.exists():
        return []
    wanted = {f"biasbed.{name}": value for name, value in tags.items()}
    with guarded(tracking_uri):
        client = writer(tracking_uri)
        experiments = [one.experiment_id for one in pages(client.search_experiments, max_results=PAGE)]
        if not experiments:
            return []
        found = None if file is None else _from_database(file, experiments, wanted, client.get_run)
        return _searched(client, experiments, wanted) if found is None else found


def _searched(client: MlflowClient, experiments: list[str], wanted: Mapping[str, str]) -> list[Any]:
    """Through MLflow's client."""
    text = " and ".join(clause(name, value) for name, value in wanted.items())
    order = ["attributes.start_time ASC"]
    found = pages(client.search_runs, experiments, text, max_results=PAGE, order_by=order)
    return [run for run in found if wanted.items() <= run.data.tags.items()]


def pages(ask: Callable[..., Any], *given: Any, **named: Any) -> Iterator[Any]:
    """All that MLflow answers a page at a time."""
    token: str | None = None
    while True:
        page = ask(*given, **named, page_token=token)
        yield from page
        token = page.token
        if not token:
            return


def clause(tag: str, value: str) -> str:
    """What MLflow is asked for: all runs with this value, and perhaps some more.

    Its filters have no way to write an apostrophe within quotes. Where there is one, `_` stands for it, which any
    character fits; also for a backslash, which PostgreSQL's LIKE would take for an escape.
    """
    if "'" not in value:
        return f"tags.`{tag}` = '{value}'"
    pattern = re.sub(r"['\\]", "_", value)
    return f"tags.`{tag}` LIKE '{pattern}'"


# --- by SQL -----------------------------------------------------------------------------------------------------------


def _from_database(
    file: Path, experiments: Sequence[str], wanted: Mapping[str, str], find: Callable[[str], Any]
) -> list[FoundRun] | None:
    """The active runs of these experiments that have all of these tags; None where MLflow has others.

    find: a run by its id, as MLflow's client gives it.
    """
    try:
        with closing(opened(file)) as connection:
            query = RUNS.format(experiments=", ".join("?" * len(experiments)), tagged=TAGGED * len(wanted))
            values = (value for tag in wanted.items() for value in tag)
            rows = connection.execute(query, (*map(int, experiments), *values)).fetchall()
            found = [FoundRun(Info(*row), _data(connection, row[0])) for row in rows]
    except (sqlite3.Error, TypeError, ValueError):
        return None
    # The first and the last show another meaning of the columns.
    return found if all(_is_the_same(run, find(run.info.run_id)) for run in (*found[:1], *found[1:][-1:])) else None


def _data(connection: sqlite3.Connection, run_id: str) -> Data:
    tags, params = (dict(connection.execute(OF_RUN.format(table), (run_id,))) for table in ("tags", "params"))
    last = connection.execute(LAST, (run_id,))
    return Data(tags, params, {key: math.nan if value is None else float(value) for key, value in last})


def _is_the_same(run: FoundRun, other: Any) -> bool:
    mine, theirs = run.data.metrics, other.data.metrics
    return (
        all(getattr(other.info, name) == value for name, value in vars(run.info).items())
        and run.data.tags == other.data.tags
        and run.data.params == other.data.params
        and mine.keys() == theirs.keys()
        and all(same(value, theirs[name]) for name, value in mine.items())
    )


def opened(file: Path) -> sqlite3.Connection:
    """A database, for reading alone."""
    return sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True)


def same(a: float, b: float) -> bool:
    return a == b or (math.isnan(a) and math.isnan(b))
