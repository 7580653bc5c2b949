"""Which rows can't be trained in which cells, as the study that planned them noted it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from biasbed import record
from biasbed.analysis.runs.comparable import TESTED
from biasbed.analysis.runs.run import Run, Scope, TrainedOn
from biasbed.errors import shown
from biasbed.system.strict import parse_json

if TYPE_CHECKING:
    from biasbed.analysis.runs.store import RunStore


def read(
    store: RunStore, scope: Scope, runs: Sequence[Run], cells: Iterable[TrainedOn]
) -> tuple[Mapping[tuple[str, str], frozenset[str]], list[str]]:
    """(row, cell) without runs -> what the row's method needs and the cell's data don't have, by the study's own run.

    The server is asked only where some row lacks a cell. Also what to say of runs whose file can't be read.
    """
    there = {run.place for run in runs}
    rows = {run.algorithm for run in runs if run.kind not in TESTED}
    empty = {(row, cell.name) for row in rows for cell in cells} - there
    found: dict[tuple[str, str], frozenset[str]] = {}
    notes = []
    for run in store.runs("study") if empty else ():
        tags = run.data.tags
        if (tags.get(record.SUITE), tags.get(record.STUDY)) == (scope.suite, scope.study):
            text = store.text(run.info.run_id, record.NOT_APPLICABLE_FILE)
            try:
                noted = _parsed(text or "{}")
            except (ValueError, AttributeError, TypeError) as error:
                notes.append(
                    f"{record.NOT_APPLICABLE_FILE} of run {run.info.run_id} can't be read: {shown(str(error))}"
                )
                continue
            found |= {place: what for place, what in noted.items() if place in empty}
    return found, notes


def _parsed(text: str) -> dict[tuple[str, str], frozenset[str]]:
    noted = parse_json(text)
    return {(row, cell): frozenset(what) for row, own in noted.items() for cell, what in own.items()}
