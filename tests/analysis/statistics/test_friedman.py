"""The tests themselves: against published numbers, against other implementations, and under relabelling."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from biasbed import record
from biasbed.analysis import scores as aggregate
from biasbed.analysis.columns import Column
from biasbed.analysis.statistics import friedman, pairs, power
from biasbed.errors import Failure
from helpers.demsar import DEMSAR, matrix


def nemenyi(scores: pd.DataFrame) -> pd.DataFrame:
    p = friedman.compare(scores, 0.05).nemenyi
    assert p is not None
    return p


# --- published and independent numbers --------------------------------------------------------------------------------


def test_demsars_example() -> None:
    """Demsar 2006, section 3.2.2. The paper computes from ranks rounded to three digits, and without tie correction."""
    comparison = friedman.compare(DEMSAR, 0.05)
    ranks = comparison.mean_ranks
    assert [round(ranks[name], 3) for name in DEMSAR] == [3.143, 2.000, 2.893, 1.964]
    n, k = DEMSAR.shape
    without_correction = 12 * n / (k * (k + 1)) * (sum(rank**2 for rank in ranks.values()) - k * (k + 1) ** 2 / 4)
    assert without_correction == pytest.approx(9.28, abs=0.01)
    assert (n - 1) * without_correction / (n * (k - 1) - without_correction) == pytest.approx(3.69, abs=0.01)
    assert comparison.friedman is not None
    assert comparison.friedman.f_dof == (3, 39)
    assert comparison.friedman.chi2 > without_correction
    assert comparison.significant
    assert comparison.reach is not None
    assert comparison.reach.critical_difference == pytest.approx(1.25, abs=0.005)


def test_autoranks_numbers() -> None:
    """autorank 1.3.0 with force_mode="nonparametric" on the same table: p of chi-square, ranks, critical distance."""
    comparison = friedman.compare(DEMSAR, 0.05)
    assert comparison.friedman is not None
    assert comparison.reach is not None
    assert comparison.friedman.chi2_p == pytest.approx(0.016721580328441323)
    # autorank interpolates a table of quantiles.
    assert comparison.reach.critical_difference == pytest.approx(1.2535512603486423, abs=1e-4)
    ranks = {"c45": 3.142857, "c45_cf": 2.892857, "c45_m": 2.0, "c45_m_cf": 1.964286}
    assert comparison.mean_ranks == pytest.approx(ranks, abs=1e-6)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("ties", [False, True])
def test_friedman_equals_scipy(seed: int, ties: bool) -> None:
    generator = np.random.default_rng(seed)
    values = generator.integers(0, 4, (9, 5)) if ties else generator.normal(size=(9, 5))
    test = friedman.friedman(friedman.rank(matrix(values)).to_numpy())
    expected = stats.friedmanchisquare(*np.asarray(values).T)
    assert (test.chi2, test.chi2_p) == pytest.approx((expected.statistic, expected.pvalue))


@pytest.mark.parametrize("num_sets", [4, 9])
def test_p_values_of_many_tables_are_those_of_each(num_sets: int) -> None:
    """With few sets they come from permutations, else from F; identical orders give an infinite F."""
    tables = np.random.default_rng(0).integers(0, 4, (12, num_sets, 4)).astype(float)
    tables[0] = np.arange(4)
    ranks = friedman.ranks_of(tables)
    expected = [friedman.friedman(table).p for table in ranks]
    assert friedman.friedman_p_of_each(ranks).tolist() == expected


def test_sign_test_and_counts() -> None:
    test = friedman.compare_two(matrix([[3, 1], [2, 1], [5, 5], [4, 1], [9, 1], [1, 2]]))
    assert (test.wins, test.losses, test.ties) == (4, 1, 1)
    assert test.sign_p == pytest.approx(2 * (1 + 5) / 32)


# --- invariance -------------------------------------------------------------------------------------------------------

tables = st.integers(3, 6).flatmap(
    lambda k: st.lists(st.lists(st.integers(0, 6), min_size=k, max_size=k), min_size=2, max_size=8)
)


@given(tables, st.randoms(use_true_random=False))
@settings(max_examples=40)
def test_permuting_and_renaming_changes_nothing(values: list[list[int]], random: Any) -> None:
    scores = matrix(values)
    if friedman.why_not_testable(scores):
        return
    names = [f"x{i}" for i in range(scores.shape[1])]
    random.shuffle(names)
    renamed = dict(zip(scores.columns, names, strict=True))
    shuffled = scores.sample(frac=1, random_state=random.randrange(99)).sample(frac=1, axis=1, random_state=3)
    first, second = friedman.compare(scores, 0.05), friedman.compare(shuffled.rename(columns=renamed), 0.05)
    assert first.friedman is not None
    assert second.friedman is not None
    assert first.nemenyi is not None
    assert second.nemenyi is not None
    assert (first.friedman.chi2, first.friedman.p) == pytest.approx((second.friedman.chi2, second.friedman.p), rel=1e-9)
    for a, b in itertools.combinations(scores, 2):
        assert first.nemenyi.loc[a, b] == pytest.approx(second.nemenyi.loc[renamed[a], renamed[b]], abs=1e-9)


def test_ranks_share_ties_and_respect_direction() -> None:
    scores = matrix([[1, 3, 3], [1, 2, 3]])
    assert friedman.rank(scores).to_numpy().tolist() == [[3, 1.5, 1.5], [3, 2, 1]]
    assert friedman.rank(scores, lower_is_better=["set1"]).to_numpy().tolist() == [[3, 1.5, 1.5], [1, 2, 3]]


def test_rounding_errors_do_not_break_ties() -> None:
    scores = matrix([[0.1 + 0.2, 0.3, 0.1]])
    assert friedman.rank(scores).to_numpy().tolist() == [[1.5, 1.5, 3]]


# --- what libraries let pass ------------------------------------------------------------------------------------------

GOOD = np.arange(12.0).reshape(4, 3) % 5


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda s: s.mask(s.index.to_series().eq("set1"), np.nan), r"alg0 on set1 \(nan\)"),
        (lambda s: s.replace(4.0, np.inf), r"alg1 on set1 \(inf\)"),
    ],
)
def test_bad_matrices_are_refused(change: Any, message: str) -> None:
    for test in (lambda s: friedman.compare(s, 0.05), pairs.compare_pairs, lambda s: pairs.effects(s, 0.05)):
        with pytest.raises(Failure, match=message):
            test(change(matrix(GOOD)))


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ([[1, 2, 3]], "tests need at least two sets"),
        ([[1], [2], [3]], "tests need at least two algorithms"),
        ([[1, 1, 1], [2, 2, 2]], "same score on every set"),
    ],
)
def test_what_cannot_be_tested_is_skipped_with_the_reason(values: list[list[int]], reason: str) -> None:
    comparison = friedman.compare(matrix(values), 0.05)
    assert reason in comparison.skipped
    assert comparison.friedman is None
    assert comparison.nemenyi is None
    assert not comparison.significant


def test_the_same_order_on_every_set_gives_an_infinite_f() -> None:
    comparison = friedman.compare(matrix([[3, 2, 1]] * 5), 0.05)
    assert comparison.friedman is not None
    assert comparison.friedman.f == math.inf
    assert comparison.friedman.f_p == 0
    assert comparison.friedman.p == pytest.approx(6 / 6**5)
    assert comparison.friedman.kendall_w == pytest.approx(1)


# --- strict setting, groups, power ------------------------------------------------------------------------------------


def test_the_better_of_two_has_the_larger_rank_sum() -> None:
    """Though it wins on fewer sets."""
    pair = friedman.compare_two(matrix([[9, 1], [8, 1], [1, 2], [1, 2.5], [1, 2.2]]))
    assert (pair.wins, pair.losses, pair.rank_sum, pair.rank_sum_against) == (2, 3, 9, 6)
    assert pair.better == "alg0"
    assert friedman.compare_two(matrix([[1, 9], [1, 8], [2, 1], [2.5, 1], [2.2, 1]])).better == "alg1"


def test_left_out_sets_are_left_out() -> None:
    scores = matrix([[3, 2, 1], [3, 2, 1], [1, 2, 3]])
    comparison = friedman.compare(scores, 0.05, setting="strict", left_out=["set2"])
    assert comparison.sets == ("set0", "set1")
    assert comparison.mean_ranks == {"alg0": 1.0, "alg1": 2.0, "alg2": 3.0}
    assert friedman.compare(scores, 0.05, left_out=list(scores.index)).skipped


def test_groups_are_maximal_and_hold_only_pairs_that_are_not_told_apart() -> None:
    scores = matrix([[9, 8, 3, 2, 1]] * 12)
    comparison = friedman.compare(scores, 0.05)
    groups = comparison.groups()
    assert comparison.nemenyi is not None
    for group in groups:
        assert all(comparison.nemenyi.loc[a, b] >= 0.05 for a, b in itertools.combinations(group, 2))
    assert not any(set(smaller) < set(larger) for smaller, larger in itertools.permutations(groups, 2))


def test_two_are_in_one_group_while_their_p_is_at_least_alpha() -> None:
    comparison = friedman.compare(DEMSAR, 0.05)
    for a, b in itertools.combinations(DEMSAR, 2):
        for factor, together in ((0.99, True), (1.01, False)):
            groups = replace(comparison, alpha=factor * comparison.p(a, b)).groups()
            assert any({a, b} <= set(group) for group in groups) == together


@pytest.mark.parametrize("k", [2, 3, 4, 5, 8, 12])
def test_smallest_number_of_sets_is_where_total_dominance_becomes_significant(k: int) -> None:
    smallest = power.reach(k, 5, 0.05).smallest_num_sets

    def significant(n: int) -> bool:
        scores = matrix([list(range(k))] * n) + np.arange(n)[:, None] * np.arange(1, k + 1) / 100
        if k == 2:
            return friedman.compare_two(scores).wilcoxon_p < 0.05
        return bool(nemenyi(scores).iloc[0, -1] < 0.05)

    assert significant(smallest)
    assert smallest == 2 or not significant(smallest - 1)


def test_the_sentence_says_when_nothing_could_have_been_shown() -> None:
    assert "no outcome could have been significant" in power.reach(2, 5, 0.05).sentence
    assert "no pair could have been told apart" in power.reach(5, 2, 0.05).sentence
    assert "which is 76% of the largest possible difference, 4" in power.reach(5, 4, 0.05).sentence
    assert "largest possible difference" not in power.reach(8, 10, 0.05).sentence


# --- score tables -----------------------------------------------------------------------------------------------------


def test_the_interval_of_a_set_is_wilsons_of_its_images() -> None:
    column = Column("x", record.SetRecord("x", "accuracy", 80, 2, 0.5, ("accuracy",)))
    expected = stats.binomtest(20, 80).proportion_ci(0.95, "wilson")
    assert aggregate.binomial_interval(25.0, column) == pytest.approx((100 * expected.low, 100 * expected.high))
    loss = Column("x", record.SetRecord("x", "loss", 80, 2, 0.5, ("loss",), higher_is_better=False))
    assert all(math.isnan(value) for value in aggregate.binomial_interval(25.0, loss))
