"""Tests on single evaluation sets: Kruskal-Wallis, Mann-Whitney and Welch over runs, which are independent trainings.

Their results hold for the one set only; the tests over sets generalise to other sets.

Sources: Kruskal and Wallis 1952; Mann and Whitney 1947; Holm 1979.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from functools import cache
from typing import NamedTuple

import numpy as np
import pandas as pd

from biasbed.analysis.statistics import exact
from biasbed.analysis.statistics.exact import Array
from biasbed.analysis.statistics.pairs import Pairs

PERMUTATIONS = 20_000
DRAWN_AT_ONCE = 100_000  # ranks, to fit the processor's cache
SEED = 0

SET_COLUMNS = (
    *("dataset", "num_algorithms", "num_runs", "h", "p", "p_chi_square", "p_holm", "significant", "skipped"),
)
PAIR_COLUMNS = (
    *("dataset", "a", "b", "num_runs_a", "num_runs_b", "difference", "cliffs_delta"),
    *("p", "p_holm", "num_tests", "smallest_p", "omnibus_significant", "significant"),
)


class SetTests(NamedTuple):
    """Tests over runs on each set."""

    sets: pd.DataFrame  # SET_COLUMNS
    pairs: pd.DataFrame  # PAIR_COLUMNS


def per_set(runs: Mapping[str, pd.DataFrame], alpha: float, family: Pairs) -> SetTests:
    """Return `SET_COLUMNS`: Kruskal-Wallis on every set, and `PAIR_COLUMNS`: Mann-Whitney of every pair on every set.

    runs: algorithm -> runs x sets, higher is better, NaN if a run has no score. An algorithm without any score on a set
    is not compared there. Kruskal-Wallis is corrected by Holm over the sets, Mann-Whitney over the pairs of one set.
    `p_chi_square` is the approximation that papers print, with num_algorithms - 1 degrees of freedom; the permutation
    p-value `p` decides, which is never below 1 / (PERMUTATIONS + 1).
    """
    datasets = [str(name) for name in next(iter(runs.values()))]
    samples = {dataset: _samples(runs, dataset) for dataset in datasets}
    reasons = {dataset: _why_not(samples[dataset], len(runs)) for dataset in datasets}
    rows = [_kruskal(dataset, samples[dataset], bool(reasons[dataset])) for dataset in datasets]
    omnibus = pd.DataFrame(rows, columns=list(SET_COLUMNS[:-3]))
    corrected = exact.holm(omnibus["p"].to_numpy(dtype="float64"))
    omnibus = omnibus.assign(p_holm=corrected, significant=corrected < alpha, skipped=list(reasons.values()))
    pairs: list[tuple[object, ...]] = []
    for dataset, is_significant in zip(datasets, omnibus["significant"].tolist(), strict=True):
        if not reasons[dataset]:
            pairs += _pair_rows(dataset, samples[dataset], alpha, family, is_significant)
    return SetTests(omnibus, pd.DataFrame(pairs, columns=list(PAIR_COLUMNS)))


def welch(a: Array, b: Array, level: float) -> tuple[float, float, float]:
    """Return Welch's interval of the difference of two means, and p; NaN for fewer than two runs, and if none vary."""
    if min(len(a), len(b)) < 2 or not (a.std() or b.std()):
        return math.nan, math.nan, math.nan
    from scipy import stats

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # that the runs of one side are equal
        test = stats.ttest_ind(a, b, equal_var=False)
        interval = test.confidence_interval(level)
    return float(interval.low), float(interval.high), float(test.pvalue)


def pair_intervals(pairs: pd.DataFrame, runs: pd.DataFrame, alpha: float) -> pd.DataFrame:
    """Return the pairs with `low` and `high` of their differences: Welch's, all of a set together at 1 - alpha.

    pairs: `PAIR_COLUMNS`. runs: columns dataset, algorithm and score. NaN if neither side's runs vary.
    """
    from scipy import stats

    spread = runs.groupby(["dataset", "algorithm"])["score"].agg(["var", "count"])
    variance_of_mean, dof_of_mean = {}, {}
    for side in ("a", "b"):
        of_side = spread.reindex(pd.MultiIndex.from_frame(pairs[["dataset", side]]))
        count = of_side["count"].to_numpy(dtype="float64")
        variance_of_mean[side] = of_side["var"].to_numpy(dtype="float64") / count
        dof_of_mean[side] = count - 1
    variance = variance_of_mean["a"] + variance_of_mean["b"]
    with np.errstate(divide="ignore", invalid="ignore"):
        # Welch-Satterthwaite
        dof = variance**2 / sum(variance_of_mean[side] ** 2 / dof_of_mean[side] for side in ("a", "b"))
    level = alpha / pairs["num_tests"].to_numpy(dtype="float64")  # Bonferroni
    half_width = stats.t.ppf(1 - level / 2, dof) * np.sqrt(variance)
    return pairs.assign(low=pairs["difference"] - half_width, high=pairs["difference"] + half_width)


