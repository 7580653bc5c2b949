"""What a study would do, told without its data: that is what a person without ImageNet wants of a dry run."""

from __future__ import annotations

import re

from biasbed import registry, suites
from biasbed.errors import Failure, MissingData
from biasbed.studies.cells import HELD_OUT, StudyCell, expand
from biasbed.studies.plan import words_of
from biasbed.studies.table import StudyTable
from biasbed.training.resolve import resolve


def outline(table: StudyTable, reason: MissingData | Failure) -> list[str]:
    """Rows, cells and seeds with the number of runs, then what is not there. reason: why there can be no plan.

    UsageError for a setting that would be refused with the data, too.
    """
    cells, told = _cells(table)
    width = max(map(len, table.rows))
    shown, number = [], 0
    for row, own in table.rows.items():
        is_tested, each = "model" in own, len(table.seeds)
        number += len(cells) * (1 if is_tested else each)
        words = [words_of(table, row, cell) for cell in cells]
        configs = [] if is_tested else [resolve({**one, "seed": str(table.seeds[0])}) for one in words]
        how = {
            f"{c.backbone}, {c.epochs or c.steps} {c.unit}s, batch {c.batch_size}, {c.image_size} px" for c in configs
        }
        shown.append(f"  {row:{width}}  {own['model'] if is_tested else '; '.join(sorted(how))}")
    seeds = f"{len(table.seeds)} seed{'s' * (len(table.seeds) != 1)}"
    runs = f"{number} runs" if told.endswith(("cell", "cells")) else f"{number} runs in each"
    head = f"{table.study}: {len(table.rows)} rows x {told} x {seeds}: {runs} of the suite {_suite(table)}"
    return [head, *shown, *missing(reason)]


def missing(reason: MissingData | Failure) -> list[str]:
    """What is not there, a line each."""
    lines = re.split(r"; (?=')", str(reason))
    return ["The data to say more, and to start, are not all there:", *(f"- {part}" for part in lines)]


def _suite(table: StudyTable) -> str:
    return suites.identifier(table.suite)


def _cells(table: StudyTable) -> tuple[tuple[StudyCell, ...], str]:
    """The cells, and how many there are in words; where the data alone know that, one in place of all."""
    try:
        cells = expand({**table.settings, "suite": registry.settled(table.suite)}, table.cells)
        return cells, f"{len(cells)} cell{'s' * (len(cells) != 1)}"
    except MissingData:
        held_out = table.settings.get(HELD_OUT, "")
        return (StudyCell("", {HELD_OUT: "none"}),), f"the cells of {HELD_OUT}={held_out}"
