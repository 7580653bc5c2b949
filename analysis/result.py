"""One frozen result of an analysis: computed here once, printed by summary, tables, figures and report."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import math
import platform
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pandas as pd

import biasbed
from biasbed import measures, record
from biasbed.analysis import regret, scores, spread
from biasbed.analysis.runs.collect import collect
from biasbed.analysis.runs.run import Collection, Run
from biasbed.analysis.selection import names, published
from biasbed.analysis.selection.published import PublishedStudy
from biasbed.analysis.selection.rules import AsPublished, History, Rule, headline
from biasbed.analysis.selection.select import choose, make_rule, of, select
from biasbed.analysis.statistics import evidence, friedman
from biasbed.analysis.statistics.evidence import PairwiseResults
from biasbed.errors import UsageError
from biasbed.settings import nearest
from biasbed.system import places

if TYPE_CHECKING:
    from biasbed.analysis.options import AnalyzeOptions
    from biasbed.analysis.runs.store import RunStore
    from biasbed.analysis.statistics.friedman import RankTests


@dataclass(frozen=True)
class Cell:
    """One cell of the score table, as it is printed."""

    mean: float
    std: float  # NaN for a single run
    num_runs: int
    best: bool  # no other mean of the set prints better
    dagger: bool  # the algorithm trained on data of the set's maker
    interval: tuple[float, float]  # scores.binomial_interval

    @property
    def mean_text(self) -> str:
        return number(self.mean)

    @property
    def std_text(self) -> str:
        """Empty for a single run."""
        return "" if math.isnan(self.std) else number(self.std)

    @property
    def interval_text(self) -> str:
        """Empty for another measure than accuracy."""
        low, high = self.interval
        return "" if math.isnan(low) else f"{number(low)} to {number(high)}"


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

    options: AnalyzeOptions
    collection: Collection
    algorithms: tuple[str, ...]  # in display order
    sets: tuple[record.SetRecord, ...]  # that count, in display order
    rule: Rule
    alpha: float
    notes: tuple[str, ...]  # to be read before any number
    runs: pd.DataFrame  # scores.run_table of the runs that count
    duplicates: pd.DataFrame  # the same of those that don't
    scores: pd.DataFrame  # scores.score_table
    daggers: frozenset[tuple[str, str]]  # (algorithm, set)
    comparisons: tuple[RankTests, ...]  # on all sets; then the strict setting where it differs
    evidence: PairwiseResults  # effects, further tests, stability and power
    selection: pd.DataFrame  # regret.table: the scores under every selection rule
    spread: pd.DataFrame  # spread.table: deviations over runs and epochs, of last_n; else empty
    reproduction: pd.DataFrame | None  # published.cards: one's own beside the published numbers, where asked for
    curves: pd.DataFrame  # columns algorithm, run_id, dataset, step, score; the headline of each set
    tracking_uri: str  # without password
    versions: Mapping[str, str]

    @property
    def published_algorithms(self) -> frozenset[str]:
        """Those whose numbers others published."""
        return frozenset(run.algorithm for run in self.collection.runs if run.kind == "published")

    @cached_property
    def selection_gap(self) -> pd.DataFrame:
        """The rule beside the oracle, as `regret.against_oracle` has it."""
        return regret.against_oracle(self.selection, self.rule.name)

    @cached_property
    def regret(self) -> pd.DataFrame:
        """What each selection rule costs, as `regret.regret` has it."""
        return regret.regret(self.selection, self.sets)

    @property
    def shown_runs(self) -> tuple[Run, ...]:
        """The runs that count, by algorithm in display order."""
        return tuple(sorted(self.collection.runs, key=lambda run: self.algorithms.index(run.algorithm)))

    @property
    def set_names(self) -> tuple[str, ...]:
        return tuple(entry.name for entry in self.sets)

    @cached_property
    def cells(self) -> dict[tuple[str, str], Cell]:
        """The score table by (algorithm, set)."""
        entries = {entry.name: entry for entry in self.sets}
        means = self.scores.groupby("dataset")["mean"]
        best = {
            str(name): number(float(m.max() if entries[str(name)].higher_is_better else m.min())) for name, m in means
        }
        cells = {}
        for algorithm, dataset, mean, std, num_runs in self.scores.itertuples(index=False, name=None):
            is_best = number(float(mean)) == best[dataset]
            dagger = (algorithm, dataset) in self.daggers
            interval = scores.binomial_interval(float(mean), entries[dataset])
            cells[algorithm, dataset] = Cell(float(mean), float(std), int(num_runs), is_best, dagger, interval)
        return cells

    @property
    def units(self) -> str:
        """What the scores are measured in, in words."""
        units = {measures.of(entry.headline).unit for entry in self.sets}
        if len(units) > 1:
            return "percent, losses in nats"
        return "nats" if units == {"nats"} else "percent"

    @property
    def title(self) -> str:
        scope = self.collection.scope
        return f"suite {scope.suite}, study {scope.study}, protocol {scope.protocol[:8]}"

    @property
    def runs_sentence(self) -> str:
        """How many runs stand behind the numbers, and how many don't."""
        c = self.collection
        counts = [f"{len(c.own)} {c.scope.kind}"] if c.own else []
        counts += [f"{len(c.runs) - len(c.own)} published"] if len(c.own) < len(c.runs) else []
        text = f"{' and '.join(counts)} runs of {len(c.algorithms)} algorithms on {len(self.sets)} sets"
        others = [f"{count} {status.lower()}" for status, count in sorted(c.not_finished.items())]
        others += [f"{len(c.duplicates)} duplicate"] if c.duplicates else []
        return text + (f"; not counted: {', '.join(others)}" if others else "")


