"""The same runs under every selection rule, and how far each rule stays behind the oracle: its regret.

Kalischek et al. 2023, table 1: what choosing the epoch without looking at the test images costs.
"""

from __future__ import annotations

import math
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from biasbed import record
from biasbed.analysis import criteria
from biasbed.analysis.columns import Column, make_design
from biasbed.analysis.measured import COLUMNS as MEASURED_COLUMNS
from biasbed.analysis.measured import measured
from biasbed.analysis.runs.run import Collection, Run
from biasbed.analysis.scores import block_matrix, mean_matrix, published_means, run_table, score_table
from biasbed.analysis.selection import completeness, published
from biasbed.analysis.selection.pools import History, pools_of
from biasbed.analysis.selection.rules import (
    CLASS_LABELS,
    GROUP_LABELS,
    NO_LABELS,
    TEST_LABELS,
    AsPublished,
    AsTested,
    Rule,
    ValidationAccuracy,
)
from biasbed.analysis.selection.select import Selected, choice_table, known_rule, rule_names, rules_of, select
from biasbed.analysis.statistics import bootstrap, friedman
from biasbed.analysis.statistics.design import Design, rows_of
from biasbed.analysis.statistics.exact import Array
from biasbed.analysis.statistics.friedman import DIGITS
from biasbed.analysis.strict import NONE, Overlaps, scores_of, without
from biasbed.errors import Failure, UsageError

if TYPE_CHECKING:
    from biasbed.analysis.options import AnalyzeOptions

ORACLE = "best_epoch"  # each set's own best epoch: no rule that takes one epoch can be better
COLUMNS = ("rule", "oracle", "labels", "algorithm", "dataset", "mean", "std", "num_runs", "gap", "gap_std", "skipped")
REGRET_COLUMNS = (
    *("rule", "oracle", "labels", "algorithm", "num_sets", "regret", "largest", "largest_on", "average_rank"),
)


LABEL_COLUMNS = (
    *("rule", "oracle", "labels", "algorithm", "dataset", "mean", "baseline"),
    *("difference", "low", "high", "num_runs"),
)
OVER_METHODS = "(mean over methods)"  # the algorithm of a row that is about all that have the column
BASELINE = ValidationAccuracy.name  # what any validation set allows


@dataclass(frozen=True)
class RuleScores:
    """Every run's scores under one rule and their table, or why there are none."""

    name: str
    oracle: bool
    runs: pd.DataFrame | None  # scores.run_table
    scores: pd.DataFrame | None  # scores.score_table
    reduced: pd.DataFrame | None = None  # strict.without of `runs`
    choices: pd.DataFrame | None = None  # select.choice_table
    winners: criteria.Winners = criteria.NONE
    measured: pd.DataFrame | None = None  # measured.measured
    skipped: str = ""
    labels: str = ""  # that it looks at, besides the classes of validation images
    all_labels: str = ""  # `Rule.labels`


def under_every_rule(
    chosen: RuleScores,
    collection: Collection,
    histories: Mapping[str, History],
    sets: Sequence[Column],
    options: AnalyzeOptions,
    exempt: Container[tuple[str, str]] = (),
    overlaps: Overlaps = NONE,
) -> list[RuleScores]:
    """The chosen rule's scores first, then every other rule's that these runs may be selected by.

    All from the same complete histories; published numbers have only the rules that they were published under. A rule
    that these runs don't allow (last_n with more epochs than there are) is skipped with the reason. Models that are
    only tested have no other rule.
    """
    names = tuple(collection.published_by_rule) if collection.published else rule_names(collection.protocol)
    others = [name for name in filter(None, names) if chosen.name not in (name, AsTested.name)]
    return [chosen, *(_under(name, collection, histories, sets, options, exempt, overlaps) for name in others)]


