"""Result of an analysis: computed here once, printed by summary, tables, figures and report."""

from __future__ import annotations

import importlib.metadata
import math
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeVar

import pandas as pd

import biasbed
from biasbed import measures
from biasbed.analysis import display_names, scores
from biasbed.analysis.columns import Column, blocks, by_name, make_design, names_of
from biasbed.analysis.comparisons import rule_comparison, strict_setting
from biasbed.analysis.comparisons.rule_comparison import RuleComparison
from biasbed.analysis.display_names import Labels
from biasbed.analysis.inputs import AnalysisInputs, gather
from biasbed.analysis.runs.run import Collection, Run
from biasbed.analysis.selection import completeness, published
from biasbed.analysis.selection.pools import pools_of
from biasbed.analysis.selection.rules import Rule
from biasbed.analysis.selection.select import Selected, select
from biasbed.analysis.statistics.pairwise import PairwiseResults, compute_now
from biasbed.errors import count, listed
from biasbed.system.one_thread import on_one_thread

if TYPE_CHECKING:
    from biasbed.analysis.options import AnalyzeOptions
    from biasbed.analysis.runs.store import RunStore
    from biasbed.analysis.statistics.friedman import RankTests


@dataclass(frozen=True)
class Cell:
    """One cell of the score table, as it is printed."""

    mean: float
    std: float  # or standard error (`scores.spread_of`); NaN if it is not known
    num_runs: int
    best: bool  # no mean of the set prints better, and some print worse
    dagger: bool  # the algorithm trained on data of the set's maker
    interval: tuple[float, float] = (math.nan, math.nan)  # scores.binomial_interval
    digits: int = 1  # after the point
    absent: bool = False  # it could have a value, but its runs are missing, which was accepted

    @property
    def mean_text(self) -> str:
        """Mean as it is printed; a dash if there is none, X if its runs are missing."""
        if self.absent:
            return "X"
        return number(self.mean, self.digits)

    @property
    def std_text(self) -> str:
        """Deviation as it is printed; empty for a single run."""
        if math.isnan(self.std):
            return ""
        return number(self.std, self.digits)

    @property
    def interval_text(self) -> str:
        """Interval as it is printed: `70.1 to 74.3`; empty for another measure than accuracy."""
        low, high = self.interval
        if math.isnan(low):
            return ""
        return f"{number(low)} to {number(high)}"


def number(value: float, digits: int = 1) -> str:
    """Return a score as it is printed; a dash for NaN."""
    if math.isnan(value):
        return "-"
    return f"{value:.{digits}f}"


def _cells(
    table: pd.DataFrame,
    columns: Mapping[str, Column],
    daggers: frozenset[tuple[str, str]],
    absent: frozenset[tuple[str, str]],
    error: str,
) -> dict[tuple[str, str], Cell]:
    """Return (algorithm, dataset) -> cell, without intervals.

    table: `scores.score_table`. columns: dataset -> its column. daggers, absent: (algorithm, dataset) so marked.
    error: what ± is, a key of `scores.ERRORS`.
    """
    best = {str(name): _best_text(means, columns[str(name)]) for name, means in table.groupby("dataset")["mean"]}
    cells = {}
    for algorithm, dataset, mean, std, num_runs in table.itertuples(index=False, name=None):
        digits = columns[dataset].digits
        cells[algorithm, dataset] = Cell(
            mean=float(mean),
            std=scores.spread_of(float(std), int(num_runs), error),
            num_runs=int(num_runs),
            best=not math.isnan(mean) and number(mean, digits) == best[dataset],
            dagger=(algorithm, dataset) in daggers,
            digits=digits,
            absent=(algorithm, dataset) in absent,
        )
    return cells


def _best_text(means: pd.Series[float], column: Column) -> str:
    """Return a set's best mean as it is printed; empty if all means print alike, as none is better then."""
    printed = {number(float(mean), column.digits) for mean in means.dropna()}
    if len(printed) < 2:
        return ""
    best = means.max() if column.higher_is_better else means.min()
    return number(float(best), column.digits)


SCORE_DIGITS = 6  # of scores in CSV files; the tests use all digits
UNIT_WORDS = {measures.FRACTION: "percent", measures.find_measure("loss").unit: "nats"}


Answer = TypeVar("Answer", covariant=True)


class Question(Protocol[Answer]):
    """Question whose answer `Analysis.data` keeps: a section (`biasbed.analysis.sections`)."""

    name: ClassVar[str]
    of_tests: ClassVar[bool]  # True if its data are results of `Analysis.pairwise`

    def check(self, options: AnalyzeOptions) -> None: ...

    def compute(self, analysis: Analysis) -> Answer: ...


