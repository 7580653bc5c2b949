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
from biasbed.system.one_thread import on_one_thread

if TYPE_CHECKING:
    from biasbed.analysis.options import AnalyzeOptions
    from biasbed.analysis.runs.store import RunStore
    from biasbed.analysis.statistics.friedman import RankTests


@dataclass(frozen=True)
class Cell:
    """One cell of the score table, as it is printed."""

    mean: float
    std: float  # or the standard error (`scores.spread_of`); NaN if it is not known
    num_runs: int
    best: bool  # no mean of the set prints better, and some print worse
    dagger: bool  # the algorithm trained on data of the set's maker
    interval: tuple[float, float] = (math.nan, math.nan)  # scores.binomial_interval
    digits: int = 1  # after the point
    absent: bool = False  # it could have a value, but its runs are missing, which was accepted

    @property
    def mean_text(self) -> str:
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
        """Interval as it is printed; empty for another measure than accuracy."""
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
    """Return (algorithm, dataset) -> cell of a score table.

    columns: dataset -> its column; absent: (algorithm, dataset) whose runs are missing; error: what ± is.
    """
    best = {str(name): _best(means, columns[str(name)]) for name, means in table.groupby("dataset")["mean"]}
    cells = {}
    for algorithm, dataset, mean, std, num_runs in table.itertuples(index=False, name=None):
        key, digits = (algorithm, dataset), columns[dataset].digits
        is_best = not math.isnan(mean) and number(mean, digits) == best[dataset]
        spread = scores.spread_of(float(std), int(num_runs), error)
        cell = Cell(float(mean), spread, int(num_runs), is_best, key in daggers, digits=digits)
        cells[key] = replace(cell, absent=key in absent)
    return cells


def _best(means: pd.Series[float], column: Column) -> str:
    """Return the best mean of a set as it is printed; empty if all print alike, as none is better then."""
    printed = {number(float(mean), column.digits) for mean in means.dropna()}
    best = float(means.min())
    if column.higher_is_better:
        best = float(means.max())
    if len(printed) > 1:
        return number(best, column.digits)
    return ""


def scores_by_run(runs: pd.DataFrame) -> dict[tuple[str, str], float]:
    """Return (run id, set) -> score of a run table."""
    places = zip(runs["run_id"].tolist(), runs["dataset"].tolist(), strict=True)
    return dict(zip(places, runs["score"].astype(float).tolist(), strict=True))


SCORE_DIGITS = 6  # of scores in CSV files; the tests use all digits
UNIT_WORDS = {measures.FRACTION: "percent", measures.find_measure("loss").unit: "nats"}


Answer = TypeVar("Answer", covariant=True)


class Question(Protocol[Answer]):
    """Question whose answer `Analysis.data` keeps: a section (`biasbed.analysis.sections`)."""

    name: ClassVar[str]
    of_tests: ClassVar[bool]  # its data are those of the tests

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
    daggers: frozenset[tuple[str, str]]  # (algorithm, set)
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
        """Compute all tests and these sections, which are otherwise computed at their first use one by one.

        Tests are computed in copies of this process if there are processors for it.
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
        return versions(self.collection.is_table)

    @property
    def error(self) -> str:
        """Kind of ± in tables, of `scores.ERRORS`."""
        if self.options.error == "auto":
            return self.rule.error
        return self.options.error

    @cached_property
    def duplicates(self) -> pd.DataFrame:
        """Run table (`scores.run_table`) of the runs that do not count."""
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
        """Units of the scores, in words."""
        units = list(dict.fromkeys(column.unit for column in self.sets))
        if len(units) == 1:
            return UNIT_WORDS.get(units[0], units[0])
        if set(units) == set(UNIT_WORDS):
            return "percent, losses in nats"
        others = []
        for column in self.sets:
            if column.unit != measures.FRACTION:
                others.append(f"{column.name} in {UNIT_WORDS.get(column.unit, column.unit)}")
        return ", ".join(["percent", *others] if len(others) < len(self.sets) else others)

    @property
    def title(self) -> str:
        scope = self.collection.scope
        if self.collection.is_table:
            return scope.study
        number = len({run.protocol for run in self.collection.unpublished})
        protocol = f"{number} protocols" if number > 1 else f"protocol {scope.protocol[:8]}"
        return f"suite {scope.suite}, study {scope.study}, {protocol}"

    @property
    def runs_sentence(self) -> str:
        """Numbers of runs behind the results, and of runs that don't count."""
        c = self.collection
        number_of_sets = f"{len(self.sets)} set{'s' * (len(self.sets) != 1)}"
        if c.is_table:
            count = f"{len(self.runs)} score{'s' * (len(self.runs) != 1)}"
            return f"{count} of {len(c.algorithms)} algorithm{'s' * (len(c.algorithms) != 1)} on {number_of_sets}"
        design, sets = make_design(self.sets), f"{len(self.sets)} sets"
        if design.noun == "data set":
            sets = f"{len(self.sets)} columns of {len(design.blocks)} data set{'s' * (len(design.blocks) != 1)}"
        text = f"{' and '.join(self._count_runs())} of {len(c.algorithms)} algorithms on {sets}"
        others = [f"{count} {status.lower()}" for status, count in sorted(c.not_finished.items())]
        if c.duplicates:
            others.append(f"{len(c.duplicates)} duplicate")
        if others:
            text += f"; not counted: {', '.join(others)}"
        return text

    def _count_runs(self) -> list[str]:
        """Return how many runs of each kind count: own and published ones, evidence, published means."""
        c = self.collection
        num_means = sum(bool(run.summary) for run in c.runs)
        num_published = len(c.runs) - len(c.unpublished) - num_means
        kinds = []
        if c.unpublished:
            kinds.append(f"{len(c.unpublished)} {c.scope.kind}")
        if num_published:
            kinds.append(f"{num_published} published")
        parts = [f"{' and '.join(kinds)} runs"] if kinds else []
        if c.evidence:
            parts.append(f"{len(c.evidence)} that hold out more domains")
        if num_means:
            parts.append(f"{num_means} published rows")
        return parts


