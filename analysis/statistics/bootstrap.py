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

import numpy as np
import pandas as pd

from biasbed.analysis.statistics.design import Design, RowScores
from biasbed.analysis.statistics.exact import Array
from biasbed.analysis.statistics.pairs import Pairs

SEED = 0
TIE = 5e-10  # scores that differ by no more are equal: they agree to nine digits
MANY_PAIRS = 50_000  # of runs: above, sorting is faster than a table of all pairs
RESAMPLES_AT_ONCE = 100

INTERVAL_COLUMNS = ("algorithm", "dataset", "mean", "low", "high", "num_runs", "run_ids")
IMPROVEMENT_COLUMNS = (
    *("a", "b", "bootstrap_low", "bootstrap_high"),
    *("probability_of_improvement", "improvement_low", "improvement_high"),
)
OVER_SETS = "(mean over sets)"  # in the column `dataset`: the row is a mean over all sets


def over_columns(block: str) -> str:
    """Return the `dataset` of a row that is the mean over all columns of a block."""
    return f"(mean over {block})"


@dataclass(frozen=True)
class Resamples:
    """Counts of draws, one row per resample."""

    blocks: Array  # resamples x blocks
    columns: Array  # resamples x columns: the column's share of its block's draws; all of them if it is the only one
    within: Mapping[str, Array]  # block of several columns -> resamples x its columns, for the block on its own
    runs: Mapping[str, tuple[Array, ...]]  # algorithm -> resamples x runs for each element of `RowScores.together`

    def mean(self, values: Array) -> Array:
        """Return each resample's mean of values (resamples x columns) over the drawn blocks and columns."""
        result: Array = (np.ascontiguousarray(values) * self.columns).sum(axis=1) / self.blocks.sum(axis=1)
        return result


def resample(rows: Mapping[str, RowScores], design: Design, number: int) -> Resamples:
    """Draw `number` resamples for these rows. Equal shapes and names in the same order give equal draws."""
    generator = np.random.default_rng(SEED)
    blocks = _counts(generator, len(design.blocks), number)
    runs = {
        name: tuple(_counts(generator, len(row.part(columns)), number) for columns in row.together)
        for name, row in rows.items()
    }
    parts = []
    for position, names in enumerate(design.blocks.values()):
        drawn = blocks[:, position]
        parts.append(_within(generator, drawn, len(names)) if len(names) > 1 else drawn[:, None])
    alone = {block: _within(generator, np.ones(number), len(names)) for block, names in design.wide.items()}
    return Resamples(blocks, np.ascontiguousarray(np.concatenate(parts, axis=1)), alone, runs)


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
            table.append((name, column, float(observed[column]), *bounds, number, " ".join(row.ids([column]))))
    return pd.DataFrame(table, columns=list(INTERVAL_COLUMNS))


def _behind(row: RowScores) -> tuple[int, str]:
    """Return the number of replicates, and the ids of the runs behind them."""
    return len(row.scores), " ".join(row.ids(row.columns))


def improvements(
    rows: Mapping[str, RowScores], design: Design, draws: Resamples, alpha: float, family: Pairs
) -> pd.DataFrame:
    """Return `IMPROVEMENT_COLUMNS`: the interval of the mean difference and the probability of improvement, per pair.

    The latter is the probability that a run of a beats a run of b on a column, averaged over the columns of a block and
    then over blocks; ties count half (Agarwal et al. 2021, section 4.3). Higher scores are better. It is NaN if only a
    mean was published of a or b, since nothing is known of its runs.
    """
    means = {name: column_means(row, draws.runs[name]) for name, row in rows.items()}
    drawn = {name: _by_column(row, draws.runs[name]) for name, row in rows.items()}
    once = {name: _by_column(row, [np.ones((1, len(row.part(c)))) for c in row.together]) for name, row in rows.items()}
    table = []
    for a, b in family:
        difference = draws.mean(means[a] - means[b])
        improvement = draws.mean(_win_rates(drawn[a], drawn[b]))
        observed = pd.Series(_win_rates(once[a], once[b])[0], index=list(design.columns))
        bounds = interval(difference, alpha, len(design.blocks))
        rates = (float(design.reduced(observed).to_numpy().mean()), *interval(improvement, alpha, len(design.blocks)))
        has_runs = not (rows[a].mean_of or rows[b].mean_of)
        table.append((a, b, *bounds, *(rates if has_runs else (math.nan,) * 3)))
    return pd.DataFrame(table, columns=list(IMPROVEMENT_COLUMNS))


