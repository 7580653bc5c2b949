"""Axes of a table: do its lines or its columns stand for methods?"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from biasbed.analysis.tables import vocabulary as say
from biasbed.errors import UsageError, shown


class Axes(NamedTuple):
    """Axes of a table with one name a line, and the note that says them."""

    rows_are_methods: bool
    note: str


class Evidence(NamedTuple):
    """Evidence that tells the axes of a table apart."""

    head: str  # of the column of names
    rows: Sequence[str]
    columns: Sequence[str]
    leaves: Sequence[str]  # lowest names of the columns
    averages_rows: bool  # a row averages the others
    averages_columns: bool
    is_mapping: bool  # of names to scores, which JSON files hold


def find_axes(evidence: Evidence, option: str, source: str) -> Axes:
    """Return what lines and columns are. Raises UsageError if nothing tells.

    option: `rows=` of the user. In order: the head of the column of names; an average beside the data sets; and names
    that are usual.
    """
    if option != "auto":
        return _said(option == "methods", f"rows={option}")
    head = say.letters(evidence.head)
    if head in say.METRICS or (head in say.DATASETS and head not in say.METHODS):
        return _said(False, "as the head of the first column says")
    if head in say.METHODS and head != "name":
        return _said(True, "as the head of the first column says")
    if evidence.columns and all(say.letters(name.partition(" ")[0]) in say.DATASETS for name in evidence.columns):
        return _said(True, "as the head above the columns says")
    if evidence.averages_columns != evidence.averages_rows:
        return _said(evidence.averages_columns, "as the average shows")
    if say.is_variant(evidence.head) and _by_measures(evidence):  # pretraining on some data, and its measures
        return _said(True, "as measures are")
    for vote, why in (
        (_by_names, "by their names"),
        (_by_numbers, "as numbers are no methods"),
        (_by_measures, "as measures are"),
    ):
        rows_are_methods = vote(evidence)
        if rows_are_methods is not None:
            return _said(rows_are_methods, why)
    if say.is_variant(evidence.head) or head == "name":
        return _said(True, "as the head of the first column says")
    if evidence.is_mapping:
        return _said(True, "as mappings of names to scores are")
    if not evidence.rows or not evidence.columns:
        raise UsageError(f"{source}: no line is left that could be a method or a data set")
    raise UsageError(
        f"{source}: nothing says whether lines or columns are methods ({shown(evidence.rows[0], 40)}, ... and "
        f"{shown(evidence.columns[0], 40)}, ...): say rows=methods or rows=datasets"
    )


def _said(rows_are_methods: bool, why: str) -> Axes:
    order = ("methods", "data sets") if rows_are_methods else ("data sets", "methods")
    turned = "datasets" if rows_are_methods else "methods"
    more = "" if why.startswith("rows=") else f" (`rows` as {turned} turns the table)"
    return Axes(rows_are_methods, f"lines are {order[0]} and columns {order[1]}, {why}{more}")


def _by_names(evidence: Evidence) -> bool | None:
    """Return what usual names say; lines that are backbones are methods only if nothing else is one.

    Columns that are backbones may be what unknown methods were built on.
    """
    rows, columns = evidence.rows, evidence.columns
    straight = _count(say.OF_METHODS, rows) + _count(say.OF_DATA, columns) + _count(say.OF_SPLITS, columns)
    turned = _count(say.OF_DATA, rows) + _count(say.OF_METHODS, columns) + _count(say.OF_SPLITS, rows)
    if straight != turned:
        return straight > turned
    return True if _count(say.BACKBONES, rows) > _count(say.BACKBONES, columns) else None


def _count(pattern: re.Pattern[str], names: Sequence[str]) -> int:
    return sum(bool(pattern.search(name.replace("_", " "))) for name in names)


def _by_numbers(evidence: Evidence) -> bool | None:
    """Return True if the columns are called by numbers, False if the lines are."""
    columns = all(re.fullmatch(r"[0-9.,]+", name) for name in evidence.leaves)
    rows = all(re.fullmatch(r"[0-9.,]+", name) for name in evidence.rows)
    return None if columns == rows else columns


def _by_measures(evidence: Evidence) -> bool | None:
    """Return True if the columns are measures, False if the lines are."""
    columns = max(map(_share_of_measures, (evidence.leaves, evidence.columns)))
    rows = _share_of_measures(evidence.rows)
    if max(columns, rows) < 0.7 or columns == rows:
        return None
    return columns > rows


def _share_of_measures(names: Sequence[str]) -> float:
    """Return the share of names that begin with a measure, as `BLEU (covost)` does, or end with one: `box AP`."""
    count = 0
    for name in names:
        measure = re.split(r"[(\[]", name)[0]
        last = measure.split()[-1:]
        count += say.is_metric(measure) or (last != [measure] and any(map(say.is_metric, last)))
    return count / max(len(names), 1)


def suspect_swap(methods: Sequence[str], datasets: Sequence[str]) -> str:
    """Return a note if the names of methods and data sets look swapped, else an empty text.

    datasets: those that are no parts of others, as a part may be a backbone.
    """
    swapped = _count(say.OF_DATA, methods) + _count(say.OF_METHODS, datasets) + _count(say.BACKBONES, datasets)
    straight = _count(say.OF_METHODS, methods) + _count(say.OF_DATA, datasets) + _count(say.BACKBONES, methods)
    if swapped <= straight or not datasets:
        return ""
    return (
        f"methods and data sets look swapped: {methods[0]} is read as a method, {datasets[0]} as a data set "
        "(method=, dataset= and rows= say otherwise)"
    )
