"""Simulated score tables from a variance model of the runs, and the tests vectorised over many tables.

The model is a two-way layout: score = set + algorithm + interaction + run + noise. Interaction: an algorithm is better
on some sets than on others. Run: one training is better than another on all sets. Noise: the rest. The variances of the
last two are divided by R in a mean over R runs. The tests are those of `friedman` and `pairs` (the test suite checks
that they agree), without ties, on arrays simulations x sets x algorithms; higher is better.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from biasbed.analysis.statistics import exact, friedman, nemenyi, power
from biasbed.analysis.statistics.exact import Array

SEED = 0
AT_ONCE = 100_000  # numbers ranked at a time, to fit the processor's cache; all pairs at once would take gigabytes

BoolArray = np.ndarray[Any, np.dtype[np.bool_]]
Verdicts = np.ndarray[Any, np.dtype[np.int64]]  # per pair: 1 the first is better, -1 the second, 0 not told apart
ColumnPairs = list[tuple[int, int]]  # of algorithms, by their columns


class RunDeviations(NamedTuple):
    """Standard deviations that runs add to a score; NaN if no algorithm has two runs."""

    run: float  # of a run, common to all sets
    noise: float  # further, of one run on one set


@dataclass(frozen=True)
class VarianceModel:
    """Components of the scores' variance, in points: score = set + algorithm + interaction + run + noise."""

    interactions: Array  # sets x algorithms: observed residuals, without the runs' share
    run: float  # as in `RunDeviations`
    noise: float

    @property
    def interaction(self) -> float:
        """Standard deviation of the interactions."""
        return float(np.sqrt(np.mean(self.interactions**2)))

    @property
    def num_algorithms(self) -> int:
        return int(self.interactions.shape[1])

    @property
    def knows_runs(self) -> bool:
        """True if an algorithm has two runs, so that their variance can be told from the interactions."""
        return not math.isnan(self.run)


def estimate(scores: pd.DataFrame, runs: Mapping[str, pd.DataFrame]) -> VarianceModel:
    """Estimate the model from a score table (sets x algorithms) and its runs (algorithm -> runs x sets).

    Mean squares are used. Of a block of several columns, scores are their means. Only runs with a score on every set
    count for the variance of runs. It is NaN if no algorithm has two of these; the interactions then contain it.
    """
    matrix = scores.to_numpy(dtype="float64")
    num_sets, num_algorithms = matrix.shape
    residuals = matrix - matrix.mean(axis=0) - matrix.mean(axis=1, keepdims=True) + matrix.mean()
    # Unbiased for the variance: N k residuals have (N-1)(k-1) degrees of freedom.
    residuals *= math.sqrt(num_sets * num_algorithms / ((num_sets - 1) * (num_algorithms - 1)))
    # Contiguous: the memory layout of a frame decides the order of summation, and so the last digits.
    complete = [np.ascontiguousarray(frame.dropna(), dtype="float64") for frame in runs.values()]
    of_runs = _deviations_of_runs([frame for frame in complete if len(frame) > 1])
    if math.isnan(of_runs.noise):
        return VarianceModel(residuals, *of_runs)
    # Of the residuals' variance, runs contribute their noise, averaged over an algorithm's runs.
    total = float(np.mean(residuals**2))
    noise_of_means = of_runs.noise**2 * float(np.mean([1 / len(frame) for frame in runs.values()]))
    share_without_noise = 1.0 if total == 0 else max(0.0, 1 - noise_of_means / total)
    return VarianceModel(residuals * math.sqrt(share_without_noise), *of_runs)


def _deviations_of_runs(frames: list[Array]) -> RunDeviations:
    """Return the standard deviations that runs add, pooled over algorithms; NaN without any.

    frames: of each algorithm with several runs, runs x sets. They follow from the mean squares between the runs of an
    algorithm and within runs.
    """
    if not frames:
        return RunDeviations(math.nan, math.nan)
    num_sets = frames[0].shape[1]
    between = within = 0.0
    dof = 0
    for frame in frames:
        deviations = frame - frame.mean(axis=0)
        means = deviations.mean(axis=1, keepdims=True)
        between += num_sets * float((means**2).sum())
        within += float(((deviations - means) ** 2).sum())
        dof += len(frame) - 1
    noise_variance = within / (dof * (num_sets - 1))
    run_variance = max(0.0, between / dof - noise_variance) / num_sets
    return RunDeviations(math.sqrt(run_variance), math.sqrt(noise_variance))


