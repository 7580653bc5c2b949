"""Metric histories straight from MLflow's local database: one query for a run, where the client takes one per metric.

Read-only, and checked against what MLflow itself answers; where anything is other than expected the client reads.
"""

from __future__ import annotations

import contextlib
import math
import sqlite3
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from biasbed.progress import Progress

if TYPE_CHECKING:
    from mlflow import MlflowClient

Row = tuple[str, int, int, float]  # metric, step, timestamp, value

QUERY = (
    "SELECT key, step, timestamp, CASE WHEN is_nan THEN NULL ELSE value END FROM metrics WHERE run_uuid = ? "
    "ORDER BY key, step, timestamp, value"
)


def read(
    file: Path, runs: Sequence[Any], is_read: Callable[[str], bool], client: MlflowClient, progress: Progress
) -> dict[str, list[Row]] | None:
    """Run id -> rows of the wanted metrics; None where the database is not as expected and the client must read.

    Checked: every run's metrics and their last values against those that MLflow gave with the run (this shows rows that
    are absent or new), and one whole history against `get_metric_history` (this shows another meaning of the columns).
    """
    found = {}
    try:
        with contextlib.closing(sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True)) as connection:
            for run in runs:
                answer = connection.execute(QUERY, (run.info.run_id,)).fetchall()
                rows = [(k, s, t, math.nan if v is None else float(v)) for k, s, t, v in answer if is_read(k)]
                if not _agrees(rows, {key: value for key, value in run.data.metrics.items() if is_read(key)}):
                    return None
                found[run.info.run_id] = rows
                progress.tick()
    except (sqlite3.Error, TypeError, ValueError):
        return None
    return found if _same_history(found, client) else None


def _agrees(rows: Iterable[Row], last: dict[str, float]) -> bool:
    """Whether the last row of every metric has the value that MLflow gave; rows are in the order of `QUERY`."""
    own = {key: value for key, _, _, value in rows}
    return own.keys() == last.keys() and all(_same(own[key], value) for key, value in last.items())


def _same_history(found: dict[str, list[Row]], client: MlflowClient) -> bool:
    run_id = next((run_id for run_id, rows in found.items() if rows), None)
    if run_id is None:
        return True
    wanted = found[run_id][0][0]
    own = [row for row in found[run_id] if row[0] == wanted]
    theirs = sorted((m.key, m.step, m.timestamp, m.value) for m in client.get_metric_history(run_id, wanted))
    return len(own) == len(theirs) and all(
        a[:3] == b[:3] and _same(a[3], b[3]) for a, b in zip(own, theirs, strict=True)
    )


def _same(a: float, b: float) -> bool:
    return a == b or (math.isnan(a) and math.isnan(b))
