"""Gains from labels of validation images: differences in the same runs, over methods, with intervals."""

from __future__ import annotations

import dataclasses

import numpy as np
import pandas as pd
import pytest

from biasbed.analysis.columns import Column
from biasbed.analysis.comparisons.rule_comparison import RuleScores
from biasbed.analysis.sections.label_gains import OVER_METHODS, label_gains
from biasbed.analysis.selection import rules
from helpers.toy_runs import make_protocol


def under(name: str, labels: str, scores: dict[tuple[str, str], list[float]]) -> RuleScores:
    """A rule's scores of runs, by (algorithm, column)."""
    rows = [
        (algorithm, column, f"seed {seed}", f"{algorithm}-{column}-{seed}", column, value)
        for (algorithm, column), values in scores.items()
        for seed, value in enumerate(values)
    ]
    runs = pd.DataFrame(rows, columns=["algorithm", "dataset", "replicate", "run_id", "cell", "score"])
    return RuleScores(name, runs=runs, labels=labels)


COLUMNS = [Column(name, make_protocol((name,)).sets[0], cell=name) for name in ("hard", "easy")]
BASE = {("a", "hard"): [50.0, 52, 54], ("a", "easy"): [80.0, 80, 80], ("b", "hard"): [60.0, 60, 63]}
OF_CLASSES = under("validation_accuracy", rules.CLASS_LABELS, BASE)


def test_what_labels_buy_is_the_difference_in_the_same_runs() -> None:
    more = {("a", "hard"): [55.0, 56, 60], ("a", "easy"): [80.0, 79, 78], ("b", "hard"): [61.0, 60, 65]}
    found = label_gains([under("ac", rules.GROUP_LABELS, more), OF_CLASSES], COLUMNS, 0.05, 2_000)
    assert found["rule"].drop_duplicates().tolist() == ["validation_accuracy", "ac"]  # fewer labels first
    table = found.set_index(["rule", "algorithm", "dataset"])
    assert (table.loc["validation_accuracy", ["difference", "low", "high"]] == 0).all(axis=None)
    own = table.loc["ac"]
    assert own.loc[("a", "hard"), "difference"] == pytest.approx(5)  # of 5, 4 and 6
    assert own.loc[("a", "easy"), "difference"] == pytest.approx(-1)
    assert own.loc[("b", "hard"), "difference"] == pytest.approx(1)
    over = own.loc[(OVER_METHODS, "hard")]
    assert (over["difference"], over["mean"], over["num_runs"]) == (pytest.approx(3), pytest.approx(59.5), 6)
    assert over["low"] < 3 < over["high"]
    assert over["low"] > 0
    assert own.loc[(OVER_METHODS, "easy"), "num_runs"] == 3  # `b` does not have it
    assert ((own["low"] <= own["difference"]) & (own["difference"] <= own["high"])).all()


def test_an_interval_over_methods_is_that_of_a_simulation() -> None:
    """Many runs, for which no widening counts: each method's differences drawn with replacement."""
    generator = np.random.default_rng(0)
    gains = {"a": generator.normal(1, 3, 60), "b": generator.normal(2, 1, 60)}
    base = {(name, "hard"): [50.0] * 60 for name in gains}
    more = {(name, "hard"): (50 + values).tolist() for name, values in gains.items()}
    pair = [under("validation_accuracy", rules.CLASS_LABELS, base), under("ac", rules.GROUP_LABELS, more)]
    found = label_gains(pair, COLUMNS, 0.05, 4_000).set_index(["rule", "algorithm"])
    drawn = sum(generator.choice(values, (4_000, 60)).mean(axis=1) for values in gains.values()) / 2
    row = found.loc[("ac", OVER_METHODS)]
    assert [row["low"], row["high"]] == pytest.approx(np.quantile(drawn, [0.025, 0.975]).tolist(), abs=0.08)


def test_single_runs_have_differences_without_intervals() -> None:
    one = {place: values[:1] for place, values in BASE.items()}
    more = {place: [value + 2 for value in values] for place, values in one.items()}
    pair = [under("validation_accuracy", rules.CLASS_LABELS, one), under("ac", rules.GROUP_LABELS, more)]
    own = label_gains(pair, COLUMNS, 0.05, 200).set_index("rule").loc["ac"]
    assert (own["difference"] == 2).all()
    assert own[["low", "high"]].isna().all(axis=None)


def test_where_less_is_better_a_gain_is_positive_too() -> None:
    lower = [Column("hard", dataclasses.replace(COLUMNS[0].set_record, higher_is_better=False), cell="hard")]
    base, more = {("a", "hard"): [2.0, 3.0]}, {("a", "hard"): [1.0, 1.0]}
    pair = [under("validation_accuracy", rules.CLASS_LABELS, base), under("ac", rules.GROUP_LABELS, more)]
    own = label_gains(pair, lower, 0.05, 200).set_index(["rule", "algorithm"]).loc[("ac", "a")]
    assert (own["difference"], own["mean"]) == (1.5, 1.0)


def test_nothing_is_bought_without_labels_of_groups_or_the_baseline() -> None:
    other = under("ac", rules.GROUP_LABELS, BASE)
    assert label_gains([OF_CLASSES, under("last", rules.NO_LABELS, BASE)], COLUMNS, 0.05, 200).empty
    assert label_gains([other, under("last", rules.NO_LABELS, BASE)], COLUMNS, 0.05, 200).empty
