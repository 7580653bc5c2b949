"""False positive rates, coverage and their known failures, with few simulations; all figures: docs/calibration.md."""

from __future__ import annotations

from types import ModuleType

import numpy as np
import pytest

from helpers import benchmarks


@pytest.fixture(scope="module")
def calibration() -> ModuleType:
    return benchmarks.load("calibration")


def generator(seed: int = 11) -> np.random.Generator:
    return np.random.default_rng(seed)


@pytest.mark.parametrize(("k", "n"), [(5, 10), (8, 12)])
def test_independent_sets_keep_the_promise(calibration: ModuleType, k: int, n: int) -> None:
    """Four standard errors of 4000 simulations are 1.4 points; Iman-Davenport may exceed 5 % by half a point."""
    rates = calibration.false_positives(calibration.independent(generator(), 4000, n, k))
    assert 0.036 < rates["Iman-Davenport"].value < 0.07
    assert rates["Friedman, chi-square"].value < rates["Iman-Davenport"].value
    for name in ("Nemenyi", "Wilcoxon with Holm, all pairs", "Wilcoxon with Holm, control"):
        assert rates[name].value < 0.064, name
    assert rates["Nemenyi under Iman-Davenport"].value <= rates["Nemenyi"].value


def test_too_few_sets_can_never_reject(calibration: ModuleType) -> None:
    rates = calibration.false_positives(calibration.independent(generator(), 500, 6, 5))
    assert rates["Wilcoxon with Holm, all pairs"].value == 0


@pytest.mark.parametrize("scenario", ["three sets of the same images", "one run each, runs differ"])
def test_broken_assumptions_break_the_promise(calibration: ModuleType, scenario: str) -> None:
    """The documentation says so, so it must be true."""
    rates = calibration.false_positives(calibration.SCENARIOS[scenario](generator(), 1000, 10, 8))
    assert rates["Iman-Davenport"].value > 0.1
    assert rates["Wilcoxon with Holm, control"].value > 0.05


def test_bayesian_decisions_with_a_rope_are_rarely_wrong(calibration: ModuleType) -> None:
    rates = calibration.bayesian_decisions(calibration.independent(generator(), 60, 10, 2), 0.5)
    assert rates["Bayesian, rope 0.5: one better"].value < 0.15


@pytest.mark.parametrize("effects", ["equal", "halves", "all differ"])
@pytest.mark.parametrize(("k", "n"), [(3, 4), (10, 10)])
def test_rank_sets_cover_whichever_algorithms_are_equal(calibration: ModuleType, effects: str, k: int, n: int) -> None:
    """95 % less four standard errors of 400 simulations."""
    tables = calibration.independent(generator(), 400, n, k)
    coverage, _ = calibration.rank_coverage(tables, calibration.true_effects(effects, k))
    assert coverage.value > 0.95 - 4 * 0.011


def test_rank_sets_of_domains_cover_only_if_data_sets_are_blocks(calibration: ModuleType) -> None:
    tables, effects = calibration.domains(generator(), 300, 6, 5), calibration.true_effects("equal", 5)
    blocks = tables.reshape(300, 6, calibration.PARTS_OF_A_SET, 5).mean(axis=2)
    assert calibration.rank_coverage(blocks, effects)[0].value > 0.95 - 4 * 0.013
    assert calibration.rank_coverage(tables[:, :12], effects)[0].value < 0.8


@pytest.mark.slow
def test_intervals_cover(calibration: ModuleType) -> None:
    rates = calibration.coverage(generator(), 150, 8, 8, replicates=400)
    assert rates["bootstrap, widened"].value > 0.88
    assert rates["bootstrap, plain percentile"].value < rates["bootstrap, widened"].value
    assert rates["Hodges-Lehmann"].value > 0.85


def test_tests_on_one_set_keep_the_promise(calibration: ModuleType) -> None:
    rates = calibration.per_set(generator(), 150, 3, 6)
    assert all(rate.value < 0.05 + 4 * 0.018 for rate in rates.values())
    assert rates["Mann-Whitney with Holm, under Kruskal-Wallis"].value <= rates["Kruskal-Wallis"].value
