"""Power analysis by simulation: minimum detectable differences, false positives, and plans of sets and runs.

Score tables are simulated from the variance of the runs (`simulation.VarianceModel`): one algorithm is d points better
than all others on every set, and the others are equal. Power is the probability that it is found better than one of
the others under a significant omnibus test, as the analysis requires.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pandas as pd

from biasbed import measures
from biasbed.analysis.statistics import power
from biasbed.analysis.statistics.exact import Array
from biasbed.analysis.statistics.pairs import hodges_lehmann_of_each
from biasbed.analysis.statistics.simulation import (
    SEED,
    BoolArray,
    VarianceModel,
    decide,
    draw,
    draw_each,
    finds_any,
    omnibus,
    signed_rank_p,
)

TARGET = 0.8  # sufficient power (Cohen 1988)
SIMULATIONS = 2000
RATE_SIMULATIONS = 20_000  # for rates that are compared with alpha: a standard error of 0.15 points at 5 %
WORTH_SAYING = 0.1  # fraction of alpha: luck that raises the rate of false positives by less is not reported
HALVINGS = 10
LARGEST = 1e4  # no score differs by so many points
NUM_SETS = (5, 6, 7, 8, 10, 12, 15, 20, 30)
NUM_RUNS = (1, 2, 3, 5, 10, 20)

PLAN_COLUMNS = ("num_sets", "num_runs", "difference", "procedure", "power", "monte_carlo_error", "enough")


@dataclass(frozen=True)
class Rate:
    """Frequency of an event in independent simulations."""

    count: int
    simulations: int

    @property
    def value(self) -> float:
        return self.count / self.simulations

    @property
    def monte_carlo_error(self) -> float:
        return math.sqrt(self.value * (1 - self.value) / self.simulations)

    @property
    def interval(self) -> tuple[float, float]:
        """Confidence interval of the true rate at 95 % (Wilson 1927)."""
        return measures.wilson(self.count, self.simulations, 0.95)


@dataclass(frozen=True)
class FalsePositives:
    """Rate at which a test finds a difference among equally good algorithms, given the variance of their runs."""

    procedure: str  # iman_davenport (on few sets by permutation), nemenyi, wilcoxon_holm; wilcoxon for two
    rate: Rate


@dataclass(frozen=True)
class Luck:
    """Effect on the omnibus test of runs that are better on all sets at once: tables simulated with and without it."""

    procedure: str  # iman_davenport; wilcoxon for two algorithms
    alpha: float
    with_it: Rate
    without_it: Rate  # the test's actual rate on this number of sets, which may differ from alpha (docs/calibration.md)
    discordant: int  # tables that are rejected in only one of the two cases

    @property
    def excess(self) -> tuple[float, float]:
        """Interval of the difference of the two rates at 95 %, for paired proportions (Agresti 2013, 11.1)."""
        n, more = self.with_it.simulations, self.with_it.count - self.without_it.count
        half = 1.96 * math.sqrt(self.discordant - more**2 / n) / n
        return more / n - half, more / n + half

    @property
    def passes_for_a_difference(self) -> bool:
        """True if the simulations show that luck raises the rate above alpha by an amount that is worth reporting."""
        return self.excess[0] > WORTH_SAYING * self.alpha and self.with_it.interval[0] > self.alpha


@dataclass(frozen=True)
class Detectable:
    """Minimum detectable difference of one procedure in one design."""

    procedure: str  # nemenyi, wilcoxon_holm, wilcoxon_holm_control; wilcoxon for two algorithms
    smallest_num_sets: int  # below it the procedure can never reject
    difference: float  # in points, detected with probability TARGET; infinite if no difference is
    monte_carlo_error: float  # standard error of the power at that difference

    @property
    def possible(self) -> bool:
        return math.isfinite(self.difference)


def procedures(num_algorithms: int, alpha: float) -> dict[str, int]:
    """Return the pairwise procedures, each with the fewest sets on which it can reject."""
    k = num_algorithms
    if k == 2:
        return {"wilcoxon": power.smallest_num_sets_wilcoxon(1, alpha)}
    return {
        "nemenyi": power.reach(k, 2, alpha).smallest_num_sets,
        "wilcoxon_holm": power.smallest_num_sets_wilcoxon(k * (k - 1) // 2, alpha),
        "wilcoxon_holm_control": power.smallest_num_sets_wilcoxon(k - 1, alpha),
    }


def power_of(tables: Array, difference: float, alpha: float, procedure: str) -> tuple[float, float]:
    """Return the power and its Monte Carlo error if every table's first algorithm is `difference` points better."""
    shifted = tables.copy()
    shifted[..., 0] += difference
    significant = omnibus(shifted, alpha)
    # The first k-1 pairs contain the first algorithm. The other algorithms are interchangeable, so average over them.
    verdicts = decide(shifted[significant], alpha, procedure)[:, : tables.shape[2] - 1]
    share = np.zeros(len(tables))
    share[significant] = (verdicts > 0).mean(axis=1)
    return float(share.mean()), float(share.std(ddof=1) / math.sqrt(len(share)))


