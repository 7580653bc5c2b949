"""Strict setting: the tests without test images that some algorithm's training data resemble.

A set is left out if its maker also made training data of some compared algorithm. A set under several conditions is
kept without those that some algorithm's training resembles (the noises, if one trains on speckle noise), for all rows
alike: its value is computed again from the accuracies under the other conditions.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import pandas as pd

from biasbed import record
from biasbed.analysis.columns import Column, blocks, make_design, names_of
from biasbed.analysis.runs.run import Run
from biasbed.analysis.scores import block_matrix, mean_matrix, score_table
from biasbed.analysis.selection.pools import History
from biasbed.analysis.selection.select import Selected
from biasbed.analysis.statistics import friedman
from biasbed.analysis.statistics.friedman import RankTests
from biasbed.suites import derived

Overlaps = Mapping[str, Mapping[str, tuple[str, ...]]]  # column -> kind of condition -> rows whose data resemble it

NONE: Overlaps = MappingProxyType({})


def find_overlaps(runs: Iterable[Run], sets: Sequence[Column]) -> Overlaps:
    """Return the conditions that some row's training data resemble, by column; columns without any are not there."""
    rows_by_kind: dict[str, set[str]] = {}
    for run in runs:
        for kind in run.overlaps:
            rows_by_kind.setdefault(kind, set()).add(run.algorithm)
    overlaps = {}
    for column in sets:
        kinds = dict.fromkeys(map(_kind_of_condition, column.set_record.conditions))
        resembled = {kind: tuple(sorted(rows_by_kind[kind])) for kind in kinds if kind in rows_by_kind}
        if resembled:
            overlaps[column.name] = resembled
    return overlaps


def _kind_of_condition(condition: str) -> str:
    """Return the kind of a condition: `fog` for `fog-3`."""
    return condition.rpartition("-")[0] or condition


def rescore_without(runs: pd.DataFrame, selected: Selected, overlaps: Overlaps) -> pd.DataFrame:
    """Return the run table of the strict setting: scores without the conditions that training data resemble.

    Rows of a column of which no condition is left are dropped. runs: `scores.run_table` of `selected`.
    """
    rescored: dict[tuple[str, str], float] = {}
    for chosen in selected.choices:
        column = chosen.column
        if column.name in overlaps:
            derivations = _derivations_without(column, chosen.protocol, overlaps[column.name])
            value = _mean_over_steps(chosen.candidate.history, chosen.steps, derivations)
            rescored[chosen.candidate.run.id, column.name] = value * column.scale
    scores = runs["score"].copy()
    touched = runs.loc[runs["dataset"].isin(list(overlaps)), ["run_id", "dataset"]]
    scores[touched.index] = [rescored.get(key, math.nan) for key in touched.itertuples(index=False, name=None)]
    return runs.assign(score=scores)[scores.notna()].reset_index(drop=True)


def _derivations_without(column: Column, protocol: record.Protocol, kinds: Collection[str]) -> list[record.Derived]:
    """Return how the column's value is derived without these kinds of conditions, step by step, the value last.

    Empty if nothing is left, or if the value is not derived of conditions.
    """
    metric, set_name = str(column.metric), column.set_record.name
    kind_by_metric = {}
    for condition in column.set_record.conditions:
        name = str(record.MetricName("test", record.BY_CONDITION, set_name, condition))
        kind_by_metric[name] = _kind_of_condition(condition)
    dropped = {name for name, kind in kind_by_metric.items() if kind in kinds}
    if metric == f"test/accuracy/{set_name}":  # the mean over conditions, as each shows the same images
        kept = tuple(name for name in kind_by_metric if name not in dropped)
        return [record.Derived("test", "accuracy", set_name, "mean", kept)] if kept else []
    of_conditions = set(kind_by_metric)  # these metrics, and those that are derived of them
    derivations = []
    for derivation in protocol.derived:
        if of_conditions.isdisjoint(derivation.inputs):
            continue
        of_conditions.add(derivation.metric)
        kept_positions = [i for i, name in enumerate(derivation.inputs) if name not in dropped]
        inputs = tuple(derivation.inputs[i] for i in kept_positions)
        if of_conditions.isdisjoint(inputs):
            dropped.add(derivation.metric)
            continue
        references = derivation.references
        if len(references) == len(derivation.inputs):  # one for each input
            references = tuple(references[i] for i in kept_positions)
        derivations.append(dataclasses.replace(derivation, inputs=inputs, references=references))
        if derivation.metric == metric:
            return derivations
    return []


def _mean_over_steps(history: History, steps: Sequence[int], derivations: Sequence[record.Derived]) -> float:
    """Return the mean over the steps of the value that the last derivation gives; NaN without it or one of its inputs.

    An input is logged, or the value of a derivation before.
    """
    if not derivations:
        return math.nan
    derived_metrics = {derivation.metric for derivation in derivations}
    inputs = dict.fromkeys(itertools.chain.from_iterable(derivation.inputs for derivation in derivations))
    curves = {name: history.curve(name) for name in inputs if name not in derived_metrics}
    values = []
    for step in steps:
        at_step = {name: curve[step] for name, curve in curves.items() if step in curve}
        values.append(derived.derive_values(derivations, at_step).get(derivations[-1].metric, math.nan))
    return math.fsum(values) / len(values)


# --- tests ------------------------------------------------------------------------------------------------------------


def compare_settings(
    table: pd.DataFrame,
    reduced: pd.DataFrame,
    sets: Sequence[Column],
    daggers: frozenset[tuple[str, str]],
    alpha: float,
) -> tuple[RankTests, ...]:
    """Return the tests over blocks of each setting: always the first, the others if they differ from it.

    - `ALL_SETS`: the blocks that all rows have.
    - `COMPLETE`: the rows that have all blocks, if some row lacks one.
    - `STRICT`: without blocks and conditions that some row's training data resemble.

    table: `scores.score_table`. reduced: run table of the strict setting (`rescore_without`). daggers: (row, column)
    whose maker made training data.
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
    made_by_makers = {name for _, name in daggers}
    dropped = {str(name) for name in strict.index[strict.isna().any(axis=1)]}
    for name, columns in columns_by_block.items():
        if not made_by_makers.isdisjoint(names_of(columns)):
            dropped.add(name)
    left_out = [name for name in columns_by_block if name in dropped and name not in lacking]
    if left_out or not strict.equals(all_sets):
        left_out = [*lacking, *left_out]
        comparisons.append(friedman.compare(strict, **shared, setting=friedman.STRICT, left_out=left_out))
    return tuple(comparisons)


def score_table_like(runs: pd.DataFrame, table: pd.DataFrame) -> pd.DataFrame:
    """Return the score table of a run table, with the rows and columns of another score table."""
    return score_table(runs, list(dict.fromkeys(table["algorithm"])), list(dict.fromkeys(table["dataset"])))
