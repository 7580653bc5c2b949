"""Selection rules compared on the same runs: scores under each, and the winners of a search.

The Align-Conflict paper's table 4 has a row per criterion by which hyper-parameters and epochs of a search were chosen:
the means over methods of all measures of the test set. Nothing but the search itself is trained for it; so the later
stages of a search began with the best values by the search's own objective, whatever the criterion.
"""

from __future__ import annotations

import functools
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

import pandas as pd

from biasbed import measures, record
from biasbed.analysis.columns import Column, measured_columns, names_of
from biasbed.analysis.comparisons.strict_setting import NONE, Overlaps, rescore_without, score_table_like
from biasbed.analysis.runs.run import Collection, Run
from biasbed.analysis.scores import block_matrix, find_empty, mean_matrix, published_means, run_table, score_table
from biasbed.analysis.selection import completeness, published
from biasbed.analysis.selection.bias_measures import measure_choices
from biasbed.analysis.selection.pools import History, pools_of
from biasbed.analysis.selection.rules import SETTLED_RULES, AsPublished, Rule
from biasbed.analysis.selection.select import (
    CHOICE_COLUMNS,
    ChosenRun,
    Rules,
    Selected,
    choice_table,
    known_rule,
    rule_names,
    rules_of,
    select,
)
from biasbed.analysis.statistics.friedman import DIGITS
from biasbed.analysis.statistics.pairwise import BlockMatrices
from biasbed.errors import Failure, UsageError
from biasbed.system.forks import forked
from biasbed.system.one_thread import on_one_thread

if TYPE_CHECKING:
    from biasbed.analysis.options import AnalyzeOptions

ORACLE = "best_epoch"  # each set's own best epoch, an upper bound for rules that take one epoch
COLUMNS = ("rule", "oracle", "labels", "algorithm", "dataset", "mean", "std", "num_runs", "gap", "gap_std", "skipped")
WINNER_COLUMNS = ("rule", "oracle", "labels", "algorithm", "cell", "repeat", "dataset", "run_id", "trial")
CRITERION_COLUMNS = ("rule", "oracle", "labels", "dataset", "num_algorithms")
# Columns of run tables by which rules are compared.
COMPARED = ("algorithm", "cell", "dataset", "score", "run_id", "replicate", *measures.SUMMARY)


@dataclass(frozen=True)
class Winners:
    """Trials of a search that rules chose; empty without a search."""

    each: pd.DataFrame  # WINNER_COLUMNS, settings that the search varied, then all measures of the test sets, as shown
    settings: tuple[str, ...] = ()  # columns of `each` that are settings
    measures: tuple[str, ...] = ()  # columns of `each` that are measures
    digits: Mapping[str, int] = field(default_factory=dict)  # after the point, of the measures that reports print

    @property
    def means(self) -> pd.DataFrame:
        """`CRITERION_COLUMNS` and all measures: means by rule and set over the methods that all rules have.

        A method counts with its mean over repeats. NaN if one of the methods has no value.
        """
        names = list(self.measures)
        if self.each.empty:
            return pd.DataFrame(columns=[*CRITERION_COLUMNS, *names])
        keys = ["rule", "oracle", "labels", "dataset"]

        def mean(values: pd.Series[float]) -> float:
            return float(values.mean(skipna=False))

        of_methods = under_every_rule(self.each).groupby([*keys, "algorithm"], sort=False)[names].agg(mean)
        by_rule = of_methods.groupby(keys, sort=False)
        means = by_rule.agg(mean).assign(num_algorithms=by_rule.size()).round(DIGITS).reset_index()
        return means[[*CRITERION_COLUMNS, *names]]


NO_WINNERS = Winners(pd.DataFrame(columns=list(WINNER_COLUMNS)))


@dataclass(frozen=True)
class RuleScores:
    """Scores of every run under one rule and their table, or the reason why there are none."""

    name: str
    oracle: bool = False
    runs: pd.DataFrame = field(default_factory=pd.DataFrame)  # scores.run_table; of other rules `COMPARED`
    scores: pd.DataFrame = field(default_factory=pd.DataFrame)  # scores.score_table
    reduced: pd.DataFrame = field(default_factory=pd.DataFrame)  # strict_setting.rescore_without of `runs`
    choices: pd.DataFrame = field(default_factory=pd.DataFrame)  # select.choice_table
    winners: Winners = NO_WINNERS
    measured: pd.DataFrame = field(default_factory=pd.DataFrame)  # bias_measures.measure_choices
    skipped: str = ""  # the reason; the tables are empty then
    needs: str = ""  # labels that it takes besides the classes of validation images
    labels: str = ""  # `Rule.labels`