def false_positives(
    model: VarianceModel, num_sets: int, num_runs: float, alpha: float
) -> tuple[list[FalsePositives], Luck]:
    """Return the family-wise rates of false positives in one design, and what luck adds to that of the omnibus test.

    A rate above alpha means that runs differ on all sets at once: tests over sets can't know that a method's lead on
    every set may be the luck of its few runs. More runs lower it. `Luck` separates this from other reasons for which a
    test may miss its level. Its two cases use the same random numbers, so they differ only in the tables that one of
    them rejects. The noise of a run on a single set stays in both: it adds to the interactions, which the tests account
    for.
    """
    size = (RATE_SIMULATIONS, num_sets, num_runs)
    tables, without_luck = draw_each(model, [model.run, 0.0], *size, exchangeable=True)
    significant, without_it = omnibus(tables, alpha), omnibus(without_luck, alpha)
    omnibus_name = "iman_davenport" if model.num_algorithms > 2 else "wilcoxon"
    rejections = {omnibus_name: significant}
    for name in ("nemenyi", "wilcoxon_holm") if model.num_algorithms > 2 else ():
        rejections[name] = significant.copy()
        rejections[name][significant] = finds_any(tables[significant], alpha, name)
    discordant = int((significant != without_it).sum())
    luck = Luck(omnibus_name, alpha, _rate(significant), _rate(without_it), discordant)
    return [FalsePositives(name, _rate(flags)) for name, flags in rejections.items()], luck


def _rate(flags: BoolArray) -> Rate:
    """Return the rate at which a flag is set."""
    return Rate(int(flags.sum()), len(flags))


def detectable(model: VarianceModel, num_sets: int, num_runs: float, alpha: float) -> list[Detectable]:
    """Return every procedure's minimum detectable difference, by bisection over the same simulated tables."""
    tables = draw(model, SIMULATIONS, num_sets, num_runs)
    limits = []
    for procedure, smallest in procedures(model.num_algorithms, alpha).items():
        if num_sets < smallest:
            limits.append(Detectable(procedure, smallest, math.inf, 0.0))
            continue

        def power_at(difference: float, procedure: str = procedure) -> float:
            return power_of(tables, difference, alpha, procedure)[0]

        difference = _smallest(power_at, float(tables.std()))
        error = power_of(tables, difference, alpha, procedure)[1] if math.isfinite(difference) else 0.0
        limits.append(Detectable(procedure, smallest, difference, error))
    return limits


def detectable_pairs(differences: Array, level: float) -> list[float]:
    """Return each pair's shift at which Wilcoxon's test rejects at `level` with probability TARGET, else infinity.

    differences: pairs x sets. A pair's differences over the sets, centred by their Hodges-Lehmann estimate,
    are drawn with replacement and with random signs, as the test assumes symmetry. All pairs have the same draws.
    """
    n = differences.shape[1]
    if 2.0 ** (1 - n) >= level:
        return [math.inf] * len(differences)
    generator = np.random.default_rng(SEED)
    size = (SIMULATIONS, n)
    sets = generator.integers(n, size=size).T.copy()  # sets x simulations: numbers that are added lie side by side
    signs = generator.choice([-1.0, 1.0], size).T.copy()
    noise = generator.normal(0, 1e-6, size).T.copy()  # breaks ties
    estimates = np.array([shift.estimate for shift in hodges_lehmann_of_each(differences, level)])
    centred = (differences - estimates[:, None]) * math.sqrt(n / (n - 1))
    return [_detectable_shift(d[sets] * signs + noise, level) for d in centred]


def _detectable_shift(drawn: Array, level: float) -> float:
    """Return `detectable_pairs` of one pair, from its drawn differences (sets x simulations)."""
    n = len(drawn)
    # The rank sum of the positive differences is the number of positive Walsh averages (Tukey 1949). The test rejects
    # in favour of the first from some number on, hence as soon as the shift exceeds the negated average at that place.
    first, second = np.triu_indices(n)
    averages = (drawn[first] + drawn[second]) / 2
    middle = len(first) // 2 + 1
    number = middle + int(np.flatnonzero(signed_rank_p(n)[middle:] < level)[0])
    needed_shifts = -np.partition(averages, len(first) - number, axis=0)[len(first) - number]

    def power_at(shift: float) -> float:
        return float((needed_shifts < shift).mean())

    return _smallest(power_at, float(drawn.std()))


def _smallest(power_at: Callable[[float], float], start: float) -> float:
    """Return the smallest difference with the target power, by doubling and bisection.

    It is infinite if no difference has it: on few sets even the largest may be missed, as the result also depends on
    how the equal algorithms are ordered among themselves.
    """
    low, high = 0.0, max(start, 1e-3)
    while power_at(high) < TARGET:
        low, high = high, 2 * high
        if high > LARGEST:
            return math.inf
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if power_at(middle) >= TARGET else (middle, high)
    return high


def plan(model: VarianceModel, difference: float, alpha: float) -> pd.DataFrame:
    """Return `PLAN_COLUMNS`: the power to detect `difference` points by procedure, number of sets and number of runs.

    Without repeated runs in the model only one run is planned, since the effect of more is unknown.
    """
    rows: list[tuple[object, ...]] = []
    for num_sets, num_runs in itertools.product(NUM_SETS, NUM_RUNS if model.knows_runs else NUM_RUNS[:1]):
        tables = draw(model, SIMULATIONS, num_sets, num_runs)
        for procedure, smallest in procedures(model.num_algorithms, alpha).items():
            achieved, error = 0.0, 0.0
            if num_sets >= smallest:
                achieved, error = power_of(tables, difference, alpha, procedure)
            rows.append((num_sets, num_runs, difference, procedure, achieved, error, achieved >= TARGET))
    return pd.DataFrame(rows, columns=list(PLAN_COLUMNS))


def cheapest(planned: pd.DataFrame, procedure: str) -> tuple[int, int] | None:
    """Return the cheapest (sets, runs) with enough power by one procedure: fewest sets, then fewest runs; else None."""
    enough = planned[(planned["procedure"] == procedure) & planned["enough"].astype(bool)]
    if enough.empty:
        return None
    best = enough.sort_values(["num_sets", "num_runs"]).iloc[0]
    return int(best["num_sets"]), int(best["num_runs"])
