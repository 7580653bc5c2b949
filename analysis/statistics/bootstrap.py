"""Bootstrap confidence intervals of means over sets and runs.

Every level is resampled: block, column (a cell, a domain) and run. A resample draws blocks, then columns within each
drawn block that has several, and runs for every algorithm. A run is tested on every column of its cell, so runs cross
these columns: a drawn run brings its scores on all of them (Owen 2007). Runs of different cells are different trainings
and are drawn independently. All algorithms share the drawn blocks and columns, so differences are paired. Percentile
intervals over few units are too short; they are widened as Hesterberg proposes (2015, section 5.3 of the long version).

Sources: Agarwal et al. 2021 (probability of improvement); Bouthillier et al. 2021 (vary every source of noise).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pandas as pd

from biasbed.analysis.statistics.design import Design, RowScores
from biasbed.analysis.statistics.exact import Array, IntArray
from biasbed.analysis.statistics.pairs import Pairs

SEED = 0
TIE = 5e-10  # scores that differ by no more are equal: they agree to nine digits
AT_ONCE = 100_000  # drawn runs of a row, to fit the processor's cache

INTERVAL_COLUMNS = ("algorithm", "dataset", "mean", "low", "high", "num_runs", "run_ids")
IMPROVEMENT_COLUMNS = (
    *("a", "b", "bootstrap_low", "bootstrap_high"),
    *("probability_of_improvement", "improvement_low", "improvement_high"),
)
OVER_SETS = "(mean over sets)"  # in the column `dataset`: the row is a mean over all sets


def over_columns(block: str) -> str:
    """Return the `dataset` of a row that is the mean over all columns of a block."""
    return f"(mean over {block})"


# Numbers of draws: float32 holds whole numbers up to 2^24 exactly, in half the memory.
CompactCounts = np.ndarray[Any, np.dtype[np.float32]]


@dataclass(frozen=True)
class Resamples:
    """Counts of draws, one row per resample."""

    blocks: Array  # resamples x blocks
    columns: Array  # resamples x columns: the block's draws times the column's share of them
    within: Mapping[str, Array]  # block of several columns -> resamples x its columns, if it is drawn once
    runs: Mapping[str, tuple[CompactCounts, ...]]  # algorithm -> resamples x runs for each of `RowScores.parts`

    def mean(self, values: Array) -> Array:
        """Return each resample's mean of values (resamples x columns) over the drawn blocks and columns."""
        result: Array = (np.ascontiguousarray(values) * self.columns).sum(axis=1) / self.blocks.sum(axis=1)
        return result


def resample(rows: Mapping[str, RowScores], design: Design, number: int) -> Resamples:
    """Draw `number` resamples for these rows. Equal shapes and names in the same order give equal draws."""
    generator = np.random.default_rng(SEED)
    blocks = _draw_counts(generator, len(design.blocks), number)
    runs = {}
    for name, row in rows.items():
        runs[name] = tuple(_draw_counts(generator, len(part), number).astype("float32") for part in row.parts)
    parts = []
    for position, names in enumerate(design.blocks.values()):
        drawn = blocks[:, position]
        parts.append(_within(generator, drawn, len(names)) if len(names) > 1 else drawn[:, None])
    within = {block: _within(generator, np.ones(number), len(names)) for block, names in design.wide.items()}
    return Resamples(blocks, np.ascontiguousarray(np.concatenate(parts, axis=1)), within, runs)


def _within(generator: np.random.Generator, drawn: Array, size: int) -> Array:
    """Draw `size` columns each time that a block is drawn; return their shares of its draws, resamples x size."""
    counts = generator.multinomial(drawn.astype("int64") * size, np.full(size, 1 / size))
    return counts.astype("float64") / size


def intervals(rows: Mapping[str, RowScores], design: Design, draws: Resamples, alpha: float) -> pd.DataFrame:
    """Return `INTERVAL_COLUMNS`: each algorithm's mean over all blocks, over each wide block and on each column.

    An interval resamples only its own level and those below: runs for a column, columns and runs for a block. A row
    that lacks a column has no mean over anything that contains it. With a single run, intervals on columns are NaN, and
    those of means miss the spread of runs.
    """
    table: list[tuple[object, ...]] = []
    for name, row in rows.items():
        means = pd.DataFrame(column_means(row, draws.runs[name]), columns=list(row.columns))
        observed = row.scores.mean()
        if set(design.columns) <= set(means):
            resampled = draws.mean(means[list(design.columns)].to_numpy())
            mean = float(design.reduced(observed).mean())
            table.append((name, OVER_SETS, mean, *interval(resampled, alpha, len(design.blocks)), *_behind(row)))
        for block, columns in design.wide.items():
            if set(columns) <= set(means):
                resampled = (means[list(columns)].to_numpy() * draws.within[block]).sum(axis=1)
                bounds = interval(resampled, alpha, len(columns))
                mean = float(observed[list(columns)].mean())
                table.append((name, over_columns(block), mean, *bounds, *_behind(row.select_columns(columns))))
        for column in row.columns:
            number = int(row.scores[column].notna().sum())
            bounds = interval(means[column].to_numpy(), alpha, number)
            ids = " ".join(row.ids([column]))
            table.append((name, column, float(observed[column]), *bounds, row.mean_of or number, ids))
    return pd.DataFrame(table, columns=list(INTERVAL_COLUMNS))


