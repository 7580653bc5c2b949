"""Exact tests of pairs, Holm's correction, effect sizes: against enumeration, other libraries and published numbers."""

from __future__ import annotations

import itertools
from typing import Any
from unittest import mock

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy import stats

from biasbed.analysis.statistics import exact, pairs
from helpers.demsar import DEMSAR, matrix

whole_numbers = st.lists(st.integers(-4, 4), min_size=1, max_size=9)


# --- Wilcoxon ---------------------------------------------------------------------------------------------------------


@given(whole_numbers)
@settings(max_examples=60)
def test_exact_wilcoxon_equals_all_signs_counted(values: list[int]) -> None:
    """With ties and zeros: every assignment of signs is listed, and those at least as extreme are counted (Pratt)."""
    differences = np.array(values, dtype=float)
    ranks = stats.rankdata(np.abs(differences))[differences != 0]
    observed = ranks[differences[differences != 0] > 0].sum()
    sums = np.array([np.dot(ranks, signs) for signs in itertools.product((0, 1), repeat=len(ranks))])
    lower, upper = np.mean(sums <= observed), np.mean(sums >= observed)
    assert exact.wilcoxon(differences).p == pytest.approx(min(1.0, 2 * min(lower, upper)))


@given(whole_numbers)
@example([0, 0, 1, 2, -3, 4])  # 0.5; without the zeros' ranks it would be 0.625
@settings(max_examples=40)
def test_splitting_the_zeros_gives_the_same_p(values: list[int]) -> None:
    """Demsar 2006 adds half the zeros' ranks to both sums; as every arrangement of signs gets it, p stays."""
    differences = np.array(values, dtype=float)
    ranks = stats.rankdata(np.abs(differences))
    half = ranks[differences == 0].sum() / 2
    nonzero = ranks[differences != 0]
    observed = ranks[differences > 0].sum() + half
    sums = np.array([np.dot(nonzero, signs) + half for signs in itertools.product((0, 1), repeat=len(nonzero))])
    tail = min(np.mean(sums <= observed), np.mean(sums >= observed))
    assert exact.wilcoxon(differences).p == pytest.approx(min(1.0, 2 * tail))


def test_demsars_rank_sums() -> None:
    """Demsar 2006, section 3.1.3, prints R+ = 93 and R- = 12 with the two zeros' ranks (1.5 each) split evenly."""
    row = pairs.compare_pairs(DEMSAR[["c45_m", "c45"]]).iloc[0]
    assert (row["wins"], row["losses"], row["ties"]) == (10, 2, 2)
    assert (row["rank_sum_a"] + 1.5, row["rank_sum_b"] + 1.5) == (93, 12)
    assert row["p"] < 0.05  # 12 is below the table's critical value of 21
    assert row["p"] == pytest.approx(
        stats.wilcoxon(DEMSAR["c45_m"] - DEMSAR["c45"], zero_method="pratt").pvalue, abs=0.01
    )


def rank_sum(a: np.ndarray, b: np.ndarray) -> float:
    """Return p of two samples."""
    return exact.rank_sum_of_each(a[None], b[None])[0].p


# --- Mann-Whitney -----------------------------------------------------------------------------------------------------


@given(st.lists(st.integers(0, 4), min_size=1, max_size=4), st.lists(st.integers(0, 4), min_size=1, max_size=5))
@settings(max_examples=60)
def test_rank_sum_equals_all_choices_counted(a: list[int], b: list[int]) -> None:
    ranks = stats.rankdata(a + b)
    observed = ranks[: len(a)].sum()
    sums = np.array([sum(choice) for choice in itertools.combinations(ranks, len(a))])
    tail = min(np.mean(sums <= observed + 1e-9), np.mean(sums >= observed - 1e-9))
    assert rank_sum(np.array(a, float), np.array(b, float)) == pytest.approx(min(1.0, 2 * tail))


@pytest.mark.parametrize(("m", "n"), [(3, 3), (5, 8), (10, 9), (25, 30)])
def test_rank_sum_equals_scipys_exact_mode_without_ties(m: int, n: int) -> None:
    generator = np.random.default_rng(m)
    a, b = generator.normal(0.6, 1, m), generator.normal(0, 1, n)
    assert rank_sum(a, b) == pytest.approx(stats.mannwhitneyu(a, b, method="exact").pvalue)


def test_long_samples_get_the_normal_approximation() -> None:
    generator = np.random.default_rng(0)
    a, b = generator.integers(0, 9, 50).astype(float), generator.integers(0, 8, 60).astype(float)
    assert rank_sum(a, b) == stats.mannwhitneyu(a, b, method="asymptotic").pvalue
    assert rank_sum(np.ones(40), np.ones(40)) == 1


@pytest.mark.parametrize(("m", "n"), [(4, 7), (40, 50)])
def test_rank_sums_of_many_pairs_are_those_of_each(m: int, n: int) -> None:
    generator = np.random.default_rng(m)
    a, b = generator.integers(0, 6, (9, m)).astype(float), generator.integers(0, 5, (9, n)).astype(float)
    a[3], b[3] = 2.0, 2.0  # nothing but ties
    for row, test in enumerate(exact.rank_sum_of_each(a, b)):
        assert test.p == rank_sum(a[row], b[row])
        difference = a[row][:, None] - b[row][None]
        assert test.lead == np.sign(difference).sum()


# --- Holm -------------------------------------------------------------------------------------------------------------


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
@settings(max_examples=60)
def test_holm_equals_statsmodels(values: list[float]) -> None:
    from statsmodels.stats.multitest import multipletests

    with mock.patch("gc.collect"):  # it collects garbage at every call, half a second with all that is loaded here
        expected = multipletests(values, method="holm")[1]
    assert exact.holm(np.array(values)) == pytest.approx(expected)
    both = exact.holm(np.array([values, values[::-1]]))
    assert both[1][::-1] == pytest.approx(expected)


