"""Tests and tables on request: against published examples, other packages' results, and what defines them.

tests/vectors/statistics/reference.json: synthetic inputs, and what statsmodels, rliable, baycomp, multi_comp_matrix and
STAC's formulas make of them; `made_by` has the versions.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from biasbed.analysis.options import AnalyzeOptions
from biasbed.analysis.statistics import (
    aggregates,
    cliques,
    comparison_matrix,
    corrections,
    correlated_t,
    exact,
    friedman,
    further,
    omnibus,
)
from biasbed.errors import Failure
from biasbed.settings import build
from helpers.demsar import DEMSAR, matrix

REFERENCE = json.loads((Path(__file__).parents[2] / "vectors/statistics/reference.json").read_text())
close = {"rel": 1e-8, "abs": 1e-8}


# --- corrections ------------------------------------------------------------------------------------------------------


def test_shaffers_factors_are_the_published_ones() -> None:
    """Garcia and Herrera 2008, page 2681, print t_i for five algorithms."""
    assert corrections.shaffer_factors(5).tolist() == [10, 6, 6, 6, 6, 4, 4, 3, 2, 1]
    assert corrections.shaffer_factors(2).tolist() == [1]


def _true_counts(k: int) -> Iterator[int]:
    """Yield the number of equal pairs under every assignment of k algorithms to groups of equals."""
    for groups in itertools.product(range(k), repeat=k):
        yield sum(a == b for a, b in itertools.combinations(groups, 2))


@pytest.mark.parametrize("k", [2, 3, 4, 5])
def test_counts_of_true_hypotheses_are_those_of_all_groupings(k: int) -> None:
    assert corrections.counts_of_true(k) == set(_true_counts(k))


def test_shaffer_equals_the_reference() -> None:
    case = REFERENCE["shaffer"]
    adjusted = corrections.shaffer(np.array(case["p"]), case["num_algorithms"])
    assert adjusted.tolist() == pytest.approx(case["adjusted"], **close)
    with pytest.raises(ValueError, match="6 algorithms have 15 pairs, but there are 14"):
        corrections.shaffer(np.array(case["p"][:-1]), 6)


@given(st.lists(st.floats(0, 1), min_size=10, max_size=10))
@settings(max_examples=60)
def test_shaffer_is_never_stricter_than_holm(values: list[float]) -> None:
    p = np.array(values)
    adjusted = corrections.shaffer(p, 5)
    assert (adjusted <= exact.holm(p) + 1e-12).all()
    assert (adjusted >= p - 1e-12).all()


def test_benjamini_hochberg_equals_statsmodels() -> None:
    case = REFERENCE["benjamini_hochberg"]
    adjusted = corrections.benjamini_hochberg(np.array(case["p"]))
    assert adjusted.tolist() == pytest.approx(case["adjusted"], **close)


def test_with_a_control_shaffer_is_holm() -> None:
    p = np.array([0.01, 0.02, 0.03])
    assert (corrections.correct(p, "shaffer", 4, all_pairs=False) == exact.holm(p)).all()
    assert (corrections.correct(p, "shaffer", 3, all_pairs=True) == [0.03, 0.03, 0.03]).all()


# --- omnibus ----------------------------------------------------------------------------------------------------------


def test_quade_of_conovers_example() -> None:
    """Conover 1999, section 5.8: sales of five brands in seven stores. R's quade.test gives F 3.8293, p 0.01519."""
    sales = [
        *([5, 4, 7, 10, 12], [1, 3, 1, 0, 2], [16, 12, 22, 22, 35], [5, 4, 3, 5, 4]),
        *([10, 9, 7, 13, 10], [19, 18, 28, 37, 58], [10, 7, 6, 8, 7]),
    ]
    test = omnibus.quade(np.array(sales, dtype=float))
    assert (round(test.statistic, 4), test.dof, test.dof_error) == (3.8293, 4, 24)
    assert round(test.p, 5) == 0.01519