def _under(
    name: str,
    collection: Collection,
    histories: Mapping[str, History],
    sets: Sequence[Column],
    options: AnalyzeOptions,
    exempt: Container[tuple[str, str]],
    overlaps: Overlaps,
) -> RuleScores:
    runs = published.runs_under(collection, name)
    try:
        rules = {} if collection.published else rules_of(lambda of: known_rule(name, options.n, of), collection, sets)
        rule = next(iter(rules.values()), None) or AsPublished(name, options.n)
        pools = pools_of(runs, histories, sets, collection.protocols, collection.evidence)
        completeness.check(rule, pools, collection, histories, options)
        selected = select(rules, pools, sets, collection.protocols)
    except (UsageError, Failure) as error:
        reason = " ".join(line.strip() for line in str(error).splitlines()[:2])  # what it then advises is for this rule
        return RuleScores(name, False, None, None, skipped=reason)
    return scores_under(rule, selected, runs, sets, collection.protocols, exempt, overlaps)


def scores_under(
    rule: Rule,
    selected: Selected,
    runs: Sequence[Run],
    sets: Sequence[Column],
    protocols: Mapping[str, record.Protocol],
    exempt: Container[tuple[str, str]],
    overlaps: Overlaps = NONE,
) -> RuleScores:
    """What a rule has chosen as tables. exempt: (row, column) that can't have a value."""
    table = run_table(selected.values, runs, sets, protocols)
    algorithms = list(dict.fromkeys(run.algorithm for run in runs))
    scores = score_table(table, algorithms, [entry.name for entry in sets])
    places = zip(scores["algorithm"], scores["dataset"], scores["num_runs"], strict=True)
    empty = sum(number == 0 and (algorithm, dataset) not in exempt for algorithm, dataset, number in places)
    if empty:
        why = f"{empty} cell(s) of its score table would be empty"
        return RuleScores(rule.name, rule.oracle, None, None, skipped=why)
    choices = choice_table(rule.name, rule.oracle, selected, sets, {run.id: run for run in runs})
    winners = criteria.winners(choices, rule, selected, sets, protocols)
    needed = " and ".join(rule.needs)
    values = measured(selected, sets, protocols)
    about = {"labels": needed, "all_labels": rule.labels}
    reduced = without(table, selected, sets, protocols, overlaps)
    return RuleScores(rule.name, rule.oracle, table, scores, reduced, choices, winners, values, **about)


def choices(rules: Sequence[RuleScores]) -> pd.DataFrame:
    """What every rule chose, below each other."""
    return pd.concat([rule.choices for rule in rules if rule.choices is not None], ignore_index=True)


def measured_by_rule(rules: Sequence[RuleScores]) -> pd.DataFrame:
    """What every rule chose by the measures of biased data: rule, oracle, labels, `MEASURED_COLUMNS`.

    The rule in use first; labels: all that the rule takes, in words. Empty for other data.
    """
    frames = [
        rule.measured.assign(rule=rule.name, oracle=rule.oracle, labels=rule.all_labels)
        for rule in rules
        if rule.measured is not None and len(rule.measured)
    ]
    names = ["rule", "oracle", "labels", *MEASURED_COLUMNS]
    return pd.concat(frames, ignore_index=True)[names] if frames else pd.DataFrame(columns=names)


def matrices(
    rules: Sequence[RuleScores], sets: Sequence[Column]
) -> tuple[dict[str, pd.DataFrame], dict[str, pd.DataFrame]]:
    """The block matrices of the rules after the first that have all its algorithms, to see which conclusions flip.

    As they are, and of what counts in the strict setting.
    """
    algorithms = set() if rules[0].scores is None else set(rules[0].scores["algorithm"])
    whole, strict = {}, {}
    for rule in rules[1:]:
        if rule.scores is not None and rule.reduced is not None and set(rule.scores["algorithm"]) == algorithms:
            whole[rule.name] = block_matrix(mean_matrix(rule.scores), sets)
            strict[rule.name] = block_matrix(mean_matrix(scores_of(rule.reduced, rule.scores)), sets)
    return whole, strict


