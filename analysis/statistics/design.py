"""Design of a comparison: blocks and their columns, and each row's scores by replicate and column.

Tests across data sets count blocks: the domains, severities or conditions of one data set are the columns of one block,
whose value is their plain mean. A replicate is a run or, if each cell needs a training of its own, the runs with one
seed on all cells.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from biasbed import measures

# Columns of a run table that `rows_of` reads; the last is there only for published means.
ROW_COLUMNS = ("algorithm", "cell", "dataset", "score", "run_id", "replicate", "num_runs")


@dataclass(frozen=True)
class Design:
    """Columns of each block and their units. The columns of a block agree in unit and direction."""

    blocks: Mapping[str, tuple[str, ...]]  # block -> the columns whose mean it is
    units: Mapping[str, str]  # block -> unit
    lower: frozenset[str]  # columns on which lower is better
    shown: tuple[str, ...]  # all columns that tables show, also those that no block counts

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns of all blocks, in the blocks' order."""
        return tuple(itertools.chain.from_iterable(self.blocks.values()))

    @property
    def wide(self) -> Mapping[str, tuple[str, ...]]:
        """Blocks that have several columns."""
        return {block: names for block, names in self.blocks.items() if len(names) > 1}

    @property
    def noun(self) -> str:
        """Word for a block: `set`, or `data set` if a data set has several columns."""
        return "data set" if len(self.shown) > len(self.blocks) else "set"

    @property
    def lower_blocks(self) -> frozenset[str]:
        """Blocks on which lower is better."""
        return frozenset(block for block, names in self.blocks.items() if names[0] in self.lower)

    def select_blocks(self, names: Collection[str]) -> Design:
        """Return the design of these blocks only."""
        units = {name: self.units[name] for name in names}
        blocks = dict(zip(names, map(self.blocks.__getitem__, names), strict=True))
        return Design(blocks, units, self.lower, tuple(itertools.chain.from_iterable(blocks.values())))

    def means(self, scores: pd.DataFrame) -> pd.DataFrame:
        """Return each replicate's means over the columns of a block, replicates x blocks; NaN if it lacks one.

        scores: replicates x columns.
        """
        means = {}
        for block, names in self.blocks.items():
            is_wide = len(names) > 1
            means[block] = scores[list(names)].mean(axis=1, skipna=False) if is_wide else scores[names[0]]
        return pd.DataFrame(means, index=scores.index)

    def reduced(self, values: pd.Series[float]) -> pd.Series[float]:
        """Return the mean over the columns of each block, of one value per column."""
        # In NumPy for speed: resampling calls it thousands of times.
        ordered = values.reindex(list(self.columns)).to_numpy(dtype=float)
        ends = np.cumsum([len(names) for names in self.blocks.values()])
        parts = zip(self.blocks, np.split(ordered, ends[:-1]), strict=False)  # one part is left over without blocks
        return pd.Series({block: part.mean() for block, part in parts}, dtype=float)

    def oriented(self, rows: Mapping[str, RowScores]) -> dict[str, RowScores]:
        """Return the rows, negated on columns on which lower is better, so that higher is better everywhere."""
        return {name: row.negated(self.lower) for name, row in rows.items()}


def single_column_blocks(columns: Iterable[object]) -> Design:
    """Return a design in which every column is a block, measured in percent; higher is better."""
    names = tuple(map(str, columns))
    return Design({name: (name,) for name in names}, dict.fromkeys(names, measures.FRACTION), frozenset(), names)