@dataclass(frozen=True)
class Analysis:
    """Inputs of an analysis and the scores that its rule chose. Fractions are in percent.

    Tests, scores under further rules and sections are computed when somebody asks for them.
    """

    inputs: AnalysisInputs
    options: AnalyzeOptions
    label: Labels  # display names for LaTeX tables and figures
    algorithms: tuple[str, ...]  # in display order
    columns: tuple[Column, ...]  # with values, in the order of the protocol
    sets: tuple[Column, ...]  # the same in display order
    selected: Selected
    rules: RuleComparison  # scores under the rule in use, and under every other
    not_applicable: Mapping[tuple[str, str], frozenset[str]]  # (algorithm, set) -> needs that are not met
    absent: frozenset[tuple[str, str]]  # (algorithm, set) whose runs are missing, which was accepted
    daggers: frozenset[tuple[str, str]]  # (algorithm, set) whose maker made data that the algorithm trained on
    overlaps: strict_setting.Overlaps  # conditions that some algorithm's training resembles
    comparisons: tuple[RankTests, ...]  # on all sets; then the strict setting where it differs
    pairwise: PairwiseResults  # effects, further tests, stability and power
    notes: tuple[str, ...]  # to be read before any number
    computed: dict[str, Any] = field(default_factory=dict, repr=False)  # name of a section -> its data
    shown: dict[Any, Any] = field(default_factory=dict, init=False, repr=False)  # what was made of it (`sections`)

    def __repr__(self) -> str:
        """Return a line, since a notebook prints it; the frames have the rest."""
        size = f"{len(self.algorithms)} algorithms, {len(self.sets)} sets, {len(self.runs)} rows of runs"
        return f"<Analysis of {self.title}: {size}; selection={self.rule.name}>"

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what is shown: tables hold functions, which can't be pickled."""
        return {**vars(self), "shown": {}}

    def data(self, question: Question[Answer]) -> Answer:
        """Return what a section computes. It is computed at the first call."""
        if question.name not in self.computed:
            self.computed[question.name] = on_one_thread(question.compute)(self)
        data: Answer = self.computed[question.name]
        return data

    def compute_ahead(self, questions: Sequence[Question[Any]]) -> None:
        """Compute all tests and these sections now. Otherwise each is computed when it is first used.

        The tests run in forks of this process, beside the sections, if there are processors for it.
        """
        compute_now(self.rules, "scores")
        with self.pairwise.computing():
            for question in questions:
                if not question.of_tests:
                    self.data(question)
            for comparison in self.comparisons:
                compute_now(comparison, "nemenyi")  # its library takes a second to load, while other processes work

    @property
    def collection(self) -> Collection:
        return self.inputs.collection

    @property
    def rule(self) -> Rule:
        return self.inputs.rule

    @property
    def alpha(self) -> float:
        return self.options.alpha

    @property
    def runs(self) -> pd.DataFrame:
        """Run table (`scores.run_table`) of the runs that count."""
        return self.rules.chosen.runs

    @property
    def scores(self) -> pd.DataFrame:
        """Score table (`scores.score_table`)."""
        return self.rules.chosen.scores

    @property
    def tracking_uri(self) -> str:
        """Address of the tracking server, without password."""
        return self.inputs.origin

    @cached_property
    def versions(self) -> Mapping[str, str]:
        """Versions of this program and of the libraries behind its statistics, by name."""
        libraries = ["pandas", "scipy", "scikit-posthocs", "matplotlib"]
        if not self.collection.is_table:  # a table can be analysed without MLflow
            libraries.insert(0, "mlflow")
        programs = {"biasbed": biasbed.__version__, "python": platform.python_version()}
        return programs | {name: importlib.metadata.version(name) for name in libraries}

    @property
    def error(self) -> str:
        """Kind of ± in tables, a key of `scores.ERRORS`."""
        if self.options.error == "auto":
            return self.rule.error
        return self.options.error

    @cached_property
    def duplicates(self) -> pd.DataFrame:
        """Run table (`scores.run_table`) of the finished runs that do not count, as another run has their key."""
        runs = self.collection.duplicates
        return scores.run_table(_select(self.inputs, runs).values, runs, self.columns, self.collection.protocols)

    @cached_property
    def blocks(self) -> pd.DataFrame:
        """Means of the blocks with several columns (`scores.block_scores`)."""
        return scores.block_scores(self.runs, scores.mean_matrix(self.scores), self.columns)

    @property
    def choices(self) -> pd.DataFrame:
        """Runs and steps that every rule chose (`select.choice_table`)."""
        return self.rules.choices

    @property
    def selection(self) -> pd.DataFrame:
        """Scores under every selection rule (`rule_comparison.COLUMNS`)."""
        return self.rules.table

    @property
    def shown_runs(self) -> tuple[Run, ...]:
        """Runs that count, by algorithm in display order."""
        return tuple(sorted(self.collection.runs, key=lambda run: self.algorithms.index(run.algorithm)))

    @property
    def set_names(self) -> tuple[str, ...]:
        return tuple(names_of(self.sets))

    @cached_property
    def cells(self) -> dict[tuple[str, str], Cell]:
        """Score table by (algorithm, column)."""
        columns = by_name(self.sets)
        cells = _cells(self.scores, columns, self.daggers, self.absent, self.error)
        for (algorithm, name), cell in cells.items():
            interval = scores.binomial_interval(cell.mean, columns[name])
            cells[algorithm, name] = replace(cell, interval=interval)
        return cells

    @cached_property
    def averages(self) -> dict[tuple[str, str], Cell]:
        """Means of the blocks that have several columns, by (algorithm, block)."""
        first_columns = {name: columns[0] for name, columns in blocks(self.sets).items()}
        block_of = {column.name: column.block for column in self.sets}
        daggers = frozenset((algorithm, block_of[name]) for algorithm, name in self.daggers)
        absent = frozenset((algorithm, block_of[name]) for algorithm, name in self.absent)
        return _cells(self.blocks, first_columns, daggers, absent, self.error)

    @property
    def units(self) -> str:
        """Units of the scores, in words: `percent`, or `percent; mCE, mFR as printed` if sets differ."""
        units = list(dict.fromkeys(column.unit for column in self.sets))
        if len(units) == 1:
            return UNIT_WORDS.get(units[0], units[0])
        if set(units) == set(UNIT_WORDS):
            return "percent, losses in nats"
        parts = ["percent"] if measures.FRACTION in units else []
        for unit in units:
            names = listed([column.name for column in self.sets if column.unit == unit], 3)
            if unit == measures.PLAIN:
                parts.append(f"{names} as printed")
            elif unit != measures.FRACTION:
                parts.append(f"{names} in {UNIT_WORDS.get(unit, unit)}")
        return "; ".join(parts)

    @property
    def title(self) -> str:
        """Suite, study and protocol; the file's name for a user's table."""
        scope = self.collection.scope
        if self.collection.is_table:
            return scope.study
        num_protocols = len({run.protocol for run in self.collection.unpublished})
        protocol = f"{num_protocols} protocols" if num_protocols > 1 else f"protocol {scope.protocol[:8]}"
        return f"suite {scope.suite}, study {scope.study}, {protocol}"

    @property
    def runs_sentence(self) -> str:
        """Numbers of runs behind the results, and of runs that don't count."""
        collection, design = self.collection, make_design(self.sets)
        num_algorithms = len(collection.algorithms)
        sets = count(len(self.sets), "set")
        if design.noun == "data set":
            sets = f"{len(self.sets)} columns of {count(len(design.blocks), 'data set')}"
        if collection.is_table:
            return f"{count(len(self.runs), 'score')} of {count(num_algorithms, 'algorithm')} on {sets}"
        text = f"{' and '.join(self._count_runs())} of {num_algorithms} algorithms on {sets}"
        uncounted = [f"{count} {status.lower()}" for status, count in sorted(collection.not_finished.items())]
        if collection.duplicates:
            uncounted.append(f"{len(collection.duplicates)} duplicate")
        if uncounted:
            text += f"; not counted: {', '.join(uncounted)}"
        return text

    def _count_runs(self) -> list[str]:
        """Return how many runs of each kind count: own and published ones, evidence, published means."""
        collection = self.collection
        num_means = sum(bool(run.summary) for run in collection.runs)
        num_published = len(collection.runs) - len(collection.unpublished) - num_means
        kinds = []
        if collection.unpublished:
            kinds.append(f"{len(collection.unpublished)} {collection.scope.kind}")
        if num_published:
            kinds.append(f"{num_published} published")
        parts = [f"{' and '.join(kinds)} runs"] if kinds else []
        if collection.evidence:
            parts.append(f"{len(collection.evidence)} that hold out more domains")
        if num_means:
            parts.append(f"{num_means} published rows")
        return parts