def table(rules: Sequence[RuleScores], sets: Sequence[Column]) -> pd.DataFrame:
    """`COLUMNS`: one row per rule, algorithm and set; gap: by how much the oracle is better (empty without one).

    The gap is taken in each run; gap_std is its standard deviation over runs (n - 1).
    """
    sign = {entry.name: 1.0 if entry.higher_is_better else -1.0 for entry in sets}
    oracle = next((rule.runs for rule in rules if rule.name == ORACLE and rule.runs is not None), None)
    frames = []
    for rule in rules:
        if rule.scores is None or rule.runs is None:
            frames.append(pd.DataFrame([{"rule": rule.name, "oracle": rule.oracle, "skipped": rule.skipped}]))
            continue
        frame = rule.scores.assign(rule=rule.name, oracle=rule.oracle, labels=rule.labels, skipped="", gap=float("nan"))
        if oracle is not None:
            frame = frame.drop(columns="gap").merge(
                _gaps(rule.runs, oracle, sign), on=["algorithm", "dataset"], how="left"
            )
        frames.append(frame)
    return pd.concat([frame.reindex(columns=list(COLUMNS)) for frame in frames], ignore_index=True)


def _gaps(runs: pd.DataFrame, oracle: pd.DataFrame, sign: Mapping[str, float]) -> pd.DataFrame:
    keys = ["algorithm", "dataset", "replicate"]
    chosen = oracle.drop(published_means(oracle).index)  # of those nobody knows the best epoch
    both = runs[[*keys, "score"]].merge(chosen[[*keys, "score"]], on=keys, suffixes=("", "_oracle"))
    both["difference"] = (both["score_oracle"] - both["score"]) * both["dataset"].map(sign)
    groups = both.groupby(["algorithm", "dataset"])["difference"]
    return groups.agg(gap="mean", gap_std="std").round(DIGITS).reset_index()


def against_oracle(selection: pd.DataFrame, rule: str) -> pd.DataFrame:
    """A rule beside the oracle, as Kalischek et al. 2023 print it in table 1; empty without an oracle.

    selection: `table`. Columns algorithm, dataset, best_epoch, the rule's name, difference (rule - oracle), std (of the
    difference over runs).
    """
    keys = ["algorithm", "dataset"]
    rows = selection[selection["skipped"] == ""]
    oracle = rows[rows["rule"] == ORACLE].set_index(keys)["mean"]
    own = rows[(rows["rule"] == rule) & rows["gap"].notna()].set_index(keys)
    frame = pd.DataFrame({ORACLE: oracle.reindex(own.index), rule: own["mean"]})
    frame["difference"] = frame[rule] - frame[ORACLE]
    return frame.assign(std=own["gap_std"]).round(DIGITS).reset_index()


def regret(selection: pd.DataFrame, sets: Sequence[Column]) -> pd.DataFrame:
    """`REGRET_COLUMNS`: what each rule costs an algorithm, and where the algorithm stands under it.

    selection: `table`. Over blocks: num_sets are those that the algorithm has; regret: the mean of their gaps, largest:
    the largest of these and its block (empty without an oracle, and where blocks have different units); average_rank:
    under the rule. Only algorithms with scores under every rule: published ones have few.
    """
    known = make_design(sets)
    selection = selection[selection["skipped"] == ""]
    by_rule = [set(names) for _, names in selection.groupby("rule")["algorithm"]]
    selection = selection[selection["algorithm"].isin(set.intersection(*by_rule))]
    one_unit = len(set(known.units.values())) == 1
    rows = []
    for name, of_rule in selection.groupby("rule", sort=False):
        means = block_matrix(mean_matrix(of_rule), sets)
        ranks = friedman.rank(friedman.orient(means.dropna(), sorted(known.lower_blocks))).mean()
        for algorithm, own in of_rule.groupby("algorithm", sort=False):
            gaps = known.reduced(own.set_index("dataset")["gap"])[means[algorithm].notna()]
            known_gaps = one_unit and len(gaps) > 0 and bool(gaps.notna().all())
            mean, largest = (float(gaps.mean()), float(gaps.max())) if known_gaps else (math.nan, math.nan)
            where = str(gaps.idxmax()) if largest > 0 else ""
            oracle, labels = bool(own["oracle"].iloc[0]), str(own["labels"].iloc[0])
            rows.append((name, oracle, labels, algorithm, len(gaps), mean, largest, where, float(ranks[algorithm])))
    return pd.DataFrame(rows, columns=list(REGRET_COLUMNS)).round(DIGITS)


