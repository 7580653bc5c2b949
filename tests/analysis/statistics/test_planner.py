"""Limits of a design: tables of smallest designs, the simulated tests, detectable differences, plans."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from biasbed.analysis.statistics import exact, friedman, nemenyi, planner, power, simulation
from biasbed.analysis.statistics import pairs as pairwise

# --- before any score: k, N and alpha ---------------------------------------------------------------------------------

TABLE = {
    5: (3.52, 2.73, 2.49, 2.16, 1.93, 1.57, 1.36),
    7: (5.20, 4.03, 3.68, 3.18, 2.85, 2.33, 2.01),
    10: (7.82, 6.06, 5.53, 4.79, 4.28, 3.50, 3.03),
}


@pytest.mark.parametrize("k", TABLE)
def test_nemenyis_critical_differences(k: int) -> None:
    differences = [nemenyi.critical_difference(k, n, 0.05) for n in (3, 5, 6, 8, 10, 15, 20)]
    assert differences == pytest.approx(TABLE[k], abs=0.0051)


@pytest.mark.parametrize("k", [2, 4])
def test_there_total_dominance_becomes_significant(k: int) -> None:
    smallest = power.smallest_num_sets_wilcoxon(k * (k - 1) // 2, 0.05)

    def best(n: int) -> float:
        scores = pd.DataFrame(np.arange(n)[:, None] + np.arange(1, k + 1) * (10 + np.arange(n)[:, None]))
        return float(pairwise.compare_pairs(scores)["p_holm"].min())

    assert best(smallest) < 0.05 <= best(smallest - 1)


@pytest.mark.parametrize("num_tests", [1, 3, 28])
def test_smallest_number_of_runs_on_one_set(num_tests: int) -> None:
    runs = power.smallest_num_runs_mann_whitney(num_tests, 0.05)

    def best(number: int) -> float:
        (test,) = exact.rank_sum_of_each(np.arange(number)[None] + 0.0, np.arange(number)[None] + 100.0)
        return num_tests * test.p

    assert best(runs) < 0.05 <= best(runs - 1)


# --- the simulated tests are the tests --------------------------------------------------------------------------------


def example(k: int = 4, n: int = 9, r: int = 6, run: float = 1.0, noise: float = 0.5, seed: int = 0) -> Any:
    generator = np.random.default_rng(seed)
    cells = generator.normal(50, 10, n) + generator.normal(0, 2, (k, n))
    frames = {
        f"alg{i}": pd.DataFrame(cells[i] + generator.normal(0, run, (r, 1)) + generator.normal(0, noise, (r, n)))
        for i in range(k)
    }
    return pd.DataFrame({name: frame.mean() for name, frame in frames.items()}), frames


@pytest.mark.parametrize(("k", "n"), [(2, 8), (3, 7), (5, 10)])
def test_many_at_once_decide_as_one_by_one(k: int, n: int) -> None:
    generator = np.random.default_rng(k)
    tables = generator.normal(size=(25, n, k)) + np.linspace(0, 2, k)
    omnibus = simulation.omnibus(tables, 0.05)
    decisions, with_control = (
        simulation.decide(tables, 0.05, name) for name in ("wilcoxon_holm", "wilcoxon_holm_control")
    )
    seen = set()
    for table, significant, decided, against in zip(tables, omnibus, decisions, with_control, strict=True):
        scores = pd.DataFrame(table, columns=[f"alg{i}" for i in range(k)])
        comparison = friedman.compare(scores, 0.05)
        assert comparison.significant == significant
        tests = pairwise.compare_pairs(scores)
        assert (tests["p_holm"] < 0.05).tolist() == (decided != 0).tolist()
        assert (np.sign(tests["rank_sum_a"] - tests["rank_sum_b"]) * (decided != 0)).tolist() == decided.tolist()
        control = pairwise.compare_pairs(scores, "alg0")
        assert (control["p_holm"] < 0.05).tolist() == (against != 0).tolist()
        seen |= set(decided.tolist())
    assert seen == {-1, 0}  # the example shows something, and not everything
    if k > 2:
        for table, decided in zip(tables, simulation.decide(tables, 0.05, "nemenyi"), strict=True):
            p = friedman.compare(pd.DataFrame(table), 0.05).nemenyi
            assert p is not None
            pairs = itertools.combinations(range(k), 2)
            assert [bool(p.iloc[i, j] < 0.05) for i, j in pairs] == (decided != 0).tolist()


def test_many_tables_are_decided_part_by_part(monkeypatch: pytest.MonkeyPatch) -> None:
    tables = np.random.default_rng(4).normal(size=(2001, 12, 4)) + np.linspace(0, 1, 4)

    def decide() -> list[Any]:
        flags = [simulation.omnibus(tables, 0.05)]
        flags += [simulation.decide(tables, 0.05, name) for name in planner.procedures(4, 0.05)]
        return [array.tolist() for array in flags]

    monkeypatch.setattr(simulation, "AT_ONCE", 10**9)
    at_once = decide()
    monkeypatch.setattr(simulation, "AT_ONCE", 1000)
    assert decide() == at_once
    assert 0 < sum(at_once[0]) < len(tables)  # the example shows something, and not everything


@pytest.mark.parametrize(("k", "n"), [(3, 5), (5, 3), (6, 5)])
def test_on_few_sets_too(k: int, n: int) -> None:
    """Below six sets both go by permutation: exactly where there are few orders (5, 3), by a sample of more (6, 5)."""
    generator = np.random.default_rng(k + n)
    tables = generator.normal(size=(25, n, k)) + np.linspace(0, 3, k)
    p = exact.untied_friedman_p(simulation.row_ranks(-tables).mean(axis=1), n)
    tests = [friedman.friedman(friedman.rank(pd.DataFrame(table)).to_numpy()) for table in tables]
    assert [test.permutation_p for test in tests] == p.tolist()
    assert simulation.omnibus(tables, 0.05).tolist() == [test.p < 0.05 for test in tests]
    assert {test.p < 0.05 for test in tests} == {True, False}
    assert p.tolist() != pytest.approx([test.f_p for test in tests], abs=0.001)


def test_fast_p_values_equal_scipys() -> None:
    tables = np.random.default_rng(5).normal(size=(6, 8, 4))
    statistics = friedman.statistics_of_each(simulation.row_ranks(-tables))
    for table, chi2 in zip(tables, statistics.chi2, strict=True):
        assert chi2 == pytest.approx(stats.friedmanchisquare(*table.T).statistic)
    _, p = simulation.wilcoxon(tables, [(0, 1), (2, 3)])
    for table, row in zip(tables, p, strict=True):
        expected = [stats.wilcoxon(table[:, i] - table[:, j], method="exact").pvalue for i, j in ((0, 1), (2, 3))]
        assert row.tolist() == pytest.approx(expected)


# --- the model --------------------------------------------------------------------------------------------------------


def test_variance_components_are_found_again() -> None:
    estimates = [simulation.estimate(*example(k=8, n=12, r=10, seed=seed)) for seed in range(60)]
    assert np.mean([model.run for model in estimates]) == pytest.approx(1.0, abs=0.08)
    assert np.mean([model.noise for model in estimates]) == pytest.approx(0.5, abs=0.02)
    assert np.sqrt(np.mean([model.interaction**2 for model in estimates])) == pytest.approx(2.0, abs=0.08)


def test_what_two_runs_leave_to_chance_is_no_interaction() -> None:
    """Left in, noise of 3 points would make interactions of 2 points 2.9."""
    estimates = [simulation.estimate(*example(k=8, n=12, r=2, noise=3.0, seed=seed)) for seed in range(60)]
    assert np.sqrt(np.mean([model.interaction**2 for model in estimates])) == pytest.approx(2.0, abs=0.25)


def test_interactions_of_few_sets_are_not_too_small() -> None:
    """Residuals of three algorithms on three sets have 4 degrees of freedom where there are 9 numbers."""
    estimates = [simulation.estimate(*example(k=3, n=3, r=4, run=0.1, noise=0.1, seed=seed)) for seed in range(300)]
    assert np.sqrt(np.mean([model.interaction**2 for model in estimates])) == pytest.approx(2.0, abs=0.15)


def test_simulated_tables_have_the_models_variances() -> None:
    model = simulation.estimate(*example())
    for num_runs in (1, 4):
        tables = simulation.draw(model, 4000, 9, num_runs)
        means = tables.mean(axis=1)
        of_means = model.interaction**2 / 9 + (model.run**2 + model.noise**2 / 9) / num_runs
        assert means.var() == pytest.approx(of_means, rel=0.06)
        assert abs(means.mean()) < 0.05


def test_single_runs_leave_the_runs_part_unknown() -> None:
    model = simulation.estimate(*example(r=1))
    assert not model.knows_runs
    assert model.interaction > 0
    planned = planner.plan(model, 2.0, 0.05)
    assert planned["num_runs"].unique().tolist() == [1]
    assert planner.detectable(model, 9, 1, 0.05)


# --- detectable differences and plans ---------------------------------------------------------------------------------


def test_the_detectable_difference_has_the_power_it_promises() -> None:
    """On new random numbers, with the tests themselves one by one."""
    model = simulation.estimate(*example())
    limits = {limit.procedure: limit for limit in planner.detectable(model, 12, 6, 0.05)}
    assert set(limits) == {"nemenyi", "wilcoxon_holm", "wilcoxon_holm_control"}
    tables = simulation.draw(model, 150, 12, 6, seed=99)
    tables[..., 0] += limits["wilcoxon_holm_control"].difference
    hits = []
    for table in tables:
        scores = pd.DataFrame(table, columns=list("abcd"))
        tests = pairwise.compare_pairs(scores, "a")
        better = (tests["p_holm"] < 0.05) & (tests["rank_sum_a"] < tests["rank_sum_b"])
        hits.append(better.mean() if friedman.compare(scores, 0.05).significant else 0.0)
    assert np.mean(hits) == pytest.approx(planner.TARGET, abs=4 * np.std(hits) / math.sqrt(150))


def test_power_counts_the_right_direction_under_the_omnibus_test_only() -> None:
    model = simulation.estimate(*example())
    tables = simulation.draw(model, 500, 9, 6)
    assert planner.power_of(tables, -30, 0.05, "wilcoxon_holm_control") == (0, 0)
    tables[..., 0] += 1.5
    decided = simulation.decide(tables, 0.05, "wilcoxon_holm_control")
    expected = ((decided > 0) & simulation.omnibus(tables, 0.05)[:, None]).mean()
    assert planner.power_of(tables, 0.0, 0.05, "wilcoxon_holm_control")[0] == pytest.approx(expected)
    assert expected < (decided > 0).mean()


def test_more_sets_and_a_control_see_smaller_differences() -> None:
    model = simulation.estimate(*example())
    by_sets = [planner.detectable(model, n, 6, 0.05) for n in (8, 12, 20)]
    for position in range(3):
        differences = [limits[position].difference for limits in by_sets]
        assert differences == sorted(differences, reverse=True)
    assert by_sets[1][2].difference < by_sets[1][1].difference


def test_where_nothing_can_be_significant_nothing_is_detectable() -> None:
    model = simulation.estimate(*example(k=5))
    limits = planner.detectable(model, 5, 6, 0.05)
    by_name = {limit.procedure: limit for limit in limits}
    assert by_name["wilcoxon_holm"].smallest_num_sets == 9
    assert not by_name["wilcoxon_holm"].possible
    two = planner.detectable(simulation.estimate(*example(k=2)), 8, 6, 0.05)
    assert [limit.procedure for limit in two] == ["wilcoxon"]


@pytest.mark.slow
def test_the_plan_agrees_with_the_detectable_difference() -> None:
    model = simulation.estimate(*example())
    difference = planner.detectable(model, 12, 10, 0.05)[2].difference
    planned = planner.plan(model, difference, 0.05)
    designs = planned[planned["procedure"] == "wilcoxon_holm_control"].set_index(["num_sets", "num_runs"])
    assert designs.loc[(12, 10), "power"] == pytest.approx(planner.TARGET, abs=0.02)
    assert designs["monte_carlo_error"].max() < 0.012
    assert designs.loc[(6, 10), "power"] == 0  # below the smallest number of sets
    best = planner.cheapest(planned, "wilcoxon_holm_control")
    assert best is not None
    assert best[0] <= 12
    assert designs.loc[best, "enough"]
    assert planner.cheapest(planner.plan(model, 0.01, 0.05), "nemenyi") is None


def test_a_pairs_detectable_difference_is_its_own() -> None:
    """A pair that differs evenly shows less than one that differs here and there; for normal data theory agrees."""
    generator = np.random.default_rng(0)
    even, uneven = generator.normal(1, 0.5, 200), generator.normal(1, 5, 200)
    small, large = planner.detectable_pairs(np.stack([even[:20], uneven[:20]]), 0.05)
    assert 5 * small < large
    (many,) = planner.detectable_pairs(even[None], 0.05)
    # z test with Wilcoxon's efficiency 3/pi: (1.96 + 0.84) sd / sqrt(n) / sqrt(3/pi)
    assert many == pytest.approx(2.8 * even.std() / math.sqrt(200) * math.sqrt(math.pi / 3), rel=0.06)
    assert planner.detectable_pairs(even[None, :5], 0.05) == [math.inf]
    assert planner.detectable_pairs(even[None, :10], 0.05 / 28) == [math.inf]


@pytest.mark.parametrize(("k", "n"), [(3, 3), (3, 4), (5, 5)])
def test_few_sets_make_no_false_positives(k: int, n: int) -> None:
    """With so many runs that equal algorithms are all but equal, the rate is at most alpha; F's is 19 % on three."""
    model = simulation.estimate(*example(k=k, n=10))
    omnibus = planner.false_positives(model, n, 1e6, 0.05)[0][0]
    assert omnibus.rate.value <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / planner.RATE_SIMULATIONS)


def test_runs_that_differ_make_false_positives_and_more_runs_unmake_them() -> None:
    model = simulation.estimate(*example(k=5, n=10, run=3.0))
    few, many = (planner.false_positives(model, 10, r, 0.05)[0][0] for r in (1, 4000))
    assert few.procedure == "iman_davenport"
    assert few.rate.value > 0.3
    assert many.rate.value == pytest.approx(0.055, abs=0.005)
