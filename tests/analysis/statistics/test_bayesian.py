"""The Bayesian signed-rank test: against baycomp, an independent derivation, and what it must do at its limits."""

from __future__ import annotations

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


def test_probabilities_add_up_and_turn_round() -> None:
    d = np.random.default_rng(0).normal(0.4, 1, 9)
    forward, backward = bayesian.signed_rank(d, 0.3), bayesian.signed_rank(-d, 0.3)
    assert forward.a + forward.rope + forward.b == pytest.approx(1)
    assert (forward.a, forward.rope, forward.b) == pytest.approx((backward.b, backward.rope, backward.a))


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
