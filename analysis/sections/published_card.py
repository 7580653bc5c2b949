"""Reproduction card (`compare=published`): a verdict on each row and set that both the user and a paper have.

A difference is judged by the variance of runs: by the published spread if there is one, else by the user's own. If
neither is known, only a model that was not trained here is judged, by the rounding of the printed number.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from biasbed import measures
from biasbed.analysis.columns import Column, summary_metrics
from biasbed.analysis.report.table_model import (
    Links,
    ReportTable,
    TableCell,
    TableColumn,
    TableRecord,
    make_table,
    named,
    number,
    p_value,
    text,
)
from biasbed.analysis.result import Analysis
from biasbed.analysis.runs.run import Run
from biasbed.analysis.sections.section import CsvFile, Section, ShownPart
from biasbed.analysis.selection.pools import History
from biasbed.analysis.selection.published import PublishedStudy, published_under
from biasbed.analysis.statistics import exact
from biasbed.errors import Failure

FILE = "reproduction.csv"
AGREES, DOUBTFUL, DIFFERS, NOT_JUDGED = "agrees", "doubtful", "differs", "not judged"
THEIR_SPREAD, OWN_SPREAD, ROUNDING = "published spread", "own spread", "rounding"
WAYS = {
    THEIR_SPREAD: "the published runs' spread",
    OWN_SPREAD: "the spread of one's own runs, as theirs is not told",
    ROUNDING: "the printed digits",
}
DIGITS = 9  # differences are rounded to these digits, so that equal numbers have none
CARD_COLUMNS = (
    *("study", "algorithm", "dataset", "mean", "std", "num_runs"),
    *("published_mean", "published_std", "published_num_runs", "published_rounding"),
    *("difference", "difference_in_std", "p", "p_holm", "judged_by", "verdict"),
)


class PublishedCard(Section[pd.DataFrame | None]):
    """Our numbers beside published ones; the data are `CARD_COLUMNS`, None unless they are asked for."""

    name = "card"
    title = "Published numbers"

    def compute(self, analysis: Analysis) -> pd.DataFrame | None:
        inputs, options = analysis.inputs, analysis.options
        if options.compare == "none":
            return None
        ours = inputs.collection.unpublished
        trained = {run.algorithm for run in ours if run.kind != "evaluate"}
        only_tested = {run.algorithm for run in ours} - trained
        our_rows = analysis.runs[analysis.runs["run_id"].isin([run.id for run in ours])]
        return card_table(inputs.studies, inputs.rule.name, our_rows, inputs.histories, options.alpha, only_tested)

    def files(self, data: pd.DataFrame | None, analysis: Analysis) -> Iterator[CsvFile]:
        if data is not None:
            yield CsvFile(FILE, data, "your numbers beside the published ones")

    def show(self, data: pd.DataFrame | None, analysis: Analysis, links: Links) -> Iterator[ShownPart]:
        if data is not None:
            yield make_card_table(data, analysis, links)

    def on_terminal(self, analysis: Analysis, links: Links) -> Sequence[ShownPart]:
        return self.parts(analysis, links)


PUBLISHED_CARD = PublishedCard()

# --- what is computed -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Side:
    """Number of one side, in the unit that is shown."""

    mean: float
    std: float  # between runs (n - 1); NaN if unknown
    num_runs: int
    rounding: float = math.nan  # half a unit of the last printed digit; NaN if unknown

    @property
    def has_spread(self) -> bool:
        return self.num_runs > 1 and self.std > 0


@dataclass(frozen=True)
class Judgement:
    """Judgement of one difference, before the correction for the number of cells."""

    judged_by: str = ""
    p: float = math.nan
    verdict: str = NOT_JUDGED  # counts if there is no p


def card_table(
    studies: Sequence[PublishedStudy],
    rule: str,
    run_table: pd.DataFrame,
    histories: Mapping[str, History],
    alpha: float,
    only_tested: Collection[str] = (),
) -> pd.DataFrame:
    """Return `CARD_COLUMNS`: the user's numbers beside the published ones, one row per row and set that both have.

    difference: user - published; difference_in_std: in standard deviations of the published runs; p: see `judge`;
    p_holm: with Holm's correction over the cells of a study that have a p.

    run_table: the user's runs (`scores.run_table`). histories: of the published runs (`PublishedStudy.translated`).
    only_tested: the user's rows without a training, whose numbers can't vary. Raises Failure if no study has any of the
    user's algorithms.
    """
    frames = []
    for study in studies:
        rows = []
        columns = {column.name: column for column in study.columns}
        for (algorithm, dataset), scores in run_table.groupby(["algorithm", "dataset"], sort=False)["score"]:
            same = [run for run in published_under(study.by_rule, rule) if run.algorithm == algorithm]
            theirs = published_side(columns[dataset], same, histories) if dataset in columns else None
            if theirs is None:
                continue
            ours = Side(float(scores.astype(float).mean()), float(scores.astype(float).std()), len(scores))
            where = {"study": study.name, "algorithm": algorithm, "dataset": dataset}
            rows.append(where | _compare_sides(ours, theirs, algorithm in only_tested))
        if rows:
            frames.append(with_verdicts(pd.DataFrame(rows).reindex(columns=list(CARD_COLUMNS)), alpha))
    if not frames:
        published = itertools.chain.from_iterable(published_under(study.by_rule, rule) for study in studies)
        theirs_there = ", ".join(sorted({run.algorithm for run in published}))
        mine = ", ".join(sorted(run_table["algorithm"].unique()))
        raise Failure(
            f"compare=published: you have {mine}, and published are {theirs_there}: no algorithm is among both"
        )
    return pd.concat(frames, ignore_index=True)


def _compare_sides(ours: Side, theirs: Side, is_only_tested: bool) -> dict[str, Any]:
    """Return the fields of `CARD_COLUMNS` on one cell, without `p_holm`, which takes all cells."""
    judgement = judge(ours, theirs, is_only_tested)
    difference = round(ours.mean - theirs.mean, DIGITS) + 0.0  # no -0.0
    return {
        "mean": ours.mean,
        "std": ours.std,
        "num_runs": ours.num_runs,
        "published_mean": theirs.mean,
        "published_std": theirs.std,
        "published_num_runs": theirs.num_runs,
        "published_rounding": theirs.rounding,
        "difference": difference,
        "difference_in_std": difference / theirs.std if theirs.has_spread else math.nan,
        "p": judgement.p,
        "judged_by": judgement.judged_by,
        "verdict": judgement.verdict,
    }


def published_side(column: Column, runs: Sequence[Run], histories: Mapping[str, History]) -> Side | None:
    """Return a paper's number on a column, computed from its runs or as printed; None if there is none."""
    curves = [histories[run.id].on(column.cell) for run in runs]
    values = pd.Series([_last_value(history, column.headline, column) for history in curves]).dropna() * column.scale
    if values.empty:
        return None
    mean, std = float(values.mean()), round(float(values.std()), DIGITS)
    if len(values) > 1 or not runs[0].summary:
        return Side(mean, std, len(values))
    spread, number, rounding = (_last_value(curves[0], measure, column) for measure in measures.SUMMARY)
    return Side(mean, spread * column.scale, round(number), rounding * column.scale)


