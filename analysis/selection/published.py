"""Published results beside one's own: in the same tables and tests, and as a card that says what was reproduced.

Runs of kind `published` (`mlflow run . -e import`) are compared with one's own on the sets that both have by name, with
the same headline measure and number of classes, and under the same selection rule. A published algorithm is marked, as
`erm@biasbed`.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pandas as pd

from biasbed import record
from biasbed.analysis.runs.alike import read_protocol
from biasbed.analysis.runs.collect import PUBLISHED_MARK, published_by_rule, read_run
from biasbed.analysis.runs.columns import Column
from biasbed.analysis.runs.run import Collection, Run
from biasbed.analysis.selection.pools import History
from biasbed.analysis.selection.rules import Rule
from biasbed.analysis.statistics import exact
from biasbed.errors import Failure, UsageError
from biasbed.settings import nearest
from biasbed.system import places

if TYPE_CHECKING:
    from biasbed.analysis.options import AnalyzeOptions
    from biasbed.analysis.runs.store import RunStore

IMPORT = "mlflow run . -e import -P source=biasbed"
AGREES, DOUBTFUL, DIFFERS, NOT_JUDGED = "agrees", "doubtful", "differs", "not judged"
CARD_COLUMNS = (
    *("study", "algorithm", "dataset", "mean", "std", "num_runs"),
    *("published_mean", "published_std", "published_num_runs"),
    *("difference", "difference_in_std", "p", "p_holm", "verdict"),
)


@dataclass(frozen=True)
class PublishedStudy:
    """One paper's results, as far as they may stand beside one's own."""

    name: str
    sets: tuple[Column, ...]  # one's own columns of the sets that both have
    by_rule: Mapping[str, tuple[Run, ...]]  # selection rule -> runs, under the paper's own names
    mlflow_runs: tuple[Any, ...]
    notes: tuple[str, ...]
    protocols: Mapping[str, record.Protocol]  # hash -> the protocol

    @property
    def mark(self) -> str:
        return PUBLISHED_MARK + self.name.removeprefix("published_")


def find(
    store: RunStore, options: AnalyzeOptions, collection: Collection, sets: Sequence[Column], rule: Rule
) -> list[PublishedStudy]:
    """The published studies that fit; none where the options ask for none. Failure where they ask and none fits."""
    if not options.with_published and options.compare == "none":
        return []
    if collection.published:
        raise UsageError("with_published and compare take your own runs: these are published results already")
    mlflow_runs = {run.info.run_id: run for run in store.runs("published")}
    every = [run for run in map(read_run, mlflow_runs.values()) if run.finished and run.protocol]
    if not every:
        raise Failure(f"no published results are on {places.public_uri(store.uri)}; to import them: {IMPORT}")
    studies, problems = [], []
    for scope in sorted({run.scope for run in every}):
        runs = [run for run in every if run.scope == scope]
        by_rule = published_by_rule(runs, options.n)
        protocol = read_protocol(store, scope.protocol, runs)
        theirs = protocol.sets
        shared, notes = _shared(sets, theirs)
        if rule.name not in by_rule:
            problems.append(f"{scope.study} has the rules {_rules(runs)}, and yours is {rule.name}")
        elif not shared:
            names = ", ".join(entry.name for entry in theirs)
            problems.append(f"{scope.study} has none of your sets ({names}){''.join(f'; {note}' for note in notes)}")
        else:
            needed = [mlflow_runs[run.id] for same in by_rule.values() for run in same]
            cited = [f"{scope.study}: {source}" for source in sorted({run.source for run in runs}) if source]
            notes = [f"{scope.study}: {note}" for note in notes]
            found = (tuple(shared), by_rule, tuple(needed), (*cited, *notes), {scope.protocol: protocol})
            studies.append(PublishedStudy(scope.study, *found))
    if not studies:
        raise Failure("\n".join(["no published results can stand beside these runs:", *(f"  {p}" for p in problems)]))
    return studies


def _rules(runs: Iterable[Run]) -> str:
    names = {f"{run.selection} with n={run.selection_n}" if run.selection_n else run.selection for run in runs}
    return " and ".join(sorted(names))


def _shared(own: Sequence[Column], theirs: Sequence[record.SetRecord]) -> tuple[list[Column], list[str]]:
    """One's own records of the sets that both have, and what else is to be said about them."""
    by_name = {entry.name: entry for entry in theirs}
    shared, notes = [], []
    for entry in own:
        other = by_name.get(entry.entry.name)
        if other is None:
            continue
        if (entry.headline, entry.classes) != (other.headline, other.classes):
            what = f"{entry.headline} of {entry.classes} classes here, {other.headline} of {other.classes} there"
            notes.append(f"{entry.name} is not compared: {what}")
            continue
        if other.images and entry.images != other.images:
            notes.append(f"{entry.name} has {entry.images} images here and {other.images} there")
        shared.append(entry)
    return shared, notes