# --- pairs ------------------------------------------------------------------------------------------------------------


def test_pairs_do_not_depend_on_the_pool_but_holm_does() -> None:
    generator = np.random.default_rng(3)
    scores = matrix(generator.normal(size=(9, 6)) + np.arange(6) * 0.8)
    pool = pairs.compare_pairs(scores).set_index(["a", "b"])
    part = pairs.compare_pairs(scores[["alg0", "alg5"]]).set_index(["a", "b"])
    both = ("alg0", "alg5")
    assert pool.loc[both, "p"] == part.loc[both, "p"] == part.loc[both, "p_holm"] < pool.loc[both, "p_holm"]
    assert (pool["p_holm"] >= pool["p"]).all()
    assert pool["num_tests"].unique().tolist() == [15]


def test_the_smallest_p_is_that_of_a_lead_on_every_set() -> None:
    """With Holm's first step over all pairs; never above 1."""
    generator = np.random.default_rng(0)
    scores = matrix(generator.normal(size=(9, 3)))
    scores["alg0"] += 100
    frame = pairs.compare_pairs(scores)
    assert frame["smallest_p"].unique().tolist() == [frame["p_holm"].min()] == [3 * 2.0**-8]
    assert pairs.compare_pairs(scores.iloc[:2])["smallest_p"].unique().tolist() == [1.0]


def test_a_control_is_compared_with_every_other() -> None:
    scores = matrix(np.random.default_rng(1).normal(size=(8, 4)))
    frame = pairs.compare_pairs(scores, "alg2")
    assert list(zip(frame["a"], frame["b"], strict=True)) == [("alg0", "alg2"), ("alg1", "alg2"), ("alg3", "alg2")]
    everything = pairs.compare_pairs(scores).set_index(["a", "b"])
    assert frame["p"].tolist() == [
        everything.loc[pair, "p"] for pair in (("alg0", "alg2"), ("alg1", "alg2"), ("alg2", "alg3"))
    ]
    assert frame["num_tests"].unique().tolist() == [3]


@given(st.randoms(use_true_random=False))
@settings(max_examples=20)
def test_permuting_and_renaming_changes_nothing(random: Any) -> None:
    scores = matrix(np.random.default_rng(random.randrange(999)).integers(0, 9, size=(8, 4)))
    renamed = {f"alg{i}": f"x{j}" for i, j in enumerate(random.sample(range(4), 4))}
    shuffled = scores.sample(frac=1, random_state=random.randrange(99)).sample(frac=1, axis=1, random_state=5)
    shuffled = shuffled.rename(columns=renamed)

    def described(
        frame: pd.DataFrame, effects: pd.DataFrame, names: dict[str, str]
    ) -> dict[frozenset[str], tuple[float, ...]]:
        return {
            frozenset((names.get(a, a), names.get(b, b))): tuple(
                np.round([p, holm, sign, abs(hl), abs(r), high - low], 9)
            )
            for a, b, p, holm, sign, hl, r, low, high in zip(
                *(frame[c] for c in ("a", "b", "p", "p_holm", "sign_p_holm")),
                *(effects[c] for c in ("hodges_lehmann", "rank_biserial", "low", "high")),
                strict=True,
            )
        }

    first = described(pairs.compare_pairs(scores), pairs.effects(scores, 0.05), renamed)
    second = described(pairs.compare_pairs(shuffled), pairs.effects(shuffled, 0.05), {})
    assert first == second


# --- effect sizes -----------------------------------------------------------------------------------------------------


def test_hodges_lehmann_of_the_textbook() -> None:
    """Hollander, Wolfe and Chicken 2014, example 3.1 and 3.3 (Hamilton depression scale): -0.46, [-0.786, -0.010]."""
    before = [1.83, 0.50, 1.62, 2.48, 1.68, 1.88, 1.55, 3.06, 1.30]
    after = [0.878, 0.647, 0.598, 2.05, 1.06, 1.29, 1.06, 3.14, 1.29]
    shift = pairs.hodges_lehmann(np.array(after) - before, 0.04)
    assert shift.estimate == pytest.approx(-0.46)
    assert (shift.low, shift.high) == pytest.approx((-0.786, -0.010))


@given(st.lists(st.floats(-5, 5).map(lambda v: round(v, 3)), min_size=6, max_size=11, unique=True))
@settings(max_examples=40)
def test_the_interval_is_what_wilcoxon_does_not_reject(values: list[float]) -> None:
    d = np.array(values)
    shift = pairs.hodges_lehmann(d, 0.05)
    assert shift.low <= shift.estimate <= shift.high
    inside = np.linspace(shift.low, shift.high, 9)[1:-1] + 1e-7
    for centre in inside if shift.high - shift.low > 1e-4 else []:
        assert exact.wilcoxon(d - centre).p > 0.05
    for centre in (shift.low - 1e-6, shift.high + 1e-6):
        assert exact.wilcoxon(d - centre).p <= 0.05


def test_effects_by_hand() -> None:
    frame = pairs.effects(matrix([[3, 1], [2, 1], [5, 5], [4, 1], [9, 1], [1, 2]]), 0.05)
    row = frame.iloc[0]
    assert (row["wins"], row["losses"], row["ties"], row["num_sets"]) == (4, 1, 1, 6)
    assert (row["mean_difference"], row["median_difference"]) == (pytest.approx(13 / 6), 1.5)
    # Ranks of 2 1 0 3 8 -1 are 4 2.5 1 5 6 2.5: R+ = 17.5, R- = 2.5, and all ranks add up to 21.
    assert row["rank_biserial"] == pytest.approx(15 / 21)