def interval(replicates: Array, alpha: float, size: int, samples: int = 1) -> tuple[float, float]:
    """Return the percentile interval at 1 - alpha, widened for a sample of `size` units; NaNs for fewer than two.

    samples: the number of independent samples of that size whose mean it is; all their units tell of the spread.
    A percentile interval is short by the factor sqrt((n-1)/n) and uses normal quantiles in place of Student's; so the
    level alpha/2 becomes Phi(-sqrt(n/(n-1)) t_(n-1, 1-alpha/2)) (Hesterberg 2015).
    """
    from scipy import stats

    if size < 2:
        return math.nan, math.nan
    stretched = math.sqrt(size / (size - 1)) * float(stats.t.ppf(1 - alpha / 2, samples * (size - 1)))
    level = float(stats.norm.sf(stretched))
    low, high = np.quantile(replicates, [level, 1 - level])
    return float(low), float(high)


def _counts(generator: np.random.Generator, size: int, number: int) -> Array:
    """Count the draws of each of `size` units among `size` draws: resamples x size."""
    return generator.multinomial(size, np.full(size, 1 / size), number).astype("float64")


def column_means(row: RowScores, counts: Sequence[Array]) -> Array:
    """Return the means over the drawn runs, resamples x columns; over all runs if no drawn run has a score there."""
    means: dict[str, Array] = {}
    for columns, drawn in zip(row.together, counts, strict=True):
        means |= dict(zip(columns, cell_means(row.part(columns), drawn).T, strict=True))
    return np.stack([means[name] for name in row.columns], axis=1)


def cell_means(frame: pd.DataFrame, counts: Array) -> Array:
    """Return `column_means` of runs that all have the same columns (runs x columns)."""
    values = frame.to_numpy(dtype="float64")
    present = np.isfinite(values)
    number = counts @ present
    sums = counts @ np.where(present, values, 0.0)
    return np.where(number > 0, sums / np.where(number > 0, number, 1.0), np.nanmean(values, axis=0))


DrawnRuns = dict[str, tuple[Array, Array]]  # column -> the runs' scores, and how often each run is drawn


def _win_rates(a: DrawnRuns, b: DrawnRuns) -> Array:
    """Return how often a drawn run of a beats a drawn run of b, resamples x columns; 1/2 if no pair was drawn."""
    return np.stack([_win_rate(*a[name], *b[name]) for name in a], axis=1)


def _by_column(row: RowScores, counts: Sequence[Array]) -> DrawnRuns:
    by_column: DrawnRuns = {}
    for columns, drawn in zip(row.together, counts, strict=True):
        part = row.part(columns)
        by_column |= {name: (part[name].to_numpy(dtype="float64"), drawn) for name in columns}
    return {str(name): by_column[name] for name in row.columns}


def _win_rate(x: Array, counts_x: Array, y: Array, counts_y: Array) -> Array:
    in_x, in_y = np.isfinite(x), np.isfinite(y)
    number = (counts_x @ in_x) * (counts_y @ in_y)
    if len(x) * len(y) > MANY_PAIRS:
        sums = _sum_wins(x, counts_x, y, counts_y)
    else:
        wins = np.where(in_x[:, None] & in_y, np.heaviside(np.round(x[:, None] - y, 9), 0.5), 0.0)
        # Halves of whole numbers: float32 has them exactly, in half the time.
        sums = np.einsum("ri,ri->r", counts_x.astype("float32") @ wins.astype("float32"), counts_y)
    result: Array = np.where(number > 0, sums / np.where(number > 0, number, 1.0), 0.5)
    return result


def _sum_wins(x: Array, counts_x: Array, y: Array, counts_y: Array) -> Array:
    """Count the drawn pairs in which x beats y, per resample; ties count half. The same sums as those of all pairs.

    With the runs of y sorted, a cumulative sum of their draws counts what each run of x beats, without a table of all
    pairs. Resamples go in parts that fit the processor's cache.
    """
    by_x, by_y = np.argsort(x)[: np.isfinite(x).sum()], np.argsort(y)[: np.isfinite(y).sum()]  # NaN is last
    num_worse = np.searchsorted(y[by_y], x[by_x] - TIE, side="left")
    num_not_better = np.searchsorted(y[by_y], x[by_x] + TIE, side="right")
    sums = []
    for start in range(0, len(counts_x), RESAMPLES_AT_ONCE):
        part = slice(start, start + RESAMPLES_AT_ONCE)
        drawn_y = np.cumsum(counts_y[part].take(by_y, axis=1), axis=1)
        drawn_y = np.pad(drawn_y, ((0, 0), (1, 0)))
        beaten = (drawn_y.take(num_worse, axis=1) + drawn_y.take(num_not_better, axis=1)) / 2
        sums.append(np.einsum("ri,ri->r", counts_x[part].take(by_x, axis=1), beaten))
    return np.concatenate(sums)
