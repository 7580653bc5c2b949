"""Inputs of an analysis from a user's table of scores, so that it is analysed as tracked runs are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from biasbed import measures, record
from biasbed.analysis.columns import Column
from biasbed.analysis.inputs import AnalysisInputs
from biasbed.analysis.options import AnalyzeOptions
from biasbed.analysis.runs.comparable import columns_of
from biasbed.analysis.runs.run import TABLE, Collection, Run, TrainedOn
from biasbed.analysis.selection.pools import History
from biasbed.analysis.selection.rules import AsScored
from biasbed.analysis.statistics.over_images import ImageAnswers
from biasbed.analysis.tables import vocabulary as say
from biasbed.analysis.tables.user_scores import UserScores
from biasbed.errors import Failure, UsageError, listed
from biasbed.evaluation.decisions import Decisions
from biasbed.settings import nearest

FEWEST_DIGITS, MOST_DIGITS = 1, 3  # after the point, of scores that are shown as printed, and of their means
PERCENT_BESIDE = 10  # a fraction and a percentage of one data set differ at least by this factor
ScoreUnit = Literal["auto", "fraction", "percent", "plain"]


@dataclass(frozen=True)
class Scale:
    """Unit of the scores on one data set, and the factor from a score in the table to the stored one."""

    unit: str
    factor: float = 1.0


class UserDecisions:
    """Reader of a user's decisions on single items; see `predictions.DecisionReader`."""

    def __init__(self, answers: Mapping[tuple[str, str, str], ImageAnswers]) -> None:
        self._answers = answers

    @property
    def is_empty(self) -> bool:
        return not self._answers

    def answers(self, run: Run, dataset: str, step: int | None) -> ImageAnswers:
        try:
            return self._answers[run.algorithm, dataset, run.seed]
        except KeyError:
            raise Failure("no decisions are there") from None

    def decisions(self, run: Run, dataset: str, step: int | None) -> Decisions:
        raise Failure("the file has which answers are right, not the decisions")

    def table(self, run: Run, name: str) -> list[dict[str, str]]:
        return []


def gather_scores(
    scores: UserScores, options: AnalyzeOptions, lower: Sequence[str] | None = None, unit: ScoreUnit = "auto"
) -> AnalysisInputs:
    """Return the inputs of an analysis of a user's table: a run for each method and seed, a set for each data set.

    lower: data sets on which lower is better; None if that follows from their names. unit: of the scores; `auto` if it
    follows from their size. Raises UsageError if `lower` names a data set that the table lacks.
    """
    lower_sets, lower_note = _find_lower(scores, lower)
    scales, unit_note = _find_scales(scores, lower_sets, unit)
    protocol = record.Protocol(
        suite=scores.source,
        sets=tuple(_set_record(scores, name, scales[name], name not in lower_sets) for name in scores.datasets),
        training_sets=(),
        validation_sets=(),
        monitor="",
        selection_rules=(),
        default_selection="",
    )
    cells = (TrainedOn("", protocol),)
    columns = tuple(_show_as_printed(column, scores) for column in columns_of(cells))
    metrics = {column.name: str(column.metric) for column in columns}
    runs, histories = _make_runs(scores, protocol, metrics, scales)
    collection = Collection(
        scope=runs[0].scope,
        cells=cells,
        protocols={protocol.hash: protocol},
        runs=tuple(runs),
        notes=tuple(filter(None, (*scores.notes, lower_note, unit_note))),
    )
    return AnalysisInputs(
        collection=collection,
        sets=columns,
        rule=AsScored(),
        rules={},
        histories=histories,
        studies=(),
        decisions=UserDecisions(scores.answers),
        origin="",
        user_scores=scores,
    )


def _make_runs(
    scores: UserScores, protocol: record.Protocol, metrics: Mapping[str, str], scales: Mapping[str, Scale]
) -> tuple[list[Run], dict[str, History]]:
    """Return a run for each method and seed, and run id -> history. metrics: data set -> metric of its scores."""
    rows_of_runs: dict[tuple[str, str], list[tuple[str, int, float]]] = {}  # rows of `History`
    means: set[tuple[str, str]] = set()  # with printed deviations
    for method, dataset, seed, score in scores.table.itertuples(index=False, name=None):
        rows = rows_of_runs.setdefault((method, seed), [])
        rows.append((metrics[dataset], 0, score * scales[dataset].factor))
        spread = scores.spreads.get((method, dataset)) if not seed else None
        if spread is not None:
            means.add((method, seed))
            deviation = record.MetricName("test", "std_over_runs", dataset)
            rows.append((str(deviation), 0, spread.deviation * scales[dataset].factor))
            if spread.num_runs:
                rows.append((str(record.MetricName("test", "num_runs", dataset)), 0, spread.num_runs))
    runs, histories = [], {}
    for (method, seed), rows in rows_of_runs.items():
        run_id = f"{method}#{seed or 1}"  # no name of a method or data set
        run = Run(
            id=run_id,
            name=run_id,
            experiment="",
            status="FINISHED",
            started=0,
            ended=0,
            kind=TABLE,
            suite=scores.source,
            study=scores.source,
            protocol=protocol.hash,
            algorithm=method,
            method=method,
            seed=seed,
            summary={"spread": "standard_deviation"} if (method, seed) in means else {},
        )
        runs.append(run)
        histories[run_id] = History(run_id, rows, is_settled=True)
    return runs, histories


