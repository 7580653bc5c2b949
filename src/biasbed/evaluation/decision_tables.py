"""Metrics and tables that plug-ins compute from decisions: tracked values, a CSV file, and what is printed of it.

Answers: How does a plug-in add a metric or a table to an evaluation?
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from biasbed import record
from biasbed.config import ScoreSettings
from biasbed.evaluation.decisions import Decisions
from biasbed.plugin_loader import Offered


@dataclass(frozen=True, eq=False)
class DecidedSets:
    """Decisions of one model on the sets that it was tested on."""

    decided: Sequence[Decisions]
    phases: Mapping[str, Sequence[str]]  # set -> phases of its metrics, `val` or `test`
    scores: ScoreSettings
    calibrating: Sequence[str] = ()  # sets whose images calibrate the scores
    observer: str = ""  # name of the model
    derived: Sequence[record.Derived] = ()  # declared values that follow from several sets
    others: Sequence[Decisions] = ()  # decisions of other observers on the same images
    memo: dict[str, Any] = field(default_factory=dict)  # results that plug-ins compute once, by their names


class DecisionTable(NamedTuple):
    """Table of a plug-in."""

    columns: Sequence[str]
    rows: Sequence[Mapping[str, Any]]  # of the CSV file, which has a row's further values before these columns
    lines: Sequence[str]  # as printed
    metrics: Mapping[str, float] = {}  # values in the table, by the names under which they are tracked


DecisionTables = Mapping[str, DecisionTable]  # by the name of the CSV file
METRICS: Offered[Callable[[DecidedSets], Mapping[str, float]]] = Offered("decision_metrics")
TABLES: Offered[Callable[[DecidedSets], DecisionTable]] = Offered("decision_table")


def measure_sets(sets: DecidedSets) -> dict[str, float]:
    """Return the metrics of all plug-ins."""
    metrics: dict[str, float] = {}
    for measure in METRICS.values():
        metrics |= measure(sets)
    return metrics


def make_tables(sets: DecidedSets) -> DecisionTables:
    """Return the tables of all plug-ins."""
    return {name: make(sets) for name, make in TABLES.items()}


def without_shown(derived: Sequence[record.Derived], tables: DecisionTables) -> list[record.Derived]:
    """Return the derived values that no table shows, neither by name nor as another measure of the same inputs."""
    shown: set[str] = set()
    for table in tables.values():
        shown.update(table.metrics)
    computed = {_computation(declaration) for declaration in derived if declaration.metric in shown}
    return [declaration for declaration in derived if _computation(declaration) not in computed]


def _computation(declaration: record.Derived) -> tuple[object, ...]:
    return declaration.function, declaration.inputs, declaration.references
