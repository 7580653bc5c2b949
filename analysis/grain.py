"""What a selected number rests on, where epochs are chosen by a score of few images: intervals and grain.

For monitors that are the harmonic mean of two accuracies of a validation set, as the AC score of aligned and of
conflicting images is, and runs that say how many images stand behind each (`record.COUNTS_FILE`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd

from biasbed import record
from biasbed.analysis.columns import Column
from biasbed.analysis.runs.image_counts import images_of
from biasbed.analysis.runs.run import Collection
from biasbed.analysis.selection.pools import History
from biasbed.analysis.statistics import two_binomials
from biasbed.analysis.statistics.friedman import DIGITS

IDENTITY = ("rule", "oracle", "algorithm", "cell", "seed", "dataset", "run_id")
VALIDATED = (
    *("step", "aligned_images", "conflicting_images", "score", "low", "high", "image_score", "image_conflicting"),
    *("epochs", "best_step", "best_score", "epochs_within"),
)
TESTED = ("test_aligned_images", "test_conflicting_images", "test_score", "test_low", "test_high")
COLUMNS = (*IDENTITY, *VALIDATED, *TESTED)
FUNCTION = "harmonic_mean"


def table(
    choices: pd.DataFrame,
    histories: Mapping[str, History],
    collection: Collection,
    sets: Sequence[Column],
) -> pd.DataFrame:
    """`COLUMNS`, scores in points: one row for each run and column for which a rule chose one epoch.

    choices: `select.choice_table`. Without rows where nothing is chosen by such a score, or the images' numbers are not
    known; a rule that averages epochs has none.
    """
    columns = {column.name: column for column in sets}
    runs = {run.id: run for run in (*collection.runs, *collection.duplicates)}
    rows = []
    for row in choices[choices["num_steps"] == 1].to_dict("records"):
        column, run = columns.get(row["dataset"]), runs.get(row["run_id"])
        if column is None or run is None:
            continue
        protocol, history = collection.protocol_of(run), histories[run.id]
        chosen = _scores(protocol, protocol.monitor, history)
        if chosen is not None and row["first_step"] in chosen.curve:
            tested = _scores(protocol, _test_score(protocol, column), history)
            step = int(row["first_step"])
            about = {name: row[name] for name in IDENTITY}
            rows.append({**about, **_validated(chosen, step), **_tested(tested, step)})
    return pd.DataFrame(rows, columns=list(COLUMNS)).round(DIGITS)


@dataclass(frozen=True)
class _Scores:
    """One run's score at every step, and how many images are behind it."""

    curve: Mapping[int, float]  # of finite values
    right: Mapping[int, tuple[int, int]]  # of the aligned and the conflicting ones
    images: tuple[int, int]

    def interval(self, step: int) -> tuple[float, float]:
        return two_binomials.interval(self.right[step], self.images)


def _scores(protocol: record.Protocol, metric: str, history: History) -> _Scores | None:
    """None for another score than such a mean, and where numbers of images are not known."""
    how = protocol.derivation(metric)
    if how is None or how.function != FUNCTION or len(how.inputs) != 2:
        return None
    aligned, conflicting = (history.counts.get(images_of(name), 0) for name in how.inputs)
    if not (aligned and conflicting):
        return None
    images, parts = (aligned, conflicting), [history.curve(name) for name in how.inputs]
    curve = {step: value for step, value in history.curve(metric).items() if record.is_finite(value)}
    curve = {step: value for step, value in curve.items() if all(step in part for part in parts)}
    right = {step: (round(parts[0][step] * aligned), round(parts[1][step] * conflicting)) for step in curve}
    return _Scores(curve, right, images)


def _test_score(protocol: record.Protocol, column: Column) -> str:
    """The same score of a column's set, whatever measure is shown of it."""
    monitor = record.parse_metric(protocol.monitor)
    measure = monitor.measure if monitor else ""
    return str(replace(column.metric, measure=measure))


def _validated(of: _Scores, step: int) -> dict[str, Any]:
    """Of the chosen epoch and of the best; `VALIDATED`."""
    low, high = of.interval(step)
    best = max(of.curve, key=of.curve.__getitem__)
    least = of.interval(best)[0]
    found = (
        *(step, *of.images, 100 * of.curve[step], 100 * low, 100 * high),
        *(100 * two_binomials.grain(of.right[step], of.images), 100 / of.images[1]),
        *(len(of.curve), best, 100 * of.curve[best], sum(value >= least for value in of.curve.values())),
    )
    return dict(zip(VALIDATED, found, strict=True))


def _tested(of: _Scores | None, step: int) -> dict[str, Any]:
    """`TESTED`; NaNs where it is not known."""
    if of is None or step not in of.curve:
        return dict.fromkeys(TESTED, math.nan)
    low, high = of.interval(step)
    found = (*of.images, 100 * of.curve[step], 100 * low, 100 * high)
    return dict(zip(TESTED, found, strict=True))