# --- in the same tables and tests -------------------------------------------------------------------------------------


def join(
    collection: Collection,
    sets: Sequence[Column],
    studies: Sequence[PublishedStudy],
    wanted: Sequence[str] | str,
) -> tuple[Collection, tuple[Column, ...]]:
    """One's own runs with the published ones, marked, and the sets that all have.

    wanted: algorithms; `erm` stands for one's own and the published one, `erm@biasbed` for that alone. The published
    runs are not among `runs` yet: which of them count depends on the rule (`with_rule`).
    """
    names = [entry.name for entry in sets]
    shared = [n for n in names if all(n in {entry.name for entry in study.sets} for study in studies)]
    if not shared:
        raise Failure(f"the studies {', '.join(study.name for study in studies)} and these runs share no set")
    by_rule: dict[str, tuple[Run, ...]] = {}
    for study in studies:
        for rule, runs in study.by_rule.items():
            marked = [dataclasses.replace(run, algorithm=run.algorithm + study.mark) for run in runs]
            by_rule[rule] = (*by_rule.get(rule, ()), *(run for run in marked if _is_wanted(run.algorithm, wanted)))
    _check_names(by_rule, wanted)
    notes = [note for study in studies for note in study.notes]
    left_out = [name for name in names if name not in shared]
    notes += [f"left out, for the published results don't have them: {', '.join(left_out)}"] if left_out else []
    notes.append(f"what others trained is marked {', '.join(s.mark for s in studies)}; its code and images are others'")
    protocols = {**collection.protocols, **{h: p for study in studies for h, p in study.protocols.items()}}
    notes = [*collection.notes, *notes]
    joined = dataclasses.replace(collection, published_by_rule=by_rule, notes=tuple(notes), protocols=protocols)
    return joined, tuple(entry for entry in sets if entry.name in shared)


def _is_wanted(algorithm: str, wanted: Sequence[str] | str) -> bool:
    return wanted == "all" or algorithm in wanted or algorithm.partition(PUBLISHED_MARK)[0] in wanted


def _check_names(by_rule: Mapping[str, Sequence[Run]], wanted: Sequence[str] | str) -> None:
    known = {run.algorithm for runs in by_rule.values() for run in runs}
    for name in () if wanted == "all" else wanted:
        if PUBLISHED_MARK in name and name not in known:
            raise UsageError(f"algorithms={','.join(wanted)}: no published '{name}'{nearest(name, sorted(known))}")


def runs_under(collection: Collection, rule: str) -> tuple[Run, ...]:
    """The runs that count under a rule: one's own, then the published ones that were selected by it."""
    return (*collection.own, *collection.published_by_rule.get(rule, ()))


# --- was it reproduced? -----------------------------------------------------------------------------------------------


