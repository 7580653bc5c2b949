"""Do the tests of the analysis keep what they promise? False positives, coverage and power on simulated score tables.

    PYTHONPATH=src python benchmarks/calibration.py

Equal algorithms in every scenario, alpha = 0.05; each rate stands with its Monte Carlo standard error. All it prints is
in docs/calibration.md; tests/analysis/statistics/test_calibration.py runs the same functions with fewer
simulations. Some minutes in all; `--part` runs one of them.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from biasbed.analysis.statistics import (
    bayesian,
    bootstrap,
    exact,
    friedman,
    simulation,
)
from biasbed.analysis.statistics import per_set as persets
from biasbed.analysis.statistics.design import row_from_runs, single_column_blocks
from biasbed.analysis.statistics.exact import Array
from biasbed.analysis.statistics.pairs import hodges_lehmann, pairs
from biasbed.analysis.statistics.rank_sets import ranks_over_sets

ALPHA = 0.05
CLUSTER = 3  # sets made from the same images: silhouette, edge and cue_conflict
SHARED = 0.7  # correlation of an algorithm's interactions with them
PARTS_OF_A_SET = 4  # columns that are domains of one data set
LUCK = 0.5  # standard deviation between runs, in units of the interactions'


@dataclass(frozen=True)
class Rate:
    """A share of simulations."""

    value: float
    number: int

    @property
    def error(self) -> float:
        """Standard error; of a share near 0 or 1 as if one simulation more had gone the other way."""
        share = min(max(self.value, 1 / self.number), 1 - 1 / self.number)
        return math.sqrt(share * (1 - share) / self.number)

    def __str__(self) -> str:
        return f"{100 * self.value:.1f} ± {100 * self.error:.1f}"


def rate(flags: Any) -> Rate:
    """Return the share of true flags."""
    flags = np.asarray(flags)
    return Rate(float(flags.mean()), len(flags))


# --- score tables of equal algorithms ---------------------------------------------------------------------------------


def independent(generator: np.random.Generator, number: int, num_sets: int, num_algorithms: int) -> Array:
    """Return simulations x sets x algorithms; every cell on its own, as the tests assume."""
    return generator.normal(size=(number, num_sets, num_algorithms))


def same_images(generator: np.random.Generator, number: int, num_sets: int, num_algorithms: int) -> Array:
    """Make three of the sets from the same images: who is good on one is good on the others."""
    tables = independent(generator, number, num_sets, num_algorithms)
    common = generator.normal(size=(number, 1, num_algorithms))
    tables[:, :CLUSTER] = math.sqrt(SHARED) * common + math.sqrt(1 - SHARED) * tables[:, :CLUSTER]
    return tables


def lucky_runs(generator: np.random.Generator, number: int, num_sets: int, num_algorithms: int) -> Array:
    """Draw one run each, which came out well or badly on every set: equal methods, unequal trainings."""
    luck = generator.normal(0, LUCK, (number, 1, num_algorithms))
    return independent(generator, number, num_sets, num_algorithms) + luck


SCENARIOS: Mapping[str, Callable[[np.random.Generator, int, int, int], Array]] = {
    "independent sets": independent,
    "three sets of the same images": same_images,
    "one run each, runs differ": lucky_runs,
}


# --- false positives over sets ----------------------------------------------------------------------------------------


def false_positives(tables: Array, alpha: float = ALPHA) -> dict[str, Rate]:
    """Compute how often each procedure finds anything among equal algorithms."""
    from scipy import stats

    num_algorithms = tables.shape[2]
    chi2 = friedman.statistics_of_each(simulation.row_ranks(-tables)).chi2
    gate = simulation.omnibus(tables, alpha)

    def finds(procedure: str) -> Any:
        return (simulation.decide(tables, alpha, procedure) != 0).any(axis=1)

    rates = {
        "Friedman, chi-square": rate(stats.chi2.sf(chi2, num_algorithms - 1) < alpha),
        "Iman-Davenport": rate(gate),
        "Wilcoxon with Holm, all pairs": rate(finds("wilcoxon_holm")),
        "Wilcoxon with Holm, control": rate(finds("wilcoxon_holm_control")),
    }
    if num_algorithms > 2:
        apart = finds("nemenyi")
        rates |= {"Nemenyi": rate(apart), "Nemenyi under Iman-Davenport": rate(apart & gate)}
    return rates


def few_sets(tables: Array, alpha: float = ALPHA) -> dict[str, Rate]:
    """Compute how often the omnibus test finds a difference among equal algorithms, by F and by permutation."""
    ranks = simulation.row_ranks(-tables)
    return {
        "F": rate(friedman.statistics_of_each(ranks).f_p < alpha),
        "permutation": rate(exact.untied_friedman_p(ranks.mean(axis=1), tables.shape[1]) < alpha),
    }


def bayesian_decisions(tables: Array, rope: float) -> dict[str, Rate]:
    """Compute how often the first pair's posterior calls one better, or both equivalent, with more than 95 %."""
    differences = (tables[:, :, 0] - tables[:, :, 1]).round(9)
    verdicts = [bayesian.verdict(bayesian.signed_rank(d, rope), ALPHA) for d in differences]
    return {
        f"Bayesian, rope {rope:g}: one better": rate([verdict.endswith("better") for verdict in verdicts]),
        f"Bayesian, rope {rope:g}: equivalent": rate([verdict == "equivalent" for verdict in verdicts]),
    }