@pytest.mark.parametrize("case", REFERENCE["omnibus"])
@pytest.mark.parametrize("name", ["quade", "aligned_ranks"])
def test_omnibus_tests_equal_the_reference(case: dict[str, Any], name: str) -> None:
    test = getattr(omnibus, name)(np.array(case["scores"]))
    assert [test.statistic, test.p_approximate] == pytest.approx(case[name], **close)
    assert (test.p_permutation is None) == (len(case["scores"]) >= exact.FEWEST_SETS)


@pytest.mark.parametrize("name", ["quade", "aligned_ranks"])
def test_permutation_p_is_the_share_of_all_orders(name: str) -> None:
    """Ties included: every order of every set's scores is tested, and those as extreme are counted."""
    scores = np.array([[3.0, 1, 2], [9, 4, 4], [5, 3, 1]])
    test = getattr(omnibus, name)
    observed = test(scores)
    orders = itertools.product(*(itertools.permutations(row) for row in scores))
    statistics = [test(np.array(rows)).statistic for rows in orders]
    assert observed.p == pytest.approx(np.mean(np.array(statistics) >= observed.statistic - 1e-9))


def test_quade_is_infinite_if_sets_of_equal_range_agree_and_needs_differences() -> None:
    test = omnibus.quade(np.array([[1.0, 2, 3]] * 7))
    assert (test.statistic, test.p) == (np.inf, 0)
    with pytest.raises(Failure, match="nothing to test"):
        omnibus.aligned_ranks(np.ones((6, 3)))
    with pytest.raises(Failure, match="three algorithms"):
        omnibus.quade(np.ones((6, 2)))


def test_shifting_or_scaling_all_scores_changes_no_omnibus_test() -> None:
    scores = np.random.default_rng(2).normal(size=(8, 4))
    for test in (omnibus.quade, omnibus.aligned_ranks):
        assert test(3 * scores + 7).p == pytest.approx(test(scores).p)
        assert test(-scores).statistic == pytest.approx(test(scores).statistic)


# --- cliques ----------------------------------------------------------------------------------------------------------


@given(st.sets(st.sampled_from(list(itertools.combinations("abcdef", 2)))))
@settings(max_examples=60)
def test_cliques_are_the_maximal_groups_without_a_pair_told_apart(apart: set[tuple[str, str]]) -> None:
    valid = []
    for size in range(2, 7):
        for group in itertools.combinations("abcdef", size):
            if not apart & set(itertools.combinations(group, 2)):
                valid.append(group)
    maximal = [group for group in valid if not any(set(group) < set(larger) for larger in valid)]
    assert cliques.cliques(list("abcdef"), apart) == sorted(maximal)


def test_cliques_of_demsars_table() -> None:
    """Holm tells c45 only from c45_m apart, which lies between two that are not told from either."""
    table = further.compute(_inputs(DEMSAR), build(AnalyzeOptions, {"further": "cliques"}))["cliques"]
    assert cliques.groups_of(table) == [("c45_m_cf", "c45_m", "c45_cf"), ("c45_m_cf", "c45_cf", "c45")]
    options = build(AnalyzeOptions, {"further": "cliques", "correction": "benjamini_hochberg"})
    wider = further.compute(_inputs(DEMSAR), options)["cliques"]
    assert cliques.groups_of(wider) == [("c45_m_cf", "c45_m", "c45_cf"), ("c45_cf", "c45")]
    assert set(wider["correction"]) == {"benjamini_hochberg"}


def test_without_a_significant_omnibus_test_all_are_one_clique() -> None:
    scores = matrix(np.random.default_rng(1).normal(size=(6, 4)))
    inputs = _inputs(scores)
    assert not inputs.comparison.significant
    table = cliques.clique_table(
        pd.DataFrame({"a": ["alg0"], "b": ["alg1"], "p_adjusted": [0.0]}),
        inputs.comparison.mean_ranks,
        "holm",
        0.05,
        False,
    )
    assert cliques.groups_of(table) == [tuple(inputs.comparison.mean_ranks)]


