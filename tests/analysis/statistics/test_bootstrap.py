"""The bootstrap over sets and runs: intervals against theory, probability of improvement by hand."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from biasbed.analysis.statistics import bootstrap
from biasbed.analysis.statistics.design import row_from_runs, single_column_blocks
from biasbed.analysis.statistics.pairs import Pairs

PAIR = (("a", "b"),)


def runs(seed: int = 0, num_sets: int = 8, num_runs: int = 6, lead: float = 1.0) -> dict[str, pd.DataFrame]:
    generator = np.random.default_rng(seed)
    level = generator.normal(50, 20, num_sets)
    columns = [f"set{i}" for i in range(num_sets)]
    return {
        name: pd.DataFrame(
            level + shift + generator.normal(0, 1, (num_runs, num_sets)),
            [f"{name}{i}" for i in range(num_runs)],
            columns,
        )
        for name, shift in (("a", lead), ("b", 0.0))
    }


def improvements(data: dict[str, pd.DataFrame], number: int, family: Pairs = PAIR) -> pd.DataFrame:
    rows, layout = {name: row_from_runs(frame) for name, frame in data.items()}, single_column_blocks(data["a"])
    return bootstrap.improvements(rows, layout, bootstrap.resample(rows, layout, number), 0.05, family)


def intervals(data: dict[str, pd.DataFrame], number: int) -> pd.DataFrame:
    rows, layout = {name: row_from_runs(frame) for name, frame in data.items()}, single_column_blocks(data["a"])
    return bootstrap.intervals(rows, layout, bootstrap.resample(rows, layout, number), 0.05)


def test_probability_of_improvement_by_hand() -> None:
    """Agarwal et al. 2021, section 4.3: the mean over sets of the share of pairs of runs that a wins, ties half."""
    a = pd.DataFrame({"x": [1.0, 3.0], "y": [5.0, 5.0]})
    b = pd.DataFrame({"x": [2.0, 2.0, 0.0], "y": [5.0, 6.0, 7.0]})
    pair = {"a": a, "b": b}
    frame = improvements(pair, 500)
    on_x, on_y = (1 + 3) / 6, (0.5 + 0.5) / 6
    assert frame["probability_of_improvement"].iloc[0] == pytest.approx((on_x + on_y) / 2)


def test_both_directions_agree() -> None:
    data = runs()
    forward = improvements(data, 1000).iloc[0]
    backward = improvements(data, 1000, (("b", "a"),)).iloc[0]
    assert forward["probability_of_improvement"] == pytest.approx(1 - backward["probability_of_improvement"])
    assert (forward["bootstrap_low"], forward["bootstrap_high"]) == pytest.approx(
        (-backward["bootstrap_high"], -backward["bootstrap_low"])
    )
    assert forward["bootstrap_low"] < (data["a"].mean() - data["b"].mean()).mean() < forward["bootstrap_high"]


def test_differences_are_paired_over_sets() -> None:
    """Sets that differ by 20 points widen the interval of a mean, not of a difference."""
    data = runs(num_runs=10)
    means = intervals(data, 1000)
    mean = means[(means["algorithm"] == "a") & (means["dataset"] == bootstrap.OVER_SETS)].iloc[0]
    difference = improvements(data, 1000).iloc[0]
    assert difference["bootstrap_high"] - difference["bootstrap_low"] < 3 < 10 < mean["high"] - mean["low"]


def test_the_widened_interval_is_students_for_a_plain_mean() -> None:
    """Hesterberg 2015: for means the widened percentile interval comes close to the t interval."""
    values = np.random.default_rng(4).normal(size=10)
    counts = np.random.default_rng(5).multinomial(10, [0.1] * 10, 40_000)
    low, high = bootstrap.interval(counts @ values / 10, 0.05, 10)
    expected = stats.t.interval(0.95, 9, values.mean(), stats.sem(values))
    assert (low, high) == pytest.approx(expected, abs=0.12 * (expected[1] - expected[0]))
    plain = np.quantile(counts @ values / 10, [0.025, 0.975])
    assert high - low > 1.1 * (plain[1] - plain[0])


def test_the_quantiles_are_those_of_student_and_small_samples() -> None:
    """For replicates that are exactly normal the interval ends at sqrt(n/(n-1)) t."""
    replicates = stats.norm.ppf((np.arange(200_000) + 0.5) / 200_000)
    low, high = bootstrap.interval(replicates, 0.05, 5)
    assert high == pytest.approx(math.sqrt(5 / 4) * stats.t.ppf(0.975, 4), abs=0.01)
    assert low == pytest.approx(-high, abs=1e-6)


def test_a_single_run_has_no_interval_on_a_set() -> None:
    data = runs(num_runs=1)
    frame = intervals(data, 300)
    on_sets = frame["dataset"] != bootstrap.OVER_SETS
    assert frame.loc[on_sets, ["low", "high"]].isna().all(axis=None)
    assert frame.loc[~on_sets, ["low", "high"]].notna().all(axis=None)


def test_a_published_mean_says_how_many_runs_it_is_of() -> None:
    row = dataclasses.replace(row_from_runs(runs(num_runs=1)["a"]), mean_of=3)
    design = single_column_blocks(row.scores)
    frame = bootstrap.intervals({"a": row}, design, bootstrap.resample({"a": row}, design, 100), 0.05)
    assert set(frame["num_runs"]) == {3}
    # The interval is still that of one number.
    assert frame.loc[frame["dataset"] != bootstrap.OVER_SETS, ["low", "high"]].isna().all(axis=None)


def test_a_run_without_a_score_is_no_score_of_zero() -> None:
    """Means are over the drawn runs that have one; where none has, over all."""
    frame = pd.DataFrame({"x": [10.0, 20.0, math.nan], "y": [1.0, 2.0, 3.0]})
    counts = np.array([[1.0, 1.0, 1.0], [0.0, 1.0, 2.0], [0.0, 0.0, 3.0]])
    expected = [[15.0, 2.0], [20.0, 8 / 3], [15.0, 3.0]]
    assert bootstrap.cell_means(frame, counts) == pytest.approx(np.array(expected))


def test_sorted_runs_count_the_wins_of_all_pairs() -> None:
    """With ties, scores that differ in the tenth digit, missing scores, and runs that are drawn never or twice."""
    generator = np.random.default_rng(0)
    x, y = (np.round(generator.normal(50, 1, number), 1) for number in (40, 30))
    x[:3], y[:3] = (math.nan, y[5] + 1e-10, y[6] - 1e-10), (math.nan, 50.0, x[9])
    counts_x, counts_y = (generator.multinomial(n, np.full(n, 1 / n), 250).astype("float64") for n in (40, 30))
    # On a further column, which is never drawn, no score is missing: a run without any score is no run.
    rows = {name: row_from_runs(pd.DataFrame({"set": z, "full": 0.0})) for name, z in (("x", x), ("y", y))}
    columns = np.tile([1.0, 0.0], (250, 1))
    draws = bootstrap.Resamples(columns, columns, {}, {"x": (counts_x,), "y": (counts_y,)})
    design = single_column_blocks(["set", "full"])
    rates = bootstrap.improvement_probabilities(rows, design, draws, (("x", "y"),))[0, :-1]
    by_hand = []
    for times_x, times_y in zip(counts_x.astype(int), counts_y.astype(int), strict=True):
        drawn_x, drawn_y = np.repeat(x, times_x), np.repeat(y, times_y)
        lead = np.subtract.outer(drawn_x[np.isfinite(drawn_x)], drawn_y[np.isfinite(drawn_y)]).round(9)
        by_hand.append(((lead > 0) + (lead == 0) / 2).mean())
    assert rates == pytest.approx(by_hand, abs=1e-12)