def _behind(row: RowScores) -> tuple[int, str]:
    """Return the number of runs behind a row's means, and the ids of the tracked ones, joined by blanks."""
    return row.num_runs, " ".join(row.ids(row.columns))


def improvements(
    rows: Mapping[str, RowScores], design: Design, draws: Resamples, alpha: float, family: Pairs
) -> pd.DataFrame:
    """Return `IMPROVEMENT_COLUMNS`: the interval of the mean difference and the probability of improvement, per pair.

    The latter is the probability that a run of a beats a run of b on a column, averaged over the columns of a block and
    then over blocks; ties count half (Agarwal et al. 2021, section 4.3). Higher scores are better. It is NaN if only a
    mean was published of a or b, since nothing is known of its runs.
    """
    means = {name: column_means(row, draws.runs[name]) for name, row in rows.items()}
    difference = np.stack([draws.mean(means[a] - means[b]) for a, b in family])
    improvement = improvement_probabilities(rows, design, draws, family)
    size = len(design.blocks)
    frame = pd.DataFrame(list(family), columns=["a", "b"])
    frame[["bootstrap_low", "bootstrap_high"]] = interval_of_each(difference, alpha, size)
    frame["probability_of_improvement"] = improvement[:, -1]
    frame[["improvement_low", "improvement_high"]] = interval_of_each(improvement[:, :-1], alpha, size)
    lacks_runs = [bool(rows[a].mean_of or rows[b].mean_of) for a, b in family]
    frame.loc[lacks_runs, list(IMPROVEMENT_COLUMNS[4:])] = math.nan
    return frame


def interval(replicates: Array, alpha: float, size: int) -> tuple[float, float]:
    """Return the percentile interval at 1 - alpha, widened for a sample of `size` units; NaNs for fewer than two.

    A percentile interval is short by the factor sqrt((n-1)/n) and uses normal quantiles in place of Student's; so the
    level alpha/2 becomes Phi(-sqrt(n/(n-1)) t_(n-1, 1-alpha/2)) (Hesterberg 2015).
    """
    low, high = interval_of_each(replicates[None], alpha, size)[0].tolist()
    return low, high


def interval_of_each(replicates: Array, alpha: float, size: int) -> Array:
    """Return `interval` of every row of replicates (rows x resamples): rows x 2."""
    if size < 2:
        return np.full((len(replicates), 2), math.nan)
    level = _widened_level(alpha, size)
    result: Array = np.quantile(replicates, [level, 1 - level], axis=1).T
    return result


@cache  # there are few sizes, and scipy is slow
def _widened_level(alpha: float, size: int) -> float:
    """Return the share of resamples that lie below an `interval`."""
    from scipy import stats

    stretched = math.sqrt(size / (size - 1)) * float(stats.t.ppf(1 - alpha / 2, size - 1))
    return float(stats.norm.sf(stretched))


def _draw_counts(generator: np.random.Generator, size: int, number: int) -> Array:
    """Draw `size` of `size` units with replacement, `number` times; return how often each was drawn: number x size."""
    return generator.multinomial(size, np.full(size, 1 / size), number).astype("float64")


def column_means(row: RowScores, counts: Sequence[CompactCounts]) -> Array:
    """Return a row's mean on each column in each resample: resamples x columns.

    It is over the drawn runs, or over all runs if no drawn run has a score on the column. counts: for each part of the
    row, how often each of its runs was drawn (resamples x runs).
    """
    means: dict[str, Array] = {}
    for part, drawn in zip(row.parts, counts, strict=True):
        means |= dict(zip(map(str, part), cell_means(part, drawn.astype("float64")).T, strict=True))
    return np.stack([means[name] for name in row.columns], axis=1)


def cell_means(frame: pd.DataFrame, counts: Array) -> Array:
    """Return `column_means` of one part of a row: resamples x columns. frame: scores, runs x columns."""
    values = frame.to_numpy(dtype="float64")
    has_score = np.isfinite(values)
    num_drawn = counts @ has_score
    sums = counts @ np.where(has_score, values, 0.0)
    return np.where(num_drawn > 0, sums / np.where(num_drawn > 0, num_drawn, 1.0), np.nanmean(values, axis=0))


