"""The omnibus test on few sets: exact by enumeration, and what it says there of equal algorithms."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pandas as pd
import pytest

from biasbed.analysis.report import wording
from biasbed.analysis.statistics import exact, friedman


def every_table(k: int, num_sets: int) -> list[np.ndarray]:
    """Ranks of all outcomes that equal algorithms have with the same probability."""
    orders = list(itertools.permutations(range(1, k + 1)))
    return [np.array(rows, dtype=float) for rows in itertools.product(orders, repeat=num_sets)]


@pytest.mark.parametrize(("k", "num_sets"), [(3, 2), (3, 3), (3, 4), (4, 2)])
def test_equal_algorithms_are_called_different_no_more_often_than_promised(k: int, num_sets: int) -> None:
    values = np.array([exact.friedman_p(table) for table in every_table(k, num_sets)])
    for alpha in (0.01, 0.05, 0.1, 0.2, 0.5):
        assert (values <= alpha + 1e-12).mean() <= alpha + 1e-12


def test_p_of_perfect_agreement_is_the_number_of_orders() -> None:
    assert exact.friedman_p(np.tile([1.0, 2.0, 3.0], (2, 1))) == pytest.approx(1 / 6)
    assert exact.friedman_p(np.tile([1.0, 2.0, 3.0, 4.0], (3, 1))) == pytest.approx(1 / 576)


def test_a_sample_agrees_with_all_orders(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(1)
    for _ in range(5):
        ranks = np.array([rng.permutation(4) + 1.0 for _ in range(4)])
        of_all = exact.friedman_p(ranks)
        monkeypatch.setattr(exact, "LARGEST_ENUMERATED", 0)
        assert exact.friedman_p(ranks) == pytest.approx(of_all, abs=4 * np.sqrt(0.25 / exact.SAMPLE))
        monkeypatch.undo()


def test_a_sampled_p_is_never_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    """Perfect agreement of five sets on five algorithms: one order in 207 million, of which 20,000 are drawn."""
    monkeypatch.setattr(exact, "LARGEST_ENUMERATED", 0)
    agreement = np.tile(np.arange(1.0, 6.0), (5, 1))
    assert exact.friedman_p(agreement) == pytest.approx(1 / (1 + exact.SAMPLE))


def test_ties_are_those_that_were_observed() -> None:
    """Two sets that only set one algorithm apart: of the nine outcomes three have it first on both."""
    assert exact.friedman_p(np.array([[1.0, 2.5, 2.5]] * 2)) == pytest.approx(1 / 3)


def test_two_sets_that_agree_are_no_proof() -> None:
    """F is infinite and its p zero; of the six orders of the second set one agrees with the first."""
    scores = pd.DataFrame({"a": [3.0, 30.0], "b": [2.0, 20.0], "c": [1.0, 10.0]}, index=["x", "y"])
    comparison = friedman.compare(scores, 0.05)
    assert comparison.friedman is not None
    assert comparison.friedman.f_p == 0
    assert comparison.friedman.p == pytest.approx(1 / 6)
    assert not comparison.significant
    text = wording.omnibus_sentence(comparison)
    assert "permutation of the ranks, p = 0.1667" in text
    assert "1e-300" not in text


def test_six_sets_are_left_to_f() -> None:
    rng = np.random.default_rng(0)
    ranks = pd.DataFrame([rng.permutation(4) + 1.0 for _ in range(6)])
    test = friedman.friedman(ranks.to_numpy())
    assert test.permutation_p is None
    assert test.p == test.f_p == pytest.approx(exact.friedman_p(ranks.to_numpy()), abs=0.06)


@pytest.mark.parametrize("k", [5, 171])
def test_any_number_of_algorithms_has_a_probability_that_all_sets_agree(k: int) -> None:
    """1/k! for each further set; a factorial of more than 170 is no float."""
    ranks = np.tile(np.arange(1.0, k + 1), (2, 1))
    assert exact.agreement_p(ranks) == pytest.approx(math.exp(-math.lgamma(k + 1)), rel=1e-9, abs=1e-300)
    assert 0 < exact.friedman_p(ranks) <= 1
