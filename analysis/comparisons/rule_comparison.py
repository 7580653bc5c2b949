"""Selection rules compared on the same runs: scores under each, winners of a search, regret, gains from labels.

Regret is what choosing the epoch without looking at the test images costs (Kalischek et al. 2023, table 1).

The Align-Conflict paper's table 4 has a row per criterion by which hyper-parameters and epochs of a search were chosen:
the means over methods of all measures of the test set. Nothing but the search itself is trained for it; so the later
stages of a search began with the best values by the search's own objective, whatever the criterion.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from biasbed import measures, record
from biasbed.analysis.columns import Column, make_design, measured_columns, names_of
from biasbed.analysis.comparisons.strict_setting import NONE, Overlaps, rescore_without, score_table_like
from biasbed.analysis.runs.run import Collection, Run
from biasbed.analysis.scores import block_matrix, empty, mean_matrix, published_means, run_table, score_table
from biasbed.analysis.selection import completeness, published
from biasbed.analysis.selection.bias_measures import COLUMNS as MEASURED_COLUMNS
from biasbed.analysis.selection.bias_measures import measure_choices
from biasbed.analysis.selection.pools import History, pools_of
from biasbed.analysis.selection.rules import (
    CLASS_LABELS,
    GROUP_LABELS,
    NO_LABELS,
    SETTLED_RULES,
    TEST_LABELS,
    AsPublished,
    Rule,
    ValidationAccuracy,
)
from biasbed.analysis.selection.select import (
    CHOICE_COLUMNS,
    Rules,
    Selected,
    choice_table,
    known_rule,
    rule_names,
    rules_of,
    select,
)
from biasbed.analysis.statistics import bootstrap, friedman
from biasbed.analysis.statistics.design import Design, rows_of
from biasbed.analysis.statistics.exact import Array
from biasbed.analysis.statistics.friedman import DIGITS
from biasbed.analysis.statistics.pairwise import BlockMatrices
from biasbed.errors import Failure, UsageError
from biasbed.system.forks import forked
from biasbed.system.one_thread import on_one_thread

if TYPE_CHECKING:
    from biasbed.analysis.options import AnalyzeOptions

ORACLE = "best_epoch"  # each set's own best epoch, an upper bound for rules that take one epoch
COLUMNS = ("rule", "oracle", "labels", "algorithm", "dataset", "mean", "std", "num_runs", "gap", "gap_std", "skipped")
REGRET_COLUMNS = (
    *("rule", "oracle", "labels", "algorithm", "num_sets", "regret", "largest", "largest_on", "average_rank"),
)
LABEL_COLUMNS = (
    *("rule", "oracle", "labels", "algorithm", "dataset", "mean", "baseline"),
    *("difference", "low", "high", "num_runs"),
)
WINNER_COLUMNS = ("rule", "oracle", "labels", "algorithm", "cell", "repeat", "dataset", "run_id", "trial")
CRITERION_COLUMNS = ("rule", "oracle", "labels", "dataset", "num_algorithms")
OVER_METHODS = "(mean over methods)"  # algorithm of a row that averages over all methods with the column
# Columns of run tables by which rules are compared.
COMPARED = ("algorithm", "cell", "dataset", "score", "run_id", "replicate", *measures.SUMMARY)
BASELINE = ValidationAccuracy.name  # rule that any validation set allows


@dataclass(frozen=True)
class Winners:
    """Choices of every rule from a search; empty without a search."""

    each: pd.DataFrame  # WINNER_COLUMNS, settings that the search varied, then all measures of the test sets, as shown
    settings: tuple[str, ...] = ()  # of these columns
    measures: tuple[str, ...] = ()
    digits: Mapping[str, int] = field(default_factory=dict)  # after the point, of the measures that reports print

    @property
    def means(self) -> pd.DataFrame:
        """`CRITERION_COLUMNS` and all measures: means over the methods that all rules have, by rule and set.

        Of several repeats a method has its mean. Empty if a method has no value.
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
    """Scores under the rule in use, and under every other rule that may select these runs once somebody asks for them.

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
        """Scores under every rule, those of the rule in use first; the others are scored beside each other."""
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
        """Return the block matrices of the other rules with all algorithms of this one."""
        return block_matrices(self.scores, self.sets)


def _score_other(name: str, compared: RuleComparison) -> RuleScores:
    """Return the scores of a rule that is not in use, or the reason why there are none."""
    collection, sets, options = compared.collection, compared.sets, compared.options
    runs = published.runs_under(collection, name)
    try:
        rules: Rules = {}
        if not collection.published:
            rules = rules_of(functools.partial(known_rule, name, options.n), collection, sets)
        rule = next(iter(rules.values()), None) or AsPublished(name, options.n)
        pools = pools_of(runs, compared.histories, sets, collection.protocols, collection.evidence)
        completeness.check(rule, pools, collection, compared.histories, options)
        selected = select(rules, pools, sets, collection.protocols)
    except (UsageError, Failure) as error:
        # Further lines of the error advise on the rule in use.
        reason = " ".join(line.strip() for line in str(error).splitlines()[:2])
        return RuleScores(name, skipped=reason)
    scores = score_rule(rule, selected, runs, sets, collection.protocols, compared.overlaps)
    bare = empty(scores.scores, compared.exempt)
    if bare:
        reason = f"{len(bare)} cell(s) of its score table would be empty"
        return RuleScores(rule.name, rule.oracle, skipped=reason)
    return replace(scores, runs=_compared(scores.runs), reduced=_compared(scores.reduced))


def _compared(runs: pd.DataFrame) -> pd.DataFrame:
    """Return the columns of a run table by which rules are compared, as a process sends all that it returns."""
    return runs[[name for name in runs if name in COMPARED]]


def score_rule(
    rule: Rule,
    selected: Selected,
    runs: Sequence[Run],
    sets: Sequence[Column],
    protocols: Mapping[str, record.Protocol],
    overlaps: Overlaps = NONE,
) -> RuleScores:
    """Return what a rule has chosen as tables."""
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


def join_measures(rules: Sequence[RuleScores]) -> pd.DataFrame:
    """Join what every rule chose by the measures of biased data: rule, oracle, labels, `MEASURED_COLUMNS`.

    The rule in use comes first. labels: all that the rule takes, in words. Empty for other data.
    """
    frames = []
    for rule in rules:
        if len(rule.measured):
            frames.append(rule.measured.assign(rule=rule.name, oracle=rule.oracle, labels=rule.labels))
    names = ["rule", "oracle", "labels", *MEASURED_COLUMNS]
    if frames:
        return pd.concat(frames, ignore_index=True)[names]
    return pd.DataFrame(columns=names)


def block_matrices(rules: Sequence[RuleScores], sets: Sequence[Column]) -> BlockMatrices:
    """Return the block matrices of further rules with all algorithms of the first, to see which conclusions flip."""
    algorithms = set(rules[0].scores["algorithm"])
    all_sets, strict = {}, {}
    for rule in rules[1:]:
        if not rule.skipped and set(rule.scores["algorithm"]) == algorithms:
            all_sets[rule.name] = block_matrix(mean_matrix(rule.scores), sets)
            strict[rule.name] = block_matrix(mean_matrix(score_table_like(rule.reduced, rule.scores)), sets)
    return BlockMatrices(all_sets, strict)


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
            frame = frame.merge(_gaps(rule.runs, oracle, sign), on=["algorithm", "dataset"], how="left")
        frames.append(frame)
    return pd.concat([frame.reindex(columns=list(COLUMNS)) for frame in frames], ignore_index=True)


def _gaps(runs: pd.DataFrame, oracle: pd.DataFrame, sign: Mapping[str, float]) -> pd.DataFrame:
    """Return gap and gap_std by algorithm and set. sign: -1 for sets on which less is better."""
    keys = ["algorithm", "dataset", "replicate"]
    chosen = oracle.drop(published_means(oracle).index)  # their best epochs are not known
    both = runs[[*keys, "score"]].merge(chosen[[*keys, "score"]], on=keys, suffixes=("", "_oracle"))
    both["difference"] = (both["score_oracle"] - both["score"]) * both["dataset"].map(sign)
    groups = both.groupby(["algorithm", "dataset"])["difference"]
    return groups.agg(gap="mean", gap_std="std").round(DIGITS).reset_index()


def gap_to_oracle(selection: pd.DataFrame, rule: str) -> pd.DataFrame:
    """Return a rule beside the oracle, as Kalischek et al. 2023 print it in table 1; empty without an oracle.

    selection: `compare_rules`. Columns algorithm, dataset, best_epoch, the rule's name, difference (rule - oracle),
    std (of the difference over runs).
    """
    keys = ["algorithm", "dataset"]
    rows = selection[selection["skipped"] == ""]
    oracle = rows[rows["rule"] == ORACLE].set_index(keys)["mean"]
    of_rule = rows[(rows["rule"] == rule) & rows["gap"].notna()].set_index(keys)
    frame = pd.DataFrame({ORACLE: oracle.reindex(of_rule.index), rule: of_rule["mean"]})
    frame["difference"] = frame[rule] - frame[ORACLE]
    return frame.assign(std=of_rule["gap_std"]).round(DIGITS).reset_index()


def regret_table(selection: pd.DataFrame, sets: Sequence[Column]) -> pd.DataFrame:
    """Return `REGRET_COLUMNS`: what each rule costs an algorithm, and the algorithm's rank under it.

    selection: `compare_rules`. num_sets: number of blocks that the algorithm has; regret: mean of their gaps; largest,
    largest_on: the largest gap and its block. Both are empty without an oracle, and if blocks have different units.
    Only algorithms with scores under every rule are there, which published ones rarely have.
    """
    design = make_design(sets)
    selection = under_every_rule(selection[selection["skipped"] == ""])
    has_one_unit = len(set(design.units.values())) == 1
    rows = []
    for rule, of_rule in selection.groupby("rule", sort=False):
        means = block_matrix(mean_matrix(of_rule), sets)
        ranks = friedman.rank(friedman.orient(means.dropna(), sorted(design.lower_blocks))).mean()
        about = (rule, bool(of_rule["oracle"].iloc[0]), str(of_rule["labels"].iloc[0]))
        gaps_by_algorithm = of_rule.pivot(index="dataset", columns="algorithm", values="gap")
        for algorithm in of_rule["algorithm"].unique():
            gaps = design.reduced(gaps_by_algorithm[algorithm])[means[algorithm].notna()]
            has_gaps = has_one_unit and len(gaps) > 0 and bool(gaps.notna().all())
            mean, largest = (float(gaps.mean()), float(gaps.max())) if has_gaps else (math.nan, math.nan)
            largest_on = ""
            if largest > 0:
                largest_on = str(gaps.idxmax())
            rows.append((*about, algorithm, len(gaps), mean, largest, largest_on, float(ranks[algorithm])))
    return pd.DataFrame(rows, columns=list(REGRET_COLUMNS)).round(DIGITS)


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
    for line, (pool, candidate, shown, protocol, steps) in zip(
        choices.to_dict("records"), selected.choices, strict=True
    ):
        if not pool.is_search:
            continue
        values = {}
        set_name = shown.set_record.name
        derived = [d.measure for d in protocol.derived if (d.phase, d.name) == ("test", set_name)]
        of_set = dict.fromkeys((shown.headline, *shown.measures, *derived))
        for measure, column in measured_columns(shown, of_set, protocol).items():
            values[measure] = column.scale * candidate.history.mean(column.metric, steps)
            if column.higher_is_better:
                digits[measure] = column.digits
        names |= dict.fromkeys(values)
        rows.append(line | {"labels": " and ".join(rule.needs), **values})
    frame = pd.DataFrame(rows).reindex(columns=[*WINNER_COLUMNS, *settings, *names]).round(dict.fromkeys(names, DIGITS))
    return Winners(frame, tuple(settings), tuple(names), digits)


def join_winners(winners: Sequence[Winners]) -> Winners:
    """Join what all rules chose, below each other."""
    winners = [of_rule for of_rule in winners if len(of_rule.each)]
    if not winners:
        return NO_WINNERS
    settings: dict[str, None] = {}
    names: dict[str, None] = {}
    digits: dict[str, int] = {}
    for of_rule in winners:
        settings |= dict.fromkeys(of_rule.settings)
        names |= dict.fromkeys(of_rule.measures)
        digits |= of_rule.digits
    frame = pd.concat([of_rule.each for of_rule in winners], ignore_index=True)
    return Winners(frame.reindex(columns=[*WINNER_COLUMNS, *settings, *names]), tuple(settings), tuple(names), digits)


# --- gains from labels ------------------------------------------------------------------------------------------------


def label_gains(rules: Sequence[RuleScores], sets: Sequence[Column], alpha: float, resamples: int) -> pd.DataFrame:
    """Return `LABEL_COLUMNS`: how much better each rule chooses than `BASELINE`, rules with fewer labels first.

    One row per rule, algorithm and column, then the same over methods. difference: of the scores of the same run, mean
    over runs, positive if the rule is better; low, high: its 1 - alpha interval, runs resampled. Empty if no rule takes
    labels of groups, and without the baseline.
    """
    scored = [rule for rule in rules if not rule.skipped]
    baseline = next((rule.runs for rule in scored if rule.name == BASELINE), None)
    if baseline is None or all(GROUP_LABELS not in rule.labels for rule in scored):
        return pd.DataFrame(columns=list(LABEL_COLUMNS))
    parts = []
    for rule in sorted(scored, key=lambda rule: _count_labels(rule.labels)):
        frame = _gain_intervals(rule.runs, baseline, make_design(sets), alpha, resamples)
        parts.append(frame.assign(rule=rule.name, oracle=rule.oracle, labels=rule.labels, baseline=BASELINE))
    return pd.concat(parts, ignore_index=True)[list(LABEL_COLUMNS)].round(DIGITS)


def _count_labels(labels: str) -> int:
    """Return the position of labels among all, fewest first."""
    order = (NO_LABELS, CLASS_LABELS, GROUP_LABELS, TEST_LABELS)
    if labels in order:
        return order.index(labels)
    return len(order)


def _gain_intervals(
    runs: pd.DataFrame, baseline: pd.DataFrame, design: Design, alpha: float, resamples: int
) -> pd.DataFrame:
    """Return algorithm, dataset, mean, difference, low, high and num_runs of one rule."""
    keys = ["algorithm", "dataset", "replicate"]
    both = runs.drop(published_means(runs).index).merge(baseline[[*keys, "score"]], on=keys, suffixes=("", "_base"))
    gains = design.oriented(rows_of(both.assign(score=both["score"] - both["score_base"]), design.shown))
    draws = bootstrap.resample(gains, design, resamples)
    intervals = bootstrap.intervals(gains, design, draws, alpha).rename(columns={"mean": "difference"})
    means = both.groupby(keys[:2])["score"].mean().rename("mean").reset_index()
    by_method = intervals.drop(columns="run_ids").merge(means, on=keys[:2])  # drops rows of blocks, without a score
    drawn: dict[tuple[str, str], Array] = {}
    for name, row in gains.items():
        for column, values in zip(row.columns, bootstrap.column_means(row, draws.runs[name]).T, strict=True):
            drawn[name, column] = values
    averages = []
    for dataset, rows in by_method.groupby("dataset", sort=False):
        averages.append((OVER_METHODS, str(dataset), *_average_methods(rows, drawn, alpha)))
    columns = ["algorithm", "dataset", "mean", "difference", "low", "high", "num_runs"]
    return pd.concat([by_method, pd.DataFrame(averages, columns=columns)], ignore_index=True)


def _average_methods(
    rows: pd.DataFrame, drawn: Mapping[tuple[str, str], Array], alpha: float
) -> tuple[float, float, float, float, int]:
    """Return one column's values from `mean` on. Methods are drawn apart; all count as many runs as the fewest."""
    draws = [drawn[key] for key in zip(rows["algorithm"], rows["dataset"], strict=True)]
    low, high = bootstrap.interval(np.mean(draws, axis=0), alpha, int(rows["num_runs"].min()), len(draws))
    return float(rows["mean"].mean()), float(rows["difference"].mean()), low, high, int(rows["num_runs"].sum())