# --- coverage ---------------------------------------------------------------------------------------------------------


def coverage(
    generator: np.random.Generator, number: int, num_sets: int, num_runs: int, replicates: int = 1000
) -> dict[str, Rate]:
    """Compute how often 95 % intervals of the mean difference of two equal algorithms contain 0.

    Runs differ (`LUCK`) and are noisy on every set (0.5), interactions have standard deviation 1.
    """
    widened, plain, shifted = [], [], []
    for _ in range(number):
        interactions = generator.normal(size=(num_sets, 2))
        runs = {}
        for position, name in enumerate("ab"):
            luck = generator.normal(0, LUCK, (num_runs, 1))
            values = interactions[:, position] + luck + generator.normal(0, 0.5, (num_runs, num_sets))
            runs[name] = pd.DataFrame(values)
        rows, layout = {name: row_from_runs(frame) for name, frame in runs.items()}, single_column_blocks(runs["a"])
        draws = bootstrap.resample(rows, layout, replicates)
        frame = bootstrap.improvements(rows, layout, draws, ALPHA, (("a", "b"),)).iloc[0]
        widened.append(frame["bootstrap_low"] <= 0 <= frame["bootstrap_high"])
        means = draws.mean(np.subtract(*(bootstrap.column_means(rows[name], draws.runs[name]) for name in "ab")))
        low, high = np.quantile(means, [ALPHA / 2, 1 - ALPHA / 2])
        plain.append(low <= 0 <= high)
        d = (runs["a"].mean() - runs["b"].mean()).to_numpy()
        shift = hodges_lehmann(d, ALPHA)
        shifted.append(shift.low <= 0 <= shift.high)
    return {
        "bootstrap, widened": rate(widened),
        "bootstrap, plain percentile": rate(plain),
        "Hodges-Lehmann": rate(shifted),
    }


# --- ranks ------------------------------------------------------------------------------------------------------------


def true_effects(name: str, num_algorithms: int) -> Array:
    """Return mean scores of algorithms, in units of the interactions: all equal, two halves, or all different."""
    ranks = np.arange(num_algorithms)
    effects: Array = {"equal": 0.0 * ranks, "halves": -3.0 * (2 * ranks >= num_algorithms), "all differ": -0.2 * ranks}[
        name
    ]
    return effects


def domains(generator: np.random.Generator, number: int, num_sets: int, num_algorithms: int) -> Array:
    """Return simulations x columns x algorithms; who is good on one domain of a data set is good on its others."""
    common = generator.normal(size=(number, num_sets, 1, num_algorithms))
    parts = generator.normal(size=(number, num_sets, PARTS_OF_A_SET, num_algorithms))
    tables: Array = math.sqrt(SHARED) * common + math.sqrt(1 - SHARED) * parts
    return tables.reshape(number, num_sets * PARTS_OF_A_SET, num_algorithms)


def rank_coverage(tables: Array, effects: Array, alpha: float = ALPHA) -> tuple[Rate, float]:
    """Return how often all rank sets contain the true ranks, and the mean share of the ranks that a set has.

    tables: simulations x sets x algorithms, of equal algorithms; effects are added. Equal algorithms share their ranks.
    """
    number = len(effects)
    least = 1 + (effects[None] > effects[:, None]).sum(axis=1)
    most = number - (effects[None] < effects[:, None]).sum(axis=1)
    is_right, widths = [], []
    for table in tables:
        intervals = np.array([*ranks_over_sets(friedman.rank(pd.DataFrame(table + effects)), alpha).values()])
        is_right.append(bool((intervals[:, 0] <= least).all() and (intervals[:, 1] >= most).all()))
        widths.append(float((intervals[:, 1] - intervals[:, 0] + 1).mean()) / number)
    return rate(is_right), float(np.mean(widths))