@dataclass(frozen=True)
class RuleComparison:
    """Scores under the rule in use and, computed when they are first used, under every other rule that fits these runs.

    All rules see the same complete histories; published numbers have only the rules that they were published under. A
    rule that these runs don't allow (last_n with more epochs than there are) is skipped with the reason. Models that
    are only tested have no other rule.
    """

    chosen: RuleScores
    collection: Collection
    histories: Mapping[str, History]
    sets: Sequence[Column]
    options: AnalyzeOptions
    exempt: Container[tuple[str, str]]  # (row, column) that can't have a value
    overlaps: Overlaps

    @cached_property
    @on_one_thread
    def scores(self) -> list[RuleScores]:
        """Scores under every rule, those of the rule in use first. The others are scored in parallel processes."""
        is_published = self.collection.published
        names = self.collection.published_by_rule if is_published else rule_names(self.collection.protocol)
        tasks = []
        for name in names:
            if name and self.chosen.name not in (name, *SETTLED_RULES):
                tasks.append(functools.partial(_score_other, name, self))
        with forked(tasks, "scored rules") as others:
            return [self.chosen, *others.finish()]

    @cached_property
    def choices(self) -> pd.DataFrame:
        """Runs and steps that every rule chose (`select.choice_table`)."""
        return pd.concat([rule.choices for rule in self.scores if not rule.skipped], ignore_index=True)

    @cached_property
    def table(self) -> pd.DataFrame:
        """Scores under every rule (`compare_rules`)."""
        return compare_rules(self.scores, self.sets)

    def matrices(self) -> BlockMatrices:
        """Return the block matrices of the other rules that have all algorithms of the rule in use."""
        chosen, *others = self.scores
        algorithms = set(chosen.scores["algorithm"])
        all_sets, strict = {}, {}
        for rule in others:
            if not rule.skipped and set(rule.scores["algorithm"]) == algorithms:
                all_sets[rule.name] = block_matrix(mean_matrix(rule.scores), self.sets)
                strict_scores = score_table_like(rule.reduced, rule.scores)
                strict[rule.name] = block_matrix(mean_matrix(strict_scores), self.sets)
        return BlockMatrices(all_sets, strict)


def _score_other(name: str, compared: RuleComparison) -> RuleScores:
    """Return the scores of a rule that is not in use, or the reason why there are none."""
    collection, sets, options = compared.collection, compared.sets, compared.options
    runs = published.runs_under(collection, name)
    rules: Rules = {}  # none for published numbers, which were selected by their papers
    try:
        if not collection.published:
            rules = rules_of(functools.partial(known_rule, name, options.n), collection, sets)
        rule = next(iter(rules.values()), None) or AsPublished(name, options.n)
        pools = pools_of(runs, compared.histories, sets, collection.protocols, collection.evidence)
        completeness.check(rule, pools, collection, options)
        selected = select(rules, pools, sets, collection.protocols)
    except (UsageError, Failure) as error:
        # Further lines of the error advise on the rule in use.
        reason = " ".join(line.strip() for line in str(error).splitlines()[:2])
        return RuleScores(name, skipped=reason)
    scores = score_rule(rule, selected, runs, sets, collection.protocols, compared.overlaps)
    empty = find_empty(scores.scores, compared.exempt)
    if empty:
        reason = f"{len(empty)} cell(s) of its score table would be empty"
        return RuleScores(rule.name, rule.oracle, skipped=reason)
    return replace(scores, runs=_compared_columns(scores.runs), reduced=_compared_columns(scores.reduced))


def _compared_columns(runs: pd.DataFrame) -> pd.DataFrame:
    """Return only the columns of a run table by which rules are compared: a process has to send what it returns."""
    return runs[[name for name in runs if name in COMPARED]]