def compute(store: RunStore, options: AnalyzeOptions) -> Analysis:
    """Reads the runs that the options ask for and computes everything.

    Raises UsageError for options that fit no run, Failure where runs are missing or must not be compared.
    """
    material = gather(store, options)
    collection, sets, rule, histories = material.collection, material.sets, material.rule, material.histories
    _check_display(options, collection, sets)
    monitor = collection.protocol.monitor
    selected, missing = select(rule, of(collection.runs, histories), sets, monitor)
    runs = scores.run_table(selected, collection.runs, sets, monitor)
    table = scores.score_table(runs, collection.algorithms, [entry.name for entry in sets])
    scope = f"-P suite={collection.scope.suite} -P study={collection.scope.study}"
    notes = [*collection.notes]
    # Training again would not help a rule of the user's own that names steps which no run has.
    trainable = not (collection.published or ".py:" in options.selection)
    notes += scores.check_complete(table, missing, collection.runs, scope, trainable)
    notes += scores.run_count_note(table) + scores.identical_runs_note(runs)
    notes += scores.shared_images_note(sets) + scores.validation_note(collection.protocol)
    others, _ = select(rule, of(collection.duplicates, histories), sets, monitor)
    duplicates = scores.run_table(others, collection.duplicates, sets, monitor)
    daggers = scores.daggers(collection.runs, sets)
    comparisons = compare_settings(table, sets, daggers, options.alpha)
    rules = regret.under_every_rule(
        regret.RuleScores(rule.name, rule.oracle, runs, table), collection, histories, sets, options.n
    )
    found = evidence.gather(comparisons, runs, sets, regret.matrices(rules), options)
    notes += [found.skipped] if found.skipped else []
    return Analysis(
        options=options,
        collection=collection,
        algorithms=_display_order(collection, comparisons[0], options.order),
        sets=_display_sets(sets, options.set_order),
        rule=rule,
        alpha=options.alpha,
        notes=tuple(notes),
        runs=runs,
        duplicates=duplicates,
        scores=table,
        daggers=daggers,
        comparisons=comparisons,
        evidence=found,
        selection=regret.table(rules, sets),
        spread=spread.table(collection.runs, histories, sets, rule, options.n),
        reproduction=_reproduction(material, runs, options),
        curves=_curves(histories, collection.own or collection.runs, sets),
        tracking_uri=places.public_uri(store.uri),
        versions=versions(),
    )


def compare_settings(
    table: pd.DataFrame, sets: Sequence[record.SetRecord], daggers: frozenset[tuple[str, str]], alpha: float
) -> tuple[RankTests, ...]:
    """The tests on all sets and, where some algorithm trained on data of a set's maker, on the others (strict)."""
    touched = {name for _, name in daggers}
    left_out = [entry.name for entry in sets if entry.name in touched]
    matrix = scores.mean_matrix(table)
    lower = [entry.name for entry in sets if not entry.higher_is_better]
    comparisons = [friedman.compare(matrix, alpha, lower_is_better=lower)]
    if left_out:
        strict = friedman.compare(matrix, alpha, lower_is_better=lower, setting=friedman.STRICT, left_out=left_out)
        comparisons.append(strict)
    return tuple(comparisons)


def _check_display(options: AnalyzeOptions, collection: Collection, sets: Sequence[record.SetRecord]) -> None:
    """Names that are only shown later are refused before anything is computed."""
    if options.order not in ("rank", "name"):
        _named_first("order", collection.algorithms, options.order)
    _display_sets(sets, options.set_order)


def _display_order(collection: Collection, comparison: RankTests, wanted: Sequence[str] | str) -> tuple[str, ...]:
    """The algorithms as tables and figures show them; the tests keep their own order, so no number depends on it."""
    if wanted == "rank":
        return tuple(comparison.mean_ranks)
    return _named_first("order", collection.algorithms, () if wanted == "name" else wanted)


