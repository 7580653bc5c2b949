"""Bayesian hierarchical test: against quadrature of the same model, and against the authors' package."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from biasbed.analysis.statistics import hierarchical

# Posteriors of the same differences: by quadrature over delta_0, sigma_0 and nu with every delta_i and sigma_i
# integrated out (`mean`, `sd`, `most`), and by Stan, as baycomp 1.0.3 runs it (`stan`, 20,000 draws).
CASES = json.loads((Path(__file__).parents[2] / "vectors/statistics/hierarchical.json").read_text())


@pytest.fixture
def few_chains(monkeypatch: pytest.MonkeyPatch) -> None:
    original = hierarchical.sample
    monkeypatch.setattr(hierarchical, "sample", lambda data: original(data, chains=40, warm_up=100, draws=40))


@pytest.mark.parametrize("case", CASES)
def test_posterior_equals_quadrature_and_the_authors_package(case: dict[str, Any]) -> None:
    """Means of the regions' probabilities, and how often each is the likeliest.

    The chains' own spread gives the tolerance. Stan's draws hardly reach small sigma_0, so it differs by up to 0.02.
    """
    data = hierarchical.prepare([np.array(row) for row in case["differences"]], case["correlation"])
    assert data is not None
    posterior = hierarchical.sample(data, chains=100, warm_up=150, draws=60)
    assert posterior.r_hat < 1.05
    regions = posterior.regions(case["rope"])[::-1]
    assert regions.sum(axis=0) == pytest.approx(1)
    error = float((regions.mean(axis=2).std(axis=1, ddof=1) / 10).max())
    assert error < 0.01
    assert regions.mean(axis=(1, 2)).tolist() == pytest.approx(case["mean"], abs=4 * error + 1e-3)
    assert regions.mean(axis=(1, 2)).tolist() == pytest.approx(case["stan"]["mean"], abs=4 * error + 0.02)
    assert regions.std(axis=(1, 2)).tolist() == pytest.approx(case["sd"], abs=0.02)
    p, monte_carlo = hierarchical.probabilities(posterior, case["rope"])
    assert [p.b, p.rope, p.a] == pytest.approx(case["most"], abs=4 * monte_carlo + 1e-3)


@pytest.mark.usefixtures("few_chains")
def test_swapped_algorithms_and_another_unit_give_the_same_probabilities() -> None:
    generator = np.random.default_rng(3)
    runs = {name: pd.DataFrame(generator.normal(shift, 1, (3, 6))) for name, shift in (("a", 0.5), ("b", 0.0))}
    settings: dict[str, Any] = {"correlation": 0.0, "alpha": 0.05}

    def compare(first: str, second: str, unit: float) -> pd.Series[Any]:
        scaled = {name: unit * frame for name, frame in runs.items()}
        frame = hierarchical.compare_pairs(scaled, ((first, second),), list(range(6)), rope=0.3 * unit, **settings)
        return frame.iloc[0]

    row, swapped, scaled = compare("a", "b", 1), compare("b", "a", 1), compare("a", "b", 10)
    assert row[["p_a", "p_rope", "p_b"]].sum() == pytest.approx(1)
    tolerance = 5 * (row["monte_carlo_error"] + swapped["monte_carlo_error"])
    assert (row["p_a"], row["p_b"]) == pytest.approx((swapped["p_b"], swapped["p_a"]), abs=tolerance)
    assert (row["p_a"], row["p_rope"]) == pytest.approx((scaled["p_a"], scaled["p_rope"]), abs=1e-6)
    assert 10 * row["mean_difference"] == pytest.approx(scaled["mean_difference"])


@pytest.mark.usefixtures("few_chains")
def test_clear_differences_are_decided_and_few_sets_are_not() -> None:
    generator = np.random.default_rng(4)
    better = pd.DataFrame(generator.normal(5, 0.5, (4, 8)))
    worse = pd.DataFrame(generator.normal(0, 0.5, (4, 8)))
    alike = worse + generator.normal(0, 0.05, (4, 8))
    runs = {"better": better, "worse": worse, "alike": alike}
    family = (("better", "worse"), ("worse", "better"), ("alike", "worse"))
    settings: dict[str, Any] = {"rope": 1.0, "correlation": 0.0, "alpha": 0.05}
    frame = hierarchical.compare_pairs(runs, family, list(range(8)), **settings)
    assert frame["verdict"].tolist() == ["a better", "b better", "equivalent"]
    assert frame["mean_difference"].tolist() == pytest.approx([5, -5, 0], abs=0.5)
    few = hierarchical.compare_pairs(runs, family[:1], list(range(5)), **settings)
    assert few["verdict"].tolist() == ["undecided"]
    assert few["p_a"].iloc[0] > 0.9


def test_what_can_not_be_compared_is_left_out() -> None:
    equal = pd.DataFrame(np.ones((3, 6)))
    frame = hierarchical.compare_pairs(
        {"a": equal, "b": equal + 1}, (("a", "b"),), list(range(6)), rope=1, correlation=0, alpha=0.05
    )
    assert frame.empty
    assert tuple(frame.columns) == hierarchical.COLUMNS
    with pytest.raises(ValueError, match="two sets"):
        hierarchical.prepare([np.zeros(3)], 0.0)


def test_one_set_without_spread_is_no_obstacle() -> None:
    """Its deviation has a floor; the posterior stays finite."""
    rows = [np.array([1.0, 1.0, 1.0]), np.array([0.5, 1.5, 1.2]), np.array([0.7, 1.4, 0.9])]
    data = hierarchical.prepare(rows, 0.0)
    assert data is not None
    posterior = hierarchical.sample(data, chains=20, warm_up=50, draws=20)
    assert np.isfinite(posterior.regions(0.1)).all()
