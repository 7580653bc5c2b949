"""The Bayesian signed-rank test: against baycomp, an independent derivation, and what it must do at its limits."""

from __future__ import annotations

import itertools

import numpy as np
import pandas as pd
import pytest

from biasbed.analysis.statistics import bayesian
from helpers.demsar import DEMSAR, matrix


@pytest.mark.parametrize(
    ("a", "b", "rope", "expected"),
    [
        ("c45_m_cf", "c45", 0.0, (0.9972, 0.0, 0.0028)),
        ("c45_m_cf", "c45", 0.0101, (0.9606, 0.0391, 0.0003)),
        ("c45_m_cf", "c45", 0.0171, (0.6853, 0.3147, 0.0)),
        ("c45_m", "c45_cf", 0.0053, (0.7710, 0.2174, 0.0117)),
        ("c45_cf", "c45", 0.0117, (0.1164, 0.8260, 0.0576)),
    ],
)
def test_baycomps_numbers(a: str, b: str, rope: float, expected: tuple[float, ...]) -> None:
    """baycomp 1.0.3, SignedRankTest.probs with 200,000 draws (Demsar's data; no pair's mean lies on a rope's edge)."""
    p = bayesian.signed_rank((DEMSAR[a] - DEMSAR[b]).round(9).to_numpy(), rope)
    assert (p.a, p.rope, p.b) == pytest.approx(expected, abs=0.008)
    assert p.monte_carlo_error < 0.0025


def test_a_plain_reading_of_the_paper() -> None:
    """Benavoli et al. 2014, section 4: weights from gamma variates, every pair i, j in turn."""
    d, rope = [2.0, -0.5, 1.2, 3.1, 0.4], 0.7
    generator, wins = np.random.default_rng(7), np.zeros(3)
    for _ in range(4000):
        raw = [generator.gamma(shape) for shape in (*[1.0] * 5, 0.5)]
        shares = np.zeros(3)
        for (x, v), (y, w) in itertools.product(zip([*d, 0.0], raw, strict=True), repeat=2):
            shares[0 if x + y > 2 * rope else 2 if x + y < -2 * rope else 1] += v * w
        wins[shares.argmax()] += 1
    p = bayesian.signed_rank(np.array(d), rope)
    assert (p.a, p.rope, p.b) == pytest.approx(tuple(wins / 4000), abs=0.03)


def test_probabilities_add_up_and_turn_round() -> None:
    d = np.random.default_rng(0).normal(0.4, 1, 9)
    forward, backward = bayesian.signed_rank(d, 0.3), bayesian.signed_rank(-d, 0.3)
    assert forward.a + forward.rope + forward.b == pytest.approx(1)
    assert (forward.a, forward.rope, forward.b) == pytest.approx((backward.b, backward.rope, backward.a))


def test_the_order_of_sets_does_not_matter() -> None:
    d = np.random.default_rng(1).normal(0.4, 1, 9)
    assert bayesian.signed_rank(d, 0.3) == bayesian.signed_rank(d[::-1], 0.3)


def test_a_wider_rope_makes_equivalence_more_probable() -> None:
    d = np.random.default_rng(2).normal(0.2, 1, 10)
    within = [bayesian.signed_rank(d, rope).rope for rope in (0, 0.2, 0.5, 1, 2, 5)]
    assert within == sorted(within)
    assert within[0] == 0
    assert within[-1] == 1


def test_equal_everywhere_is_equivalent_or_undecided() -> None:
    zeros = np.zeros(8)
    assert bayesian.verdict(bayesian.signed_rank(zeros, 1.0), 0.05) == "equivalent"
    without = bayesian.signed_rank(zeros, 0.0)
    assert (without.a, without.rope, without.b) == (0.5, 0, 0.5)
    assert bayesian.verdict(without, 0.05) == "undecided"


def test_verdicts() -> None:
    scores = matrix([[50 + i, 40 + i, 40.1 + i] for i in range(10)])
    frame = bayesian.compare_pairs(scores, 1.0, 0.05).set_index(["a", "b"])
    assert frame["verdict"].to_dict() == {
        ("alg0", "alg1"): "a better",
        ("alg0", "alg2"): "a better",
        ("alg1", "alg2"): "equivalent",
    }
    against = bayesian.compare_pairs(scores, 1.0, 0.05, control="alg0")
    assert against["verdict"].tolist() == ["b better", "b better"]


@pytest.mark.parametrize(
    ("posterior", "expected"),
    [
        *(((0.96, 0.02, 0.02), "a better"), ((0.02, 0.96, 0.02), "equivalent"), ((0.02, 0.02, 0.96), "b better")),
        *(((0.94, 0.03, 0.03), "undecided"), ((0.03, 0.03, 0.94), "undecided"), ((0.03, 0.94, 0.03), "undecided")),
    ],
)
def test_a_verdict_takes_more_than_1_minus_alpha(posterior: tuple[float, ...], expected: str) -> None:
    assert bayesian.verdict(bayesian.Posterior(*posterior), 0.05) == expected


def test_nothing_is_decided_on_few_sets() -> None:
    scores = pd.DataFrame({"a": [90.0, 91, 92, 93, 94], "b": [10.0, 11, 12, 13, 15]})
    assert bayesian.compare_pairs(scores, 1.0, 0.05)["verdict"].tolist() == ["undecided"]
    more = pd.concat([scores, scores], ignore_index=True)
    assert bayesian.compare_pairs(more, 1.0, 0.05)["verdict"].tolist() == ["a better"]
