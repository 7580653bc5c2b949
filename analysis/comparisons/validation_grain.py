"""Precision of a choice of epochs by a score of few images: intervals, and what one image is worth.

For monitors that are the harmonic mean of two accuracies of a validation set, as the AC score of aligned and of
conflicting images is, and runs that record the number of images behind each (`record.COUNTS_FILE`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd

from biasbed import record
from biasbed.analysis.columns import Column, by_name
from biasbed.analysis.runs.run import Collection
from biasbed.analysis.runs.store import images_of
from biasbed.analysis.selection.pools import History
from biasbed.analysis.statistics import over_images
from biasbed.analysis.statistics.friedman import DIGITS

IDENTITY = ("rule", "oracle", "algorithm", "cell", "seed", "dataset", "run_id")
VALIDATED = (
    *("step", "aligned_images", "conflicting_images", "score", "low", "high", "image_score", "image_conflicting"),
    *("epochs", "best_step", "best_score", "epochs_within"),
)
TESTED = ("test_aligned_images", "test_conflicting_images", "test_score", "test_low", "test_high")
COLUMNS = (*IDENTITY, *VALIDATED, *TESTED)
FUNCTION = "harmonic_mean"


def grain_table(
    choices: pd.DataFrame, histories: Mapping[str, History], collection: Collection, sets: Sequence[Column]
) -> pd.DataFrame:
    """Return `COLUMNS`, scores in points: one row for each run and column for which a rule chose one epoch.

    choices: `select.choice_table`. Rules that average epochs have no rows, nor have other scores, nor runs without
    numbers of images.
    """
    columns = by_name(sets)
    runs = {}
    for run in (*collection.runs, *collection.duplicates):
        protocol = collection.protocol_of(run)
        validated = _read_scores(protocol, protocol.monitor, histories[run.id])
        if validated is not None:
            runs[run.id] = (protocol, validated)
    rows = []
    chosen = choices.loc[(choices["num_steps"] == 1) & choices["run_id"].isin(list(runs)), [*IDENTITY, "first_step"]]
    for values in chosen.to_numpy(dtype=object).tolist():
        choice = dict(zip(chosen, values, strict=True))
        column, (protocol, validated) = columns.get(choice["dataset"]), runs[choice["run_id"]]
        if column is not None and choice["first_step"] in validated.curve:
            monitor = record.parse_metric(protocol.monitor)
            # The same score on the column's set, whatever measure is shown of it.
            score = replace(column.metric, measure=monitor.measure if monitor else "")
            tested = _read_scores(protocol, str(score), histories[choice["run_id"]])
            step = int(choice["first_step"])
            identity = {name: choice[name] for name in IDENTITY}
            rows.append({**identity, **_describe_choice(validated, step), **_describe_test(tested, step)})
    return pd.DataFrame(rows, columns=list(COLUMNS)).round(DIGITS)


@dataclass(frozen=True)
class GroupScores:
    """One run's score at every step, and how many images are behind it."""

    curve: Mapping[int, float]  # finite values only
    right: Mapping[int, tuple[int, int]]  # number of aligned and of conflicting images decided right
    images: tuple[int, int]

    def interval(self, step: int) -> tuple[float, float]:
        """Return the interval that the numbers of images leave open."""
        return over_images.score_interval(self.right[step], self.images)


def _read_scores(protocol: record.Protocol, metric: str, history: History) -> GroupScores | None:
    """Return the scores; None for another score than such a mean, and if the numbers of images are not known."""
    derivation = protocol.derivation(metric)
    if derivation is None or derivation.function != FUNCTION or len(derivation.inputs) != 2:
        return None
    aligned, conflicting = (history.counts.get(images_of(name), 0) for name in derivation.inputs)
    if not (aligned and conflicting):
        return None
    parts = [history.curve(name) for name in derivation.inputs]
    curve, right = {}, {}
    for step, value in history.curve(metric).items():
        if record.is_finite(value) and all(step in part for part in parts):
            curve[step] = value
            right[step] = (round(parts[0][step] * aligned), round(parts[1][step] * conflicting))
    return GroupScores(curve, right, (aligned, conflicting))


def _describe_choice(scores: GroupScores, step: int) -> dict[str, Any]:
    """Return `VALIDATED`: the chosen epoch beside the best one."""
    low, high = scores.interval(step)
    best = max(scores.curve, key=scores.curve.__getitem__)
    best_low = scores.interval(best)[0]
    values = (
        *(step, *scores.images, 100 * scores.curve[step], 100 * low, 100 * high),
        *(100 * over_images.grain(scores.right[step], scores.images), 100 / scores.images[1]),
        *(len(scores.curve), best, 100 * scores.curve[best], sum(value >= best_low for value in scores.curve.values())),
    )
    return dict(zip(VALIDATED, values, strict=True))


def _describe_test(scores: GroupScores | None, step: int) -> dict[str, Any]:
    """Return `TESTED`; NaNs if the score is not known."""
    if scores is None or step not in scores.curve:
        return dict.fromkeys(TESTED, math.nan)
    low, high = scores.interval(step)
    values = (*scores.images, 100 * scores.curve[step], 100 * low, 100 * high)
    return dict(zip(TESTED, values, strict=True))
