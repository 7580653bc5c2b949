"""Were published numbers reproduced? A card that says so of each row and set that both sides have.

A difference is judged by what runs vary: by the published spread where there is one, else by one's own; where neither
is known, by how the number is printed and by the tolerance that one states.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

from biasbed import measures
from biasbed.analysis.columns import Column, summary_metrics
from biasbed.analysis.runs.run import Run
from biasbed.analysis.selection.pools import History
from biasbed.analysis.selection.published import PublishedStudy, under
from biasbed.analysis.statistics import exact
from biasbed.errors import Failure

AGREES, DOUBTFUL, DIFFERS, NOT_JUDGED = "agrees", "doubtful", "differs", "not judged"
THEIR_SPREAD, OWN_SPREAD, ROUNDING = "published spread", "own spread", "rounding"
DIGITS = 9  # to which differences are rounded: equal numbers must have none
CARD_COLUMNS = (
    *("study", "algorithm", "dataset", "mean", "std", "num_runs"),
    *("published_mean", "published_std", "published_num_runs", "published_rounding"),
    *("difference", "difference_in_std", "p", "p_holm", "judged_by", "verdict"),
)


@dataclass(frozen=True)
class Side:
    """One side's number, as it is shown."""

    mean: float
    std: float  # between runs (n - 1); NaN where it is not known
    num_runs: int
    rounding: float = math.nan  # half a unit of the last printed digit; NaN where it is not known

    @property
    def has_spread(self) -> bool:
        return self.num_runs > 1 and self.std > 0


@dataclass(frozen=True)
class Judgement:
    """What is to be said of a difference, but for what the other cells' p-values do to it."""

    judged_by: str = ""
    p: float = math.nan
    verdict: str = NOT_JUDGED  # of one that has no p


def card(
    study: PublishedStudy,
    rule: str,
    own: pd.DataFrame,
    histories: Mapping[str, History],
    alpha: float,
    tolerance: float = 0.0,
    tested: Collection[str] = (),
) -> pd.DataFrame:
    """`CARD_COLUMNS`: ours beside the published, one row for each of one's own rows and sets that both have.

    own: run table (`scores.run_table`); histories: of the published runs, in one's own words; tolerance: points;
    tested: rows of one's own that were only tested, whose numbers can't vary. difference: ours - published;
    difference_in_std: in standard deviations of the published runs; p: see `judge`; p_holm: with Holm's correction over
    the cells that have a p.
    """
    rows = []
    columns = {column.name: column for column in study.columns}
    for (algorithm, dataset), scores in own.groupby(["algorithm", "dataset"], sort=False)["score"]:
        same = [run for run in under(study.by_rule, rule) if run.algorithm == algorithm]
        theirs = published_side(columns[dataset], same, histories) if dataset in columns else None
        if theirs is None:
            continue
        ours = Side(float(scores.astype(float).mean()), float(scores.astype(float).std()), len(scores))
        found = judge(ours, theirs, tolerance, algorithm in tested)
        difference = round(ours.mean - theirs.mean, DIGITS) + 0.0  # no -0.0
        in_std = difference / theirs.std if theirs.has_spread else math.nan
        sides = (ours.mean, ours.std, ours.num_runs, theirs.mean, theirs.std, theirs.num_runs, theirs.rounding)
        judged = (difference, in_std, found.p, math.nan, found.judged_by, found.verdict)
        rows.append((study.name, algorithm, dataset, *sides, *judged))
    return corrected(pd.DataFrame(rows, columns=list(CARD_COLUMNS)), alpha)


def published_side(column: Column, runs: Sequence[Run], histories: Mapping[str, History]) -> Side | None:
    """A paper's number on a column, from its runs or as it is printed; None where it has none."""
    curves = [histories[run.id].on(column.cell) for run in runs]
    values = pd.Series([_last(history, column.headline, column) for history in curves]).dropna() * column.scale
    if values.empty:
        return None
    mean, std = float(values.mean()), round(float(values.std()), DIGITS)
    if len(values) > 1 or not runs[0].summary:
        return Side(mean, std, len(values))
    spread, number, rounding = (_last(curves[0], measure, column) for measure in measures.SUMMARY)
    return Side(mean, spread * column.scale, round(number), rounding * column.scale)


