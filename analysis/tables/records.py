"""Tables of JSON and YAML: lists of records, nested mappings, columns, and models with their results."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from biasbed.analysis.tables.grid import MOST_ROWS, Grid, square
from biasbed.analysis.tables.markup import squeeze
from biasbed.errors import UsageError

Path = tuple[str, ...]
NAMES = ("name", "model", "method", "algorithm", "id")


def make_grid_of(value: Any, source: str) -> Grid:
    """Return the table that a value holds. Raises UsageError if it holds none."""
    rows = [row for row in _rows_of(value) if row]
    if not rows:
        raise UsageError(f"{source}: no table is in it: give a list of records, or a mapping of methods to scores")
    if len(rows) > MOST_ROWS:
        raise UsageError(f"{source}: has more than {MOST_ROWS:,} records: give a record per score")
    paths: dict[Path, None] = {}
    for row in rows:
        paths.update(dict.fromkeys(row))
    depth = max(map(len, paths))
    padded = [("",) * (depth - len(path)) + path for path in paths]
    heads = [[path[level] for path in padded] for level in range(depth)]
    cells = []
    for row in rows:
        cells.append(list(map(row.get, paths, itertools.repeat(""))))
    lines = [0] * depth + list(range(1, len(rows) + 1))
    return square(Grid(source, [*heads, *cells], lines, depth, format="JSON", has_spans=True))


def _rows_of(value: Any) -> list[dict[Path, str]]:
    """Return the records of a value, each by the path of its keys."""
    if isinstance(value, Mapping):
        return _rows_of_mapping(value)
    if isinstance(value, Sequence) and not isinstance(value, str):
        if value and all(isinstance(part, Sequence) and not isinstance(part, str | Mapping) for part in value):
            return _rows_of_lists(value[0], value[1:])
        rows: list[dict[Path, str]] = []
        for part in value:
            if isinstance(part, Mapping):
                rows += _explode(part)
        return rows
    return []


def _rows_of_mapping(value: Mapping[str, Any]) -> list[dict[Path, str]]:
    """Return the records of a mapping: a table of pandas, columns, or a mapping of names to records."""
    if isinstance(value.get("columns"), list) and isinstance(value.get("data"), list):
        rows = _rows_of_lists(value["columns"], value["data"])
        index = value.get("index")
        if isinstance(index, list) and len(index) == len(rows) and any(isinstance(name, str) for name in index):
            rows = [{("",): str(name), **row} for name, row in zip(index, rows, strict=True)]
        return rows
    lists = {key: part for key, part in value.items() if _is_list(part)}
    are_plain = not any(isinstance(part[0], Mapping | list) for part in lists.values())
    if lists and len(lists) == len(value) and are_plain and len({len(part) for part in lists.values()}) == 1:
        return _rows_of_lists(list(lists), list(zip(*lists.values(), strict=True)))
    of_records = [part for part in lists.values() if all(isinstance(item, Mapping) for item in part)]
    if of_records:
        return _rows_of(max(of_records, key=len))
    inner = {key: part for key, part in value.items() if isinstance(part, Mapping) and part}
    if len(inner) < 2 and len(inner) == 1 and len(value) <= 3:
        return _rows_of_mapping(next(iter(inner.values())))
    if len(inner) < 2:
        return _explode(value)
    keys: dict[str, None] = {}
    for part in inner.values():
        keys.update(dict.fromkeys(map(str, part)))
    if all(map(str.isdigit, keys)):  # columns of pandas, by the numbers of their rows
        return _rows_of_lists(list(inner), list(zip(*(part.values() for part in inner.values()), strict=False)))
    rows = []
    for key, part in inner.items():
        for row in _explode(part):
            rows.append({("",): squeeze(str(key)), **row})
    return rows


def _is_list(part: Any) -> bool:
    return isinstance(part, list) and bool(part)


def _rows_of_lists(heads: Sequence[Any], rows: Sequence[Any]) -> list[dict[Path, str]]:
    """Return the records of rows below their heads."""
    names = [tuple(map(str, head)) if isinstance(head, list) else (squeeze(str(head)),) for head in heads]
    result = []
    for row in rows:
        if isinstance(row, Sequence) and not isinstance(row, str):
            result.append({name: _text(cell) for name, cell in zip(names, row, strict=False)})
    return result


def _explode(record: Mapping[str, Any]) -> list[dict[Path, str]]:
    """Return a record with its nested mappings as paths; a list of records in it makes a row of each."""
    plain: dict[Path, str] = {}
    nested: list[list[dict[Path, str]]] = []
    for path, part in _leaves(record, ()):
        if isinstance(part, list):
            rows: list[dict[Path, str]] = []
            for item in part:
                rows += _explode(item)
            nested.append(rows)
        else:
            plain[path] = _text(part)
    if not nested:
        return [plain]
    longest = max(nested, key=len)
    return [{**plain, **row} for row in longest]


def _leaves(value: Mapping[str, Any], path: Path) -> Iterator[tuple[Path, Any]]:
    """Yield the scalars of nested mappings, and their lists of records, by path. Other lists are left out."""
    for key, part in value.items():
        below = (*path, squeeze(str(key)))
        if isinstance(part, Mapping):
            yield from _leaves(part, below)
        elif isinstance(part, list):
            if part and all(isinstance(item, Mapping) for item in part):
                yield below, part
        else:
            yield below, part


def _text(value: Any) -> str:
    if value is None or isinstance(value, list | Mapping):
        return ""
    if isinstance(value, float):
        return repr(value)
    return squeeze(str(value))
