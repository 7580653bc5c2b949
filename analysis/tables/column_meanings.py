"""Meaning of the data sets of a table of scores: what its heads, its corner and its lines say."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from biasbed.analysis.tables import vocabulary as say
from biasbed.analysis.tables.lines import name_lines
from biasbed.analysis.tables.meanings import ONE_SET, Meaning, apply_blocks, are_levels, find_meanings
from biasbed.analysis.tables.score_table import ScoreTable
from biasbed.errors import UsageError, listed

PLAIN_HEADS = {"score", "scores", "value", "result", "mean", "wert", "valeur", "performance", "metric"}


def find_set_meanings(table: ScoreTable) -> dict[int, Meaning]:
    """Return what each data set is. Raises UsageError for measures of unlike kinds."""
    paths = list(dict.fromkeys(table.paths[of_set] for of_set in table.sets))
    meanings, notes = find_meanings(paths, table.hint)
    meanings = _with_parts(table, meanings, paths)
    if table.columns.metric is None or table.is_turned:
        meanings = _measures_of_one_set(meanings, table.notes)
    table.notes += notes
    meanings = _parts_of_corner(table, meanings)
    meanings = _backbones_as_parts(meanings, table.notes)
    if table.settings.blocks is None:
        _refuse_numbered(table, meanings)
        _refuse_crossed(table, meanings)
    by_path = dict(zip(paths, _with_user_blocks(table, meanings), strict=True))
    by_set = {of_set: by_path[table.paths[of_set]] for of_set in table.sets}
    _refuse_unlike(table, by_set)
    return by_set


def find_line_meanings(table: ScoreTable) -> dict[int, Meaning]:
    """Return what each line of a table with a line per score is a score on."""
    column = table.columns.dataset
    assert column is not None
    names = table.body.cells(column)
    if table.body.grid.format != "JSON":
        names = name_lines(table.body, table.cells, table.columns, column)
    paths = {}
    for row in table.methods:
        if not names[row]:
            raise UsageError(f"{table.body.grid.where(row)}: has no name of a method or data set")
        paths[row] = table.with_parts(row, (names[row],))
    unique = list(dict.fromkeys(paths.values()))
    meanings, notes = find_meanings(unique, table.hint)
    meanings = _with_parts(table, meanings, unique)
    for position, path in enumerate(unique):
        if not meanings[position].dataset:  # its name is that of a measure
            meanings[position] = replace(meanings[position], dataset=" ".join(path))
    table.notes += notes
    by_path = dict(zip(unique, _with_user_blocks(table, meanings), strict=True))
    return {row: by_path[path] for row, path in paths.items()}


def find_measures(table: ScoreTable) -> dict[int, Meaning]:
    """Return the measure of each column of a table with a line per score; columns of no measure are variants."""
    paths = [table.paths[column] for column in table.sets]
    meanings, _ = find_meanings(paths, table.hint)
    are_parts = len(paths) > 1 and not any(meaning.metric or meaning.direction for meaning in meanings)
    names = [" ".join(path) for path in paths]
    if are_parts and len(names) > 2 and table.settings.dataset == "auto" and not _are_settings(names):
        head = table.body.leaf(table.columns.dataset or 0)
        raise UsageError(
            f"{table.body.grid.source}: '{head}' may say what methods were trained on, and {listed(names, 3)} be the "
            "data sets: say dataset=none, or dataset= and its name"
        )
    measures = {}
    for column, path, meaning in zip(table.sets, paths, meanings, strict=True):
        if are_parts:
            measures[column] = replace(meaning, variant=" ".join(path))
            continue
        name = " ".join(map(say.without_arrow, path))
        metric = "" if say.letters(name) in PLAIN_HEADS else name
        measures[column] = Meaning(metric=metric, split=meaning.split, direction=meaning.direction)
    return measures


def _are_settings(names: Sequence[str]) -> bool:
    """Return True for numbers of shots, levels and backbones, in which the scores of one data set differ."""
    return are_levels(names) or all(map(say.BACKBONES.search, names))


def _with_parts(table: ScoreTable, meanings: list[Meaning], paths: Sequence[tuple[str, ...]]) -> list[Meaning]:
    """Return the meanings with the data set that a column of blocks says, also if its parts are measures by name."""
    if table.columns.block is None and table.columns.part is None:
        return meanings
    result = []
    for meaning, path in zip(meanings, paths, strict=True):
        result.append(replace(meaning, block=meaning.block or path[0], dataset=meaning.dataset or meaning.name))
    return result


def _with_user_blocks(table: ScoreTable, meanings: list[Meaning]) -> list[Meaning]:
    blocks = table.settings.blocks
    return apply_blocks(meanings, blocks) if blocks else meanings  # none: each column counts by itself, in `convert`


def _measures_of_one_set(meanings: list[Meaning], notes: list[str]) -> list[Meaning]:
    """Return the meanings with a name for data sets that are named by a measure alone."""
    nameless = [meaning.name for meaning in meanings if not meaning.dataset and not meaning.block]
    if 0 < len(nameless) < len(meanings):
        names = listed(nameless, 6)
        notes.append(f"without the name of a data set, each counts as one: {names} (leave_out= or blocks= if of one)")
    elif len(nameless) > 1:
        notes.append(
            f"{listed(nameless, 6)} are measures of one data set, which the table does not name (`blocks` says "
            "otherwise)"
        )
    return [meaning if meaning.dataset else replace(meaning, dataset=meaning.metric) for meaning in meanings]


def _parts_of_corner(table: ScoreTable, meanings: list[Meaning]) -> list[Meaning]:
    """Return the meanings as parts of the data set that the head of the names is; as they are if it is none."""
    corner = table.body.leaf(table.name_column) if table.name_column is not None else ""
    if not say.OF_DATA.search(corner) or say.OF_METHODS.search(corner) or len(meanings) < 2:
        return meanings
    for meaning in meanings:
        is_part = meaning.block in ("", ONE_SET) and meaning.dataset and not say.OF_DATA.search(meaning.dataset)
        if not is_part:
            return meanings
    table.notes.append(f"columns are parts of {corner}, as the head of the names says")
    return [replace(meaning, block=corner) for meaning in meanings]


def _backbones_as_parts(meanings: list[Meaning], notes: list[str]) -> list[Meaning]:
    """Return the meanings as parts of one data set, which the table does not name, if all names are backbones."""
    names = [meaning.dataset for meaning in meanings]
    are_backbones = all(say.BACKBONES.search(name) and not say.OF_DATA.search(name) for name in names)
    is_alike = not any(meaning.block for meaning in meanings) and len({meaning.metric for meaning in meanings}) == 1
    if not is_alike or not are_backbones or len(meanings) < 2:
        return meanings
    notes.append("backbones stand for one data set: they count once (`blocks` as none counts each)")
    return [replace(meaning, block=ONE_SET) for meaning in meanings]


_PLAIN_STEMS = {"row", "line", "set", "dataset", "data", "data set", "task", "problem", "benchmark", "test"}


def _refuse_numbered(table: ScoreTable, meanings: Sequence[Meaning]) -> None:
    """Raise UsageError for `Feature1`, `Feature2` and `Feature3`: each a data set, or parts of one."""
    names = [meaning.dataset for meaning in meanings if not meaning.block]
    stems: set[str] = set()
    numbers: list[int] = []
    for name in names:
        match = re.fullmatch(r"(.*[a-z])[\s_-]*([0-9]+)", name, re.I)
        if match is None:
            return
        stem = match[1].strip()
        if len(stem) == 1 or stem.casefold() in _PLAIN_STEMS:  # `D1`, `data set 1`
            return
        stems.add(stem)
        numbers.append(int(match[2]))
    if len(names) < 3 or len(stems) > 1 or numbers != list(range(numbers[0], numbers[0] + len(names))):
        return
    raise UsageError(
        f"{table.body.grid.source}: {listed(names, 3)} may be data sets or parts of one: say blocks=none if each "
        f"counts, or blocks={stems.pop()}={','.join(names[:2])},... if they count once"
    )


def _refuse_crossed(table: ScoreTable, meanings: Sequence[Meaning]) -> None:
    """Raise UsageError for `CUB R18`, `CUB R50`, `Cars R18` and `Cars R50`: which word is the data set?"""
    names = [meaning.dataset for meaning in meanings if not meaning.block and not say.is_metric(meaning.dataset)]
    firsts: Counter[str] = Counter()
    seconds: Counter[str] = Counter()
    for name in names:
        first, _, second = name.partition(" ")
        if not second or " " in second or say.OF_DATA.search(name):
            return
        firsts[first] += 1
        seconds[second] += 1
    if len(set(names)) == len(names) and min((*firsts.values(), *seconds.values(), 2), default=0) > 1 < len(seconds):
        raise UsageError(
            f"{table.body.grid.source}: {listed(names, 4)} are pairs of words, of which one may be the data set: say "
            f"blocks=none if each counts, or blocks={next(iter(firsts))}={','.join(names[:2])},... if they count once"
        )


def _refuse_unlike(table: ScoreTable, meanings: dict[int, Meaning]) -> None:
    """Raise UsageError if data sets have numbers of unlike kinds and nothing says the direction."""
    negative, large = [], []
    for of_set, meaning in meanings.items():
        values = table.values(of_set)
        if meaning.direction or table.settings.has_directions or not values or table.is_kept(of_set):
            continue
        if max(values) < 0:
            negative.append(table.label(of_set))
        elif min(values) > 1:
            large.append(table.label(of_set))
    if negative and (large or len(meanings) > len(negative)):
        raise UsageError(
            f"{table.body.grid.source}: the columns are measures of different kinds ({negative[0]} is negative) and "
            "nothing says in which direction they count: say it with lower=, or leave columns out with leave_out="
        )