def _samples(runs: Mapping[str, pd.DataFrame], dataset: str) -> dict[str, Array]:
    """Return the scores on a set for every algorithm that has any, rounded so that ties are exact."""
    samples = {name: frame[dataset].dropna().round(9).to_numpy(dtype="float64") for name, frame in runs.items()}
    return {name: values for name, values in samples.items() if len(values)}


def _why_not(samples: Mapping[str, Array], num_rows: int) -> str:
    """Return the reason why there is no test on a set; empty if there is one. num_rows: with and without samples."""
    single = [name for name, values in samples.items() if len(values) < 2]
    if len(samples) < 2:
        return "there is one algorithm" if num_rows == 1 else "fewer than two algorithms have runs"
    if single:
        return f"fewer than two runs: {', '.join(single)}"
    return "all runs have the same score" if np.ptp(np.concatenate(list(samples.values()))) == 0 else ""


def _kruskal(dataset: str, samples: Mapping[str, Array], is_skipped: bool) -> tuple[str, int, int, float, float, float]:
    """Return a set's first `SET_COLUMNS`: sizes, H, and its p by permutation and by chi-square.

    If three runs each of three methods don't overlap, chi-square gives 0.027; the exact probability is 0.0036.
    """
    from scipy import stats

    size = (dataset, len(samples), sum(map(len, samples.values())))
    if is_skipped:
        return (*size, math.nan, math.nan, math.nan)
    ranks = stats.rankdata(np.concatenate(list(samples.values())))
    sizes = tuple(map(len, samples.values()))
    null = _null_distribution(tuple(np.sort(ranks).tolist()), sizes, PERMUTATIONS)
    spread = float(_between(ranks[None], sizes)[0])
    p = (1 + int((null >= spread - 1e-9 * spread).sum())) / (1 + len(null))
    approximate = stats.kruskal(*samples.values())
    return (*size, float(approximate.statistic), p, float(approximate.pvalue))


@cache
def _null_distribution(ranks: tuple[float, ...], sizes: tuple[int, ...], number: int) -> Array:
    """Draw the null distribution of `_between`; cached, since it is the same for all sets without ties."""
    generator = np.random.default_rng(SEED)
    # In parts, which draw what all would draw at once: that takes gigabytes with thousands of runs.
    at_once = max(1, DRAWN_AT_ONCE // len(ranks))
    parts = []
    for start in range(0, number, at_once):
        arrangements = np.tile(ranks, (min(at_once, number - start), 1))
        parts.append(_between(generator.permuted(arrangements, axis=1), sizes))
    return np.concatenate(parts)


def _between(ranks: Array, sizes: tuple[int, ...]) -> Array:
    """Return the sum over groups of (rank sum)^2 / size, monotonic in H; ranks: arrangements x runs, group by group."""
    starts = np.cumsum((0, *sizes[:-1]))
    sums = np.add.reduceat(ranks, starts, axis=1)
    result: Array = (sums**2 / np.array(sizes)).sum(axis=1)
    return result


def _pair_rows(
    dataset: str, samples: Mapping[str, Array], alpha: float, family: Pairs, allowed: bool
) -> list[tuple[object, ...]]:
    """Return the Mann-Whitney tests of one set. allowed: the omnibus test is significant."""
    family = tuple(pair for pair in family if set(pair) <= set(samples))
    tests = _rank_sums(samples, family)
    corrected_p = exact.holm(np.array([test.p for test in tests])).tolist()
    means = {name: float(values.mean()) for name, values in samples.items()}
    rows: list[tuple[object, ...]] = []
    for (a, b), test, corrected in zip(family, tests, corrected_p, strict=True):
        size_a, size_b = len(samples[a]), len(samples[b])
        smallest = min(1.0, 2 / math.comb(size_a + size_b, size_a) * len(family))
        about = (dataset, a, b, size_a, size_b, means[a] - means[b], test.lead / (size_a * size_b))
        rows.append((*about, test.p, corrected, len(family), smallest, allowed, allowed and corrected < alpha))
    return rows


def _rank_sums(samples: Mapping[str, Array], family: Pairs) -> list[exact.RankSum]:
    """Return the test of each pair. Pairs of the same numbers of runs are tested at once."""
    pairs_by_sizes: dict[tuple[int, int], list[tuple[str, str]]] = {}
    for a, b in family:
        pairs_by_sizes.setdefault((len(samples[a]), len(samples[b])), []).append((a, b))
    tests: dict[tuple[str, str], exact.RankSum] = {}
    for same_size in pairs_by_sizes.values():
        first = np.stack([samples[a] for a, _ in same_size])
        second = np.stack([samples[b] for _, b in same_size])
        tests |= dict(zip(same_size, exact.rank_sum_of_each(first, second), strict=True))
    return [tests[pair] for pair in family]
