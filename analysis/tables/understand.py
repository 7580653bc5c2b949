"""Understanding a table: which of a file's tables counts, and its head, columns, layout and scores, step by step."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from biasbed.analysis.tables import exports
from biasbed.analysis.tables.check import copied_lines
from biasbed.analysis.tables.grid import Grid
from biasbed.analysis.tables.head import Body, is_figure, split_head
from biasbed.analysis.tables.large_tables import condense
from biasbed.analysis.tables.layout import Layout, find_layout
from biasbed.analysis.tables.markup import squeeze
from biasbed.analysis.tables.numbers import find_decimal, is_missing, parse_number, refuse_text
from biasbed.analysis.tables.printed import collect_printed
from biasbed.analysis.tables.reader import read_scores
from biasbed.analysis.tables.roles import ParsedCells, TableColumns, find_columns, is_described, is_named
from biasbed.analysis.tables.score_table import ScoreTable
from biasbed.analysis.tables.settings import ReaderSettings
from biasbed.analysis.tables.understood import Understood
from biasbed.errors import UsageError, listed, shown
from biasbed.settings import nearest

_SCORE = re.compile(r"[+-]?[0-9]+[.][0-9]+(?![\w.:])")


def understand(grids: Sequence[Grid], settings: ReaderSettings) -> Understood:
    """Return what the table among these grids says. Raises UsageError for none or several, with what to say."""
    if settings.table:
        if settings.table > len(grids):
            raise UsageError(f"table={settings.table}: {grids[0].source} has {len(grids)} tables")
        return _with_known_names(understand_grid(grids[settings.table - 1], settings))
    understood, refused = [], []
    for number, grid in enumerate(grids, 1):
        try:
            understood.append((number, understand_grid(grid, settings)))
        except UsageError as error:
            refused.append((number, error))
    if len(understood) > 1:
        places = [
            f"{number} (line {grids[number - 1].lines[0]}, {len(table.scores)} scores)" for number, table in understood
        ]
        raise UsageError(
            f"{grids[0].source}: has several tables of scores: {listed(places, 6)}; choose one with table="
        )
    if not understood:
        if len(refused) > 1:
            raise UsageError(f"{refused[0][1]} (and {len(refused) - 1} more tables in the file: table= chooses one)")
        raise refused[0][1]
    number, result = understood[0]
    if refused:
        result.notes.append(f"table {number} of {len(grids)} in the file; the others are no tables of scores (`table`)")
    return _with_known_names(result)


def _with_known_names(table: Understood) -> Understood:
    """Return the table. Raises UsageError for a name that is to be left out and that it has not."""
    if table.unknown_name:
        raise UsageError(table.unknown_name)
    return table


def understand_grid(grid: Grid, settings: ReaderSettings) -> Understood:
    """Return what one table says. Raises UsageError, with the line and the setting, for what can't be read for sure."""
    if grid.problem:
        raise UsageError(grid.problem)
    exports.refuse_curves(grid)
    exported = exports.finished_runs(grid)
    original = grid
    notes: list[str] = []
    if grid.frame is not None:
        grid, settings, note = condense(grid, settings)
        notes = [note]
    elif exported is not None:
        grid, notes = exported[0], list(exported[1])
    body = split_head(grid, settings.head)
    decimal = find_decimal(_numeric_texts(body), settings.decimal, grid.source)
    if decimal == "comma":
        notes.append("commas are read as decimal points (`decimal` says otherwise)")
    try:
        result = _read_body(body, ParsedCells(body, decimal, settings.value_in_cell), settings, exported is not None)
    except UsageError as error:
        first = body.grid.rows[0] if body.grid.rows and not settings.head else []
        is_of_first = bool(first) and str(error).startswith(f"{body.grid.where(0)}:")
        if not is_of_first or any("." in text and is_figure(text) for text in first):
            raise
        raise UsageError(f"{error}; if the line is one of the head, say head={len(body.levels) + 1}") from None
    result.notes = [*notes, *body.notes, *result.notes]
    result.unknown_name = _find_unknown_name(original, body, result, settings.leave_out)
    return result


