"""Tests over the runs of one set."""

from __future__ import annotations

import itertools
import json
import math

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from biasbed.analysis.statistics import exact, per_set
from biasbed.analysis.statistics import pairs as pairwise
from helpers.commands import ROOT


def runs(num_runs: int = 6, shift: float = 3.0) -> dict[str, pd.DataFrame]:
    generator = np.random.default_rng(0)
    data = {name: pd.DataFrame(generator.normal(size=(num_runs, 2)), columns=["one", "two"]) for name in "abc"}
    data["a"]["one"] += shift
    return data


FAMILY = pairwise.pairs(("a", "b", "c"))


def test_kruskal_wallis_and_mann_whitney_with_holm() -> None:
    data = runs()
    sets, pairs = per_set.per_set(data, 0.05, FAMILY)
    expected = [stats.kruskal(*(data[name][dataset] for name in "abc")) for dataset in ("one", "two")]
    assert sets["h"].tolist() == pytest.approx([test.statistic for test in expected])
    assert sets["p_holm"].tolist() == exact.holm(sets["p"].to_numpy()).tolist()
    assert sets["significant"].tolist() == [True, False]
    on_one = pairs[pairs["dataset"] == "one"].set_index(["a", "b"])
    assert on_one["significant"].to_dict() == {("a", "b"): True, ("a", "c"): True, ("b", "c"): False}
    assert on_one.loc[("a", "b"), "p"] == pytest.approx(
        stats.mannwhitneyu(data["a"]["one"], data["b"]["one"], method="exact").pvalue
    )
    assert on_one.loc[("a", "b"), "p_holm"] == pytest.approx(3 * on_one.loc[("a", "b"), "p"])
    assert on_one.loc[("a", "b"), "difference"] == pytest.approx(data["a"]["one"].mean() - data["b"]["one"].mean())


@pytest.mark.parametrize("name", ["kruskal_a", "kruskal_b_ties"])
def test_the_chi_square_p_is_what_papers_print(name: str) -> None:
    frame = pd.read_csv(ROOT / "tests" / "vectors" / "debiasing" / f"{name}.csv")
    expected = json.loads((ROOT / "tests" / "vectors" / "debiasing" / f"{name}.json").read_text())
    data = {str(method): runs_of_method[["accuracy"]] for method, runs_of_method in frame.groupby("method")}
    row = per_set.per_set(data, 0.05, pairwise.pairs(tuple(data)))[0].iloc[0]
    assert row["h"] == pytest.approx(expected["statistic"], rel=1e-12)
    assert row["p_chi_square"] == pytest.approx(expected["p_value"], rel=1e-9)
    assert row["num_algorithms"] - 1 == expected["degrees_of_freedom"]
    assert row["p"] <= 0.002


def test_kruskal_wallis_is_exact_for_few_runs_and_chi_square_for_many() -> None:
    few = {name: pd.DataFrame({"one": [i * 3 + 1.0, i * 3 + 2, i * 3 + 3]}) for i, name in enumerate("abc")}
    p = per_set.per_set(few, 0.05, FAMILY)[0]["p"].iloc[0]
    assert p == pytest.approx(6 / 1680, abs=3 * math.sqrt(6 / 1680 / per_set.PERMUTATIONS))
    generator = np.random.default_rng(8)
    many = {name: pd.DataFrame({"one": generator.normal(0.1 * i, 1, 60)}) for i, name in enumerate("abc")}
    p = per_set.per_set(many, 0.05, FAMILY)[0]["p"].iloc[0]
    expected = stats.kruskal(*(frame["one"] for frame in many.values())).pvalue
    assert p == pytest.approx(expected, abs=0.015)
    tied = {name: frame.round() for name, frame in many.items()}
    p = per_set.per_set(tied, 0.05, FAMILY)[0]["p"].iloc[0]
    assert p == pytest.approx(stats.kruskal(*(frame["one"] for frame in tied.values())).pvalue, abs=0.015)


