"""One frozen result of an analysis: computed here once, printed by summary, tables, figures and report."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pandas as pd

from biasbed import measures
from biasbed.analysis import (
    criteria,
    cues,
    curves,
    effective,
    grain,
    layouts,
    names,
    regret,
    scores,
    single_runs,
    spread,
    strict,
    texture,
)
from biasbed.analysis.columns import Column, blocks, make_design
from biasbed.analysis.inputs import AnalysisInputs, gather
from biasbed.analysis.names import Labels
from biasbed.analysis.runs.run import Collection, Run
from biasbed.analysis.selection import completeness, published, reproduction
from biasbed.analysis.selection.pools import History, pools_of
from biasbed.analysis.selection.rules import Rule
from biasbed.analysis.selection.select import Selected, select
from biasbed.analysis.statistics import pairwise
from biasbed.analysis.statistics.pairwise import PairwiseResults
from biasbed.analysis.versions import versions
from biasbed.system import places

if TYPE_CHECKING:
    from biasbed.analysis.options import AnalyzeOptions
    from biasbed.analysis.runs.store import RunStore
    from biasbed.analysis.statistics.friedman import RankTests


@dataclass(frozen=True)
class Cell:
    """One cell of the score table, as it is printed."""

    mean: float
    std: float  # or the standard error, as `scores.spread_of` has it; NaN where it is not known
    num_runs: int
    best: bool  # no other mean of the set prints better, and some print worse
    dagger: bool  # the algorithm trained on data of the set's maker
    interval: tuple[float, float] = (math.nan, math.nan)  # scores.binomial_interval
    digits: int = 1  # after the point
    absent: bool = False  # it could have a value, and what would give it one was accepted to be missing

    @property
    def mean_text(self) -> str:
        return "X" if self.absent else number(self.mean, self.digits)

    @property
    def std_text(self) -> str:
        """Empty for a single run."""
        return "" if math.isnan(self.std) else number(self.std, self.digits)

    @property
    def interval_text(self) -> str:
        """Empty for another measure than accuracy."""
        low, high = self.interval
        return "" if math.isnan(low) else f"{number(low)} to {number(high)}"


def number(value: float, digits: int = 1) -> str:
    """A score as it is printed; a dash where there is none."""
    return "-" if math.isnan(value) else f"{value:.{digits}f}"


def _cells(
    table: pd.DataFrame,
    columns: Mapping[str, Column],
    daggers: frozenset[tuple[str, str]],
    absent: frozenset[tuple[str, str]],
    error: str,
) -> dict[tuple[str, str], Cell]:
    """(algorithm, dataset) -> what is printed of a score table.

    columns: dataset -> how it is measured; absent: places whose runs are missing; error: what ± is.
    """
    best = {str(name): _best(own, columns[str(name)]) for name, own in table.groupby("dataset")["mean"]}
    cells = {}
    for algorithm, dataset, mean, std, num_runs in table.itertuples(index=False, name=None):
        digits = columns[dataset].digits
        is_best = not math.isnan(mean) and number(mean, digits) == best[dataset]
        place = algorithm, dataset
        spread = scores.spread_of(float(std), int(num_runs), error)
        cell = Cell(float(mean), spread, int(num_runs), is_best, place in daggers, digits=digits)
        cells[place] = replace(cell, absent=place in absent)
    return cells


def _best(means: pd.Series[float], column: Column) -> str:
    """The best mean of a set as it is printed; empty where all print alike, as none is better then."""
    printed = {number(float(mean), column.digits) for mean in means.dropna()}
    best = float(means.max() if column.higher_is_better else means.min())
    return number(best, column.digits) if len(printed) > 1 else ""


def scores_by_run(runs: pd.DataFrame) -> dict[tuple[str, str], float]:
    """(run id, set) -> score, from a run table."""
    return dict(zip(zip(runs["run_id"], runs["dataset"], strict=True), runs["score"].astype(float), strict=True))


UNIT_WORDS = {measures.FRACTION: "percent", measures.of("loss").unit: "nats"}


@dataclass(frozen=True)
class Analysis:
    """All that was found. Scores in percent where they are fractions."""

    options: AnalyzeOptions
    collection: Collection
    algorithms: tuple[str, ...]  # in display order
    sets: tuple[Column, ...]  # that count, in display order
    label: Labels  # what LaTeX tables and figures show for a name
    rule: Rule
    alpha: float
    notes: tuple[str, ...]  # to be read before any number
    runs: pd.DataFrame  # scores.run_table of the runs that count
    duplicates: pd.DataFrame  # the same of those that don't
    scores: pd.DataFrame  # scores.score_table
    blocks: pd.DataFrame  # scores.block_scores: the means of those that have several columns
    not_applicable: Mapping[tuple[str, str], frozenset[str]]  # (algorithm, set) -> what the method lacks there
    absent: frozenset[tuple[str, str]]  # (algorithm, set) without a value, as runs are missing and that was accepted
    choices: pd.DataFrame  # select.choice_table: which run at which steps stands for what, under every rule
    winners: criteria.Winners  # of a search: what every rule chose, and its test values
    measured: pd.DataFrame  # regret.measured_by_rule: what every rule chose, by the measures of biased data
    daggers: frozenset[tuple[str, str]]  # (algorithm, set)
    overlaps: strict.Overlaps  # conditions that some row's training resembles
    comparisons: tuple[RankTests, ...]  # on all sets; then the strict setting where it differs
    pairwise: PairwiseResults  # effects, further tests, stability and power
    selection: pd.DataFrame  # regret.table: the scores under every selection rule
    labels: pd.DataFrame  # regret.bought: what rules that take more labels choose better
    grain: pd.DataFrame  # grain.table: intervals of selected scores, and what one image is worth
    spread: pd.DataFrame  # spread.table: deviations over runs and epochs, of last_n; else empty
    effective: pd.DataFrame  # effective.table: accuracy on shifted sets above what that elsewhere predicts
    over_images: single_runs.ComparedOverImages  # rows with one run, by their decisions on images
    cues: pd.DataFrame  # cues.by_category: decisions for shape and texture, by category of the shape
    laid_out: pd.DataFrame  # layouts.table: values of tables that are laid out as a paper's
    reproduction: pd.DataFrame | None  # reproduction.cards: ours beside the published numbers, where asked for
    curves: pd.DataFrame  # columns algorithm, run_id, dataset, step, score; the headline of each set
    tracking_uri: str  # without password
    versions: Mapping[str, str]

    def __repr__(self) -> str:
        """Return a line, since a notebook prints it; the frames have the rest."""
        size = f"{len(self.algorithms)} algorithms, {len(self.sets)} sets, {len(self.runs)} rows of runs"
        return f"<Analysis of {self.title}: {size}; selection={self.rule.name}>"

    @property
    def error(self) -> str:
        """What ± is in tables, of `scores.ERRORS`."""
        return self.rule.error if self.options.error == "auto" else self.options.error

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

    @cached_property
    def texture(self) -> pd.DataFrame:
        """Shape bias beside the reference's, as `texture.table` has it."""
        return texture.table(self.runs, self.algorithms, self.options)

    @property
    def shown_runs(self) -> tuple[Run, ...]:
        """The runs that count, by algorithm in display order."""
        return tuple(sorted(self.collection.runs, key=lambda run: self.algorithms.index(run.algorithm)))

    @property
    def set_names(self) -> tuple[str, ...]:
        return tuple(entry.name for entry in self.sets)

    @cached_property
    def cells(self) -> dict[tuple[str, str], Cell]:
        """The score table by (algorithm, column)."""
        columns = {entry.name: entry for entry in self.sets}
        found = _cells(self.scores, columns, self.daggers, self.absent, self.error)
        return {
            place: replace(cell, interval=scores.binomial_interval(cell.mean, columns[place[1]]))
            for place, cell in found.items()
        }

    @cached_property
    def averages(self) -> dict[tuple[str, str], Cell]:
        """The means of the blocks that have several columns, by (algorithm, block)."""
        of_block = blocks(self.sets)
        of_column = {column.name: column.block for column in self.sets}
        daggers = frozenset((algorithm, of_column[name]) for algorithm, name in self.daggers)
        absent = frozenset((algorithm, of_column[name]) for algorithm, name in self.absent)
        return _cells(self.blocks, {name: same[0] for name, same in of_block.items()}, daggers, absent, self.error)

    @property
    def units(self) -> str:
        """What the scores are measured in, in words."""
        units = list(dict.fromkeys(entry.unit for entry in self.sets))
        if len(units) == 1:
            return UNIT_WORDS.get(units[0], units[0])
        if set(units) == set(UNIT_WORDS):
            return "percent, losses in nats"
        listed = [f"{entry.name} in {UNIT_WORDS.get(entry.unit, entry.unit)}" for entry in self.sets]
        others = [text for text, entry in zip(listed, self.sets, strict=True) if entry.unit != measures.FRACTION]
        return ", ".join(["percent", *others] if len(others) < len(listed) else others)

    @property
    def title(self) -> str:
        scope = self.collection.scope
        number = len({run.protocol for run in self.collection.own})
        protocol = f"{number} protocols" if number > 1 else f"protocol {scope.protocol[:8]}"
        return f"suite {scope.suite}, study {scope.study}, {protocol}"

    @property
    def runs_sentence(self) -> str:
        """How many runs stand behind the numbers, and how many don't."""
        c = self.collection
        counts = [f"{len(c.own)} {c.scope.kind}"] if c.own else []
        means = sum(bool(run.summary) for run in c.runs)
        published = len(c.runs) - len(c.own) - means
        counts += [f"{published} published"] if published else []
        known = make_design(self.sets)
        sets = (
            f"{len(self.sets)} columns of {len(known.blocks)} data set{'s' * (len(known.blocks) != 1)}"
            if known.noun == "data set"
            else f"{len(self.sets)} sets"
        )
        parts = [f"{' and '.join(counts)} runs"] if counts else []
        parts += [f"{len(c.evidence)} that hold out more domains"] if c.evidence else []
        parts += [f"{means} published rows"] if means else []
        text = f"{' and '.join(parts)} of {len(c.algorithms)} algorithms on {sets}"
        others = [f"{count} {status.lower()}" for status, count in sorted(c.not_finished.items())]
        others += [f"{len(c.duplicates)} duplicate"] if c.duplicates else []
        return text + (f"; not counted: {', '.join(others)}" if others else "")


