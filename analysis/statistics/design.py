"""What all statistics are computed from: a row's scores by replicate and column, and which columns make a block.

Blocks are what tests across data sets count: the domains, severities or conditions of one data set are columns of one
block, whose value is their plain mean. A replicate is what a row has several of: a run, or where each cell takes a
training of its own, the runs with one seed on all cells.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from biasbed import measures


@dataclass(frozen=True)
class Design:
    """Which columns make a block, and what they are measured in. Those that make one agree in unit and direction."""

    blocks: Mapping[str, tuple[str, ...]]  # block -> the columns whose mean it is
    units: Mapping[str, str]  # block -> unit
    lower: frozenset[str]  # columns on which less is better
    shown: tuple[str, ...]  # all columns: beside one that stands for its block, those that it stands for

    @property
    def columns(self) -> tuple[str, ...]:
        """Those of all blocks, in the blocks' order."""
        return tuple(name for names in self.blocks.values() for name in names)

    @property
    def wide(self) -> Mapping[str, tuple[str, ...]]:
        """The blocks that have several columns."""
        return {block: names for block, names in self.blocks.items() if len(names) > 1}

    @property
    def noun(self) -> str:
        """What a block is called: an evaluation set, or a data set of several columns."""
        return "data set" if len(self.shown) > len(self.blocks) else "set"

    @property
    def lower_blocks(self) -> frozenset[str]:
        """Blocks on which less is better."""
        return frozenset(block for block, names in self.blocks.items() if names[0] in self.lower)

    def of(self, blocks: Iterable[str]) -> Design:
        """These blocks alone."""
        names = tuple(blocks)
        units = {name: self.units[name] for name in names}
        own = {name: self.blocks[name] for name in names}
        return Design(own, units, self.lower, tuple(column for columns in own.values() for column in columns))

    def means(self, scores: pd.DataFrame) -> pd.DataFrame:
        """Replicates x blocks from replicates x columns; NaN where a replicate lacks a column of the block."""
        found = {block: scores[list(names)].mean(axis=1, skipna=False) for block, names in self.blocks.items()}
        return pd.DataFrame(found, index=scores.index)

    def reduced(self, values: pd.Series[float]) -> pd.Series[float]:
        """A value for each block from one for each column."""
        # In NumPy: a resampling asks thousands of times.
        found = values.reindex(list(self.columns)).to_numpy(dtype=float)
        ends = np.cumsum([len(names) for names in self.blocks.values()])
        parts = zip(self.blocks, np.split(found, ends[:-1]), strict=False)  # without blocks one part is left over
        return pd.Series({block: part.mean() for block, part in parts}, dtype=float)

    def oriented(self, rows: Mapping[str, RowScores]) -> dict[str, RowScores]:
        """The scores with the other sign where less is better: then higher is better everywhere."""
        return {name: row.turned(self.lower) for name, row in rows.items()}


def each(columns: Iterable[object]) -> Design:
    """Every column a block by itself, in percent, of which more is better."""
    names = tuple(map(str, columns))
    return Design({name: (name,) for name in names}, dict.fromkeys(names, measures.FRACTION), frozenset(), names)


@dataclass(frozen=True)
class RowScores:
    """One row's scores, and the runs behind them."""

    scores: pd.DataFrame  # replicates x columns, NaN where there is none
    runs: pd.DataFrame  # the same shape: the run's id
    together: tuple[tuple[str, ...], ...]  # the columns, those beside each other that come from the same trainings
    mean_of: int = 0  # runs in whose place their mean was published; 0 where there are the runs

    @property
    def replicates(self) -> pd.DataFrame:
        """The scores that tests over runs may take: none of a published mean."""
        return self.scores[:0] if self.mean_of else self.scores

    @property
    def num_runs(self) -> int:
        """How many are behind a mean."""
        return self.mean_of or len(self.scores)

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(map(str, self.scores))

    def of(self, columns: Collection[str]) -> RowScores:
        """These columns alone, of those that the row has."""
        kept = [name for name in columns if name in self.scores]
        of_each = (tuple(name for name in names if name in columns) for names in self.together)
        together = tuple(names for names in of_each if names)
        return dataclasses.replace(self, scores=self.scores[kept], runs=self.runs[kept], together=together)

    def turned(self, columns: Collection[str]) -> RowScores:
        """These columns with the other sign."""
        signs = [-1.0 if name in columns else 1.0 for name in self.scores]
        return dataclasses.replace(self, scores=self.scores * signs)

    def part(self, columns: Iterable[str]) -> pd.DataFrame:
        """The scores of one element of `together`, without replicates that have no training there."""
        return self.scores[list(columns)].dropna(how="all")

    def ids(self, columns: Iterable[str]) -> tuple[str, ...]:
        """The runs behind these columns, each once."""
        names = list(columns)
        found = self.runs[names].to_numpy()[self.scores[names].notna().to_numpy()]
        return tuple(dict.fromkeys(str(run) for run in found if isinstance(run, str)))


NO_SCORES = RowScores(pd.DataFrame(), pd.DataFrame(), ())  # of a row that can have none of the columns


def single(scores: pd.DataFrame) -> RowScores:
    """Runs x columns: every run has all columns and is its own replicate."""
    scores = scores.rename(columns=str)
    ids = pd.DataFrame({name: scores.index.astype(str) for name in scores}, index=scores.index)
    return RowScores(scores, ids, (tuple(map(str, scores)),))


def rows_of(runs: pd.DataFrame, columns: Collection[str]) -> dict[str, RowScores]:
    """Row -> its scores on those of the columns that it has, from a run table (`scores.run_table`).

    A run that stands in several cells, as a tested model does, is one run there.
    """
    return {str(name): _row(str(name), own, columns) for name, own in runs.groupby("algorithm", sort=False)}


def _row(name: str, runs: pd.DataFrame, columns: Collection[str]) -> RowScores:
    known = set(runs["dataset"])
    kept = [column for column in columns if column in known]
    of_runs = set(runs["run_id"])
    # A seed alone names no run: in what flips and in what is listed the row stands before it.
    labels = {label: label if label in of_runs else f"{name} {label}" for label in runs["replicate"]}
    tables = [
        runs.pivot(index="replicate", columns="dataset", values=value).reindex(index=list(labels), columns=kept)
        for value in ("score", "run_id")
    ]
    scores, ids = (table.set_axis(list(labels.values())).rename_axis(columns=None) for table in tables)
    trainings: dict[frozenset[str], list[str]] = {}
    of_cell = {cell: frozenset(own["run_id"]) for cell, own in runs.groupby("cell")}
    cells = dict(zip(runs["dataset"], runs["cell"], strict=True))
    for column in kept:
        trainings.setdefault(of_cell[cells[column]], []).append(column)
    printed = runs["num_runs"].dropna() if "num_runs" in runs else ()
    together = tuple(map(tuple, trainings.values()))
    return RowScores(scores.astype("float64"), ids, together, int(min(printed, default=0)))