def draw(
    model: VarianceModel,
    num_simulations: int,
    num_sets: int,
    num_runs: float,
    *,
    exchangeable: bool = False,
    seed: int = SEED,
) -> Array:
    """Draw score tables (simulations x sets x algorithms) of equally good algorithms, means over `num_runs` runs.

    Each new set takes the interactions of an observed set, all algorithms together, with a random sign: sets keep their
    spreads, related methods stay alike, and differences are symmetric. The algorithms are permuted once per table;
    exchangeable: once per set, so that only luck distinguishes them. Levels of sets are omitted, as no test uses them.
    """
    return draw_each(model, [model.run], num_simulations, num_sets, num_runs, exchangeable=exchangeable, seed=seed)[0]


def draw_each(
    model: VarianceModel,
    deviations: Sequence[float],
    num_simulations: int,
    num_sets: int,
    num_runs: float,
    *,
    exchangeable: bool,
    seed: int = SEED,
) -> list[Array]:
    """Draw the tables of `draw` for several standard deviations between runs, in place of `model.run`.

    All use the same random numbers.
    """
    generator = np.random.default_rng(seed)
    observed, num_algorithms = model.interactions.shape
    rows = generator.integers(observed, size=(num_simulations, num_sets))
    signs = generator.choice([-1.0, 1.0], size=(num_simulations, num_sets, 1))
    dealt = np.tile(np.arange(num_algorithms), (num_simulations, num_sets if exchangeable else 1, 1))
    drawn = np.take_along_axis(model.interactions[rows] * signs, generator.permuted(dealt, axis=2), axis=2)
    if model.knows_runs:
        scale = 1 / math.sqrt(num_runs)
        runs = generator.standard_normal((num_simulations, 1, num_algorithms))
        tables = [drawn + deviation * scale * runs for deviation in deviations]
        _add(tables, generator.normal(0, model.noise * scale, drawn.shape))
    else:
        tables = [drawn.copy() for _ in deviations]
    # A set that is drawn twice makes ties, which the fast tests don't handle; break them at random.
    _add(tables, generator.normal(0, 1e-6, drawn.shape))
    return tables


def _add(tables: Iterable[Array], values: Array) -> None:
    """Add values to every table in place: they may be large."""
    for table in tables:
        table += values


# --- the tests, many at once ------------------------------------------------------------------------------------------


def decide(tables: Array, alpha: float, procedure: str) -> Verdicts:
    """Return the verdicts of a pairwise procedure (`planner.procedures`), simulations x pairs, without an omnibus test.

    A procedure with a control compares the first algorithm with every other; the rest compare all pairs.
    """
    return np.concatenate(list(_decide_parts(tables, alpha, procedure)))


def finds_any(tables: Array, alpha: float, procedure: str) -> BoolArray:
    """Return which simulations have a pair that a procedure tells apart."""
    # Part by part: the verdicts on all pairs of many tables would take hundreds of megabytes.
    return np.concatenate([(part != 0).any(axis=1) for part in _decide_parts(tables, alpha, procedure)])


