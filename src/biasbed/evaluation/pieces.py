"""A set's images piece by piece: what is decided, gathered and kept together, and how decisions come of it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from biasbed.data.names import Coded, Names
from biasbed.data.source import Source
from biasbed.datasets.classes import image_name
from biasbed.evaluation.decisions import CUES, SHORTCUT, Decisions
from biasbed.suites.sets import EvaluationSet

MOST = 2**16  # images of a piece
FEW = 100_000  # images of a set whose five best classes are kept

# What a model decided on some images of a set, by the numbers of images and classes: columns of `Decisions`, and `row`
# [N], the images' places in the source.
Columns = dict[str, np.ndarray]


class Piece(NamedTuple):
    """Images of one set that are all shown under the same condition, if it has any."""

    set: int
    number: int  # within the set
    rows: range | np.ndarray  # their places in the source, rising

    def shard(self, start: int, batch_size: int, world: int) -> list[int]:
        """A batch of a process: every so many-th row from `start` on."""
        rows = self.rows[start : start + batch_size * world : world]
        return list(rows) if isinstance(rows, range) else rows.tolist()


def pieces_of(number: int, source: Source) -> Iterator[Piece]:
    """The pieces of the set of this number, in order."""
    parts: Iterator[range | np.ndarray] = iter([range(len(source))])
    if source.condition is not None:
        found = (np.flatnonzero(source.condition == code) for code in range(len(source.conditions)))
        parts = (_as_range(rows.astype(np.int32)) for rows in found if len(rows))
    cut = (rows[at : at + MOST] for rows in parts for at in range(0, max(1, len(rows)), MOST))
    yield from (Piece(number, place, rows) for place, rows in enumerate(cut))


def _as_range(rows: np.ndarray) -> range | np.ndarray:
    """Without an array where there is no gap."""
    first, last = int(rows[0]), int(rows[-1])
    return range(first, last + 1) if last - first + 1 == len(rows) else rows


def has_few(source: Source) -> bool:
    """Whether there is room for the five best classes of every image: they are half of all that is kept."""
    return source.condition is None and len(source) <= FEW


def joined(parts: Sequence[Columns]) -> Columns:
    """All in one, in the order of rows. The parts are emptied on the way: nothing is there twice but a column."""
    if len(parts) < 2:
        return parts[0] if parts else {}
    found = {name: np.concatenate([part.pop(name) for part in parts]) for name in list(parts[0])}
    row = found["row"]
    if (row[1:] < row[:-1]).any():
        order = np.argsort(row)
        for name in found:
            found[name] = found[name][order]
    return found


def decisions_of(entry: EvaluationSet, found: Columns, observer: str) -> Decisions:
    """By the names of images and classes."""
    source, rows = entry.source, found["row"]
    is_whole = len(rows) == len(source)

    def coded(column: np.ndarray | None, names: Sequence[str] = source.classes) -> Coded | None:
        return None if column is None else Coded(column, names)

    def own(column: np.ndarray | None) -> np.ndarray | None:
        return column if column is None or is_whole else column[rows]

    return Decisions(
        observer=observer,
        set=entry.name,
        images=source.names if is_whole else Names(source.ids[row] for row in rows.tolist()),
        label=named(entry, found["label"] if "label" in found else source.y if is_whole else source.y[rows]),
        decision=named(entry, found["decision"]),
        classes=source.classes,
        bias=coded(own(source.bias)),
        group=None if source.group is None else Coded.from_names(own(source.group)),
        condition=coded(own(source.condition), source.conditions),
        confidence=found.get("confidence"),
        loss=found["loss"],
        top=coded(found.get("top")),
        top_score=found.get("top_score"),
        rank=found.get("rank"),
        bias_rank=found.get("bias_rank"),
        targets=source.y[rows] > 0 if entry.task.several else None,
        scores=found.get("scores"),
        label_map=entry.label_map.name,
        cues=CUES if "shape_bias" in entry.measured else SHORTCUT,
        preprocessing=entry.preprocessing,
    )


def named(entry: EvaluationSet, y: np.ndarray) -> Coded:
    """[N] names of labels or decisions in the form of the set's y; of several labels their identifiers, by +."""
    if not entry.task.several:
        return Coded(y, entry.source.classes)
    kinds, number = np.unique(y > 0, axis=0, return_inverse=True)
    return Coded(number.reshape(-1), ("+".join(itertools.compress(entry.labels, kind)) for kind in kinds))


def of_first_labels(entry: EvaluationSet, one: Decisions) -> Decisions:
    """An observer's decisions on the set's images, each with one label, so that they can be compared with another's.

    Where the set has several right labels, a decision is recorded with that which it hit. Here the first of them stands
    for all. A label that is none of them stays, as does what is decided on other images.
    """
    accepted = entry.source.accepted
    if accepted is None:
        return one
    classes = entry.source.classes
    rows = {image_name(name): row for row, name in enumerate(entry.source.ids)}
    number = {name: k for k, name in enumerate(classes)}
    labels, decisions = list(one.label), list(one.decision)
    for at, image in enumerate(one.images):
        row = rows.get(image_name(image))
        right = () if row is None else np.flatnonzero(accepted[row])
        if row is None or number.get(labels[at]) not in right:
            continue
        labels[at] = classes[entry.source.y[row]]
        if number.get(decisions[at]) in right:
            decisions[at] = labels[at]
    return replace(one, label=Coded.from_names(labels), decision=Coded.from_names(decisions))
