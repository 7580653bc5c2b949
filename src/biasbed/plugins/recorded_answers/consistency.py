"""Error consistency: agreement of two observers on the same images (Geirhos et al. 2020)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from biasbed import measures
from biasbed.errors import UsageError
from biasbed.evaluation import report
from biasbed.evaluation.decision_tables import DecisionTable
from biasbed.evaluation.decisions import Decisions
from biasbed.plugins.recorded_answers.observers import find_image_names, sessions_of
from biasbed.system.terminal import aligned


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
    keys = find_image_names(answers)
    pairs = []
    for second in range(len(answers)):
        for first in range(second):
            matches = _match_trials(answers[first], answers[second], keys[first], keys[second])
            if matches.images:
                pairs.append(_count_agreements(answers[first], answers[second], matches))
    return pairs


def _match_trials(a: Decisions, b: Decisions, names_a: Sequence[str], names_b: Sequence[str]) -> _Matches:
    """Return the pairs of trials on the same image.

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


def _count_agreements(a: Decisions, b: Decisions, matches: _Matches) -> ObserverPair:
    """Count the agreements of two observers. Raises UsageError if an image has different labels."""
    different = np.flatnonzero(a.label[matches.a] != b.label[matches.b])
    if len(different):
        first = int(different[0])
        labels = f"{a.label[matches.a[first]]} for {a.observer} and {b.label[matches.b[first]]} for {b.observer}"
        raise UsageError(
            f"{matches.images[first]} is a {labels}: these are decisions on different images or classes, or on a set "
            "where several labels of an image may be right (imagenet_real): score the files one by one"
        )
    right_a, right_b = a.right[matches.a], b.right[matches.b]
    cells = (right_a & right_b, right_a & ~right_b, ~right_a & right_b, ~right_a & ~right_b)
    counts = (int(cell.sum()) for cell in cells)
    return ObserverPair(a.set, a.observer, b.observer, len(set(matches.images)), len(matches.images), *counts)


# --- table ------------------------------------------------------------------------------------------------------------


def make_table(pairs: Sequence[ObserverPair]) -> DecisionTable:
    """Return the table of all pairs, with a row for each in `error_consistency.csv`."""
    rows = [{**vars(pair), "kappa": pair.kappa} for pair in pairs]
    return DecisionTable(columns=list(rows[0]) if rows else (), rows=rows, lines=pair_lines(pairs))


def pair_lines(pairs: Sequence[ObserverPair]) -> list[str]:
    """Return the printed lines: one for each pair if all have the first observer, else a matrix."""
    if not pairs:
        return []
    has_one_model = all(pair.a == pairs[0].a for pair in pairs)
    return _pair_table(pairs) if has_one_model else _kappa_matrix(pairs)


def _pair_table(pairs: Sequence[ObserverPair]) -> list[str]:
    columns = report.count_columns([vars(pair) for pair in pairs])
    table = [["error consistency (kappa)", "", "set", *columns, "both right", "both wrong", "kappa"]]
    for pair in pairs:
        counts = [str(getattr(pair, key)) for key in (*columns, "both_right", "both_wrong")]
        table.append([pair.a, pair.b, pair.set, *counts, report.format_number(pair.kappa)])
    return aligned(table, left=(0, 1, 2))


def _kappa_matrix(pairs: Sequence[ObserverPair]) -> list[str]:
    """Return a table of the kappa of all pairs, below the diagonal; columns have the numbers of the rows."""
    kappa: dict[frozenset[str], str] = {}
    names: dict[str, None] = {}
    for pair in pairs:
        names.update(dict.fromkeys((pair.a, pair.b)))
        kappa[frozenset((pair.a, pair.b))] = report.format_number(pair.kappa)
    table = [["", "error consistency (kappa)", *map(str, range(1, len(names)))]]
    for number, name in enumerate(names):
        cells = [kappa.get(frozenset((name, earlier)), "") for earlier in list(names)[:number]]
        empty = [""] * (len(names) - 1 - number)
        table.append([str(number + 1), name, *cells, *empty])
    return aligned(table, left=(1,))