def _last_value(history: History, measure: str, column: Column) -> float:
    """Return the last value of a measure of the column's set; NaN without any."""
    curves = [history.curve(name) for name in summary_metrics(column, measure)]
    return [math.nan, *next(filter(None, curves), curves[0]).values()][-1]


def judge(ours: Side, theirs: Side, is_tested: bool) -> Judgement:
    """Judge a difference by the spread of runs if one of the sides has any, else by rounding.

    p: probability that the mean of m further runs like the n reference runs lies at least as far away (t with n - 1
    degrees of freedom on difference / (std sqrt(1/m + 1/n)): the prediction interval for a future mean, Hahn and Meeker
    1991, chapter 4). The published runs are the reference. If their spread is unknown, the user's runs are, and the
    difference is reduced by the published number's rounding. Without any spread only a model that was only tested is
    judged, as its decisions never vary.
    """
    from scipy import stats

    distance = abs(ours.mean - theirs.mean)
    slack = 0.0 if math.isnan(theirs.rounding) else theirs.rounding
    for reference, further, judged_by in ((theirs, ours, THEIR_SPREAD), (ours, theirs, OWN_SPREAD)):
        if reference.has_spread:
            rest = distance if reference is theirs else max(0.0, distance - slack)
            t = round(rest, DIGITS) / (reference.std * math.sqrt(1 / reference.num_runs + 1 / further.num_runs))
            return Judgement(judged_by, float(2 * stats.t.sf(t, reference.num_runs - 1)))
    if is_tested and not math.isnan(theirs.rounding):
        return Judgement(ROUNDING, verdict=AGREES if round(distance - slack, DIGITS) <= 0 else DIFFERS)
    return Judgement()


