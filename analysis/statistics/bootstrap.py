"""How sure is a mean over sets and runs? All levels are resampled: other sets, other columns of one, other seeds.

The levels are block, column (a cell, a domain), run. A resample draws blocks; within a block of several columns, each
time that it is drawn, columns; and for every algorithm runs. A run is tested on every column of its cell, so runs and
these columns cross: each run comes with its scores on all of them (Owen 2007). Runs of different cells are different
trainings, and are drawn by themselves. All algorithms share the drawn blocks and columns, so differences are paired.
Percentile intervals over few units are too short; they are widened as Hesterberg (2015, section 5.3 of the long
version) proposes.

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

INTERVAL_COLUMNS = ("algorithm", "dataset", "mean", "low", "high", "num_runs", "run_ids")
IMPROVEMENT_COLUMNS = (
    *("a", "b", "bootstrap_low", "bootstrap_high"),
    *("probability_of_improvement", "improvement_low", "improvement_high"),
)
OVER_SETS = "(mean over sets)"  # the dataset of a row that is about all of them


def over_columns(block: str) -> str:
    """The dataset of a row that is about all columns of a block."""
    return f"(mean over {block})"


@dataclass(frozen=True)
class Resamples:
    """How often everything was drawn, a row for each resample."""

    blocks: Array  # resamples x blocks
    columns: Array  # resamples x columns: a column's part in its block's draws; all of them where it is the only one
    within: Mapping[str, Array]  # block of several columns -> resamples x its columns, if the block stands by itself
    runs: Mapping[str, tuple[Array, ...]]  # algorithm -> resamples x runs for each element of `RowScores.together`

    def mean(self, values: Array) -> Array:
        """The mean over the drawn blocks and columns of values (resamples x columns), for each resample."""
        result: Array = (np.ascontiguousarray(values) * self.columns).sum(axis=1) / self.blocks.sum(axis=1)
        return result


def resample(rows: Mapping[str, RowScores], layout: Design, number: int) -> Resamples:
    """Draws for these rows, the same for the same shapes and names in the same order."""
    generator = np.random.default_rng(SEED)
    blocks = _counts(generator, len(layout.blocks), number)
    runs = {
        name: tuple(_counts(generator, len(row.part(columns)), number) for columns in row.together)
        for name, row in rows.items()
    }
    parts = []
    for position, names in enumerate(layout.blocks.values()):
        drawn = blocks[:, position]
        parts.append(_within(generator, drawn, len(names)) if len(names) > 1 else drawn[:, None])
    alone = {block: _within(generator, np.ones(number), len(names)) for block, names in layout.wide.items()}
    return Resamples(blocks, np.ascontiguousarray(np.concatenate(parts, axis=1)), alone, runs)


def _within(generator: np.random.Generator, drawn: Array, size: int) -> Array:
    """Columns of a block that is drawn so often, `size` of them each time, as parts of its draws: resamples x size."""
    counts = generator.multinomial(drawn.astype("int64") * size, np.full(size, 1 / size))
    return counts.astype("float64") / size


def intervals(rows: Mapping[str, RowScores], layout: Design, draws: Resamples, alpha: float) -> pd.DataFrame:
    """`INTERVAL_COLUMNS`: each algorithm's mean over all blocks, of each block of several columns, of each column.

    What stands above is not resampled: of a column runs alone, of a block its columns and runs. A row without some
    column has no mean over what contains it. Intervals of a single run are empty on a column, and above they miss the
    spread of runs.
    """
    found: list[tuple[object, ...]] = []
    for name, row in rows.items():
        means = pd.DataFrame(column_means(row, draws.runs[name]), columns=list(row.columns))
        observed = row.scores.mean()
        if set(layout.columns) <= set(means):
            over = draws.mean(means[list(layout.columns)].to_numpy())
            mean = float(layout.reduced(observed).mean())
            found.append((name, OVER_SETS, mean, *interval(over, alpha, len(layout.blocks)), *_behind(row)))
        for block, columns in layout.wide.items():
            if set(columns) <= set(means):
                over = (means[list(columns)].to_numpy() * draws.within[block]).sum(axis=1)
                bounds = interval(over, alpha, len(columns))
                mean = float(observed[list(columns)].mean())
                found.append((name, over_columns(block), mean, *bounds, *_behind(row.of(columns))))
        for column in row.columns:
            number = int(row.scores[column].notna().sum())
            bounds = interval(means[column].to_numpy(), alpha, number)
            found.append((name, column, float(observed[column]), *bounds, number, " ".join(row.ids([column]))))
    return pd.DataFrame(found, columns=list(INTERVAL_COLUMNS))


def _behind(row: RowScores) -> tuple[int, str]:
    """Number of replicates, and the runs."""
    return len(row.scores), " ".join(row.ids(row.columns))


def improvements(
    rows: Mapping[str, RowScores], layout: Design, draws: Resamples, alpha: float, family: Pairs
) -> pd.DataFrame:
    """`IMPROVEMENT_COLUMNS`: of every pair the interval of the mean difference and the probability of improvement.

    That is the probability that a run of a beats a run of b on a column, averaged over the columns of a block and then
    over blocks; equal scores count half (Agarwal et al. 2021, section 4.3). Higher scores are better. NaNs with a
    published mean, of whose runs nothing is known.
    """
    means = {name: column_means(row, draws.runs[name]) for name, row in rows.items()}
    drawn = {name: _by_column(row, draws.runs[name]) for name, row in rows.items()}
    once = {name: _by_column(row, [np.ones((1, len(row.part(c)))) for c in row.together]) for name, row in rows.items()}
    found = []
    for a, b in family:
        difference = draws.mean(means[a] - means[b])
        improvement = draws.mean(_win_rates(drawn[a], drawn[b]))
        observed = pd.Series(_win_rates(once[a], once[b])[0], index=list(layout.columns))
        bounds = interval(difference, alpha, len(layout.blocks))
        rates = (float(layout.reduced(observed).to_numpy().mean()), *interval(improvement, alpha, len(layout.blocks)))
        known = not (rows[a].mean_of or rows[b].mean_of)
        found.append((a, b, *bounds, *(rates if known else (math.nan,) * 3)))
    return pd.DataFrame(found, columns=list(IMPROVEMENT_COLUMNS))


def interval(replicates: Array, alpha: float, size: int, samples: int = 1) -> tuple[float, float]:
    """The percentile interval of 1 - alpha, widened for a sample of `size` units; NaNs for less than two.

    samples: of how many such samples, each drawn by itself, it is the mean: all their units tell of the spread.
    The percentile interval is short by the factor sqrt((n-1)/n) and takes normal quantiles for Student's; the level
    alpha/2 becomes Phi(-sqrt(n/(n-1)) t_(n-1, 1-alpha/2)) (Hesterberg 2015).
    """
    from scipy import stats

    if size < 2:
        return math.nan, math.nan
    stretched = math.sqrt(size / (size - 1)) * float(stats.t.ppf(1 - alpha / 2, samples * (size - 1)))
    level = float(stats.norm.sf(stretched))
    low, high = np.quantile(replicates, [level, 1 - level])
    return float(low), float(high)


def _counts(generator: np.random.Generator, size: int, number: int) -> Array:
    """How often each of `size` units is drawn in `size` draws: resamples x size."""
    return generator.multinomial(size, np.full(size, 1 / size), number).astype("float64")


def column_means(row: RowScores, counts: Sequence[Array]) -> Array:
    """Resamples x columns: means over the drawn runs; over all runs where no drawn run has a score there."""
    found: dict[str, Array] = {}
    for columns, drawn in zip(row.together, counts, strict=True):
        found |= dict(zip(columns, cell_means(row.part(columns), drawn).T, strict=True))
    return np.stack([found[name] for name in row.columns], axis=1)


def cell_means(frame: pd.DataFrame, counts: Array) -> Array:
    """The same of runs that all have the same columns."""
    values = frame.to_numpy(dtype="float64")
    present = np.isfinite(values)
    number = counts @ present
    sums = counts @ np.where(present, values, 0.0)
    return np.where(number > 0, sums / np.where(number > 0, number, 1.0), np.nanmean(values, axis=0))


DrawnRuns = dict[str, tuple[Array, Array]]  # column -> the runs' scores, and how often each run is drawn


def _win_rates(a: DrawnRuns, b: DrawnRuns) -> Array:
    """Resamples x columns: how often a drawn run of a beats a drawn run of b; 1/2 where no pair was drawn."""
    return np.stack([_win_rate(*a[name], *b[name]) for name in a], axis=1)


def _by_column(row: RowScores, counts: Sequence[Array]) -> DrawnRuns:
    found: DrawnRuns = {}
    for columns, drawn in zip(row.together, counts, strict=True):
        part = row.part(columns)
        found |= {name: (part[name].to_numpy(dtype="float64"), drawn) for name in columns}
    return {str(name): found[name] for name in row.columns}


def _win_rate(x: Array, counts_x: Array, y: Array, counts_y: Array) -> Array:
    in_x, in_y = np.isfinite(x), np.isfinite(y)
    wins = np.where(in_x[:, None] & in_y, np.heaviside(np.round(x[:, None] - y, 9), 0.5), 0.0)
    number = (counts_x @ in_x) * (counts_y @ in_y)
    sums = np.einsum("ri,ri->r", counts_x @ wins, counts_y)
    result: Array = np.where(number > 0, sums / np.where(number > 0, number, 1.0), 0.5)
    return result