def card(
    study: PublishedStudy,
    rule: Rule,
    own: pd.DataFrame,
    histories: Mapping[str, History],
    scales: Mapping[str, float],
    alpha: float,
) -> pd.DataFrame:
    """`CARD_COLUMNS`: ours beside the published, one row for each algorithm and set that both have.

    own: run table (`scores.run_table`); scales: set -> what turns a published value into points. difference: ours -
    published; difference_in_std: in standard deviations of the published runs.
    p: the mean of m further runs like the published n lies so far away or farther (t with n - 1 degrees of freedom on
    difference / (std sqrt(1/m + 1/n)): the prediction interval for a future mean, Hahn and Meeker 1991, chapter 4).
    """
    rows = []
    runs = study.by_rule[rule.name]
    for (algorithm, dataset), scores in own.groupby(["algorithm", "dataset"], sort=False)["score"]:
        entry = next((entry for entry in study.sets if entry.name == dataset), None)
        same = [run for run in runs if run.algorithm == algorithm]
        if entry is None or not same:
            continue
        values = [histories[run.id].curve(entry.metric) for run in same]
        theirs = pd.Series([list(curve.values())[-1] * scales[entry.name] for curve in values if curve])
        rows.append((study.name, algorithm, dataset, *_compare(scores.astype(float), theirs)))
    frame = pd.DataFrame(rows, columns=list(CARD_COLUMNS[:-2]))
    return _judge(frame, alpha)


def _compare(ours: pd.Series[float], theirs: pd.Series[float]) -> tuple[float, ...]:
    """The middle columns of a card's row. Without spread among the published runs there is no p."""
    from scipy import stats

    difference = round(float(ours.mean() - theirs.mean()), 9)
    spread = round(float(theirs.std()), 9)  # rounded: equal numbers must have none
    in_std = p = math.nan
    if spread > 0:
        in_std = difference / spread
        t = in_std / math.sqrt(1 / len(ours) + 1 / len(theirs))
        p = float(2 * stats.t.sf(abs(t), len(theirs) - 1))
    sides = (ours.mean(), ours.std(), len(ours), theirs.mean(), spread, len(theirs))
    return (*(float(value) for value in sides), difference, in_std, p)


def _judge(frame: pd.DataFrame, alpha: float) -> pd.DataFrame:
    """Holm's correction over all cells that have a p, and the verdict in words."""
    judged = frame["p"].notna()
    frame["p_holm"] = math.nan
    frame.loc[judged, "p_holm"] = exact.holm(frame.loc[judged, "p"].to_numpy(dtype="float64"))
    frame["verdict"] = [
        NOT_JUDGED if math.isnan(p) else DIFFERS if adjusted < alpha else DOUBTFUL if p < alpha else AGREES
        for p, adjusted in zip(frame["p"], frame["p_holm"], strict=True)
    ]
    return frame.astype({"num_runs": "int64", "published_num_runs": "int64"})[list(CARD_COLUMNS)]


def cards(
    studies: Sequence[PublishedStudy],
    rule: Rule,
    own: pd.DataFrame,
    histories: Mapping[str, History],
    scales: Mapping[str, float],
    alpha: float,
) -> pd.DataFrame:
    """The cards of all studies below each other; Failure where no study has any of one's own algorithms."""
    frames = [card(study, rule, own, histories, scales, alpha) for study in studies]
    filled = [frame for frame in frames if len(frame)]
    if not filled:
        theirs = ", ".join(sorted({run.algorithm for study in studies for run in study.by_rule[rule.name]}))
        mine = ", ".join(sorted(own["algorithm"].unique()))
        raise Failure(f"compare=published: you have {mine}, and published are {theirs}: no algorithm is among both")
    return pd.concat(filled, ignore_index=True)


def card_sentence(frame: pd.DataFrame, alpha: float) -> str:
    """How many cells agree, and how many would not by chance."""
    counts = frame["verdict"].value_counts()
    judged = len(frame) - int(counts.get(NOT_JUDGED, 0))
    parts = [f"{int(counts.get(verdict, 0))} {verdict}" for verdict in (AGREES, DOUBTFUL, DIFFERS, NOT_JUDGED)]
    return (
        f"{len(frame)} cells: {', '.join(parts)}. Were every run like the published ones, about {alpha * judged:.1f} "
        f"would be doubtful by chance, and with probability {1 - alpha:g} at least none would differ."
    )
