"""Doubts about a table that was read: columns with the same information, opposite columns, and too little to test."""

from __future__ import annotations

import itertools
import operator
import re
import statistics
from collections.abc import Sequence

from biasbed.analysis.tables import vocabulary as say
from biasbed.analysis.tables.understood import Understood, names_of_columns
from biasbed.errors import UsageError, listed, shown

OPPOSITE = 0.8  # correlation from which on a column counts as opposite to another
FEW_NUMBERS = 6  # below which all of them may be powers of ten by chance
MANY_TRIALS = 20  # each with a name and a number of its own: no runs of methods
MOST_COMPARED = 200  # columns, of which each is held against each


ColumnKey = tuple[str, str, str]  # block, data set and measure
NumbersByRow = dict[tuple[str, str], float]  # of a column by method and seed


def _columns(table: Understood, without_direction: bool = False) -> dict[ColumnKey, NumbersByRow]:
    """Return the numbers of each column; of tables with many columns none, as each is held against each."""
    columns: dict[ColumnKey, NumbersByRow] = {}
    for score in table.used:
        if not (without_direction and score.direction):
            columns.setdefault(score.key, {})[score.method, score.seed] = score.value
    if len(columns) > MOST_COMPARED:
        return {}
    return columns


def _shared(first: NumbersByRow, second: NumbersByRow) -> list[tuple[float, float]]:
    """Return the pairs of numbers of two columns; empty if one of them varies nowhere, or with fewer than three."""
    pairs = [(first[row], second[row]) for row in first if row in second]
    if len(pairs) < 3 or min(len(set(values)) for values in zip(*pairs, strict=True)) < 2:
        return []
    return pairs


def same_numbers(table: Understood) -> list[str]:
    """Leave out columns that are 100 (or 1) less another, and return notes on these and on columns of equal numbers."""
    columns, names = _columns(table), names_of_columns(table.used)
    notes: list[str] = []
    equal: dict[ColumnKey, list[str]] = {}
    dropped: set[ColumnKey] = set()
    for first, second in itertools.combinations(columns, 2):
        pairs = _shared(columns[first], columns[second])
        if not pairs or first in dropped or second in dropped:
            continue
        if all(a == b for a, b in pairs) and not any(names[first] in same for same in equal.values()):
            equal.setdefault(first, [names[first]]).append(names[second])
        total = 1.0 if max(a + b for a, b in pairs) < 1.5 else 100.0
        if all(abs(a + b - total) <= 1.1e-3 * total for a, b in pairs):
            dropped.add(second)
            notes.append(f"{names[second]} is {total:g} less {names[first]}: the same information twice")
    notes += [f"columns {listed(same, 6)} hold the same numbers: is one a copy?" for same in equal.values()]
    for position, score in enumerate(table.scores):
        if score.key in dropped and not score.left_out:
            table.scores[position] = score._replace(left_out="the same information as another column")
    return notes


def opposite_columns(table: Understood) -> list[str]:
    """Return a note on columns without a direction that fall where the others rise: they may be errors."""
    columns, names = _columns(table, without_direction=True), names_of_columns(table.used)
    agreements: dict[ColumnKey, list[float]] = {key: [] for key in columns}
    for first, second in itertools.combinations(columns, 2):
        pairs = _shared(columns[first], columns[second])
        if pairs:
            agreement = statistics.correlation(*zip(*pairs, strict=True))
            agreements[first].append(agreement)
            agreements[second].append(agreement)
    falling = []
    for key, signs in agreements.items():
        if len(signs) > 1 and max(signs) < -OPPOSITE:
            falling.append(names[key])
    if not falling or 2 * len(falling) > len(columns):
        return []
    shown_names = listed(falling, 5)
    return [f"{shown_names} falls where the others rise: if less of it is better, say lower={','.join(falling[:3])}"]


def refuse_other_numbers(values: Sequence[float], title: str, caption: str, source: str) -> None:
    """Raise UsageError for p values, by the words around the table, for costs, and for settings: powers of ten."""
    is_titled = re.search(r"\bp[- ]values?\b(?!\W*[<>≤≥=])", title, re.I)  # no `significant with p-value < 0.05`
    if is_titled and all(0 <= value <= 1 for value in values) and min(values) < 0.05:
        raise UsageError(f"{source}: holds p values by its title, and no scores (lower= reads them all the same)")
    nearest = say.split_words(caption.partition("\n")[0])
    if nearest and set(nearest) <= say.TIMES | {"training", "inference"}:
        raise UsageError(f"{source}: holds costs by its title, and no scores (lower= reads them all the same)")
    powers = {value for value in values if re.match(r"-?1(\.0+)?e", f"{value:e}")}
    if len(values) >= FEW_NUMBERS and len(powers) > 1 and powers == set(values):
        raise UsageError(f"{source}: all numbers are powers of ten: they are settings, and no scores")


def refuse_too_little(table: Understood) -> None:
    """Raise UsageError for scores of one method, or for one number per method: nothing can be compared."""
    methods = set(map(operator.attrgetter("method"), table.used))
    if len(methods) < 2:
        raise UsageError(
            f"{table.source}: has scores of one method only ({listed(sorted(methods), 1)}): nothing to compare; "
            "name the methods with method=, or say rows=datasets if columns are methods"
        )
    columns = {score.key for score in table.used}
    if len({(score.key, score.method) for score in table.used}) == len(columns):
        raise UsageError(f"{table.source}: no two methods have a score on one data set: nothing to compare")
    seeds = set(map(operator.attrgetter("seed"), table.used))
    if len({(score.method, score.seed) for score in table.used}) == len(seeds) == len(methods) > MANY_TRIALS:
        raise UsageError(f"{table.source}: has a line a trial ({len(methods):,}) and no scores: give a line per method")
    has_spread = len({score.method for score in table.used if score.spread is not None}) > 1
    if len(columns) == 1 and len(table.used) == len(methods) and not has_spread:
        left = listed([shown(name, 30) for name, _ in table.left_out], 5)
        raise UsageError(
            f"{table.source}: one data set with one score per method ({next(iter(columns))[1]}): nothing to test; "
            f"add data sets or a column 'seed'{f'; left out: {left} (keep= keeps them)' if left else ''}"
        )