def score_rule(
    rule: Rule,
    selected: Selected,
    runs: Sequence[Run],
    sets: Sequence[Column],
    protocols: Mapping[str, record.Protocol],
    overlaps: Overlaps = NONE,
) -> RuleScores:
    """Return the tables of what a rule has chosen of these runs."""
    table = run_table(selected.values, runs, sets, protocols)
    choices = choice_table(rule, selected)
    return RuleScores(
        name=rule.name,
        oracle=rule.oracle,
        runs=table,
        scores=score_table(table, list(dict.fromkeys(run.algorithm for run in runs)), names_of(sets)),
        reduced=rescore_without(table, selected, overlaps),
        choices=choices,
        winners=choose_winners(choices, rule, selected),
        measured=measure_choices(selected),
        needs=" and ".join(rule.needs),
        labels=rule.labels,
    )


def compare_rules(rules: Sequence[RuleScores], sets: Sequence[Column]) -> pd.DataFrame:
    """Return `COLUMNS`, one row per rule, algorithm and set.

    gap: by how much the oracle is better in each run, mean over runs; empty without an oracle. gap_std: its standard
    deviation over runs (n - 1).
    """
    sign = {column.name: 1.0 if column.higher_is_better else -1.0 for column in sets}
    oracle = next((rule.runs for rule in rules if rule.name == ORACLE and not rule.skipped), None)
    frames = []
    for rule in rules:
        if rule.skipped:
            frames.append(pd.DataFrame([{"rule": rule.name, "oracle": rule.oracle, "skipped": rule.skipped}]))
            continue
        frame = rule.scores.assign(rule=rule.name, oracle=rule.oracle, labels=rule.needs, skipped="")
        if oracle is not None:
            frame = frame.merge(_gaps_to_oracle(rule.runs, oracle, sign), on=["algorithm", "dataset"], how="left")
        frames.append(frame)
    return pd.concat([frame.reindex(columns=list(COLUMNS)) for frame in frames], ignore_index=True)


def _gaps_to_oracle(runs: pd.DataFrame, oracle: pd.DataFrame, sign: Mapping[str, float]) -> pd.DataFrame:
    """Return gap and gap_std (`compare_rules`) by algorithm and set. sign: -1 for sets on which less is better."""
    keys = ["algorithm", "dataset", "replicate"]
    chosen = oracle.drop(published_means(oracle).index)  # their best epochs are not known
    both = runs[[*keys, "score"]].merge(chosen[[*keys, "score"]], on=keys, suffixes=("", "_oracle"))
    both["difference"] = (both["score_oracle"] - both["score"]) * both["dataset"].map(sign)
    groups = both.groupby(["algorithm", "dataset"])["difference"]
    return groups.agg(gap="mean", gap_std="std").round(DIGITS).reset_index()


# --- winners of a search ----------------------------------------------------------------------------------------------


def under_every_rule(table: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of the algorithms that all rules have. table: with columns `rule` and `algorithm`."""
    algorithms_by_rule = [set(names) for _, names in table.groupby("rule")["algorithm"]]
    return table[table["algorithm"].isin(set.intersection(*algorithms_by_rule))]


def choose_winners(choices: pd.DataFrame, rule: Rule, selected: Selected) -> Winners:
    """Return the trials of searches that a rule chose. choices: `select.choice_table` of `selected`."""
    if not any(chosen.pool.is_search for chosen in selected.choices):
        return NO_WINNERS
    settings = [str(name) for name in choices if name not in CHOICE_COLUMNS]
    rows = []
    names: dict[str, None] = {}
    digits: dict[str, int] = {}
    for line, chosen in zip(choices.to_dict("records"), selected.choices, strict=True):
        if not chosen.pool.is_search:
            continue
        values = {}
        for measure, column in _columns_by_measure(chosen).items():
            values[measure] = column.scale * chosen.candidate.history.mean(column.metric, chosen.steps)
            if column.higher_is_better:
                digits[measure] = column.digits
        names |= dict.fromkeys(values)
        rows.append(line | {"labels": " and ".join(rule.needs), **values})
    frame = pd.DataFrame(rows).reindex(columns=[*WINNER_COLUMNS, *settings, *names]).round(dict.fromkeys(names, DIGITS))
    return Winners(frame, tuple(settings), tuple(names), digits)


def _columns_by_measure(chosen: ChosenRun) -> dict[str, Column]:
    """Return the column with each measure of its set: the headline, further ones and those that are derived."""
    column = chosen.column
    derived = [d.measure for d in chosen.protocol.derived if (d.phase, d.name) == ("test", column.set_record.name)]
    return measured_columns(column, dict.fromkeys((column.headline, *column.measures, *derived)), chosen.protocol)
