"""Precision of a choice of epochs by a score of few images: intervals, and what one image is worth.

For monitors that are the harmonic mean of two accuracies of a validation set, as the AC score of aligned and of
conflicting images is, and runs that record the number of images behind each (`record.COUNTS_FILE`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd

from biasbed import record
from biasbed.analysis.columns import Column, by_name
from biasbed.analysis.report.table_model import (
    Links,
    ReportTable,
    TableCell,
    TableColumn,
    TableRecord,
    interval,
    make_table,
    named,
    number,
)
from biasbed.analysis.result import SCORE_DIGITS, Analysis
from biasbed.analysis.runs.run import Collection
from biasbed.analysis.runs.store import images_of
from biasbed.analysis.sections.section import CsvFile, Section, ShownPart
from biasbed.analysis.selection.pools import History
from biasbed.analysis.statistics import over_images
from biasbed.analysis.statistics.friedman import DIGITS

FILE = "grain.csv"
# Medians over runs, as the page shows them.
SHOWN = (
    *("conflicting_images", "image_conflicting", "image_score", "score", "low", "high", "epochs", "epochs_within"),
    *("test_score", "test_low", "test_high"),
)
IDENTITY = ("rule", "oracle", "algorithm", "cell", "seed", "dataset", "run_id")
VALIDATED = (
    *("step", "aligned_images", "conflicting_images", "score", "low", "high", "image_score", "image_conflicting"),
    *("epochs", "best_step", "best_score", "epochs_within"),
)
TESTED = ("test_aligned_images", "test_conflicting_images", "test_score", "test_low", "test_high")
COLUMNS = (*IDENTITY, *VALIDATED, *TESTED)
FUNCTION = "harmonic_mean"


class ValidationGrain(Section[pd.DataFrame]):
    """Precision of the chosen epoch's score, given validation's few images; the data are `COLUMNS`."""

    name = "grain"
    title = "What the chosen epoch rests on"

    def compute(self, analysis: Analysis) -> pd.DataFrame:
        return grain_table(analysis.choices, analysis.inputs.histories, analysis.collection, analysis.columns)

    def files(self, data: pd.DataFrame, analysis: Analysis) -> Iterator[CsvFile]:
        description = (
            "precision of every selected epoch's score, given the number of images, and how many epochs are as good"
        )
        yield CsvFile(FILE, data.round(SCORE_DIGITS), description)

    def show(self, data: pd.DataFrame, analysis: Analysis, links: Links) -> Iterator[ShownPart]:
        of_rule = data[data["rule"] == analysis.rule.name]
        if len(of_rule):
            yield make_medians_table(of_rule, analysis)


VALIDATION_GRAIN = ValidationGrain()

# --- what is computed -------------------------------------------------------------------------------------------------


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


# --- how it is shown --------------------------------------------------------------------------------------------------


def make_medians_table(frame: pd.DataFrame, analysis: Analysis) -> ReportTable:
    """Return the medians over runs by column. frame: `COLUMNS` of one rule."""
    records = []
    for name in analysis.set_names:
        of_set = frame[frame["dataset"] == name]
        if len(of_set):
            medians = of_set[[column for column in of_set if column in SHOWN]].median()
            records.append({"dataset": name, **medians.astype(float).to_dict()})
    columns = [
        TableColumn("set", named("dataset", analysis.label)),
        TableColumn("conflicting images", _conflicting_images),
        TableColumn("points of one", number("image_conflicting")),
        TableColumn("AC points", number("image_score")),
        TableColumn("AC, validation", interval("score", "low", "high")),
        TableColumn("AC, test", interval("test_score", "test_low", "test_high")),
        TableColumn("epochs within", _epochs_within),
    ]
    caption = (
        f"Precision of the epoch that {analysis.rule.name} chose: the number of conflicting validation images; the "
        "worth of one of them in points of their accuracy and of the AC score; the AC score of this epoch, below it "
        "the 95 % interval that so few images leave open (from both accuracies, by Jeffreys); the number of epochs "
        "whose scores lie within the interval of the best one. If there are many, validation does not distinguish "
        "them, and the choice is largely chance. Medians over all runs."
    )
    return make_table(caption, columns, records, FILE, oracle=analysis.rule.oracle)


def _conflicting_images(medians: TableRecord) -> TableCell:
    return TableCell(f"{medians['conflicting_images']:.0f}", value=medians["conflicting_images"])


def _epochs_within(medians: TableRecord) -> TableCell:
    return TableCell(f"{medians['epochs_within']:g} of {medians['epochs']:g}", value=medians["epochs_within"])