def compute(store: RunStore, options: AnalyzeOptions) -> Analysis:
    """Reads the runs that the options ask for and computes everything.

    Raises UsageError for options that fit no run, Failure where runs are missing or must not be compared.
    """
    wanted, material = layouts.wanted(options), gather(store, options)
    collection, sets, rule, histories = material.collection, material.sets, material.rule, material.histories
    label = names.checked(options, collection.algorithms, sets)
    lacking = scores.not_applicable(collection, sets)
    selected = _selected(material, collection.runs)
    unprinted = published.unprinted(collection, selected)
    sets, untested = _tested(sets, selected)
    runs = scores.run_table(selected.values, collection.runs, sets, collection.protocols)
    table = scores.score_table(runs, collection.algorithms, [entry.name for entry in sets])
    accepted = completeness.accepts_empty_cells(rule, options)
    absent = frozenset(scores.empty(table, {**lacking, **unprinted}) if accepted else ())
    exempt = {**lacking, **unprinted, **dict.fromkeys(absent, frozenset[str]())}
    scope = {"suite": collection.scope.suite, "study": collection.scope.study}
    notes = [*collection.notes, *selected.notes, *untested, *scores.not_applicable_notes(lacking)]
    notes += published.unprinted_notes(unprinted) + published.summary_notes(collection)
    trainable = not (collection.published or ".py:" in options.selection)  # a rule of one's own may name no run's steps
    notes += scores.check_complete(table, selected.missing, collection.runs, scope, trainable, exempt)
    notes += scores.notes(table, runs, sets, collection.protocol)
    daggers = scores.daggers(collection.runs, sets)
    overlaps = strict.overlapped(collection.runs, sets)
    chosen = regret.scores_under(rule, selected, collection.runs, sets, collection.protocols, exempt, overlaps)
    rules = regret.under_every_rule(chosen, collection, histories, sets, options, exempt, overlaps)
    reduced = strict.without(runs, selected, sets, collection.protocols, overlaps)
    comparisons = strict.compare_settings(table, reduced, sets, daggers, options.alpha)
    found = pairwise.gather(comparisons, (runs, reduced), make_design(sets), regret.matrices(rules, sets), options)
    notes += [found.skipped] if found.skipped else []
    return Analysis(
        options=options,
        collection=collection,
        algorithms=names.order_rows(collection.algorithms, comparisons[0].mean_ranks, options.order, label),
        sets=names.order_sets(sets, options.set_order, label),
        label=label,
        rule=rule,
        alpha=options.alpha,
        notes=tuple(notes),
        runs=runs,
        duplicates=_duplicates(material, sets),
        scores=table,
        blocks=scores.block_scores(runs, scores.mean_matrix(table), sets),
        not_applicable=lacking,
        absent=absent,
        daggers=daggers,
        overlaps=overlaps,
        comparisons=comparisons,
        pairwise=found,
        **_of_rules(rules, histories, collection, sets, options),
        spread=spread.table(collection.runs, histories, sets, material.rules, options.n),
        effective=effective.table(scores.mean_matrix(table), sets, options),
        **_of_decisions(store, material, selected, runs, sets, options),
        laid_out=layouts.table(wanted, selected, sets, collection.protocols),
        reproduction=_reproduction(material, runs, options),
        curves=curves.table(histories, collection.own or collection.runs, sets),
        tracking_uri=places.public_uri(store.uri),
        versions=versions(),
    )