# --- tests on one set -------------------------------------------------------------------------------------------------


def per_set(generator: np.random.Generator, number: int, num_algorithms: int, num_runs: int) -> dict[str, Rate]:
    """Compute how often the tests over runs find anything among equal algorithms on one set."""
    omnibus, significant, gated = [], [], []
    names = [f"alg{i}" for i in range(num_algorithms)]
    family = pairs(tuple(names))
    for _ in range(number):
        runs = {name: pd.DataFrame({"set": generator.normal(size=num_runs)}) for name in names}
        sets, rows = persets.per_set(runs, ALPHA, family)
        omnibus.append(bool(sets["p"].iloc[0] < ALPHA))
        significant.append(bool((rows["p_holm"] < ALPHA).any()))
        gated.append(bool(rows["significant"].any()))
    return {
        "Kruskal-Wallis": rate(omnibus),
        "Mann-Whitney with Holm": rate(significant),
        "Mann-Whitney with Holm, under Kruskal-Wallis": rate(gated),
    }


def _print(title: str, columns: Mapping[str, Mapping[str, Rate | str]]) -> None:
    print(f"\n{title}\n")
    print(f"| percent | {' | '.join(columns)} |\n|---|{'---|' * len(columns)}")
    for name in next(iter(columns.values())):
        print(f"| {name} | {' | '.join(str(column.get(name, '-')) for column in columns.values())} |")


def print_false_positives(generator: np.random.Generator) -> None:
    for name, make in SCENARIOS.items():
        designs = ((3, 6), (5, 6), (8, 10), (5, 20))
        columns = {f"k={k}, N={n}": false_positives(make(generator, 10_000, n, k)) for k, n in designs}
        _print(f"False positives: {name}", columns)


def print_few_sets(generator: np.random.Generator) -> None:
    for k in (3, 4, 5, 8):
        columns = {f"N={n}": few_sets(independent(generator, 100_000, n, k)) for n in range(2, 7)}
        _print(f"The omnibus test on few sets: k={k}", columns)


def print_bayesian(generator: np.random.Generator) -> None:
    columns = {}
    for name, make in SCENARIOS.items():
        for n in (6, 10):
            tables = make(generator, 1000, n, 2)
            columns[f"{name}, N={n}"] = bayesian_decisions(tables, 0.0) | bayesian_decisions(tables, 0.5)
    _print("Bayesian decisions, two equal algorithms (rope in units of the interactions)", columns)


def print_coverage(generator: np.random.Generator) -> None:
    columns = {f"N={n}, R={r}": coverage(generator, 1000, n, r) for n in (6, 10, 20) for r in (1, 3, 10)}
    _print("Coverage of 95 % intervals of a mean difference", columns)


def print_per_set(generator: np.random.Generator) -> None:
    columns = {f"k={k}, R={r}": per_set(generator, 1000, k, r) for k in (3, 8) for r in (3, 5, 10)}
    _print("Tests over the runs of one set", columns)


def print_ranks(generator: np.random.Generator) -> None:
    for k in (3, 10, 40):
        columns: dict[str, dict[str, str]] = {}
        for n in (4, 10, 12):
            for name in ("equal", "halves", "all differ"):
                column = columns.setdefault(f"N={n}, {name}", {})
                effects, apart = true_effects(name, k), domains(generator, 1000, n, k)
                together = apart.reshape(1000, n, PARTS_OF_A_SET, k).mean(axis=2)
                for design, tables in (
                    ("one column a data set", independent(generator, 1000, n, k)),
                    ("four domains each, as blocks", together),
                    ("four domains each, as if data sets", apart[:, : 3 * PARTS_OF_A_SET]),
                ):
                    right, width = rank_coverage(tables, effects)
                    column[design] = f"{right}; {width:.2f}"
        _print(f"Coverage of 95 % rank sets; share of the ranks in a set: k={k}", columns)


PARTS = {
    "false_positives": print_false_positives,
    "few_sets": print_few_sets,
    "bayesian": print_bayesian,
    "coverage": print_coverage,
    "per_set": print_per_set,
    "ranks": print_ranks,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--part", choices=PARTS, action="append", help="all, unless named")
    for part in parser.parse_args().part or PARTS:
        start = time.perf_counter()
        PARTS[part](np.random.default_rng(0))
        print(f"\n{time.perf_counter() - start:.0f} seconds")


if __name__ == "__main__":
    main()
