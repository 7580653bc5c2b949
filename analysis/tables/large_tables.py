"""Tables of very many lines: a line a run becomes the mean, deviation and number of runs of its method and data set."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from biasbed.analysis.tables.grid import MOST_ROWS, Grid
from biasbed.analysis.tables.head import Body, split_head
from biasbed.analysis.tables.layout import find_layout
from biasbed.analysis.tables.numbers import Decimal, find_decimal, is_missing, parse_number, refuse_text
from biasbed.analysis.tables.roles import ParsedCells, find_columns
from biasbed.analysis.tables.settings import ReaderSettings
from biasbed.errors import UsageError, shown
from biasbed.measures import LARGEST_SCORE

if TYPE_CHECKING:
    import pandas as pd


def condense(grid: Grid, settings: ReaderSettings) -> tuple[Grid, ReaderSettings, str]:
    """Return a table with a line for each method and data set, the settings that hold for it, and a note.

    grid: a sample of the lines, with all of them in `grid.frame`; what columns hold is taken from the sample. Raises
    UsageError for a cell that is no number, and for lines that no seed tells apart.
    """
    assert grid.frame is not None
    body = split_head(grid, settings.head or 1)
    texts = itertools.chain.from_iterable(body.grid.rows)
    cells = ParsedCells(body, find_decimal(texts, settings.decimal, grid.source), settings.value_in_cell)
    columns = find_columns(body, cells, settings)
    layout = find_layout(body, cells, columns, settings, is_export=False)
    if layout.is_turned:
        raise UsageError(f"{grid.source}: has {len(grid.frame):,} lines, and no column says the method: say method=")
    keys = [column for column in dict.fromkeys([*columns.names, *columns.texts]) if column != columns.seed]
    _refuse_repeats(grid, body, keys, columns.seed)
    frame = grid.frame[keys].astype(str)
    for column in columns.scores:
        frame[column] = _numbers(grid.frame[column], cells.decimal, grid, body.name(column))
    groups = frame.groupby(keys, sort=False, dropna=False)
    counts = groups.size()
    heads = [body.name(column) for column in keys]
    if len(counts) > MOST_ROWS:
        raise UsageError(
            f"{grid.source}: has {len(counts):,} lines that differ in {', '.join(heads)}; at most {MOST_ROWS:,} are "
            "read: leave columns out with leave_out="
        )
    measures = [body.name(column) for column in columns.scores]
    rows = [[*heads, *measures, *(f"{measure} std" for measure in measures), "num_runs"]]
    names = counts.index.to_frame().to_numpy().tolist()
    means = groups[columns.scores].mean().to_numpy().tolist()
    deviations = groups[columns.scores].std().to_numpy().tolist()
    for name, mean, deviation, count in zip(names, means, deviations, counts, strict=True):
        rows.append([*name, *map(_text, mean), *map(_text, deviation), str(count)])
    small = Grid(grid.source, rows, list(range(1, len(rows) + 1)), 1, format=grid.format)
    note = f"{len(frame):,} lines are read as {len(counts):,} means"
    if columns.seed is not None:
        note += f" with deviations over '{body.name(columns.seed)}'"
    return small, replace(settings, seed="none", head=1), note


def _refuse_repeats(grid: Grid, body: Body, keys: Sequence[int], seed: int | None) -> None:
    """Raise UsageError for the first line that has the names and the seed of another."""
    assert grid.frame is not None
    frame = grid.frame[[*keys] if seed is None else [*keys, seed]]
    repeated = frame.index[frame.duplicated()]
    if len(repeated) == 0:
        return
    names = frame.loc[repeated[0]]
    first = frame.index[(frame == names).all(axis=1)][0]
    said = ", ".join(f"{body.name(column)} {shown(str(name), 40)}" for column, name in names.items())
    raise UsageError(
        f"{grid.at(repeated[0])}: {said} is there already ({grid.at(first).rpartition(', ')[2]}): keep one, "
        "or name what tells them apart in a column 'seed'"
    )


def _numbers(texts: pd.Series, decimal: Decimal, grid: Grid, head: str) -> pd.Series:
    """Return the numbers of a column; NaN for missing ones. Raises UsageError for a cell that is no number."""
    import pandas as pd

    plain = texts.astype(str).str.replace(",", ".") if decimal == "comma" else texts
    numbers = pd.to_numeric(plain, errors="coerce").astype(float)
    unclear = texts[numbers.isna()].astype(str)
    values = {}
    for text in unclear.unique():
        parsed = parse_number(text, decimal)
        if parsed is None and not is_missing(text):
            raise refuse_text(text, grid.at(unclear.index[unclear == text][0]), head)
        values[text] = float("nan") if parsed is None else parsed.value
    numbers = numbers.fillna(unclear.map(values).astype(float))
    too_large = numbers.index[numbers.abs() > LARGEST_SCORE]
    if len(too_large) > 0:
        where = grid.at(too_large[0])
        raise UsageError(f"{where}: the score {texts[too_large[0]]} in the column '{head}' is beyond 1e100")
    return numbers


def _text(number: float) -> str:
    return "" if number != number else repr(number)
