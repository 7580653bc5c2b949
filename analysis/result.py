"""One frozen result of an analysis: computed here once, printed by summary, tables, figures and report."""

from __future__ import annotations

import importlib.metadata
import math
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pandas as pd

import biasbed
from biasbed import record
from biasbed.analysis import aggregate, evidence, gaps, statistics
from biasbed.analysis.evidence import Evidence
from biasbed.analysis.runs import Collection, Run, collect
from biasbed.analysis.selection import AsPublished, History, Rule, headline, make_rule, select
from biasbed.analysis.store import HISTORY_COLUMNS
from biasbed.errors import UsageError
from biasbed.settings import nearest

if TYPE_CHECKING:
    from biasbed.analysis import AnalyzeOptions
    from biasbed.analysis.statistics import Comparison
    from biasbed.analysis.store import Store


@dataclass(frozen=True)
class Cell:
    """One cell of the score table, as it is printed."""

    mean: float
    std: float  # NaN for a single run
    num_runs: int
    best: bool  # no other mean of the set prints better
    dagger: bool  # the algorithm trained on data of the set's maker

    @property
    def mean_text(self) -> str:
        return number(self.mean)

    @property
    def std_text(self) -> str:
        """Empty for a single run."""
        return "" if math.isnan(self.std) else number(self.std)


def number(value: float) -> str:
    """A score as it is printed: one digit after the point, a dash where there is none."""
    return "-" if math.isnan(value) else f"{value:.1f}"


def scores_by_run(runs: pd.DataFrame) -> dict[tuple[str, str], float]:
    """(run id, set) -> score, from a run table."""
    return dict(zip(zip(runs["run_id"], runs["dataset"], strict=True), runs["score"].astype(float), strict=True))


LIBRARIES = ("mlflow", "pandas", "scipy", "scikit-posthocs", "matplotlib")


@dataclass(frozen=True)
class Analysis:
    """All that was found. Scores in percent where they are fractions."""

    collection: Collection
    sets: tuple[record.SetRecord, ...]  # that count, in display order
    rule: Rule
    alpha: float
    notes: tuple[str, ...]  # to be read before any number
    runs: pd.DataFrame  # aggregate.run_table of the runs that count
    duplicates: pd.DataFrame  # the same of those that don't
    scores: pd.DataFrame  # aggregate.score_table
    daggers: frozenset[tuple[str, str]]  # (algorithm, set)
    comparisons: tuple[Comparison, ...]  # on all sets; then the strict setting where it differs
    evidence: Evidence  # effects, further tests, stability and power
    selection: pd.DataFrame  # gaps.table: the scores under every selection rule
    curves: pd.DataFrame  # columns algorithm, run_id, dataset, step, score; the headline of each set
    tracking_uri: str  # without password
    versions: Mapping[str, str]

    @property
    def algorithms(self) -> tuple[str, ...]:
        return self.collection.algorithms

    @property
    def set_names(self) -> tuple[str, ...]:
        return tuple(entry.name for entry in self.sets)

    @cached_property
    def cells(self) -> dict[tuple[str, str], Cell]:
        """The score table by (algorithm, set)."""
        higher = {entry.name: entry.higher_is_better for entry in self.sets}
        means = self.scores.groupby("dataset")["mean"]
        best = {str(name): number(float(m.max() if higher[str(name)] else m.min())) for name, m in means}
        cells = {}
        for algorithm, dataset, mean, std, num_runs in self.scores.itertuples(index=False, name=None):
            is_best = number(float(mean)) == best[dataset]
            dagger = (algorithm, dataset) in self.daggers
            cells[algorithm, dataset] = Cell(float(mean), float(std), int(num_runs), is_best, dagger)
        return cells

    @property
    def title(self) -> str:
        scope = self.collection.scope
        return f"suite {scope.suite}, study {scope.study}, protocol {scope.protocol[:8]}"

    @property
    def runs_sentence(self) -> str:
        """How many runs stand behind the numbers, and how many don't."""
        c = self.collection
        text = f"{len(c.runs)} {c.scope.kind} runs of {len(c.algorithms)} algorithms on {len(self.sets)} sets"
        others = [f"{count} {status.lower()}" for status, count in sorted(c.not_finished.items())]
        others += [f"{len(c.duplicates)} duplicate"] if c.duplicates else []
        return text + (f"; not counted: {', '.join(others)}" if others else "")


