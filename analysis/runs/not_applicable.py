"""Rows that can't be trained on a cell, as noted by the study that planned them."""

from __future__ import annotations

import itertools
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
    """Return the unmet needs of each (row, cell) without runs, as the study's own run notes them; and notes.

    The server is asked only if some row lacks a cell. A note names each run whose file can't be read.
    """
    present = {run.row_and_cell for run in runs}
    rows = {run.algorithm for run in runs if run.kind not in TESTED}
    empty = set(itertools.product(rows, (cell.name for cell in cells))) - present
    needs: dict[tuple[str, str], frozenset[str]] = {}
    notes = []
    for run in store.runs("study") if empty else ():
        tags = run.data.tags
        if (tags.get(record.SUITE), tags.get(record.STUDY)) == (scope.suite, scope.study):
            text = store.text(run.info.run_id, record.NOT_APPLICABLE_FILE)
            try:
                noted = _parse(text or "{}")
            except (ValueError, AttributeError, TypeError) as error:
                notes.append(
                    f"{record.NOT_APPLICABLE_FILE} of run {run.info.run_id} can't be read: {shown(str(error))}"
                )
                continue
            needs |= {key: missing for key, missing in noted.items() if key in empty}
    return needs, notes


def _parse(text: str) -> dict[tuple[str, str], frozenset[str]]:
    needs = {}
    for row, cells in parse_json(text).items():
        for cell, missing in cells.items():
            needs[row, cell] = frozenset(missing)
    return needs