def with_verdicts(frame: pd.DataFrame, alpha: float) -> pd.DataFrame:
    """Return the card with p_holm, corrected over all cells that have a p, and with their verdicts."""
    judged = frame["p"].notna()
    frame["p_holm"] = exact.holm(frame["p"].to_numpy(dtype="float64"))
    frame.loc[judged, "verdict"] = AGREES
    frame.loc[judged & (frame["p"] < alpha), "verdict"] = DOUBTFUL
    frame.loc[judged & (frame["p_holm"] < alpha), "verdict"] = DIFFERS
    return frame.astype({"num_runs": "int64", "published_num_runs": "int64"})


# --- how it is shown --------------------------------------------------------------------------------------------------


def make_card_table(frame: pd.DataFrame, analysis: Analysis, links: Links) -> ReportTable:
    """Return our numbers beside the published ones. frame: `CARD_COLUMNS`."""
    make_number = number("mean", spread="std")

    def make_ours(record: TableRecord) -> TableCell:
        return make_number(record)._replace(href=links.to_algorithm(record["algorithm"]))

    columns = [
        TableColumn("algorithm", links.algorithm()),
        TableColumn("set", named("dataset", analysis.label)),
        TableColumn("ours", make_ours),
        TableColumn("published", number("published_mean", spread="published_std")),
        TableColumn("difference", number("difference")),
        TableColumn("in published std", number("difference_in_std")),
        TableColumn("p", p_value("p_holm", analysis.alpha)),
        TableColumn("judged by", text("judged_by")),
        TableColumn("verdict", text("verdict")),
    ]
    caption = f"Reproduction of published numbers, in {analysis.units}. {card_sentence(frame, analysis.alpha)}"
    return make_table(caption, columns, frame.to_dict("records"), FILE, oracle=analysis.rule.oracle)


def card_sentence(frame: pd.DataFrame, alpha: float) -> str:
    """Return the sentence with the numbers of cells that agree, and of those that would differ by chance."""
    counts = frame["verdict"].value_counts()
    tested = int(frame["p"].notna().sum())
    parts = [f"{int(counts.get(verdict, 0))} {verdict}" for verdict in (AGREES, DOUBTFUL, DIFFERS, NOT_JUDGED)]
    sentence = f"{len(frame)} cells: {', '.join(parts)}."
    by_way = frame["judged_by"].value_counts()
    ways = [f"{int(by_way[name])} by {description}" for name, description in WAYS.items() if by_way.get(name, 0)]
    if set(by_way.index) - {THEIR_SPREAD, ""}:
        sentence += f" Judged: {', '.join(ways)}."
    if tested:
        sentence += (
            f" Were every run like the published ones, about {alpha * tested:.1f} would be doubtful by chance, and "
            f"with a probability of at least {1 - alpha:g} none would differ."
        )
    return sentence