def _decide_parts(tables: Array, alpha: float, procedure: str) -> Iterator[Verdicts]:
    """Yield the verdicts of `decide`, part by part."""
    pairs = _pairs(tables.shape[2], procedure == "wilcoxon_holm_control")
    if procedure == "nemenyi":
        test, across = _nemenyi, max(tables.shape[2], len(pairs) // tables.shape[1])
    else:
        test, across = _wilcoxon_holm, len(pairs)
    for part in _parts(tables, across):
        yield test(part, pairs, alpha)


def _parts(tables: Array, across: int) -> list[Array]:
    """Split the tables into parts that fit the cache; across: numbers that are ranked per set."""
    return np.array_split(tables, max(1, math.ceil(len(tables) * tables.shape[1] * across / AT_ONCE)))


def _nemenyi(tables: Array, pairs: ColumnPairs, alpha: float) -> Verdicts:
    """Return Nemenyi's verdicts on these pairs, by the critical difference."""
    _, num_sets, num_algorithms = tables.shape
    ranks = row_ranks(-tables).mean(axis=1)
    first, second = np.array(pairs).T
    lead = ranks[:, second] - ranks[:, first]
    critical = nemenyi.critical_difference(num_algorithms, num_sets, alpha)
    verdicts: Verdicts = np.subtract(lead > critical, lead < -critical, dtype=np.int64)
    return verdicts


def _wilcoxon_holm(tables: Array, pairs: ColumnPairs, alpha: float) -> Verdicts:
    """Return the verdicts of Wilcoxon's tests of these pairs, with Holm's correction over them."""
    if tables.shape[1] < power.smallest_num_sets_wilcoxon(len(pairs), alpha):
        return np.zeros((len(tables), len(pairs)), dtype=np.int64)  # not even the clearest outcome rejects
    balance, p = wilcoxon(tables, pairs)
    verdicts: Verdicts = np.sign(balance) * (exact.holm(p) < alpha)
    return verdicts


def omnibus(tables: Array, alpha: float) -> BoolArray:
    """Return which simulations reject equality (for two algorithms by Wilcoxon's test)."""
    return np.concatenate([_omnibus(part, alpha) for part in _parts(tables, tables.shape[2])])


def _omnibus(tables: Array, alpha: float) -> BoolArray:
    """Return which tables reject equality."""
    _, num_sets, num_algorithms = tables.shape
    if num_algorithms < 3:
        rejected: BoolArray = wilcoxon(tables, [(0, 1)])[1][:, 0] < alpha
        return rejected
    ranks = row_ranks(-tables)
    if num_sets < exact.FEWEST_SETS:
        return exact.untied_friedman_p(ranks.mean(axis=1), num_sets) < alpha
    return friedman.friedman_p_of_each(ranks) < alpha


def wilcoxon(tables: Array, pairs: ColumnPairs) -> tuple[Verdicts, Array]:
    """Return the rank sums for minus against the first of each pair, and Wilcoxon's exact two-sided p.

    Both are simulations x pairs; without ties.
    """
    num_sets = tables.shape[1]
    first, second = np.array(pairs).T
    differences = (tables[:, :, first] - tables[:, :, second]).transpose(0, 2, 1)
    plus = (row_ranks(np.abs(differences)) * (differences > 0)).sum(axis=-1)
    return 2 * plus - num_sets * (num_sets + 1) // 2, signed_rank_p(num_sets)[plus]


@cache
def signed_rank_p(num_sets: int) -> Array:
    """Return Wilcoxon's exact two-sided p by the rank sum of the positive differences; without ties."""
    distribution = exact.signed_rank_distribution(tuple(range(2, 2 * num_sets + 1, 2)))[::2]
    lower = np.cumsum(distribution)
    tail = np.minimum(lower, lower[::-1])  # the distribution is symmetric
    result: Array = np.minimum(1.0, 2 * tail)
    return result


def row_ranks(values: Array) -> np.ndarray[Any, np.dtype[np.int16]]:
    """Rank along the last axis, 1 = smallest; without ties."""
    # Counting the smaller values column by column is faster than sorting up to some hundred short rows.
    columns = np.ascontiguousarray(np.moveaxis(values, -1, 0))
    ranks = np.ones(columns.shape, dtype=np.int16)
    for column in columns:
        ranks += columns > column
    return np.ascontiguousarray(np.moveaxis(ranks, 0, -1))


def _pairs(num_algorithms: int, control: bool) -> ColumnPairs:
    """Return all pairs of columns; with a control the first column with each other one."""
    if control:
        return [(0, column) for column in range(1, num_algorithms)]
    return list(itertools.combinations(range(num_algorithms), 2))