def _of_rules(
    rules: Sequence[regret.RuleScores],
    histories: Mapping[str, History],
    collection: Collection,
    sets: Sequence[Column],
    options: AnalyzeOptions,
) -> dict[str, Any]:
    """What is said of all selection rules together, by field."""
    choices = regret.choices(rules)
    return {
        "choices": choices,
        "winners": criteria.together([rule.winners for rule in rules]),
        "measured": regret.measured_by_rule(rules),
        "selection": regret.table(rules, sets),
        "labels": regret.bought(rules, sets, options.alpha, options.bootstrap),
        "grain": grain.table(choices, histories, collection, sets),
    }


def _of_decisions(
    store: RunStore,
    material: AnalysisInputs,
    selected: Selected,
    runs: pd.DataFrame,
    sets: Sequence[Column],
    options: AnalyzeOptions,
) -> dict[str, Any]:
    """What files of decisions tell, by field."""
    collection = material.collection
    relies = texture.table(runs, collection.algorithms, options)
    return {
        "over_images": single_runs.gather(store, collection, sets, selected.values, options),
        "cues": cues.by_category(store, collection, relies, selected.values),
    }


def _selected(material: AnalysisInputs, runs: Sequence[Run]) -> Selected:
    collection = material.collection
    pools = pools_of(runs, material.histories, material.sets, collection.protocols, collection.evidence)
    return select(material.rules, pools, material.sets, collection.protocols)