def _set_record(scores: UserScores, name: str, scale: Scale, higher_is_better: bool) -> record.SetRecord:
    """Return the record of one data set. Its headline is the accuracy if there are decisions on its items."""
    items = [len(answers.right) for (_, dataset, _), answers in scores.answers.items() if dataset == name]
    measure = "accuracy" if items else record.slug(scores.measure)
    return record.SetRecord(
        name=name,
        headline=measure,
        images=max(items, default=0),
        classes=0,
        chance=0.0,
        measures=measures.SUMMARY if scores.spreads else (),
        higher_is_better=higher_is_better,
        unit=scale.unit,
        block=scores.blocks.get(name, ""),
    )


def _show_as_printed(column: Column, scores: UserScores) -> Column:
    """Return the column with the digits of the table's numbers if its scores are neither fractions nor percentages."""
    if column.unit == measures.FRACTION:
        return column
    values = scores.table.loc[scores.table["dataset"] == column.name, "score"]
    digits = max(len(np.format_float_positional(value, trim="-").partition(".")[2]) for value in values)
    return replace(column, printed_digits=min(max(digits, FEWEST_DIGITS), MOST_DIGITS))


# --- direction and unit -----------------------------------------------------------------------------------------------


def _find_lower(scores: UserScores, lower: Sequence[str] | None) -> tuple[frozenset[str], str]:
    """Return the data sets on which lower is better, and a note if that follows from names alone.

    lower: named by the user. Raises UsageError for a data set that the table lacks.
    """
    if lower is not None:
        lower = scores.named(lower)
        for name in lower:
            if name not in scores.datasets:
                raise UsageError(f"lower={name}: there is no such data set{nearest(name, scores.datasets)}")
        return frozenset(lower), ""
    if say.direction(scores.measure) == "no":
        note = f"lower is better, as the scores are called '{scores.measure}' (`higher_is_better` as yes turns it)"
        return frozenset(scores.datasets), note
    named = [name for name in scores.datasets if say.direction(name) == "no"]
    note = f"lower is better on {', '.join(named)}, by the name (`lower` as none turns it)" if named else ""
    return frozenset(named), note


def _find_mixture(scores: UserScores, lower: frozenset[str]) -> str:
    """Return a note on scores that look like fractions although the table is read as percentages; empty without any."""
    suspects = []
    for dataset, group in scores.table.groupby("dataset", sort=False)["score"]:
        values = group.to_numpy()
        small = values[(values > 0) & (values <= 1)]
        is_mixed = len(small) and (values.max() <= 1 or values.max() > PERCENT_BESIDE * small.max())
        if dataset not in lower and is_mixed:
            suspects.append(f"{small[0]:g} on {dataset}")
    if not suspects:
        return ""
    return f"some look like fractions ({listed(suspects, 5)}): write all scores alike if they are"


def _find_scales(scores: UserScores, lower: frozenset[str], unit: ScoreUnit) -> tuple[dict[str, Scale], str]:
    """Return the scale of each data set, and a note on what was guessed.

    If the user names no unit, data sets on which lower is better keep their own.
    """
    kind, notes = (unit, []) if unit != "auto" else _guess_unit(scores, lower)
    # The name of the measure serves as unit if all data sets have the same one, which a guess does not tell.
    has_same_unit = unit != "auto" or len(lower) == len(scores.datasets)
    plain = Scale(scores.measure if has_same_unit and scores.measure != "score" else measures.PLAIN)
    by_kind = {"fraction": Scale(measures.FRACTION), "percent": Scale(measures.FRACTION, 0.01), "plain": plain}
    kept = lower if unit == "auto" else frozenset[str]()
    if kept and kind != "plain":
        names = listed(sorted(kept), 3)
        notes.append(f"those on {names} are left as they are, as lower is better (`unit` says otherwise)")
    scales = {name: plain if name in kept else by_kind[kind] for name in scores.datasets}
    return scales, "; ".join(notes)


def _guess_unit(scores: UserScores, lower: frozenset[str]) -> tuple[str, list[str]]:
    """Return the unit of the scores of which more is better, and notes on that guess.

    `fraction` if all lie within 0 and 1, `percent` if all lie within 0 and 100, else `plain`.
    """
    if scores.answers:
        return "fraction", []
    higher = scores.table.loc[~scores.table["dataset"].isin(lower), "score"]
    if not len(higher) or higher.min() < 0 or higher.max() > 100:
        return "plain", []
    if higher.max() <= 1:
        note = "scores from 0 to 1 are taken for fractions and shown in percent (`unit` as plain leaves them)"
        return "fraction", [note]
    notes = ["scores are read as percentages (unit=plain: as they are)", _find_mixture(scores, lower)]
    return "percent", list(filter(None, notes))
