"""Strict setting: the tests without test images that some algorithm's training data resemble.

A set is left out if its maker also made training data of some compared algorithm. A set under several conditions is
kept without those that some algorithm's training resembles (the noises, if one trains on speckle noise), for all rows
alike: its value is computed again from the accuracies under the other conditions.
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
from biasbed.analysis.selection.pools import History
from biasbed.analysis.selection.select import Selected
from biasbed.analysis.statistics import friedman
from biasbed.analysis.statistics.friedman import RankTests
from biasbed.suites import derived

Overlaps = Mapping[str, Mapping[str, tuple[str, ...]]]  # column -> kind of condition -> rows whose training is like it

NONE: Overlaps = MappingProxyType({})


def find_overlaps(runs: Iterable[Run], sets: Sequence[Column]) -> Overlaps:
    """Return the conditions that training resembles, by column; columns without any are not there."""
    rows: dict[str, set[str]] = {}
    for run in runs:
        for kind in run.overlaps:
            rows.setdefault(kind, set()).add(run.algorithm)
    overlaps = {}
    for column in sets:
        kinds = dict.fromkeys(map(_kind, column.set_record.conditions))
        of_column = {kind: tuple(sorted(rows[kind])) for kind in kinds if kind in rows}
        if of_column:
            overlaps[column.name] = of_column
    return overlaps


def _kind(condition: str) -> str:
    """Return `fog` for `fog-3`."""
    return condition.rpartition("-")[0] or condition


def rescore_without(runs: pd.DataFrame, selected: Selected, overlaps: Overlaps) -> pd.DataFrame:
    """Return the run table with scores over the conditions that are left; rows without such a score are dropped.

    runs: `scores.run_table` of `selected`.
    """
    rescored: dict[tuple[str, str], float] = {}
    for _, candidate, column, protocol, steps in selected.choices:
        if column.name in overlaps:
            declared = _declare_without(column, protocol, overlaps[column.name])
            rescored[candidate.run.id, column.name] = _mean(candidate.history, steps, declared) * column.scale
    scores = runs["score"].copy()
    touched = runs.loc[runs["dataset"].isin(list(overlaps)), ["run_id", "dataset"]]
    scores[touched.index] = [rescored.get(key, math.nan) for key in touched.itertuples(index=False, name=None)]
    return runs.assign(score=scores)[scores.notna()].reset_index(drop=True)


def _declare_without(column: Column, protocol: record.Protocol, kinds: Collection[str]) -> list[record.Derived]:
    """Return the derivations of the column's value without these kinds of conditions, itself last.

    Empty if nothing is left, or the value is not derived of conditions.
    """
    metric, set_name = str(column.metric), column.set_record.name
    kinds_by_metric = {}
    for condition in column.set_record.conditions:
        kinds_by_metric[str(record.MetricName("test", record.BY_CONDITION, set_name, condition))] = _kind(condition)
    if metric == f"test/accuracy/{set_name}":  # of the same images under each condition
        kept = tuple(name for name, kind in kinds_by_metric.items() if kind not in kinds)
        if kept:
            return [record.Derived("test", "accuracy", set_name, "mean", kept)]
        return []
    of_conditions = set(kinds_by_metric)
    dropped = {name for name, kind in kinds_by_metric.items() if kind in kinds}
    declared = []
    for derivation in protocol.derived:
        if of_conditions.isdisjoint(derivation.inputs):
            continue
        of_conditions.add(derivation.metric)
        kept_places = [i for i, name in enumerate(derivation.inputs) if name not in dropped]
        inputs = tuple(derivation.inputs[i] for i in kept_places)
        if of_conditions.isdisjoint(inputs):
            dropped.add(derivation.metric)
            continue
        references = derivation.references
        if len(references) == len(derivation.inputs):  # one for each
            references = tuple(references[i] for i in kept_places)
        declared.append(dataclasses.replace(derivation, inputs=inputs, references=references))
        if derivation.metric == metric:
            return declared
    return []


def _mean(history: History, steps: Sequence[int], declared: Sequence[record.Derived]) -> float:
    """Return the mean over the chosen steps of the last derivation; NaN if an input is missing."""
    if not declared:
        return math.nan
    derived_names = {derivation.metric for derivation in declared}
    curves = {}
    for derivation in declared:
        for name in derivation.inputs:
            if name not in derived_names:
                curves[name] = history.curve(name)
    values = []
    for step in steps:
        inputs = {name: curve[step] for name, curve in curves.items() if step in curve}
        values.append(derived.values(declared, inputs).get(declared[-1].metric, math.nan))
    return math.fsum(values) / len(values)


# --- tests ------------------------------------------------------------------------------------------------------------


def compare_settings(
    table: pd.DataFrame,
    reduced: pd.DataFrame,
    sets: Sequence[Column],
    daggers: frozenset[tuple[str, str]],
    alpha: float,
) -> tuple[RankTests, ...]:
    """Return the tests over blocks; and if training resembles some of them, those of the strict setting.

    table: `scores.score_table`; reduced: run table of the strict setting (`rescore_without`). If some row can't have a
    block, there are tests on the blocks that all rows have, and tests of the rows that have all.
    """
    all_sets = block_matrix(mean_matrix(table), sets)
    strict = block_matrix(mean_matrix(score_table_like(reduced, table)), sets)
    columns_by_block, design = blocks(sets), make_design(sets)
    shared: dict[str, Any] = dict(alpha=alpha, lower_is_better=sorted(design.lower_blocks), noun=design.noun)
    lacking = [str(name) for name in all_sets.index[all_sets.isna().any(axis=1)]]
    comparisons = [friedman.compare(all_sets, **shared, left_out=lacking)]
    complete = all_sets.dropna(axis=1)
    if lacking and complete.shape[1]:
        comparisons.append(friedman.compare(complete, **shared, setting=friedman.COMPLETE))
    touched = {name for _, name in daggers}
    dropped = {str(name) for name in strict.index[strict.isna().any(axis=1)]}
    for name, columns in columns_by_block.items():
        if any(column.name in touched for column in columns):
            dropped.add(name)
    left_out = [name for name in columns_by_block if name in dropped and name not in lacking]
    if left_out or not strict.equals(all_sets):
        others = [*lacking, *left_out]
        comparisons.append(friedman.compare(strict, **shared, setting=friedman.STRICT, left_out=others))
    return tuple(comparisons)


def score_table_like(runs: pd.DataFrame, table: pd.DataFrame) -> pd.DataFrame:
    """Return the score table of a run table, with the rows and columns of another score table."""
    return score_table(runs, list(dict.fromkeys(table["algorithm"])), list(dict.fromkeys(table["dataset"])))