# --- aggregates -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["a", "b"])
def test_aggregates_equal_rliables(name: str) -> None:
    """Same draws: the package takes them from NumPy's global generator, one array of runs x sets per resample."""
    case = REFERENCE["rliable"]
    algorithm = case["algorithms"][name]
    scores, thresholds = np.array(algorithm["scores"]), np.array(case["thresholds"])
    generator = np.random.RandomState(case["seed"])
    drawn = [generator.choice(len(scores), scores.shape, replace=True) for _ in range(case["replicates"])]
    resampled = aggregates.resample(scores, np.stack(drawn))
    assert float(aggregates.interquartile_mean(scores)) == pytest.approx(algorithm["iqm"], **close)
    bounds = aggregates.percentiles(aggregates.interquartile_mean(resampled), case["alpha"])
    assert list(map(float, bounds)) == pytest.approx(algorithm["iqm_interval"], **close)
    assert aggregates.profile(scores, thresholds).tolist() == pytest.approx(algorithm["profile"], **close)
    bands = np.stack(aggregates.percentiles(aggregates.profile(resampled, thresholds), case["alpha"]))
    assert bands.ravel().tolist() == pytest.approx(np.ravel(algorithm["profile_interval"]).tolist(), **close)


def test_profiles_count_what_is_better_and_leave_out_incomplete_runs() -> None:
    runs = {"a": pd.DataFrame({"x": [1.0, 2, 9], "y": [3.0, 4, np.nan]}), "b": pd.DataFrame({"x": [0.0], "y": [5.0]})}
    higher = aggregates.profiles(runs, 0.05, 200)
    lower = aggregates.profiles(runs, 0.05, 200, lower_is_better=True)
    for frame, better in ((higher, np.greater), (lower, np.less)):
        for name, scores in (("a", [1, 2, 3, 4]), ("b", [0, 5])):
            rows = frame[frame["algorithm"] == name]
            expected = [np.mean(better(scores, threshold)) for threshold in rows["threshold"]]
            assert rows["share"].tolist() == pytest.approx(expected)
        assert frame[frame["algorithm"] == "b"]["low"].isna().all()
    table = aggregates.aggregates(runs, 0.05, 200)
    assert table["interquartile_mean"].tolist() == [2.5, 2.5]
    assert table["num_runs"].tolist() == [2, 1]


# --- comparison matrix ------------------------------------------------------------------------------------------------


def test_comparison_matrix_equals_the_reference() -> None:
    case = REFERENCE["comparison_matrix"]
    table = comparison_matrix.comparison_matrix(matrix(case["scores"])).set_index(["a", "b"])
    for i, j, mean, win, tie, loss, p in case["pairs"]:
        row = table.loc[(f"alg{i}", f"alg{j}")]
        assert [row["mean_difference"], row["p"]] == pytest.approx([mean, p], **close)
        assert [row["wins"], row["ties"], row["losses"]] == [win, tie, loss]


def test_a_further_algorithm_changes_no_entry_of_the_matrix() -> None:
    scores = matrix(np.random.default_rng(0).normal(size=(8, 4)))
    whole = comparison_matrix.comparison_matrix(scores).set_index(["a", "b"])
    part = comparison_matrix.comparison_matrix(scores.iloc[:, :3]).set_index(["a", "b"])
    pd.testing.assert_frame_equal(whole.loc[part.index], part)
    means = [scores[name].mean() for name in dict.fromkeys(whole.reset_index()["a"])]
    assert means == sorted(means, reverse=True)