def _duplicates(material: AnalysisInputs, sets: Sequence[Column]) -> pd.DataFrame:
    """The run table of the runs that don't count."""
    runs = material.collection.duplicates
    return scores.run_table(_selected(material, runs).values, runs, sets, material.collection.protocols)


def _tested(sets: Sequence[Column], selected: Selected) -> tuple[tuple[Column, ...], list[str]]:
    """The columns that the rule's steps have values for, and a note on those that are tested at other steps only."""
    without = {column.name for column in sets} - set(selected.values["dataset"])
    reasons = {name: [m for m in selected.missing if m.dataset == name] for name in sorted(without)}
    other = [name for name, found in reasons.items() if found and all(m.at_other_steps for m in found)]
    if len(other) == len(sets):
        return tuple(sets), []
    notes = [f"{name} is not applicable under this rule: {reasons[name][0].why}" for name in other]
    return tuple(column for column in sets if column.name not in other), notes


def _reproduction(material: AnalysisInputs, runs: pd.DataFrame, options: AnalyzeOptions) -> pd.DataFrame | None:
    """The card that compare=published asks for."""
    if options.compare == "none":
        return None
    ours = material.collection.own
    trained = {run.algorithm for run in ours if run.kind != "evaluate"}
    own = runs[runs["run_id"].isin([run.id for run in ours])]
    tested = {run.algorithm for run in ours} - trained
    how = (options.alpha, options.tolerance, tested)
    return reproduction.cards(material.studies, material.rule.name, own, material.histories, *how)
