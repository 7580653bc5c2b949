"""Error consistency: do two observers err on the same images? (Geirhos et al. 2020)"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from biasbed import measures
from biasbed.datasets.classes import image_name
from biasbed.errors import UsageError
from biasbed.evaluation.decisions import Decisions, image_keys, sessions_of


@dataclass(frozen=True)
class ObserverPair:
    """How two observers agree on being right, over the images that both have seen."""

    set: str
    a: str
    b: str
    images: int
    trials: int  # that were compared: more than images where an observer saw one in several sessions
    both_right: int
    only_a: int
    only_b: int
    both_wrong: int

    @property
    def kappa(self) -> float:
        return measures.error_consistency(self.both_right, self.only_a, self.only_b, self.both_wrong)


def consistency(answers: Sequence[Decisions]) -> list[ObserverPair]:
    """All pairs of observers that have seen images in common, told by their names.

    Of observers who have both seen images in several sessions the answers of each session are compared; the one answer
    of an observer that has seen an image once, as a model does, with all of the other's.

    Raises UsageError where an observer has answered one image several times in a session, or two observers' images of
    one name have different labels.
    """
    keys = image_keys(answers)
    pairs = []
    for second in range(len(answers)):
        for first in range(second):
            rows, common = _in_common(answers[first], answers[second], keys[first], keys[second])
            if common:
                pairs.append(_pair(answers[first], answers[second], rows, common))
    return pairs


def _in_common(
    a: Decisions, b: Decisions, of_a: Sequence[str], of_b: Sequence[str]
) -> tuple[tuple[np.ndarray, np.ndarray], list[str]]:
    """(the trials of a and of b that are compared, one by one; the name of each one's image)."""
    both_repeat = all(len(set(of)) < len(of) for of in (of_a, of_b))
    place_a, place_b = (
        [(session, key) for session, key in zip(sessions_of(one) if both_repeat else [""] * len(of), of, strict=True)]
        for one, of in ((a, of_a), (b, of_b))
    )
    at: dict[tuple[str, str], list[int]] = {}
    for row, place in enumerate(place_b):
        at.setdefault(place, []).append(row)
    found = [(row, other) for row, place in enumerate(place_a) for other in at.get(place, ())]
    rows = np.array(found, dtype=np.int64).reshape(-1, 2).T
    return (rows[0], rows[1]), [of_a[row] for row, _ in found]


def _pair(a: Decisions, b: Decisions, rows: tuple[np.ndarray, np.ndarray], common: Sequence[str]) -> ObserverPair:
    different = np.flatnonzero(a.label[rows[0]] != b.label[rows[1]])
    if len(different):
        at = int(different[0])
        labels = f"{a.label[rows[0][at]]} for {a.observer} and {b.label[rows[1][at]]} for {b.observer}"
        raise UsageError(
            f"{common[at]} is a {labels}: these are decisions on different images or classes, or on a set where "
            "several labels of an image may be right (imagenet_real): test one of the models again with compare=<the "
            "other's file>"
        )
    right_a, right_b = a.right[rows[0]], b.right[rows[1]]
    cells = (right_a & right_b, right_a & ~right_b, ~right_a & right_b, ~right_a & ~right_b)
    counts = (int(cell.sum()) for cell in cells)
    return ObserverPair(a.set, a.observer, b.observer, len(set(common)), len(common), *counts)


def matching_set(observer: Decisions, sets: Mapping[str, Sequence[str]]) -> str:
    """Which of the sets, given with the ids of their images, an observer has decided on.

    That is the one of its name, else the only one with images of the same names; UsageError where there is none such.
    """
    own = {image_name(image) for image in observer.images}
    found = [name for name, ids in sets.items() if any(image_name(image) in own for image in ids)]
    if observer.set in found:
        return observer.set
    if len(found) != 1:
        what = f"the images of several sets ({', '.join(found)})" if found else "no image of any set"
        raise UsageError(f"compare: the names in the decisions of {observer.observer} are of {what}: choose with sets=")
    return found[0]
