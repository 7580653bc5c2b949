"""Axes of a wide table of scores: do its lines or its columns stand for methods?"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

import pandas as pd

# Parts of names that are usual for data sets and for methods.
OF_DATA = re.compile(
    r"imagenet|cifar|mnist|svhn|pacs|vlcs|office|terra|domainnet|celeba|waterbirds|coco|glue|squad|mmlu|gsm8k|"
    r"hellaswag|winogrande|truthfulqa|piqa|boolq|openml|sketch|stylized|silhouette|cue.?conflict",
    re.I,
)
OF_METHODS = re.compile(
    r"\berm\b|resnet|\bvit\b|convnext|densenet|\bbert\b|roberta|llama|\bgpt|mistral|\bsvm\b|forest|boost|\bknn\b|"
    r"naive.?bayes|logistic|baseline|\bours\b|mixup|augmix|infodrop|padain|sagnet|\bmlp\b|decision.?tree|\bc4\.?5\b",
    re.I,
)
CLEAR = 2.0  # times that one axis' means must vary as much as the other's to tell which is which


class Axes(NamedTuple):
    """Axes of a wide table, and the note that says them."""

    rows_are_methods: bool
    note: str


def find_axes(rows: Sequence[str], columns: Sequence[str], scores: pd.DataFrame, says: str, option: str) -> Axes:
    """Return what lines and columns are.

    rows, columns: their names; scores: lines x columns; says: `methods` or `datasets` if the head of the first column
    says what the lines are, else empty; option: `rows=` of the user.

    Data sets differ in difficulty more than methods do in quality, so without any other hint the axis whose means vary
    more is that of the data sets.
    """
    names = tuple(dict.fromkeys(rows))
    by_names = _by_names(names, columns)
    if option != "auto":
        return _said(option == "methods", f"rows={option}")
    if says:
        axes = _said(says == "methods", "as the head of the first column says")
        if by_names is not None and by_names != axes.rows_are_methods:
            swapped = "datasets" if axes.rows_are_methods else "methods"
            return Axes(
                axes.rows_are_methods, f"{axes.note}; their names look swapped: `rows` as {swapped} turns the table"
            )
        return axes
    if by_names is not None:
        return _said(by_names, "by their names")
    lines = scores.groupby(pd.Index(rows), sort=False).mean()
    between_rows, between_columns = float(lines.mean(axis=1).std()), float(lines.mean(axis=0).std())
    if between_columns > CLEAR * between_rows:
        return _said(True, "as the columns' means differ more")
    if between_rows > CLEAR * between_columns:
        return _said(False, "as the lines' means differ more")
    if len(names) != len(columns):
        return _said(len(names) < len(columns), "as there are usually more data sets than methods")
    return _said(True, "as nothing tells them apart")


def _said(rows_are_methods: bool, why: str) -> Axes:
    order = ("methods", "data sets") if rows_are_methods else ("data sets", "methods")
    turned = "datasets" if rows_are_methods else "methods"
    more = "" if why.startswith("rows=") else f" (`rows` as {turned} turns the table)"
    return Axes(rows_are_methods, f"lines are {order[0]} and columns {order[1]}, {why}{more}")


def _by_names(rows: Sequence[str], columns: Sequence[str]) -> bool | None:
    """Return True if the lines' names are those of methods, False if of data sets, None if the names do not tell."""
    as_methods = _count(OF_METHODS, rows) + _count(OF_DATA, columns)
    as_data = _count(OF_DATA, rows) + _count(OF_METHODS, columns)
    if as_methods == as_data:
        return None
    return as_methods > as_data


def _count(pattern: re.Pattern[str], names: Sequence[str]) -> int:
    return sum(bool(pattern.search(name)) for name in names)


def suspect_swap(methods: Sequence[str], datasets: Sequence[str]) -> str:
    """Return a note if the names of methods and data sets look swapped, else an empty text."""
    swapped = _count(OF_DATA, methods) + _count(OF_METHODS, datasets)
    straight = _count(OF_METHODS, methods) + _count(OF_DATA, datasets)
    if swapped <= straight:
        return ""
    return (
        f"methods and data sets look swapped: {methods[0]} is read as a method, {datasets[0]} as a data set "
        "(method= and dataset= name the columns)"
    )