# --- what labels buy --------------------------------------------------------------------------------------------------


def bought(rules: Sequence[RuleScores], sets: Sequence[Column], alpha: float, resamples: int) -> pd.DataFrame:
    """`LABEL_COLUMNS`: how much better each rule chooses than `BASELINE`, rules with fewer labels first.

    One row per rule, algorithm and column, then the same over methods. difference: of the scores of the same run, mean
    over runs, positive where the rule is better; low, high: its 1 - alpha interval, runs resampled. Empty where no rule
    takes labels of groups, and without the baseline.
    """
    known = [rule for rule in rules if rule.runs is not None]
    base = next((rule.runs for rule in known if rule.name == BASELINE), None)
    if base is None or all(GROUP_LABELS not in rule.all_labels for rule in known):
        return pd.DataFrame(columns=list(LABEL_COLUMNS))
    parts = []
    for rule in sorted(known, key=lambda rule: _number_of_labels(rule.all_labels)):
        assert rule.runs is not None
        frame = _differences(rule.runs, base, make_design(sets), alpha, resamples)
        parts.append(frame.assign(rule=rule.name, oracle=rule.oracle, labels=rule.all_labels, baseline=BASELINE))
    return pd.concat(parts, ignore_index=True)[list(LABEL_COLUMNS)].round(DIGITS)


def _number_of_labels(words: str) -> int:
    order = (NO_LABELS, CLASS_LABELS, GROUP_LABELS, TEST_LABELS)
    return order.index(words) if words in order else len(order)


def _differences(runs: pd.DataFrame, base: pd.DataFrame, known: Design, alpha: float, resamples: int) -> pd.DataFrame:
    """Of one rule: columns algorithm, dataset, mean, difference, low, high, num_runs."""
    keys = ["algorithm", "dataset", "replicate"]
    both = runs.drop(published_means(runs).index).merge(base[[*keys, "score"]], on=keys, suffixes=("", "_base"))
    gains = known.oriented(rows_of(both.assign(score=both["score"] - both["score_base"]), known.shown))
    draws = bootstrap.resample(gains, known, resamples)
    found = bootstrap.intervals(gains, known, draws, alpha).rename(columns={"mean": "difference"})
    means = both.groupby(keys[:2])["score"].mean().rename("mean").reset_index()
    found = found.drop(columns="run_ids").merge(means, on=keys[:2])  # what stands above columns has no score
    drawn = {
        (name, column): values
        for name, row in gains.items()
        for column, values in zip(row.columns, bootstrap.column_means(row, draws.runs[name]).T, strict=True)
    }
    by_column = found.groupby("dataset", sort=False)
    over = [(OVER_METHODS, str(name), *_over_methods(own, drawn, alpha)) for name, own in by_column]
    columns = ["algorithm", "dataset", "mean", "difference", "low", "high", "num_runs"]
    return pd.concat([found, pd.DataFrame(over, columns=columns)], ignore_index=True)


def _over_methods(
    own: pd.DataFrame, drawn: Mapping[tuple[str, str], Array], alpha: float
) -> tuple[float, float, float, float, int]:
    """Of one column from `mean` on. Each method's runs are drawn by themselves; all count for as many as the fewest."""
    draws = [drawn[place] for place in zip(own["algorithm"], own["dataset"], strict=True)]
    bounds = bootstrap.interval(np.mean(draws, axis=0), alpha, int(own["num_runs"].min()), len(draws))
    return float(own["mean"].mean()), float(own["difference"].mean()), *bounds, int(own["num_runs"].sum())
