"""Which rows can't be trained in which cells, as the study that planned them noted it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from biasbed import record
from biasbed.analysis.runs.alike import TESTED
from biasbed.analysis.runs.run import Run, Scope, TrainedOn
from biasbed.errors import Failure

if TYPE_CHECKING:
    from biasbed.analysis.runs.store import RunStore


def read(
    store: RunStore, scope: Scope, runs: Sequence[Run], cells: Iterable[TrainedOn]
) -> Mapping[tuple[str, str], frozenset[str]]:
    """(row, cell) without runs -> what the row's method needs and the cell's data don't have, by the study's own run.

    The server is asked only where some row lacks a cell. Failure for a note that is none.
    """
    there = {run.place for run in runs}
    rows = {run.algorithm for run in runs if run.kind not in TESTED}
    empty = {(row, cell.name) for row in rows for cell in cells} - there
    found: dict[tuple[str, str], frozenset[str]] = {}
    for run in store.runs("study") if empty else ():
        tags = run.data.tags
        if (tags.get(record.SUITE), tags.get(record.STUDY)) == (scope.suite, scope.study):
            noted = _parsed(run.info.run_id, store.text(run.info.run_id, record.NOT_APPLICABLE_FILE))
            found |= {place: what for place, what in noted.items() if place in empty}
    return found


def _parsed(run_id: str, text: str | None) -> dict[tuple[str, str], frozenset[str]]:
    try:
        noted = json.loads(text or "{}")
        return {(row, cell): frozenset(what) for row, own in noted.items() for cell, what in own.items()}
    except (ValueError, AttributeError, TypeError) as error:
        raise Failure(f"{record.NOT_APPLICABLE_FILE} of run {run_id} can't be read: {error}") from None
