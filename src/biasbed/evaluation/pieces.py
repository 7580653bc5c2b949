"""Pieces of an evaluation set, whose images are decided, gathered and stored together, and the decisions on them.

`prediction_store` stores finished pieces, so that an interrupted evaluation can resume.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from biasbed.data.names import Coded, Names
from biasbed.data.source import Source
from biasbed.evaluation.decisions import CUES, SHORTCUT, Decisions
from biasbed.suites.sets import EvaluationSet

MOST = 2**16  # most images of a piece
FEW = 100_000  # most images of a set whose five best classes are stored

# Decisions of a model on some images of a set: columns of `Decisions` with numbers for images and classes, and `row`
# [N], the images' rows in the source.
Columns = dict[str, np.ndarray]


class Piece(NamedTuple):
    """Images of one set that are all shown under the same condition, if it has any."""

    set: int
    number: int  # within the set
    rows: range | np.ndarray  # in the source, rising

    def shard(self, start: int, batch_size: int, world: int) -> list[int]:
        """Return a batch of a process: every `world`-th row from `start` on."""
        rows = self.rows[start : start + batch_size * world : world]
        if isinstance(rows, range):
            return list(rows)
        return rows.tolist()


def cut_pieces(set_number: int, source: Source) -> Iterator[Piece]:
    """Yield the pieces of the set of this number, in order."""
    number = 0
    for rows in _rows_by_condition(source):
        for start in range(0, max(1, len(rows)), MOST):
            yield Piece(set_number, number, rows[start : start + MOST])
            number += 1


def _rows_by_condition(source: Source) -> Iterator[range | np.ndarray]:
    """Yield the rows of the images under each condition; all rows at once if the source has no conditions."""
    if source.condition is None:
        yield range(len(source))
        return
    for code in range(len(source.conditions)):
        rows = np.flatnonzero(source.condition == code)
        if len(rows):
            yield _as_range(rows.astype(np.int32))


def _as_range(rows: np.ndarray) -> range | np.ndarray:
    """Return consecutive rows as a range, others unchanged."""
    first, last = int(rows[0]), int(rows[-1])
    if last - first + 1 == len(rows):
        return range(first, last + 1)
    return rows


def keeps_top(source: Source) -> bool:
    """Return True if the five best classes of every image are stored: they need as much memory as all else together."""
    return source.condition is None and len(source) <= FEW


def keeps_scores(evaluation_set: EvaluationSet) -> bool:
    """Return True if the scores of all classes of every image are stored, provided that the settings ask for them."""
    return keeps_top(evaluation_set.source) and not evaluation_set.task.several


def without_top_and_scores(columns: Columns) -> Columns:
    """Return the columns that every set has: without those of `keeps_top` and `keeps_scores`."""
    of_some = {"top", "top_score", "log_probability", "energy", "max_softmax"}
    return {name: column for name, column in columns.items() if name not in of_some}


def join_pieces(parts: Sequence[Columns]) -> Columns:
    """Join columns in the order of rows. Empties the parts, so that memory holds only one column twice."""
    if len(parts) < 2:
        return parts[0] if parts else {}
    columns = {}
    for name in list(parts[0]):
        columns[name] = np.concatenate([part.pop(name) for part in parts])
    row = columns["row"]
    if (row[1:] < row[:-1]).any():
        order = np.argsort(row)
        for name in columns:
            columns[name] = columns[name][order]
    return columns


def make_decisions(evaluation_set: EvaluationSet, columns: Columns, observer: str) -> Decisions:
    """Return the columns as decisions, with the names of images and classes. observer: name of the model."""
    source, rows = evaluation_set.source, columns["row"]
    is_complete = len(rows) == len(source)

    def code(column: np.ndarray | None, names: Sequence[str] = source.classes) -> Coded | None:
        return None if column is None else Coded(column, names)

    def select(column: np.ndarray | None) -> np.ndarray | None:
        return column if column is None or is_complete else column[rows]

    label = columns.get("label")
    if label is None:
        label = source.y if is_complete else source.y[rows]
    return Decisions(
        observer=observer,
        set=evaluation_set.name,
        images=source.names if is_complete else Names(source.ids[row] for row in rows.tolist()),
        label=name_labels(evaluation_set, label),
        decision=name_labels(evaluation_set, columns["decision"]),
        classes=source.classes,
        bias=code(select(source.bias)),
        group=None if source.group is None else Coded.from_names(select(source.group)),
        condition=code(select(source.condition), source.conditions),
        confidence=columns.get("confidence"),
        loss=columns["loss"],
        top=code(columns.get("top")),
        top_score=columns.get("top_score"),
        rank=columns.get("rank"),
        bias_rank=columns.get("bias_rank"),
        targets=source.y[rows] > 0 if evaluation_set.task.several else None,
        scores=columns.get("scores"),
        log_probability=columns.get("log_probability"),
        energy=columns.get("energy"),
        max_softmax=columns.get("max_softmax"),
        label_map=evaluation_set.label_map.name,
        cues=CUES if "shape_bias" in evaluation_set.measured else SHORTCUT,
        preprocessing=evaluation_set.preprocessing,
    )


def name_labels(evaluation_set: EvaluationSet, y: np.ndarray) -> Coded:
    """Return [N] names of labels or decisions `y`. If images have several labels, their identifiers are joined by +."""
    if not evaluation_set.task.several:
        return Coded(y, evaluation_set.source.classes)
    combinations, number = np.unique(y > 0, axis=0, return_inverse=True)
    names = ["+".join(itertools.compress(evaluation_set.labels, combination)) for combination in combinations]
    return Coded(number.reshape(-1), names)
