"""Error consistency: agreement of two observers on the same images (Geirhos et al. 2020)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from biasbed import measures
from biasbed.datasets.classes import image_name
from biasbed.errors import UsageError
from biasbed.evaluation.decisions import Decisions, image_keys, sessions_of


@dataclass(frozen=True)
class ObserverPair:
    """Agreement of two observers on being right, over the images that both have seen."""

    set: str
    a: str
    b: str
    images: int
    trials: int  # that were compared: more than images if an observer saw one in several sessions
    both_right: int
    only_a: int
    only_b: int
    both_wrong: int

    @property
    def kappa(self) -> float:
        return measures.error_consistency(self.both_right, self.only_a, self.only_b, self.both_wrong)


class _Matches(NamedTuple):
    """Trials of two observers that are compared one by one."""

    a: np.ndarray  # [M] rows of the first observer
    b: np.ndarray  # [M] rows of the second one
    images: list[str]  # name of each trial's image


def consistency(answers: Sequence[Decisions]) -> list[ObserverPair]:
    """Compare all pairs of observers that have seen images in common, by the images' names.

    If both observers have seen images in several sessions, the answers of each session are compared. The only answer of
    an observer that has seen an image once, as a model does, is compared with all answers of the other one.

    Raises UsageError if an observer has answered one image several times in a session, or if two observers' images of
    one name have different labels.
    """
    keys = image_keys(answers)
    pairs = []
    for second in range(len(answers)):
        for first in range(second):
            matches = _match(answers[first], answers[second], keys[first], keys[second])
            if matches.images:
                pairs.append(_compare(answers[first], answers[second], matches))
    return pairs


def _match(a: Decisions, b: Decisions, names_a: Sequence[str], names_b: Sequence[str]) -> _Matches:
    """Pair the trials on the same image.

    If both observers saw images repeatedly, only trials of the same session are paired; if one did, each of its trials
    is paired with the other's single one.
    """
    both_repeat = len(set(names_a)) < len(names_a) and len(set(names_b)) < len(names_b)
    sessions_a, sessions_b = sessions_of(a), sessions_of(b)
    if not both_repeat:
        sessions_a, sessions_b = [""] * len(names_a), [""] * len(names_b)
    rows_by_key: dict[tuple[str, str], list[int]] = {}
    for row, key in enumerate(zip(sessions_b, names_b, strict=True)):
        rows_by_key.setdefault(key, []).append(row)
    rows_a, rows_b, images = [], [], []
    for row_a, key in enumerate(zip(sessions_a, names_a, strict=True)):
        for row_b in rows_by_key.get(key, ()):
            rows_a.append(row_a)
            rows_b.append(row_b)
            images.append(names_a[row_a])
    return _Matches(np.array(rows_a, dtype=np.int64), np.array(rows_b, dtype=np.int64), images)


def _compare(a: Decisions, b: Decisions, matches: _Matches) -> ObserverPair:
    different = np.flatnonzero(a.label[matches.a] != b.label[matches.b])
    if len(different):
        first = int(different[0])
        labels = f"{a.label[matches.a[first]]} for {a.observer} and {b.label[matches.b[first]]} for {b.observer}"
        raise UsageError(
            f"{matches.images[first]} is a {labels}: these are decisions on different images or classes, or on a set "
            "where several labels of an image may be right (imagenet_real): test one of the models again with "
            "compare=<the other's file>"
        )
    right_a, right_b = a.right[matches.a], b.right[matches.b]
    cells = (right_a & right_b, right_a & ~right_b, ~right_a & right_b, ~right_a & ~right_b)
    counts = (int(cell.sum()) for cell in cells)
    return ObserverPair(a.set, a.observer, b.observer, len(set(matches.images)), len(matches.images), *counts)


def matching_set(observer: Decisions, sets: Mapping[str, Sequence[str]]) -> str:
    """Return the set that an observer has decided on. sets: the ids of each set's images.

    Prefers the set of the observer's own name. Else exactly one set must have images of the same names; raises
    UsageError if none or several do.
    """
    decided = {image_name(image) for image in observer.images}
    names = []
    for name, ids in sets.items():
        if any(image_name(image) in decided for image in ids):
            names.append(name)
    if observer.set in names:
        return observer.set
    if len(names) != 1:
        images = f"the images of several sets ({', '.join(names)})" if names else "no image of any set"
        raise UsageError(
            f"compare: the names in the decisions of {observer.observer} are of {images}: choose with sets="
        )
    return names[0]
