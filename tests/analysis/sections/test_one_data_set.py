"""Pairs of methods on one data set by their seeds, against scipy and a simulation."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import biasbed
from biasbed.analysis.sections.one_data_set import ONE_DATA_SET
from biasbed.analysis.statistics.seed_power import detectable, seeds_for

ERM = {"art": [80.0, 82.0, 81.0], "photo": [90.0, 91.0, 95.0]}
MINE = {"art": [84.0, 88.0, 86.0], "photo": [93.0, 94.0, 95.0]}
CORAL = {"art": [80.0, 84.0, 81.0], "photo": [92.0, 91.0, 96.0]}


def table(**methods: dict[str, list[float]]) -> pd.DataFrame:
    """Return a table with a line for each method and seed, and the two parts of one data set."""
    lines = []
    for name, parts in methods.items():
        for seed, (art, photo) in enumerate(zip(parts["art"], parts["photo"], strict=True)):
            lines.append({"method": name, "seed": seed, "PACS/art": art, "PACS/photo": photo})
    return pd.DataFrame(lines)


def compare(**options: Any) -> tuple[str, pd.DataFrame]:
    """Return what is said of a comparison, in one line, and the pairs of the section."""
    result = biasbed.compare(**options)
    return " ".join(str(result).split()), result.analysis.data(ONE_DATA_SET).pairs


def means(parts: dict[str, list[float]]) -> list[float]:
    return [(art + photo) / 2 for art, photo in zip(parts["art"], parts["photo"], strict=True)]


def test_two_methods_are_compared_by_their_seeds_means_over_the_parts() -> None:
    text, pairs = compare(scores=table(erm=ERM, mine=MINE))
    test = stats.ttest_ind(means(MINE), means(ERM), equal_var=False)
    interval = test.confidence_interval(0.95)
    assert pairs.loc[0, ["a", "b"]].tolist() == ["mine", "erm"]
    assert pairs.loc[0, ["difference", "low", "high", "p_holm"]].tolist() == pytest.approx(
        [3.5, interval.low, interval.high, test.pvalue]
    )
    assert "On PACS (mean of its 2 parts, 3 seeds each) the two differ: mine leads erm by 3.5 points" in text
    assert "Of other sets this says nothing" in text


def test_intervals_and_tests_of_several_pairs_are_corrected() -> None:
    text, pairs = compare(scores=table(erm=ERM, mine=MINE, coral=CORAL))
    test = stats.ttest_ind(means(MINE), means(CORAL), equal_var=False)
    low, high = test.confidence_interval(1 - 0.05 / 3)
    row = pairs[(pairs["a"] == "mine") & (pairs["b"] == "coral")].iloc[0]
    assert (row["low"], row["high"]) == pytest.approx((low, high))
    assert row["p_holm"] >= 2 * test.pvalue
    assert (pairs["difference"] >= 0).all()
    assert "for 3 pairs together" in text


def test_a_control_is_compared_with_each_other_method() -> None:
    _, pairs = compare(scores=table(erm=ERM, mine=MINE, coral=CORAL), control="erm")
    assert {frozenset(pair) for pair in pairs[["a", "b"]].to_numpy()} == {
        frozenset({"mine", "erm"}),
        frozenset({"coral", "erm"}),
    }


def test_losses_are_better_when_they_are_lower() -> None:
    _, pairs = compare(scores=table(erm=ERM, mine=MINE), lower="all")
    assert pairs.loc[0, ["a", "b", "difference"]].tolist() == ["erm", "mine", 3.5]


@pytest.mark.parametrize(
    "scores",
    [
        table(erm=ERM, mine=MINE).query("seed == 0"),  # one seed
        table(erm=ERM, mine=MINE).drop(columns="PACS/photo"),  # one part
        table(erm=ERM, mine=MINE).assign(other=[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]),  # two data sets
    ],
    ids=["one_seed", "one_part", "two_data_sets"],
)
def test_other_tables_have_no_such_section(scores: pd.DataFrame) -> None:
    text, pairs = compare(scores=scores)
    assert pairs.empty
    assert "mean of its" not in text


def test_the_lead_that_seeds_show_is_shown_in_four_of_five_cases() -> None:
    """By simulation: t-tests of seeds whose true means differ by that lead. Their rate has an error below 0.01."""
    lead, draw = detectable(2.0, 3, 0.05), np.random.default_rng(0)
    first, second = draw.normal(lead, 2.0, (20_000, 3)), draw.normal(0.0, 2.0, (20_000, 3))
    rate = float((stats.ttest_ind(first, second, axis=1).pvalue < 0.05).mean())
    assert rate == pytest.approx(0.8, abs=0.01)


def test_so_many_seeds_show_the_lead_and_one_fewer_do_not() -> None:
    needed = seeds_for(2.0, 2.0, 0.05)
    assert needed is not None
    assert detectable(2.0, needed, 0.05) <= 2.0 < detectable(2.0, needed - 1, 0.05)
    assert seeds_for(0.001, 2.0, 0.05) is None
