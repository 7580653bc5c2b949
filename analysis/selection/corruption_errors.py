"""Corruption errors divided by those of a reference row, as ImageNet-C's mCE divides by AlexNet's (reference = 100).

Hendrycks & Dietterich, Benchmarking Neural Network Robustness to Common Corruptions and Perturbations, ICLR 2019,
equation 1, with a row of the table in place of AlexNet: for each corruption, the sum of errors over severities divided
by that of the reference row; then the mean over corruptions.
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
BASE = "mean_error"  # measure of corruption sets, derived from the accuracies under each condition
Errors = Mapping[str, float]  # metric of an accuracy under a condition -> error


def by_row(
    collection: Collection, columns: Sequence[Column], rules: Rules, histories: Mapping[str, History], row: str
) -> tuple[tuple[Column, ...], dict[str, History], str]:
    """Return the columns, with corruption sets relative to the row's errors; histories with these values; and a note.

    The row's errors are means over its runs, each at the steps that the rule chooses. Raises UsageError if there is no
    such row, or no column of corruptions; Failure if the row has no errors to divide by.
    """
    if row not in collection.algorithms:
        raise UsageError(f"{OPTION}={row}: no compared algorithm has this name{nearest(row, collection.algorithms)}")
    inputs = {column.name: _conditions(collection, column) for column in columns}
    inputs = {name: metrics for name, metrics in inputs.items() if metrics}
    if not inputs:
        raise UsageError(f"{OPTION}={row}: none of the sets {', '.join(c.name for c in columns)} is of corruptions")
    errors = _errors(collection, columns, rules, histories, row, inputs)
    declared = {column.name: _declared(column, errors[column.name], row) for column in columns if column.name in inputs}
    extended = dict(histories)
    for run in (*collection.runs, *collection.evidence, *collection.duplicates):
        cells = run.among(column.cell for column in columns)
        values: list[record.Derived] = []
        for column in columns:
            if column.cell in cells:
                values += declared.get(column.name, ())
        extended[run.id] = histories[run.id].with_derived(values, run.held_out)
    shown = tuple(_shown(c, declared[c.name][-1]) if c.name in declared else c for c in columns)
    note = f"{', '.join(declared)}: errors under each corruption by those of {row}, mean over corruptions; {row} is 100"
    return shown, extended, note


def _conditions(collection: Collection, column: Column) -> tuple[str, ...]:
    """Return the metrics of accuracies under the conditions of a column's set; empty if it has no corruptions."""
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
    """Return the row's errors by column. Raises Failure if it has none on a column."""
    runs = [run for run in collection.runs if run.algorithm == row]
    pools = pools_of(runs, histories, columns, collection.protocols, collection.evidence)
    of_runs: dict[str, list[Errors]] = defaultdict(list)
    for _, candidate, column, _, steps in select(rules, pools, columns, collection.protocols).choices:
        errors = {}
        for metric in inputs.get(column.name, ()):
            curve = candidate.history.curve(metric)
            errors[metric] = math.fsum(1 - curve[step] for step in steps) / len(steps)
        of_runs[column.name].append(errors)
    for name in inputs:
        if not of_runs[name]:
            raise Failure(f"{OPTION}={row}: {row} has no value on {name}")
    return {name: _mean(of_runs[name]) for name in inputs}


def _mean(of_runs: Sequence[Errors]) -> Errors:
    return {metric: math.fsum(errors[metric] for errors in of_runs) / len(of_runs) for metric in of_runs[0]}


def _declared(column: Column, errors: Errors, row: str) -> list[record.Derived]:
    """Return the derived metrics of the column's set: the ratio of each corruption, and last their mean."""
    corruptions: dict[str, list[str]] = {}
    for metric in errors:
        corruptions.setdefault(_corruption(metric), []).append(metric)

    def value(measure: str, function: str, inputs: Sequence[str], references: Sequence[float] = ()) -> record.Derived:
        sources = tuple(inputs), tuple(references)
        return record.Derived("test", measure, column.set_record.name, function, *sources, higher_is_better=False)

    each = []
    for name, metrics in corruptions.items():
        references = [errors[metric] for metric in metrics]
        if not math.fsum(references):
            raise Failure(f"{OPTION}={row}: {row} makes no error under {name} on {column.name}: nothing to divide by")
        each.append(value(f"{name}_by_{row}", "error_ratio", metrics, references))
    return [*each, value(f"error_by_{row}", "mean", [derived.metric for derived in each])]


def _corruption(metric: str) -> str:
    """Return the corruption of a metric: `fog` for the condition `fog-3`."""
    name = record.parse_metric(metric)
    assert name is not None
    return (name.group or "").rpartition("-")[0]


def _shown(column: Column, ratio: record.Derived) -> Column:
    """Return the column with the ratio as headline measure."""
    eval_set = dataclasses.replace(
        column.set_record, headline=ratio.measure, chance=0.0, unit="", higher_is_better=False
    )
    return dataclasses.replace(column, set_record=eval_set, unit=ratio.unit, is_asked_for=True)