@dataclass(frozen=True)
class SortedRuns:
    """Finite scores of one row on one column, sorted."""

    scores: Array
    order: IntArray  # of the scores among the row's runs
    group: int  # position of the column's trainings in `RowScores.together`


@dataclass(frozen=True)
class DrawnRuns:
    """Numbers of draws of `SortedRuns`."""

    counts: Array  # scores x resamples
    below: Array  # (scores + 1) x resamples: draws of the first 0, 1, ... scores


def improvement_probabilities(rows: Mapping[str, RowScores], design: Design, draws: Resamples, family: Pairs) -> Array:
    """Return the probability of improvement of each pair in each resample, and observed: pairs x (resamples + 1).

    The rows have the same columns. The last resample has every run, column and block once.
    """
    columns = next(iter(rows.values())).columns
    shares: dict[str, float] = {}
    for names in design.blocks.values():
        shares |= dict.fromkeys(names, 1 / len(names))
    weights = np.concatenate([draws.columns, [[shares[name] for name in columns]]]).T
    counts_by_row = {name: _with_all_runs(draws.runs[name]) for name in rows}
    probabilities = np.zeros((len(family), weights.shape[1]))
    for column, weight in zip(columns, weights, strict=True):
        runs = {name: _sort_runs(row, column) for name, row in rows.items()}
        counts = {name: counts_by_row[name][runs[name].group] for name in rows}
        probabilities += weight * _win_rates(runs, counts, family)
    result: Array = probabilities / np.append(draws.blocks.sum(axis=1), len(design.blocks))
    return result


def _win_rates(runs: Mapping[str, SortedRuns], counts: Mapping[str, CompactCounts], family: Pairs) -> Array:
    """Return the rates at which a run of a beats a run of b on a column: pairs x resamples.

    Ties count half, and the rate is 1/2 if no pair of runs was drawn. counts: runs x resamples.
    """
    num_beaten = [_count_worse(runs[a], runs[b]) for a, b in family]
    rates = np.empty((len(family), next(iter(counts.values())).shape[1]))
    at_once = max(1, AT_ONCE // max(map(len, counts.values())))
    for start in range(0, rates.shape[1], at_once):
        part = slice(start, start + at_once)
        drawn = {name: _draw_runs(runs[name], counts[name][:, part]) for name in runs}
        for position, (a, b) in enumerate(family):
            rates[position, part] = _win_rate(drawn[a], drawn[b], *num_beaten[position])
    return rates


def _with_all_runs(counts: Sequence[CompactCounts]) -> list[CompactCounts]:
    """Return counts of draws, runs x resamples for each training, with every run once as a further resample."""
    return [np.concatenate([drawn.T, np.ones((drawn.shape[1], 1), "float32")], axis=1) for drawn in counts]


def _sort_runs(row: RowScores, column: str) -> SortedRuns:
    """Return a row's finite scores on a column, sorted."""
    group = next(position for position, columns in enumerate(row.together) if column in columns)
    scores = row.parts[group][column].to_numpy()
    order = np.argsort(scores)[: np.isfinite(scores).sum()]  # NaN is last
    return SortedRuns(scores[order], order, group)


def _count_worse(a: SortedRuns, b: SortedRuns) -> tuple[IntArray, IntArray]:
    """Count the runs of b that are worse than each run of a, and those that are not better."""
    return np.searchsorted(b.scores, a.scores - TIE, "left"), np.searchsorted(b.scores, a.scores + TIE, "right")


def _draw_runs(runs: SortedRuns, counts: CompactCounts) -> DrawnRuns:
    """Sort the draws by score. counts: runs x resamples."""
    # Halves of whole numbers: float32 has them exactly up to 2^23, in half the time.
    by_score = counts[runs.order].astype("float32" if len(counts) ** 2 < 2**22 else "float64", copy=False)
    below = np.zeros((len(by_score) + 1, by_score.shape[1]), dtype=by_score.dtype)
    np.cumsum(by_score, axis=0, out=below[1:])
    return DrawnRuns(by_score, below)


def _win_rate(a: DrawnRuns, b: DrawnRuns, num_worse: IntArray, num_not_better: IntArray) -> Array:
    """Return the rate for each resample. The draws below each run of a are counted without a table of all pairs."""
    beaten = b.below.take(num_worse, axis=0)
    if (num_worse != num_not_better).any():
        beaten = (beaten + b.below.take(num_not_better, axis=0)) / 2
    sums = np.einsum("ir,ir->r", a.counts, beaten).astype("float64")
    number = a.below[-1].astype("float64") * b.below[-1]
    result: Array = np.where(number > 0, sums / np.where(number > 0, number, 1.0), 0.5)
    return result
