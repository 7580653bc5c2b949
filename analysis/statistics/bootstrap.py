"""How sure is a mean over sets and runs? Both are resampled: other sets, other seeds.

A run is tested on every set, so runs and sets cross: a resample draws sets, and for every algorithm runs, each run with
its scores on all sets (Owen 2007). All algorithms share the drawn sets, so differences are paired. Percentile intervals
over few sets are too short; they are widened as Hesterberg (2015, section 5.3 of the long version) proposes.

Sources: Agarwal et al. 2021 (probability of improvement); Bouthillier et al. 2021 (vary every source of noise).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from biasbed.analysis.statistics.exact import Array
from biasbed.analysis.statistics.pairs import Pairs

SEED = 0

INTERVAL_COLUMNS = ("algorithm", "dataset", "mean", "low", "high", "num_runs", "run_ids")
IMPROVEMENT_COLUMNS = (
    *("a", "b", "bootstrap_low", "bootstrap_high"),
    *("probability_of_improvement", "improvement_low", "improvement_high"),
)
OVER_SETS = "(mean over sets)"  # the dataset of a row that is about all of them


@dataclass(frozen=True)
class Resamples:
    """How often each set and each run was drawn: replicates x sets, and per algorithm replicates x runs."""

    sets: Array
    runs: Mapping[str, Array]


def resample(runs: Mapping[str, pd.DataFrame], replicates: int) -> Resamples:
    """Draws for `runs` (algorithm -> runs x sets), the same for the same shapes and names in the same order."""
    generator = np.random.default_rng(SEED)
    num_sets = next(iter(runs.values())).shape[1]
    sets = _counts(generator, num_sets, replicates)
    return Resamples(sets, {name: _counts(generator, len(frame), replicates) for name, frame in runs.items()})


def intervals(runs: Mapping[str, pd.DataFrame], draws: Resamples, alpha: float) -> pd.DataFrame:
    """`INTERVAL_COLUMNS`: for each algorithm its mean on every set (over runs) and over all sets (over sets and runs).

    runs: algorithm -> runs x sets, NaN where a run has no score. Intervals of a single run are empty on a set, and
    over sets they miss the spread of runs.
    """
    rows = []
    for name, frame in runs.items():
        cells = cell_means(frame, draws.runs[name])
        ids = frame.index.to_numpy()
        over_sets = (cells * draws.sets).sum(axis=1) / draws.sets.sum(axis=1)
        num_sets = frame.shape[1]
        bounds = interval(over_sets, alpha, num_sets) if num_sets > 1 else (math.nan, math.nan)
        rows.append((name, OVER_SETS, float(frame.mean().mean()), *bounds, len(frame), " ".join(map(str, ids))))
        for position, dataset in enumerate(frame):
            present = frame[dataset].notna().to_numpy()
            number = int(present.sum())
            bounds = interval(cells[:, position], alpha, number) if number > 1 else (math.nan, math.nan)
            mean = float(frame[dataset].mean())
            rows.append((name, str(dataset), mean, *bounds, number, " ".join(map(str, ids[present]))))
    return pd.DataFrame(rows, columns=list(INTERVAL_COLUMNS))


def improvements(runs: Mapping[str, pd.DataFrame], draws: Resamples, alpha: float, family: Pairs) -> pd.DataFrame:
    """`IMPROVEMENT_COLUMNS`: of every pair the interval of the mean difference and the probability of improvement.

    That is the probability that a run of a beats a run of b on a set, averaged over sets; equal scores count half
    (Agarwal et al. 2021, section 4.3). Higher scores are better.
    """
    cells = {name: cell_means(frame, draws.runs[name]) for name, frame in runs.items()}
    total = draws.sets.sum(axis=1)
    rows = []
    for a, b in family:
        difference = ((cells[a] - cells[b]) * draws.sets).sum(axis=1) / total
        wins = _win_rates(runs[a], runs[b], draws.runs[a], draws.runs[b])
        observed = _win_rates(runs[a], runs[b], np.ones((1, len(runs[a]))), np.ones((1, len(runs[b]))))
        improvement = (wins * draws.sets).sum(axis=1) / total
        num_sets = cells[a].shape[1]
        bounds = interval(difference, alpha, num_sets)
        rows.append((a, b, *bounds, float(observed.mean()), *interval(improvement, alpha, num_sets)))
    return pd.DataFrame(rows, columns=list(IMPROVEMENT_COLUMNS))


def interval(replicates: Array, alpha: float, size: int) -> tuple[float, float]:
    """The percentile interval of 1 - alpha, widened for a sample of `size` units.

    The percentile interval is short by the factor sqrt((n-1)/n) and takes normal quantiles for Student's; the level
    alpha/2 becomes Phi(-sqrt(n/(n-1)) t_(n-1, 1-alpha/2)) (Hesterberg 2015).
    """
    from scipy import stats

    if size < 2:
        return math.nan, math.nan
    stretched = math.sqrt(size / (size - 1)) * float(stats.t.ppf(1 - alpha / 2, size - 1))
    level = float(stats.norm.sf(stretched))
    low, high = np.quantile(replicates, [level, 1 - level])
    return float(low), float(high)


def _counts(generator: np.random.Generator, size: int, replicates: int) -> Array:
    """How often each of `size` units is drawn in `size` draws: replicates x size."""
    return generator.multinomial(size, np.full(size, 1 / size), replicates).astype("float64")


def cell_means(frame: pd.DataFrame, counts: Array) -> Array:
    """Replicates x sets: means over the drawn runs; over all runs where no drawn run has a score on the set."""
    values = frame.to_numpy(dtype="float64")
    present = np.isfinite(values)
    number = counts @ present
    sums = counts @ np.where(present, values, 0.0)
    return np.where(number > 0, sums / np.where(number > 0, number, 1.0), np.nanmean(values, axis=0))


def _win_rates(a: pd.DataFrame, b: pd.DataFrame, counts_a: Array, counts_b: Array) -> Array:
    """Replicates x sets: how often a drawn run of a beats a drawn run of b; 1/2 where no pair was drawn."""
    rates = np.empty((len(counts_a), a.shape[1]))
    for position, dataset in enumerate(a):
        x, y = a[dataset].to_numpy(dtype="float64"), b[dataset].to_numpy(dtype="float64")
        in_x, in_y = np.isfinite(x), np.isfinite(y)
        wins = np.where(in_x[:, None] & in_y, np.heaviside(np.round(x[:, None] - y, 9), 0.5), 0.0)
        number = (counts_a @ in_x) * (counts_b @ in_y)
        sums = np.einsum("ri,ri->r", counts_a @ wins, counts_b)
        rates[:, position] = np.where(number > 0, sums / np.where(number > 0, number, 1.0), 0.5)
    return rates
