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
    gains = label_gains([under("ac", rules.GROUP_LABELS, more), OF_CLASSES], COLUMNS, 0.05, 2_000)
    assert gains["rule"].drop_duplicates().tolist() == ["validation_accuracy", "ac"]  # fewer labels first
    table = gains.set_index(["rule", "algorithm", "dataset"])
    assert (table.loc["validation_accuracy", ["difference", "low", "high"]] == 0).all(axis=None)
    of_groups = table.loc["ac"]
    assert of_groups.loc[("a", "hard"), "difference"] == pytest.approx(5)  # of 5, 4 and 6
    assert of_groups.loc[("a", "easy"), "difference"] == pytest.approx(-1)
    assert of_groups.loc[("b", "hard"), "difference"] == pytest.approx(1)
    over_methods = of_groups.loc[(OVER_METHODS, "hard")]
    assert over_methods[["difference", "mean", "num_runs"]].tolist() == [pytest.approx(3), pytest.approx(59.5), 6]
    assert over_methods["low"] < 3 < over_methods["high"]
    assert over_methods["low"] > 0
    assert of_groups.loc[(OVER_METHODS, "easy"), "num_runs"] == 3  # `b` does not have it
    assert ((of_groups["low"] <= of_groups["difference"]) & (of_groups["difference"] <= of_groups["high"])).all()


def test_an_interval_over_methods_is_that_of_a_simulation() -> None:
    """Many runs, for which no widening counts: each method's differences drawn with replacement."""
    generator = np.random.default_rng(0)
    gains = {"a": generator.normal(1, 3, 60), "b": generator.normal(2, 1, 60)}
    base = {(name, "hard"): [50.0] * 60 for name in gains}
    more = {(name, "hard"): (50 + values).tolist() for name, values in gains.items()}
    pair = [under("validation_accuracy", rules.CLASS_LABELS, base), under("ac", rules.GROUP_LABELS, more)]
    gains_of_labels = label_gains(pair, COLUMNS, 0.05, 4_000).set_index(["rule", "algorithm"])
    drawn = sum(generator.choice(values, (4_000, 60)).mean(axis=1) for values in gains.values()) / 2
    row = gains_of_labels.loc[("ac", OVER_METHODS)]
    assert [row["low"], row["high"]] == pytest.approx(np.quantile(drawn, [0.025, 0.975]).tolist(), abs=0.08)


def test_single_runs_have_differences_without_intervals() -> None:
    single = {cell: values[:1] for cell, values in BASE.items()}
    more = {cell: [value + 2 for value in values] for cell, values in single.items()}
    pair = [under("validation_accuracy", rules.CLASS_LABELS, single), under("ac", rules.GROUP_LABELS, more)]
    of_groups = label_gains(pair, COLUMNS, 0.05, 200).set_index("rule").loc["ac"]
    assert (of_groups["difference"] == 2).all()
    assert of_groups[["low", "high"]].isna().all(axis=None)


def test_where_less_is_better_a_gain_is_positive_too() -> None:
    lower = [Column("hard", dataclasses.replace(COLUMNS[0].set_record, higher_is_better=False), cell="hard")]
    base, more = {("a", "hard"): [2.0, 3.0]}, {("a", "hard"): [1.0, 1.0]}
    pair = [under("validation_accuracy", rules.CLASS_LABELS, base), under("ac", rules.GROUP_LABELS, more)]
    of_groups = label_gains(pair, lower, 0.05, 200).set_index(["rule", "algorithm"]).loc[("ac", "a")]
    assert (of_groups["difference"], of_groups["mean"]) == (1.5, 1.0)


def test_nothing_is_bought_without_labels_of_groups_or_the_baseline() -> None:
    of_groups = under("ac", rules.GROUP_LABELS, BASE)
    assert label_gains([OF_CLASSES, under("last", rules.NO_LABELS, BASE)], COLUMNS, 0.05, 200).empty
    assert label_gains([of_groups, under("last", rules.NO_LABELS, BASE)], COLUMNS, 0.05, 200).empty