def compute(store: RunStore, options: AnalyzeOptions, ahead: Sequence[Question[Any]] = ()) -> Analysis:
    """Read the runs that the options name, and score them.

    ahead: sections that are computed now, with all tests; the others are computed when they are first used. Raises
    UsageError for options that fit no run, Failure if runs are missing or must not be compared.
    """
    for question in ahead:
        question.check(options)
    return compute_from(gather(store, options), options, ahead)


@on_one_thread
def compute_from(inputs: AnalysisInputs, options: AnalyzeOptions, ahead: Sequence[Question[Any]] = ()) -> Analysis:
    """Score the inputs (`compute`). Raises Failure if cells are empty that are not accepted."""
    collection, rule = inputs.collection, inputs.rule
    label = display_names.check_names(options, collection.algorithms, inputs.sets, not collection.is_table)
    # Scores of the rule in use.
    selected = _select(inputs, collection.runs)
    sets, notes_on_sets = _drop_untested(inputs.sets, selected, label)
    overlaps = strict_setting.find_overlaps(collection.runs, sets)
    chosen = rule_comparison.score_rule(rule, selected, collection.runs, sets, collection.protocols, overlaps)
    runs, table = chosen.runs, chosen.scores
    # Cells that may be empty.
    unmet_needs = scores.not_applicable(collection, inputs.sets)
    unprinted = published.unprinted(collection, selected)
    exempt = {*unmet_needs, *unprinted}
    absent = frozenset[tuple[str, str]]()
    if completeness.accepts_empty_cells(rule, options):
        absent = frozenset(scores.find_empty(table, exempt))
    exempt |= absent
    # Notes.
    scope = {"suite": collection.scope.suite, "study": collection.scope.study}
    trainable = not (collection.published or ".py:" in options.selection)  # a user's rule may name no run's steps
    notes = [*collection.notes, *selected.notes, *notes_on_sets, *scores.not_applicable_notes(unmet_needs, label)]
    notes += published.unprinted_notes(unprinted, collection.is_table, label)
    notes += published.summary_notes(collection, label)
    notes += scores.check_complete(table, selected.missing, collection.runs, scope, trainable, label, exempt)
    notes += scores.notes(table, runs, sets, collection.protocol, label)
    # Tests.
    daggers = scores.daggers(collection.runs, sets)
    comparisons = strict_setting.compare_settings(table, chosen.reduced, sets, daggers, options.alpha)
    rules = RuleComparison(chosen, collection, inputs.histories, sets, options, exempt, overlaps)
    tests = PairwiseResults(comparisons, (runs, chosen.reduced), make_design(sets), rules.matrices, options)
    if tests.skipped:
        notes.append(tests.skipped)
    analysis = Analysis(
        inputs=inputs,
        options=options,
        label=label,
        algorithms=display_names.order_rows(collection.algorithms, comparisons[0].mean_ranks, options.order),
        columns=sets,
        sets=display_names.order_sets(sets, options.set_order),
        selected=selected,
        rules=rules,
        not_applicable=unmet_needs,
        absent=absent,
        daggers=daggers,
        overlaps=overlaps,
        comparisons=comparisons,
        pairwise=tests,
        notes=tuple(notes),
    )
    if ahead:
        analysis.compute_ahead(ahead)
    return analysis


def _select(inputs: AnalysisInputs, runs: Sequence[Run]) -> Selected:
    """Return what the rule in use chooses of these runs."""
    collection = inputs.collection
    pools = pools_of(runs, inputs.histories, inputs.sets, collection.protocols, collection.evidence)
    return select(inputs.rules, pools, inputs.sets, collection.protocols)


def _drop_untested(sets: Sequence[Column], selected: Selected, label: Labels) -> tuple[tuple[Column, ...], list[str]]:
    """Return the columns with values at the rule's steps, and notes on those that are tested at other steps only."""
    without_values = {column.name for column in sets} - set(selected.values["dataset"].unique())
    reasons: dict[str, str] = {}
    for name in sorted(without_values):
        missing = [value for value in selected.missing if value.dataset == name]
        if missing and all(value.at_other_steps for value in missing):
            reasons[name] = missing[0].why
    if len(reasons) == len(sets):
        return tuple(sets), []
    notes = [f"{label(name)} is not applicable under this rule: {reason}" for name, reason in reasons.items()]
    return tuple(column for column in sets if column.name not in reasons), notes