def compute(store: RunStore, options: AnalyzeOptions, ahead: Sequence[Question[Any]] = ()) -> Analysis:
    """Read the runs that the options name, and score them.

    ahead: sections that are computed with all tests now; others are when somebody asks for them. Raises UsageError for
    options that fit no run, Failure if runs are missing or must not be compared.
    """
    for question in ahead:
        question.check(options)
    return compute_from(gather(store, options), options, ahead)


@on_one_thread
def compute_from(inputs: AnalysisInputs, options: AnalyzeOptions, ahead: Sequence[Question[Any]] = ()) -> Analysis:
    """Score the inputs (`compute`). Raises Failure if cells are empty that are not accepted."""
    collection, sets, rule, histories = inputs.collection, inputs.sets, inputs.rule, inputs.histories
    label = display_names.check_names(options, collection.algorithms, sets, not collection.is_table)
    lacking = scores.not_applicable(collection, sets)
    selected = _select(inputs, collection.runs)
    unprinted = published.unprinted(collection, selected)
    sets, untested = _drop_untested(sets, selected, label)
    daggers, overlaps = scores.daggers(collection.runs, sets), strict_setting.find_overlaps(collection.runs, sets)
    chosen = rule_comparison.score_rule(rule, selected, collection.runs, sets, collection.protocols, overlaps)
    runs, table = chosen.runs, chosen.scores
    accepted = completeness.accepts_empty_cells(rule, options)
    absent = frozenset(scores.find_empty(table, {**lacking, **unprinted}) if accepted else ())
    exempt = {**lacking, **unprinted, **dict.fromkeys(absent, frozenset[str]())}
    scope = {"suite": collection.scope.suite, "study": collection.scope.study}
    notes = [*collection.notes, *selected.notes, *untested, *scores.not_applicable_notes(lacking, label)]
    notes += published.unprinted_notes(unprinted, collection.is_table, label)
    notes += published.summary_notes(collection, label)
    trainable = not (collection.published or ".py:" in options.selection)  # a user's rule may name no run's steps
    notes += scores.check_complete(table, selected.missing, collection.runs, scope, trainable, label, exempt)
    notes += scores.notes(table, runs, sets, collection.protocol, label)
    comparisons = strict_setting.compare_settings(table, chosen.reduced, sets, daggers, options.alpha)
    rules = RuleComparison(chosen, collection, histories, sets, options, exempt, overlaps)
    tests = PairwiseResults(comparisons, (runs, chosen.reduced), make_design(sets), rules.matrices, options)
    notes += filter(None, [tests.skipped])
    analysis = Analysis(
        inputs=inputs,
        options=options,
        label=label,
        algorithms=display_names.order_rows(collection.algorithms, comparisons[0].mean_ranks, options.order),
        columns=sets,
        sets=display_names.order_sets(sets, options.set_order),
        selected=selected,
        rules=rules,
        not_applicable=lacking,
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


LIBRARIES = ("pandas", "scipy", "scikit-posthocs", "matplotlib")


def versions(is_table: bool = False) -> dict[str, str]:
    """Return the versions of this program and of the libraries behind its statistics, by name."""
    ours = {"biasbed": biasbed.__version__, "python": platform.python_version()}
    libraries = LIBRARIES if is_table else ("mlflow", *LIBRARIES)  # which may not be there for a table
    return ours | {name: importlib.metadata.version(name) for name in libraries}
