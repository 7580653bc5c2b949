"""Tables that plug-ins compute from a tested model's decisions: rows of a CSV file, and what is printed of them.

Answers: How does a plug-in add a table to an evaluation?
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

from biasbed import record
from biasbed.evaluation.decisions import Decisions
from biasbed.plugin_loader import Offered


class DecidedSets(NamedTuple):
    """Decisions of one model on the sets that it was tested on."""

    decided: Sequence[Decisions]
    derived: Sequence[record.Derived] = ()  # declared values that follow from several sets
    observers: Sequence[Decisions] = ()  # of others, on the same images


class DecisionTable(NamedTuple):
    """Table of a plug-in. Its CSV file has a column `observer` before these."""

    columns: Sequence[str]
    rows: Sequence[Mapping[str, Any]]
    lines: Sequence[str]  # as printed, without a title; none if there are no rows
    metrics: Mapping[str, float]  # values in the table, by the names under which they are tracked


DecisionTables = Mapping[str, DecisionTable]  # by the name of the CSV file
MAKERS: Offered[Callable[[DecidedSets], DecisionTable]] = Offered("decision_table")


def make_tables(sets: DecidedSets) -> DecisionTables:
    """Return the tables of all plug-ins."""
    return {name: make(sets) for name, make in MAKERS.items()}


def without_shown(derived: Collection[record.Derived], tables: DecisionTables) -> list[record.Derived]:
    """Return the derived values that no table shows."""
    shown: set[str] = set()
    for table in tables.values():
        shown.update(table.metrics)
    return [declaration for declaration in derived if declaration.metric not in shown]