def _last(history: History, measure: str, column: Column) -> float:
    """The last value of a measure of the column's set; NaN without any."""
    curves = [history.curve(name) for name in summary_metrics(column, measure)]
    return [math.nan, *next(filter(None, curves), curves[0]).values()][-1]


def judge(ours: Side, theirs: Side, tolerance: float, is_tested: bool) -> Judgement:
    """By the spread of runs where one of the sides has any, else by rounding and tolerance.

    p: that the mean of m further runs like the n known ones lies so far away or farther (t with n - 1 degrees of
    freedom on difference / (std sqrt(1/m + 1/n)): the prediction interval for a future mean, Hahn and Meeker 1991,
    chapter 4). The known ones are the published runs; where their spread is not told, one's own, and the difference is
    what rounding and tolerance leave of it. Without spread a tolerance must be stated, but for a model that is only
    tested, which decides alike every time.
    """
    from scipy import stats

    distance = abs(ours.mean - theirs.mean)
    slack = tolerance + (0.0 if math.isnan(theirs.rounding) else theirs.rounding)
    for known, further, judged_by in ((theirs, ours, THEIR_SPREAD), (ours, theirs, OWN_SPREAD)):
        if known.has_spread:
            left = distance if known is theirs else max(0.0, distance - slack)
            t = round(left, DIGITS) / (known.std * math.sqrt(1 / known.num_runs + 1 / further.num_runs))
            return Judgement(judged_by, float(2 * stats.t.sf(t, known.num_runs - 1)))
    if tolerance > 0 or (is_tested and not math.isnan(theirs.rounding)):
        return Judgement(ROUNDING, verdict=AGREES if round(distance - slack, DIGITS) <= 0 else DIFFERS)
    return Judgement()


def corrected(frame: pd.DataFrame, alpha: float) -> pd.DataFrame:
    """The card with Holm's correction over all cells that have a p, and their verdicts in words."""
    judged = frame["p"].notna()
    frame.loc[judged, "p_holm"] = exact.holm(frame.loc[judged, "p"].to_numpy(dtype="float64"))
    frame["verdict"] = [
        verdict if math.isnan(p) else DIFFERS if adjusted < alpha else DOUBTFUL if p < alpha else AGREES
        for p, adjusted, verdict in zip(frame["p"], frame["p_holm"], frame["verdict"], strict=True)
    ]
    return frame.astype({"num_runs": "int64", "published_num_runs": "int64"})


def cards(
    studies: Sequence[PublishedStudy],
    rule: str,
    own: pd.DataFrame,
    histories: Mapping[str, History],
    alpha: float,
    tolerance: float = 0.0,
    tested: Collection[str] = (),
) -> pd.DataFrame:
    """The cards of all studies below each other; Failure where no study has any of one's own algorithms."""
    frames = [card(study, rule, own, histories, alpha, tolerance, tested) for study in studies]
    filled = [frame for frame in frames if len(frame)]
    if not filled:
        theirs = ", ".join(sorted({run.algorithm for study in studies for run in under(study.by_rule, rule)}))
        mine = ", ".join(sorted(own["algorithm"].unique()))
        raise Failure(f"compare=published: you have {mine}, and published are {theirs}: no algorithm is among both")
    return pd.concat(filled, ignore_index=True)


def card_sentence(frame: pd.DataFrame, alpha: float) -> str:
    """How many cells agree, and how many would not by chance."""
    counts = frame["verdict"].value_counts()
    tested = int(frame["p"].notna().sum())
    parts = [f"{int(counts.get(verdict, 0))} {verdict}" for verdict in (AGREES, DOUBTFUL, DIFFERS, NOT_JUDGED)]
    text = f"{len(frame)} cells: {', '.join(parts)}."
    by = frame["judged_by"].value_counts()
    ways = [f"{int(by[name])} by {what}" for name, what in WAYS.items() if by.get(name, 0)]
    if set(by.index) - {THEIR_SPREAD, ""}:
        text += f" Judged: {', '.join(ways)}."
    if tested:
        text += (
            f" Were every run like the published ones, about {alpha * tested:.1f} would be doubtful by chance, and "
            f"with probability {1 - alpha:g} at least none would differ."
        )
    return text


WAYS = {
    THEIR_SPREAD: "the published runs' spread",
    OWN_SPREAD: "the spread of one's own runs, as theirs is not told",
    ROUNDING: "the printed digits and the tolerance",
}