def _display_sets(sets: Sequence[record.SetRecord], wanted: Sequence[str] | str) -> tuple[record.SetRecord, ...]:
    entries = {entry.name: entry for entry in sets}
    names = _named_first("set_order", tuple(entries), () if wanted == "protocol" else wanted)
    return tuple(entries[name] for name in names)


def _named_first(option: str, names: Sequence[str], first: Sequence[str]) -> tuple[str, ...]:
    for name in first:
        if name not in names:
            raise UsageError(f"{option}={','.join(first)}: there is no '{name}' in the tables{nearest(name, names)}")
    return tuple(dict.fromkeys((*first, *names)))


def _reproduction(material: AnalysisInputs, runs: pd.DataFrame, options: AnalyzeOptions) -> pd.DataFrame | None:
    """The card that compare=published asks for."""
    if options.compare == "none":
        return None
    own = runs[runs["run_id"].isin([run.id for run in material.collection.own])]
    scales = {entry.name: measures.scale(entry.headline) for entry in material.sets}
    return published.cards(material.studies, material.rule, own, material.histories, scales, options.alpha)


def _curves(histories: Mapping[str, History], runs: Sequence[Run], sets: Sequence[record.SetRecord]) -> pd.DataFrame:
    """The headline of every run and set at every step, as shown."""
    rows = [
        (run.algorithm, run.id, entry.name, step, value * measures.scale(entry.headline))
        for run in runs
        for entry in sets
        for step, value in histories[run.id].curve(headline(entry)).items()
    ]
    return pd.DataFrame(rows, columns=["algorithm", "run_id", "dataset", "step", "score"])


def versions() -> dict[str, str]:
    """What computed the numbers."""
    found = {"biasbed": biasbed.__version__, "python": platform.python_version()}
    return found | {name: importlib.metadata.version(name) for name in LIBRARIES}


@dataclass(frozen=True)
class AnalysisInputs:
    """All that is read before anything is computed."""

    collection: Collection
    sets: tuple[record.SetRecord, ...]  # that count
    rule: Rule
    histories: Mapping[str, History]  # run id -> history, also of runs that count under another rule only
    studies: tuple[PublishedStudy, ...]  # published results that are asked for


def gather(store: RunStore, options: AnalyzeOptions) -> AnalysisInputs:
    """UsageError for options that fit no run, Failure where runs must not be compared or a rule chooses none."""
    names.check(store, options)
    collection, mlflow_runs = collect(store, options)
    sets = _chosen_sets(collection.protocol, options.sets)
    rule = _rule(collection, sets, options)
    studies = published.find(store, options, collection, sets, rule)
    if options.with_published:
        collection, sets = published.join(collection, sets, studies, options.algorithms)
    elif studies:
        notes = [note for study in studies for note in study.notes]
        collection = dataclasses.replace(collection, notes=(*collection.notes, *notes))
    of_studies = [run for study in studies for run in study.mlflow_runs]
    histories = read_histories(store, [*mlflow_runs, *of_studies])
    chosen, notes = choose(rule, collection.runs, histories)
    if options.with_published:
        chosen = (*chosen, *collection.published_by_rule[rule.name])
    collection = dataclasses.replace(collection, runs=chosen, notes=(*collection.notes, *notes))
    _check_control(collection, options.control)
    return AnalysisInputs(collection, sets, rule, histories, tuple(studies))


def _chosen_sets(protocol: record.Protocol, wanted: Sequence[str] | str) -> tuple[record.SetRecord, ...]:
    known = [entry.name for entry in protocol.sets]
    for name in () if wanted == "all" else wanted:
        if name not in known:
            raise UsageError(f"sets={','.join(wanted)}: there is no evaluation set '{name}'{nearest(name, known)}")
    return tuple(entry for entry in protocol.sets if wanted == "all" or entry.name in wanted)


def _rule(collection: Collection, sets: tuple[record.SetRecord, ...], options: AnalyzeOptions) -> Rule:
    if collection.published:
        run = collection.runs[0]
        return AsPublished(run.selection, run.selection_n)
    return make_rule(options.selection, options.n, dataclasses.replace(collection.protocol, sets=sets))


def read_histories(store: RunStore, mlflow_runs: Iterable[Any]) -> dict[str, History]:
    """Run id -> curves of all these MLflow runs."""
    runs = {run.info.run_id: run for run in mlflow_runs}
    found = {}
    for run_id, rows in store.histories(list(runs.values())).items():
        is_published = runs[run_id].data.tags.get(record.KIND) == "published"
        found[run_id] = History(_title(runs[run_id]), rows, is_published)
    return found


def _title(run: Any) -> str:
    return f"{run.info.run_name or run.info.run_id} ({run.info.run_id})"


def _check_control(collection: Collection, control: str) -> None:
    if control != "none" and control not in collection.algorithms:
        advice = nearest(control, collection.algorithms)
        raise UsageError(f"control={control}: no compared algorithm has this name{advice}")
