"""Errors under corruptions by those of a named row, as ImageNet-C's are by AlexNet's: that row is at 100.

Hendrycks & Dietterich, Benchmarking Neural Network Robustness to Common Corruptions and Perturbations, ICLR 2019,
equation 1, with a row of the table in AlexNet's place: of each corruption the errors of all severities, summed, by the
row's, summed; and the mean over corruptions.
"""

from __future__ import annotations

import dataclasses
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence

from biasbed import record
from biasbed.analysis.columns import Column
from biasbed.analysis.runs.run import Collection
from biasbed.analysis.selection.pools import History, pools_of
from biasbed.analysis.selection.select import Rules, select
from biasbed.errors import Failure, UsageError
from biasbed.settings import nearest

OPTION = "corruption_errors_of"
BASE = "mean_error"  # what sets of corruptions have, derived of their accuracies under each condition
Errors = Mapping[str, float]  # metric of an accuracy under a condition -> error


def by_row(
    collection: Collection, columns: Sequence[Column], rules: Rules, histories: Mapping[str, History], row: str
) -> tuple[tuple[Column, ...], dict[str, History], str]:
    """(the columns, those of corruptions by the row's errors; histories with these values; a note).

    The row's errors are means over its runs, each at the steps that the rule chooses of it. UsageError for a row that
    is not there, or where no column is of corruptions; Failure where the row has no errors to divide by.
    """
    if row not in collection.algorithms:
        raise UsageError(f"{OPTION}={row}: no compared algorithm has this name{nearest(row, collection.algorithms)}")
    inputs = {column.name: own for column in columns if (own := _conditions(collection, column))}
    if not inputs:
        raise UsageError(f"{OPTION}={row}: none of the sets {', '.join(c.name for c in columns)} is of corruptions")
    errors = _errors(collection, columns, rules, histories, row, inputs)
    declared = {c.name: _declared(c, errors[c.name], row) for c in columns if c.name in inputs}
    found = dict(histories)
    for run in (*collection.runs, *collection.evidence, *collection.duplicates):
        cells = run.among(column.cell for column in columns)
        values = [one for column in columns if column.cell in cells for one in declared.get(column.name, ())]
        found[run.id] = histories[run.id].with_derived(values, run.held_out)
    shown = tuple(_shown(c, declared[c.name][-1]) if c.name in declared else c for c in columns)
    note = f"{', '.join(declared)}: errors under each corruption by those of {row}, mean over corruptions; {row} is 100"
    return shown, found, note


def _conditions(collection: Collection, column: Column) -> tuple[str, ...]:
    """The metrics of accuracies under the conditions of a column's set; none where these are no corruptions."""
    protocol = next(cell.protocol for cell in collection.cells if cell.name == column.cell)
    derivation = protocol.derivation(str(record.MetricName("test", BASE, column.set_record.name)))
    return () if derivation is None or not column.set_record.conditions else derivation.inputs


def _errors(
    collection: Collection,
    columns: Sequence[Column],
    rules: Rules,
    histories: Mapping[str, History],
    row: str,
    inputs: Mapping[str, Sequence[str]],
) -> dict[str, Errors]:
    """By column the row's errors. Failure where it has none there."""
    own = [run for run in collection.runs if run.algorithm == row]
    pools = pools_of(own, histories, columns, collection.protocols, collection.evidence)
    of_runs: dict[str, list[Errors]] = defaultdict(list)
    names = {(column.cell, column.set_record.name): column.name for column in columns if column.name in inputs}
    for pool, choice in select(rules, pools, columns, collection.protocols).choices:
        name = names.get((pool.cell, choice.set))
        if name is not None:
            curves = {metric: histories[choice.run].curve(metric) for metric in inputs[name]}
            sums = {m: math.fsum(1 - curve[step] for step in choice.steps) for m, curve in curves.items()}
            of_runs[name].append({metric: total / len(choice.steps) for metric, total in sums.items()})
    for name in inputs:
        if not of_runs[name]:
            raise Failure(f"{OPTION}={row}: {row} has no value on {name}")
    return {name: _mean(found) for name, found in of_runs.items()}


def _mean(found: Sequence[Errors]) -> Errors:
    return {metric: math.fsum(one[metric] for one in found) / len(found) for metric in found[0]}


def _declared(column: Column, errors: Errors, row: str) -> list[record.Derived]:
    """What is derived for the column's set: of each corruption, and last their mean."""
    corruptions: dict[str, list[str]] = {}
    for metric in errors:
        corruptions.setdefault(_corruption(metric), []).append(metric)

    def value(measure: str, function: str, inputs: Sequence[str], references: Sequence[float] = ()) -> record.Derived:
        found = tuple(inputs), tuple(references)
        return record.Derived("test", measure, column.set_record.name, function, *found, higher_is_better=False)

    each = []
    for name, metrics in corruptions.items():
        references = [errors[metric] for metric in metrics]
        if not math.fsum(references):
            raise Failure(f"{OPTION}={row}: {row} makes no error under {name} on {column.name}: nothing to divide by")
        each.append(value(f"{name}_by_{row}", "error_ratio", metrics, references))
    return [*each, value(f"error_by_{row}", "mean", [one.metric for one in each])]


def _corruption(metric: str) -> str:
    """Of a metric under the condition `fog-3`: fog."""
    name = record.parse_metric(metric)
    assert name is not None
    return (name.group or "").rpartition("-")[0]


def _shown(column: Column, by: record.Derived) -> Column:
    """The column with a derived value in its own one's place."""
    entry = dataclasses.replace(column.set_record, headline=by.measure, chance=0.0, unit="", higher_is_better=False)
    return dataclasses.replace(column, set_record=entry, unit=by.unit, is_asked_for=True)