# --- correlated t -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", REFERENCE["correlated_t"])
def test_correlated_t_equals_baycomp(case: dict[str, Any]) -> None:
    test = correlated_t.correlated_t(np.array(case["y"]) - np.array(case["x"]), case["correlation"])
    assert [test.mean, test.error**2, test.dof] == pytest.approx([case["mean"], case["variance"], case["dof"]], **close)
    regions = correlated_t.posterior(test, case["rope"])
    assert regions == pytest.approx((case["right"], case["rope_p"], case["left"]), **close)


def test_without_correlation_it_is_the_paired_t_test() -> None:
    x, y = np.random.default_rng(3).normal(size=(2, 6))
    expected = stats.ttest_rel(x, y)
    test = correlated_t.correlated_t(x - y, 0)
    assert [test.t, test.p] == pytest.approx([expected.statistic, expected.pvalue], **close)


def test_equal_differences_and_too_few() -> None:
    same = correlated_t.correlated_t(np.array([2.0, 2, 2]), 0.1)
    assert (same.t, same.p, correlated_t.posterior(same, 1)) == (np.inf, 0, (1, 0, 0))
    zero = correlated_t.correlated_t(np.zeros(3), 0.1)
    assert (zero.t, zero.p, correlated_t.posterior(zero, 0)) == (0, 1, (0, 1, 0))
    with pytest.raises(ValueError, match="two differences"):
        correlated_t.correlated_t(np.array([1.0]), 0)


def test_runs_are_paired_by_seed() -> None:
    """Seeds in another order, and one that only the first has."""
    generator = np.random.default_rng(5)
    a = pd.DataFrame({"x": generator.normal(size=4)}, index=[0, 1, 2, 3])
    b = pd.DataFrame({"x": a["x"] - 1 + generator.normal(0, 0.01, 4)}).loc[[2, 0, 3]]
    row = correlated_t.compare_sets({"a": a, "b": b}, (("a", "b"),), ["x"], 0.5, 0).iloc[0]
    assert row["num_runs"] == 3
    assert row["mean_difference"] == pytest.approx((a["x"] - b["x"]).mean())
    assert row["p"] == row["p_holm"] < 1e-3
    alone = correlated_t.compare_sets({"a": a, "b": b.loc[[0]]}, (("a", "b"),), ["x"], 0.5, 0)
    assert alone.empty


# --- all together -----------------------------------------------------------------------------------------------------


def _inputs(scores: pd.DataFrame, **changes: Any) -> further.FurtherInputs:
    runs = {name: pd.DataFrame([scores[name], scores[name] + 1]) for name in scores}
    base = {"runs": runs, "control": None, "is_lower_better": False, "in_points": True}
    return further.FurtherInputs(friedman.compare(scores, 0.05), scores, **(base | changes))


def test_only_what_is_named_and_allowed_is_computed() -> None:
    options = build(AnalyzeOptions, {"further": "all"})
    everything = further.compute(_inputs(DEMSAR), options)
    assert set(everything) >= set(further.MAKERS) | {"profiles"}
    assert set(further.compute(_inputs(DEMSAR), build(AnalyzeOptions, {}))) == set()
    two = further.compute(_inputs(DEMSAR[["c45", "c45_m"]]), options)
    assert not {"omnibus", "cliques"} & set(two)
    with_control = further.compute(_inputs(DEMSAR, control="c45"), options)
    assert "cliques" not in with_control
    assert with_control["comparison_matrix"]["b"].unique().tolist() == ["c45"]
    mixed = further.compute(_inputs(DEMSAR, is_lower_better=None, in_points=False), options)
    assert not {"aggregates", "profiles", "correlated_t"} & set(mixed)
    lower = further.compute(_inputs(-DEMSAR, is_lower_better=True), options)["aggregates"].set_index("algorithm")
    shown = np.concatenate([DEMSAR["c45"], DEMSAR["c45"] - 1])
    assert lower.loc["c45", "interquartile_mean"] == pytest.approx(stats.trim_mean(shown, 0.25))