def compute(store: Store, options: AnalyzeOptions) -> Analysis:
    """Reads the runs that the options ask for and computes everything.

    Raises UsageError for options that fit no run, Failure where runs are missing or must not be compared.
    """
    collection, mlflow_runs = collect(store, options)
    _check_control(collection, options.control)
    sets = _chosen_sets(collection.protocol, options.sets)
    rule = _rule(collection, options)
    histories = _histories(store, collection, mlflow_runs)
    monitor = collection.protocol.monitor
    counted = {run.id: histories[run.id] for run in collection.runs}
    selected, missing = select(rule, counted, sets, monitor)
    runs = aggregate.run_table(selected, collection.runs, sets, monitor)
    names = [entry.name for entry in sets]
    scores = aggregate.score_table(runs, collection.algorithms, names)
    scope = f"-P suite={collection.scope.suite} -P study={collection.scope.study}"
    notes = [*collection.notes]
    notes += aggregate.check_complete(scores, missing, collection.runs, scope, collection.published)
    notes += aggregate.run_count_note(scores) + aggregate.identical_runs_note(runs)
    notes += aggregate.shared_images_note(sets)
    uncounted = {run.id: histories[run.id] for run in collection.duplicates}
    duplicates = aggregate.run_table(select(rule, uncounted, sets, monitor)[0], collection.duplicates, sets, monitor)
    daggers = aggregate.daggers(collection.runs, sets)
    comparisons = compare_settings(scores, sets, daggers, options.alpha)
    rules = _rules(rule, scores, counted, collection, sets, options.n)
    others = {r.name: aggregate.mean_matrix(r.scores) for r in rules[1:] if r.scores is not None}
    found = evidence.gather(comparisons, runs, sets, others, options)
    notes += [found.skipped] if found.skipped else []
    return Analysis(
        collection=collection,
        sets=sets,
        rule=rule,
        alpha=options.alpha,
        notes=tuple(notes),
        runs=runs,
        duplicates=duplicates,
        scores=scores,
        daggers=daggers,
        comparisons=comparisons,
        evidence=found,
        selection=gaps.table(rules, sets),
        curves=_curves(counted, collection.runs, sets),
        tracking_uri=record.public_uri(store.uri),
        versions=versions(),
    )


def compare_settings(
    scores: pd.DataFrame, sets: Sequence[record.SetRecord], daggers: frozenset[tuple[str, str]], alpha: float
) -> tuple[Comparison, ...]:
    """The tests on all sets and, where some algorithm trained on data of a set's maker, on the others (strict)."""
    touched = {name for _, name in daggers}
    left_out = [entry.name for entry in sets if entry.name in touched]
    matrix = aggregate.mean_matrix(scores)
    lower = [entry.name for entry in sets if not entry.higher_is_better]
    comparisons = [statistics.compare(matrix, alpha, lower_is_better=lower)]
    if left_out:
        strict = statistics.compare(matrix, alpha, lower_is_better=lower, setting=statistics.STRICT, left_out=left_out)
        comparisons.append(strict)
    return tuple(comparisons)


def _check_control(collection: Collection, control: str) -> None:
    if control != "none" and control not in collection.algorithms:
        advice = nearest(control, collection.algorithms)
        raise UsageError(f"control={control}: no compared algorithm has this name{advice}")


def _chosen_sets(protocol: record.Protocol, wanted: Sequence[str] | str) -> tuple[record.SetRecord, ...]:
    known = [entry.name for entry in protocol.sets]
    for name in () if wanted == "all" else wanted:
        if name not in known:
            raise UsageError(f"sets={','.join(wanted)}: there is no evaluation set '{name}'{nearest(name, known)}")
    return tuple(entry for entry in protocol.sets if wanted == "all" or entry.name in wanted)


def _rule(collection: Collection, options: AnalyzeOptions) -> Rule:
    if collection.published:
        run = collection.runs[0]
        return AsPublished(run.selection, run.selection_n)
    return make_rule(options.selection, options.n, collection.protocol)


def _rules(
    rule: Rule,
    scores: pd.DataFrame,
    histories: Mapping[str, History],
    collection: Collection,
    sets: Sequence[record.SetRecord],
    n: int,
) -> list[gaps.RuleScores]:
    """The scores under every rule; published numbers have theirs built in."""
    if collection.published:
        return [gaps.RuleScores(rule.name, rule.oracle, scores)]
    return gaps.under_every_rule(rule, scores, histories, collection.runs, collection.protocol, sets, n)


def _histories(store: Store, collection: Collection, mlflow_runs: Sequence[Any]) -> dict[str, History]:
    names = {run.id: f"{run.name} ({run.id})" for run in (*collection.runs, *collection.duplicates)}
    frames = store.histories(mlflow_runs)
    return {
        # Lists: iterating over a pandas column takes several times as long.
        run_id: History(names[run_id], zip(*(frame[name].tolist() for name in HISTORY_COLUMNS), strict=True))
        for run_id, frame in frames.items()
    }


def _curves(histories: Mapping[str, History], runs: Sequence[Run], sets: Sequence[record.SetRecord]) -> pd.DataFrame:
    """The headline of every run and set at every step, as shown."""
    rows = [
        (run.algorithm, run.id, entry.name, step, value * aggregate.scale(entry.headline))
        for run in runs
        for entry in sets
        for step, value in histories[run.id].curve(headline(entry)).items()
    ]
    return pd.DataFrame(rows, columns=["algorithm", "run_id", "dataset", "step", "score"])


def versions() -> dict[str, str]:
    """What computed the numbers."""
    found = {"biasbed": biasbed.__version__, "python": platform.python_version()}
    return found | {name: importlib.metadata.version(name) for name in LIBRARIES}