def _read_body(body: Body, cells: ParsedCells, settings: ReaderSettings, is_export: bool) -> Understood:
    """Return what the rows below a head say. Raises UsageError, with the line and the setting."""
    columns = find_columns(body, cells, settings, is_export)
    _refuse_without_scores(body, columns)
    layout = find_layout(body, cells, columns, settings, is_export)
    _account_for_texts(body, cells, columns, layout)
    table = ScoreTable(body, cells, layout, settings)
    result, averages = read_scores(table, body.grid.format, layout.note, is_export)
    result.printed = collect_printed(table, result.scores, averages)
    is_error = settings.spread == "standard_error" or (settings.spread == "auto" and result.is_standard_error)
    result.printed.is_standard_error = is_error
    copies = [f"{finding.row}: {finding.printed} {finding.text}" for finding in copied_lines(result.printed)]
    result.notes = [*columns.notes, *result.notes, *copies]
    return result


def _find_unknown_name(original: Grid, body: Body, result: Understood, names: Sequence[str]) -> str:
    """Return why a name that is to be left out is none of the table; empty if all are.

    original: the table before lines were joined and columns of exports left out.
    """
    columns = range(body.grid.width)
    present = {name.removeprefix("line ").casefold() for name, _ in result.left_out}
    for row in original.rows:
        present.update(map(str.casefold, row))
    for name in names:
        if squeeze(name).casefold() not in present and not any(is_named(body, column, [name]) for column in columns):
            heads = list(map(body.name, columns)) if original.frame is None else original.rows[0]
            return f"leave_out={name}: no column or line has this name{nearest(name, heads)}"
    return ""


def _numeric_texts(body: Body) -> Iterator[str]:
    """Yield the cells that begin as a number does."""
    for row in body.grid.rows:
        yield from (text for text in row if text[:1].isdigit() or text[:1] in "+-.,")


def _refuse_without_scores(body: Body, columns: TableColumns) -> None:
    """Raise UsageError if no column holds scores, with the reasons."""
    if columns.scores:
        return
    if columns.left_out:
        reasons = [f"{shown(name, 30)} ({why})" for name, why in columns.left_out]
        raise UsageError(f"{body.grid.source}: no column holds scores: {listed(reasons, 6)}; keep= keeps a column")
    for column in range(1, body.grid.width):
        for row, text in enumerate(body.cells(column)):
            is_like_number = text[:1].isdigit() and sum(map(str.isdigit, text)) > sum(map(str.isalpha, text))
            if is_like_number and parse_number(text) is None:
                raise refuse_text(text, body.grid.where(row), body.name(column))
    heads = listed([body.name(column) or "(no name)" for column in range(body.grid.width)], 8)
    raise UsageError(f"{body.grid.source}: no column holds numbers; its columns are {heads}")


def _account_for_texts(body: Body, cells: ParsedCells, columns: TableColumns, layout: Layout) -> None:
    """Note the columns of words that are not read. Raises UsageError for one that also holds scores, as for names."""
    unread = []
    for column in columns.texts if layout.name_column is None else (layout.name_column, *columns.texts):
        texts = body.cells(column)
        filled = [row for row, text in enumerate(texts) if not is_missing(text)]
        scores = [row for row in filled if _SCORE.match(texts[row])]
        figures = [row for row in filled if cells.number(row, column) is not None]
        has_scores = 2 * len(scores) > len(filled)
        if column != layout.name_column:
            unread.append(column)
            has_scores |= len(figures) > 0 and 5 * len(figures) >= len(filled)
            has_scores &= not is_described(body, column)
        if has_scores and len(figures) < len(filled):
            row = next(row for row in filled if row not in figures)
            raise refuse_text(texts[row], body.grid.where(row), body.name(column))
    if unread:
        columns.left_out.append((listed([body.name(column) or "(no name)" for column in unread], 8), "words"))