@dataclass(frozen=True)
class RowScores:
    """Scores of one row, and the runs behind them."""

    scores: pd.DataFrame  # replicates x columns, NaN if missing
    runs: pd.DataFrame  # the same shape: ids of runs
    together: tuple[tuple[str, ...], ...]  # the columns, grouped by the trainings that their scores come from
    mean_of: int = 0  # number of runs if only their mean was published, else 0

    @property
    def replicates(self) -> pd.DataFrame:
        """Scores that tests over runs take; no rows if only a mean was published."""
        return self.scores[:0] if self.mean_of else self.scores

    @property
    def num_runs(self) -> int:
        """Number of runs, or of replicates, behind the row's means."""
        return self.mean_of or len(self.scores)

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(map(str, self.scores))

    def select_columns(self, columns: Collection[str]) -> RowScores:
        """Return the row with these columns only, as far as it has them."""
        kept = [name for name in columns if name in self.scores]
        groups = [tuple(filter(columns.__contains__, names)) for names in self.together]
        together = tuple(filter(None, groups))
        return dataclasses.replace(self, scores=self.scores[kept], runs=self.runs[kept], together=together)

    def negated(self, columns: Collection[str]) -> RowScores:
        """Return the row with these columns negated."""
        signs = [-1.0 if name in columns else 1.0 for name in self.scores]
        return dataclasses.replace(self, scores=self.scores * signs)

    @cached_property
    def parts(self) -> tuple[pd.DataFrame, ...]:
        """Scores of each element of `together`, without replicates that have no training there."""
        return tuple(self.scores[list(columns)].dropna(how="all") for columns in self.together)

    def ids(self, columns: Iterable[str]) -> tuple[str, ...]:
        """Return the ids of the runs behind these columns, each once."""
        names = list(columns)
        # Column by column, as choosing several columns of a frame by their names is slow.
        runs = np.column_stack([self.runs[name] for name in names])
        is_present = np.column_stack([self.scores[name].notna() for name in names])
        return tuple(run for run in dict.fromkeys(runs[is_present].tolist()) if isinstance(run, str))


NO_SCORES = RowScores(pd.DataFrame(), pd.DataFrame(), ())  # for a row that has none of the columns


def row_from_runs(scores: pd.DataFrame) -> RowScores:
    """Make a row of scores (runs x columns) in which every run has all columns and is its own replicate."""
    scores = scores.rename(columns=str)
    ids = pd.DataFrame({name: scores.index.astype(str) for name in scores}, index=scores.index)
    return RowScores(scores, ids, (tuple(map(str, scores)),))


def rows_of(runs: pd.DataFrame, columns: Collection[str]) -> dict[str, RowScores]:
    """Return each row's scores on the columns that it has, keyed by row, from a run table (`scores.run_table`).

    A run that appears in several cells, as a tested model does, counts as one run.
    """
    needed = [name for name in ROW_COLUMNS if name in runs]
    by_row = runs[needed].groupby("algorithm", sort=False)
    return {str(name): _row(str(name), table, columns) for name, table in by_row}


def _row(name: str, runs: pd.DataFrame, columns: Collection[str]) -> RowScores:
    """Return the scores of one row. runs: its rows of the run table."""
    # Lists, as reading single texts of a frame is slow.
    datasets, run_ids, cells = runs["dataset"].tolist(), runs["run_id"].tolist(), runs["cell"].tolist()
    replicates = runs["replicate"].tolist()
    present, names_of_runs = set(datasets), set(run_ids)
    kept = [column for column in columns if column in present]
    # A seed alone does not name a run, so its label begins with the row's name.
    labels = {label: label if label in names_of_runs else f"{name} {label}" for label in replicates}
    row_numbers = {label: number for number, label in enumerate(labels)}
    column_numbers = {column: number for number, column in enumerate(kept)}
    scores = np.full((len(labels), len(kept)), math.nan)
    ids = np.full(scores.shape, math.nan, dtype=object)
    for replicate, dataset, score, run_id in zip(replicates, datasets, runs["score"].tolist(), run_ids, strict=True):
        if dataset in column_numbers:
            position = row_numbers[replicate], column_numbers[dataset]
            scores[position], ids[position] = score, run_id
    cell_by_column = dict(zip(datasets, cells, strict=True))
    runs_by_cell: dict[str, set[str]] = {}
    for cell, run_id in zip(cells, run_ids, strict=True):
        runs_by_cell.setdefault(cell, set()).add(run_id)
    columns_by_runs: dict[frozenset[str], list[str]] = {}
    for column in kept:
        runs_of_column = frozenset(runs_by_cell[cell_by_column[column]])
        columns_by_runs.setdefault(runs_of_column, []).append(column)
    printed = runs["num_runs"].dropna() if "num_runs" in runs else ()
    axes: dict[str, Any] = dict(index=list(labels.values()), columns=kept)
    return RowScores(
        # Not copied: a copy has another layout in memory, which decides the order of summation and so the last digits.
        scores=pd.DataFrame(scores, **axes, copy=False),
        runs=pd.DataFrame(ids, **axes, dtype=object),
        together=tuple(map(tuple, columns_by_runs.values())),
        mean_of=int(min(printed, default=0)),
    )
