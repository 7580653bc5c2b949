"""How large a difference could this design have shown, and how many sets and runs would show a given one?

By simulation from the runs' own variance (`simulation.Model`): one algorithm is d points better than all others on
every set, the others are equal. Power is the probability that it is found better than a given other one, under a
significant omnibus test, as the analysis requires.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from biasbed import measures
from biasbed.analysis.statistics import power
from biasbed.analysis.statistics.exact import Array
from biasbed.analysis.statistics.pairs import hodges_lehmann
from biasbed.analysis.statistics.simulation import SEED, BoolArray, VarianceModel, decide, draw, omnibus, wilcoxon

TARGET = 0.8  # the power that counts as enough (Cohen 1988)
SIMULATIONS = 2000
RATE_SIMULATIONS = 20_000  # of a rate that is compared with alpha: a standard error of 0.15 points at 5 %
WORTH_SAYING = 0.1  # of alpha: by how much luck must at least raise the rate of false positives to be spoken of
HALVINGS = 10
LARGEST = 1e4  # no score differs by so many points
NUM_SETS = (5, 6, 7, 8, 10, 12, 15, 20, 30)
NUM_RUNS = (1, 2, 3, 5, 10, 20)

PLAN_COLUMNS = ("num_sets", "num_runs", "difference", "procedure", "power", "monte_carlo_error", "enough")


@dataclass(frozen=True)
class Rate:
    """How often something happened in independent simulations."""

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
        """Where the true rate lies, at 95 % (Wilson 1927)."""
        return measures.wilson(self.count, self.simulations, 0.95)


@dataclass(frozen=True)
class FalsePositives:
    """How often a test finds something among equally good algorithms, given how much their runs differ."""

    procedure: str  # iman_davenport (on few sets by permutation), nemenyi, wilcoxon_holm; wilcoxon for two
    rate: Rate


@dataclass(frozen=True)
class Luck:
    """What runs that are better on all sets at once do to the omnibus test: simulated tables with that and without."""

    procedure: str  # iman_davenport; wilcoxon for two algorithms
    alpha: float
    with_it: Rate
    without_it: Rate  # the test's own rate on so many sets, which need not be alpha (docs/calibration.md)
    discordant: int  # tables that only one of the two rejects

    @property
    def excess(self) -> tuple[float, float]:
        """Between which the difference of the two rates lies, at 95 %: of paired proportions (Agresti 2013, 11.1)."""
        n, more = self.with_it.simulations, self.with_it.count - self.without_it.count
        half = 1.96 * math.sqrt(self.discordant - more**2 / n) / n
        return more / n - half, more / n + half

    @property
    def passes_for_a_difference(self) -> bool:
        """Whether the simulations can tell that the rate exceeds alpha, and by luck, and by what is worth saying."""
        return self.excess[0] > WORTH_SAYING * self.alpha and self.with_it.interval[0] > self.alpha


@dataclass(frozen=True)
class Detectable:
    """What one procedure can see in one design."""

    procedure: str  # nemenyi, wilcoxon_holm, wilcoxon_holm_control; wilcoxon for two algorithms
    smallest_num_sets: int  # at which it can reject at all
    difference: float  # points that are told apart with probability TARGET; infinite where none is
    monte_carlo_error: float  # standard error of the power at that difference

    @property
    def possible(self) -> bool:
        return math.isfinite(self.difference)


def procedures(num_algorithms: int, alpha: float) -> dict[str, int]:
    """Every pairwise procedure for so many algorithms, and the fewest sets on which it can reject."""
    k = num_algorithms
    if k == 2:
        return {"wilcoxon": power.smallest_num_sets_wilcoxon(1, alpha)}
    return {
        "nemenyi": power.reach(k, 2, alpha).smallest_num_sets,
        "wilcoxon_holm": power.smallest_num_sets_wilcoxon(k * (k - 1) // 2, alpha),
        "wilcoxon_holm_control": power.smallest_num_sets_wilcoxon(k - 1, alpha),
    }


def power_of(tables: Array, difference: float, alpha: float, procedure: str) -> tuple[float, float]:
    """Power, and its Monte Carlo error, if the first algorithm of every table is `difference` points better."""
    shifted = tables.copy()
    shifted[..., 0] += difference
    found = decide(shifted, alpha, procedure)
    # The first k-1 pairs are those with the first algorithm; the others are all alike, so their share is taken.
    share = ((found[:, : tables.shape[2] - 1] > 0) & omnibus(shifted, alpha)[:, None]).mean(axis=1)
    return float(share.mean()), float(share.std(ddof=1) / math.sqrt(len(share)))


def false_positives(model: VarianceModel, num_sets: int, num_runs: float, alpha: float) -> list[FalsePositives]:
    """The family-wise rates of one design. Above alpha: runs differ on all sets at once, and the tests over sets can't
    know that a method's lead everywhere may be the luck of its few runs; more runs bring it down. A test may miss its
    level for other reasons too: `luck` tells these apart.
    """
    tables = _null_tables(model, num_sets, num_runs)
    significant = omnibus(tables, alpha)
    if model.num_algorithms == 2:
        return [FalsePositives("wilcoxon", _rate(significant))]
    found = {"iman_davenport": significant}
    for name in ("nemenyi", "wilcoxon_holm"):
        found[name] = (decide(tables, alpha, name) != 0).any(axis=1) & significant
    return [FalsePositives(name, _rate(flags)) for name, flags in found.items()]


def luck(model: VarianceModel, num_sets: int, num_runs: float, alpha: float) -> Luck:
    """The omnibus test's rate of false positives, and what it would be if no run were better on all sets at once.

    Both are drawn with the same random numbers, so tables that only one of them rejects are all that differs. Runs
    differ in both: what a run has on one set alone stays, as it adds to the interactions, which the tests know of.
    """
    with_it = omnibus(_null_tables(model, num_sets, num_runs), alpha)
    without_it = omnibus(_null_tables(replace(model, run=0.0), num_sets, num_runs), alpha)
    name = "iman_davenport" if model.num_algorithms > 2 else "wilcoxon"
    return Luck(name, alpha, _rate(with_it), _rate(without_it), int((with_it != without_it).sum()))


def _null_tables(model: VarianceModel, num_sets: int, num_runs: float) -> Array:
    return draw(model, RATE_SIMULATIONS, num_sets, num_runs, exchangeable=True)


def _rate(flags: BoolArray) -> Rate:
    return Rate(int(flags.sum()), len(flags))


def detectable(model: VarianceModel, num_sets: int, num_runs: float, alpha: float) -> list[Detectable]:
    """The minimum detectable difference of every procedure in a design: by bisection over the same simulated tables."""
    tables = draw(model, SIMULATIONS, num_sets, num_runs)
    found = []
    for procedure, smallest in procedures(model.num_algorithms, alpha).items():
        if num_sets < smallest:
            found.append(Detectable(procedure, smallest, math.inf, 0.0))
            continue

        def reached(difference: float, procedure: str = procedure) -> float:
            return power_of(tables, difference, alpha, procedure)[0]

        difference = _smallest(reached, float(tables.std()))
        error = power_of(tables, difference, alpha, procedure)[1] if math.isfinite(difference) else 0.0
        found.append(Detectable(procedure, smallest, difference, error))
    return found


def detectable_pair(differences: Array, level: float) -> float:
    """The shift at which Wilcoxon's test of one pair rejects at `level` with probability TARGET; infinite if at none.

    From the pair's own differences over the sets: what is left after their Hodges-Lehmann estimate, drawn with
    replacement and with random signs, as the test assumes symmetry.
    """
    n = len(differences)
    if 2.0 ** (1 - n) >= level:
        return math.inf
    generator = np.random.default_rng(SEED)
    centred = (differences - hodges_lehmann(differences, 0.05).estimate) * math.sqrt(n / (n - 1))
    drawn = generator.choice(centred, (SIMULATIONS, n)) * generator.choice([-1.0, 1.0], (SIMULATIONS, n))
    drawn = drawn + generator.normal(0, 1e-6, drawn.shape)  # breaks ties
    still = np.zeros_like(drawn)

    def reached(shift: float) -> float:
        balance, p = wilcoxon(np.stack([drawn + shift, still], axis=-1), [(0, 1)])
        return float(((p < level) & (balance > 0)).mean())

    return _smallest(reached, float(drawn.std()))


def _smallest(reached: Callable[[float], float], start: float) -> float:
    """The smallest difference with the target power, by doubling and bisection.

    Infinite where none has it: on few sets even the largest difference may be missed, as it also counts how the equal
    others order among themselves.
    """
    low, high = 0.0, max(start, 1e-3)
    while reached(high) < TARGET:
        low, high = high, 2 * high
        if high > LARGEST:
            return math.inf
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if reached(middle) >= TARGET else (middle, high)
    return high


def plan(model: VarianceModel, difference: float, alpha: float) -> pd.DataFrame:
    """`PLAN_COLUMNS`: the power to tell apart `difference` points for every procedure, number of sets and of runs.

    Without repeated runs in the model only one run is planned: what more would bring is not known.
    """
    runs = NUM_RUNS if model.knows_runs else NUM_RUNS[:1]
    rows = list(_plan_rows(model, difference, alpha, runs))
    return pd.DataFrame(rows, columns=list(PLAN_COLUMNS))


def _plan_rows(
    model: VarianceModel, difference: float, alpha: float, runs: tuple[int, ...]
) -> Iterator[tuple[object, ...]]:
    for num_sets in NUM_SETS:
        for num_runs in runs:
            tables = draw(model, SIMULATIONS, num_sets, num_runs)
            for procedure, smallest in procedures(model.num_algorithms, alpha).items():
                reached, error = (0.0, 0.0)
                if num_sets >= smallest:
                    reached, error = power_of(tables, difference, alpha, procedure)
                enough = reached >= TARGET
                yield num_sets, num_runs, difference, procedure, reached, error, enough


def cheapest(planned: pd.DataFrame, procedure: str) -> tuple[int, int] | None:
    """(sets, runs) with enough power by one procedure: the fewest sets, then the fewest runs; None if none has it."""
    enough = planned[(planned["procedure"] == procedure) & planned["enough"].astype(bool)]
    if enough.empty:
        return None
    best = enough.sort_values(["num_sets", "num_runs"]).iloc[0]
    return int(best["num_sets"]), int(best["num_runs"])
