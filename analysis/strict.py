"""The strict setting: the tests again without what training resembles.

A set whose maker also made training data of some compared algorithm is left out whole. A set under conditions is kept,
without those that some algorithm's training resembles (the noises, where one trains on speckle noise), in all rows
alike: the column's value is computed anew from the accuracies under the others.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import pandas as pd

from biasbed import record
from biasbed.analysis.columns import Column, blocks, make_design
from biasbed.analysis.runs.run import Run
from biasbed.analysis.scores import block_matrix, mean_matrix, score_table
from biasbed.analysis.selection.pools import Choice, History
from biasbed.analysis.selection.select import Selected
from biasbed.analysis.statistics import friedman
from biasbed.analysis.statistics.friedman import RankTests
from biasbed.suites import derived

Overlaps = Mapping[str, Mapping[str, tuple[str, ...]]]  # column -> kind of condition -> rows whose training is like it

NONE: Overlaps = MappingProxyType({})


def overlapped(runs: Iterable[Run], sets: Sequence[Column]) -> Overlaps:
    """What of the columns' conditions training resembles; columns without any are not there."""
    rows: dict[str, set[str]] = {}
    for run in runs:
        for kind in run.overlaps:
            rows.setdefault(kind, set()).add(run.algorithm)
    found = {}
    for column in sets:
        kinds = dict.fromkeys(map(_kind, column.entry.conditions))
        of_column = {kind: tuple(sorted(rows[kind])) for kind in kinds if kind in rows}
        if of_column:
            found[column.name] = of_column
    return found


def _kind(condition: str) -> str:
    """`fog` of `fog-3`."""
    return condition.rpartition("-")[0] or condition


def without(
    runs: pd.DataFrame,
    selected: Selected,
    sets: Sequence[Column],
    protocols: Mapping[str, record.Protocol],
    overlaps: Overlaps,
) -> pd.DataFrame:
    """A run table whose scores on these columns are of the other conditions; without lines where nothing tells them.

    runs: `scores.run_table` of what `selected` has. protocols: hash -> protocol.
    """
    places = {(column.cell, column.entry.name): column for column in sets}
    found: dict[tuple[str, str], float] = {}
    for pool, choice in selected.choices:
        column = places[pool.cell, choice.set]
        if column.name in overlaps:
            candidate = next(one for one in pool.candidates if one.run.id == choice.run)
            declared = _declared(column, protocols[candidate.run.protocol], overlaps[column.name])
            found[choice.run, column.name] = _value(candidate.history, choice, declared) * column.scale
    touched = runs["dataset"].isin(list(overlaps))
    scores = [found.get(place, math.nan) for place in zip(runs["run_id"], runs["dataset"], strict=True)]
    kept = runs["score"].where(~touched, pd.Series(scores, index=runs.index))
    return runs.assign(score=kept)[kept.notna()].reset_index(drop=True)


def _declared(column: Column, protocol: record.Protocol, kinds: Collection[str]) -> list[record.Derived]:
    """What the column's value is derived of without these conditions, itself last; nothing where it is not of them."""
    metric, name = str(column.metric), column.entry.name
    every = {str(record.MetricName("test", record.BY_CONDITION, name, c)): _kind(c) for c in column.entry.conditions}
    if metric == f"test/accuracy/{name}":  # of the same images under each
        kept = tuple(one for one, kind in every.items() if kind not in kinds)
        return [record.Derived("test", "accuracy", name, "mean", kept)] if kept else []
    gone, of_conditions = {one for one, kind in every.items() if kind in kinds}, set(every)
    found = []
    for entry in protocol.derived:
        if of_conditions.isdisjoint(entry.inputs):
            continue
        of_conditions.add(entry.metric)
        places = [place for place, one in enumerate(entry.inputs) if one not in gone]
        if of_conditions.isdisjoint(entry.inputs[place] for place in places):
            gone.add(entry.metric)
            continue
        references = entry.references
        if len(references) == len(entry.inputs):  # one for each
            references = tuple(references[place] for place in places)
        inputs = tuple(entry.inputs[place] for place in places)
        found.append(dataclasses.replace(entry, inputs=inputs, references=references))
        if entry.metric == metric:
            return found
    return []


def _value(history: History, choice: Choice, declared: Sequence[record.Derived]) -> float:
    """Mean over the chosen steps of the last that is declared; NaN where an input is missing."""
    if not declared:
        return math.nan
    curves = {name: history.curve(name) for entry in declared for name in entry.inputs}
    values = []
    for step in choice.steps:
        at = {name: curve[step] for name, curve in curves.items() if step in curve}
        own = {name: value for name, value in at.items() if name not in {entry.metric for entry in declared}}
        values.append(derived.values(declared, own).get(declared[-1].metric, math.nan))
    return math.fsum(values) / len(values)


# --- the tests --------------------------------------------------------------------------------------------------------


def compare_settings(
    table: pd.DataFrame,
    reduced: pd.DataFrame,
    sets: Sequence[Column],
    daggers: frozenset[tuple[str, str]],
    alpha: float,
) -> tuple[RankTests, ...]:
    """The tests over blocks, and where training resembles some of them, the strict setting.

    table: `scores.score_table`; reduced: the run table of what counts in the strict setting (`without`). Where some row
    can't have a block: the tests are on the blocks that all rows have, and of the rows that have all.
    """
    matrix, strict = (block_matrix(mean_matrix(one), sets) for one in (table, scores_of(reduced, table)))
    of_block, known = blocks(sets), make_design(sets)
    about: dict[str, Any] = dict(alpha=alpha, lower_is_better=sorted(known.lower_blocks), noun=known.noun)
    lacking = [str(name) for name in matrix.index[matrix.isna().any(axis=1)]]
    comparisons = [friedman.compare(matrix, **about, left_out=lacking)]
    whole = matrix.dropna(axis=1)
    if lacking and whole.shape[1]:
        comparisons.append(friedman.compare(whole, **about, setting=friedman.COMPLETE))
    touched = {name for _, name in daggers}
    left_out = [name for name, same in of_block.items() if any(column.name in touched for column in same)]
    left_out += [str(name) for name in strict.index[strict.isna().any(axis=1)] if name not in left_out]
    left_out = [name for name in of_block if name in left_out and name not in lacking]
    if left_out or not strict.equals(matrix):
        others = [*lacking, *left_out]
        comparisons.append(friedman.compare(strict, **about, setting=friedman.STRICT, left_out=others))
    return tuple(comparisons)


def scores_of(runs: pd.DataFrame, table: pd.DataFrame) -> pd.DataFrame:
    """The score table of a run table, of the rows and columns of another score table."""
    return score_table(runs, list(dict.fromkeys(table["algorithm"])), list(dict.fromkeys(table["dataset"])))