def test_groups_of_unequal_size_equal_all_arrangements_counted() -> None:
    values = {"a": [1.0, 2.0, 2.0], "b": [5.0, 6.0], "c": [4.0, 3.0]}
    data = {name: pd.DataFrame({"one": numbers}) for name, numbers in values.items()}
    p = per_set.per_set(data, 0.05, FAMILY)[0]["p"].iloc[0]
    everything = [number for numbers in values.values() for number in numbers]
    observed = stats.kruskal(*values.values()).statistic
    h = [
        stats.kruskal(o[:3], o[3:5], o[5:]).statistic
        for o in itertools.islice(itertools.permutations(everything), 0, None, 7)
    ]
    assert p == pytest.approx(np.mean(np.array(h) >= observed - 1e-9), abs=0.015)


def test_a_pair_is_significant_only_where_the_set_is() -> None:
    """All runs of a lie below all of b; among forty sets that is no difference between the algorithms of the set."""
    generator = np.random.default_rng(0)
    columns = ["one", *(f"set{i}" for i in range(39))]
    data = {name: pd.DataFrame(generator.normal(size=(6, 40)), columns=columns) for name in "abc"}
    for name, values in {"a": range(6), "b": range(10, 16), "c": (0.5, 2.5, 4.5, 10.5, 12.5, 14.5)}.items():
        data[name]["one"] = list(values)
    sets, pairs = per_set.per_set(data, 0.05, FAMILY)
    assert sets.set_index("dataset").loc["one", "p_holm"] > 0.05
    pair = pairs.set_index(["dataset", "a", "b"]).loc[("one", "a", "b")]
    assert pair["p_holm"] < 0.05
    assert not pair["significant"]


def test_three_runs_cannot_show_anything_about_pairs() -> None:
    _, pairs = per_set.per_set(runs(3, shift=100), 0.05, FAMILY)
    assert pairs["smallest_p"].unique().tolist() == pytest.approx([3 * 2 / math.comb(6, 3)])
    assert not pairs["significant"].any()


def test_cliffs_delta_counts_ties_for_neither() -> None:
    for of_b, expected in (([1.0, 0.0, 3.0], (1 + 2 - 2) / 6), ([1.0, 2.0, 2.0], (1 - 2) / 6)):
        data = {"a": pd.DataFrame({"one": [1.0, 2.0]}), "b": pd.DataFrame({"one": of_b})}
        _, pairs = per_set.per_set(data, 0.05, (("a", "b"),))
        assert pairs["cliffs_delta"].iloc[0] == pytest.approx(expected)


def test_what_cannot_be_tested_says_why() -> None:
    data = runs()
    data["c"] = data["c"].iloc[:1]
    sets, pairs = per_set.per_set(data, 0.05, FAMILY)
    assert sets["skipped"].tolist() == ["fewer than two runs: c"] * 2
    assert sets["p"].isna().all()
    assert pairs.empty
    same = {name: pd.DataFrame({"one": [5.0, 5.0]}) for name in "abc"}
    assert per_set.per_set(same, 0.05, FAMILY)[0]["skipped"].tolist() == ["all runs have the same score"]
    alone, none = per_set.per_set({"a": runs()["a"]}, 0.05, ())
    assert alone["skipped"].tolist() == ["there is one algorithm"] * 2
    assert none.empty


def test_a_run_without_a_score_on_a_set_is_missing_there_only() -> None:
    data = runs()
    data["b"].iloc[0, 0] = math.nan
    sets, pairs = per_set.per_set(data, 0.05, FAMILY)
    assert sets["num_runs"].tolist() == [17, 18]
    assert pairs.set_index(["dataset", "a", "b"]).loc[("one", "a", "b"), "num_runs_b"] == 5


def test_intervals_of_pairs_are_welch_s_at_the_level_of_all_pairs_together() -> None:
    runs = {"a": [50.0, 52.0, 53.0], "b": [48.0, 49.5, 47.0], "c": [50.5, 50.0, 51.0, 52.0]}
    lines = [("s", name, value) for name, values in runs.items() for value in values]
    scores = pd.DataFrame(lines, columns=["dataset", "algorithm", "score"])
    frames = {name: pd.DataFrame({"s": values}) for name, values in runs.items()}
    _, tests = per_set.per_set(frames, 0.05, (("a", "b"), ("a", "c"), ("b", "c")))
    for row in per_set.pair_intervals(tests, scores, 0.05).to_dict("records"):
        sides = (np.array(runs[row["a"]]), np.array(runs[row["b"]]))
        assert (row["low"], row["high"]) == pytest.approx(per_set.welch(*sides, 1 - 0.05 / 3)[:2])
