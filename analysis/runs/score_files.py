"""Tables of scores as people keep them: long or wide, CSV of any separator or a DataFrame, read with few questions.

A long table has a line per score, with columns for the method, the data set, perhaps the seed, and the score. A wide
one has a column per data set (or per method) and a line per method (or per data set). What a column holds follows from
its name, else from what is in it; every guess becomes a note.

Answers: How is a table of scores that somebody brings read?
"""

from __future__ import annotations

import collections
import functools
import itertools
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd

from biasbed.analysis.runs import table_axes, tracker_exports
from biasbed.analysis.runs.user_scores import ScoreRow, UserScores, make_scores
from biasbed.errors import UsageError, listed, shown
from biasbed.settings import nearest
from biasbed.system.csv_tables import read_lines

# Heads that name a column, without capitals and signs.
METHODS = (
    *("method", "methods", "algorithm", "algorithms", "model", "models", "classifier", "estimator", "approach"),
    *("system", "learner", "modelname", "methodname", "network", "technique", "optimizer", "row"),
)
DATASETS = (
    *("dataset", "datasets", "data", "task", "tasks", "benchmark", "problem", "domain", "environment", "env"),
    *("testset", "evalset", "set", "datasetname", "taskname", "corpus", "column"),
)
SEEDS = ("seed", "seeds", "randomseed", "run", "trial", "fold", "repeat", "repetition", "replicate", "randomstate")
SCORES = (
    *("score", "scores", "accuracy", "acc", "value", "metric", "result", "performance", "mean", "f1", "auc", "auroc"),
    *("error", "loss", "testaccuracy", "testacc", "top1", "bleu", "mse", "rmse", "exactmatch"),
)
MEANS = ("average", "avg", "mean", "overall", "total", "all")  # names of a mean over data sets, as papers print it
MISSING = {"", "nan", "na", "n/a", "none", "null", "-", "--", "\u2013", "\u2014", "?", "missing"}
# Names of columns beside a mean: its deviation, its interval, and how many scores it is of.
SPREADS = (
    *("std", "sd", "stdev", "stddev", "standarddeviation", "deviation", "se", "sem", "stderr", "standarderror"),
    *("var", "variance", "ci", "ci95", "n", "num", "runs", "numruns", "nruns", "numseeds", "nseeds", "count"),
)
NAMELESS = "line"  # what a column without a head is called
DELIMITERS = (";", "\t", ",", "|")
_WITH_SPREAD = re.compile(
    r"\(?\s*[+-]?[0-9]+[.,]?[0-9]*\s*%?\s*(±|\+/?-|\\pm|\$\\pm\$|\(|\[)\s*[0-9.,]+.*"
)  # of tables in papers
_POINT = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]+)?", re.I | re.ASCII)
_COMMA = re.compile(r"[+-]?[0-9]*,[0-9]+(e[+-]?[0-9]+)?", re.I | re.ASCII)


@dataclass(frozen=True)
class ColumnNames:
    """Names of columns as the user gives them; `auto` leaves them to be found out."""

    method: str = "auto"
    dataset: str = "auto"
    seed: str = "auto"
    score: str = "auto"
    rows: str = "auto"  # of a wide table: methods or datasets


@dataclass(frozen=True)
class Grid:
    """Cells of a table under their heads, as text or numbers."""

    source: str
    heads: tuple[str, ...]
    rows: tuple[tuple[str, tuple[Any, ...]], ...]  # where each row is, and its cells
    notes: tuple[str, ...] = ()
    scored: tuple[str, ...] | None = None  # heads that alone hold scores; None: any of numbers may
    is_export: bool = False  # a run a row, from a tracker

    def column(self, head: str) -> list[Any]:
        position = self._positions[head]
        return [cells[position] for _, cells in self.rows]

    @functools.cached_property
    def _positions(self) -> dict[str, int]:
        return {head: position for position, head in enumerate(self.heads)}


def read_scores(source: pd.DataFrame | Path, names: ColumnNames) -> UserScores:
    """Read a table of scores. Raises UsageError, with the line, for what is no score or cannot be told apart."""
    grid = _from_frame(source) if isinstance(source, pd.DataFrame) else _from_file(source)
    grid = _without_spreads(_without_bookkeeping(grid), names)
    roles = _find_roles(grid, names)
    if grid.is_export and not roles.method:
        columns = listed(sorted({*roles.texts, *roles.scores}))
        raise UsageError(
            f"{grid.source}: no column says the method of a run: name it with method=; the columns are {columns}"
        )
    numbers = _parse_columns(grid, roles)
    notes = [*grid.notes, *numbers.notes]
    if roles.method and roles.dataset:
        return _read_long(grid, roles, numbers, notes)
    return _read_wide(grid, roles, numbers, names, notes)


# --- cells ------------------------------------------------------------------------------------------------------------


def _from_frame(frame: pd.DataFrame) -> Grid:
    """Return the cells of a frame; an index with names becomes the first column."""
    if not isinstance(frame.index, pd.RangeIndex) or frame.index.name is not None:
        frame = frame.reset_index()
    heads = tuple("" if head == "index" else str(head).strip() for head in frame.columns)
    rows = []
    for number, cells in enumerate(frame.itertuples(index=False, name=None)):
        cleaned = tuple(cell.strip() if isinstance(cell, str) else cell for cell in cells)
        rows.append((f"row {number}", cleaned))
    return _checked(Grid("the table", heads, tuple(rows)))


def _from_file(path: Path) -> Grid:
    """Read a CSV file; the separator is the sign that its first line has most of."""
    lines = list(read_lines(path, DELIMITERS))
    if not lines:
        raise UsageError(f"{path}: the file is empty")
    heads = lines[0][1]
    rows = []
    for number, cells in lines[1:]:
        cells = [*cells, *[""] * (len(heads) - len(cells))] if len(cells) < len(heads) else cells
        if any(cells[len(heads) :]):
            raise UsageError(f"{path}, line {number}: {len(cells)} entries for {len(heads)} columns")
        rows.append((f"{path}, line {number}", tuple(cells[: len(heads)])))
    return _checked(Grid(str(path), tuple(heads), tuple(rows)))


def _checked(grid: Grid) -> Grid:
    """Return the grid without columns that are empty. Raises UsageError for heads that are there twice."""
    kept = []
    for position, head in enumerate(grid.heads):
        if head or not all(_is_missing(cells[position]) for _, cells in grid.rows):
            kept.append(position)
    heads = tuple(grid.heads[position] or NAMELESS for position in kept)
    twice = [head for head, number in collections.Counter(heads).items() if number > 1]
    if twice:
        raise UsageError(f"{grid.source}: has the column '{twice[0]}' twice")
    rows = [(where, tuple(cells[position] for position in kept)) for where, cells in grid.rows]
    if len(heads) < 2 or not rows:
        has = listed(heads) or "nothing"
        raise UsageError(
            f"{grid.source}: should have a head and lines of method, data set and score, separated by commas, "
            f"semicolons or tabs; it has {has}, and {len(rows)} lines below"
        )
    return replace(grid, heads=heads, rows=tuple(rows))


def _is_missing(cell: Any) -> bool:
    if isinstance(cell, str):
        return cell.strip().casefold() in MISSING
    return cell is None or cell is pd.NA or cell != cell


def _is_number(cell: Any) -> bool:
    if isinstance(cell, str):
        text = cell.removesuffix("%").strip()
        return bool(_POINT.fullmatch(text) or _COMMA.fullmatch(text))
    return hasattr(cell, "__float__") and not isinstance(cell, bool)


@dataclass(frozen=True)
class ScoreColumns:
    """Columns of scores as numbers, NaN for missing ones."""

    values: Mapping[str, Sequence[float]]
    notes: tuple[str, ...]


def _parse_columns(grid: Grid, roles: Roles) -> ScoreColumns:
    """Read the columns of scores. Raises UsageError for text in one of them."""
    cells = itertools.chain.from_iterable(map(grid.column, roles.scores))
    texts = [cell for cell in cells if isinstance(cell, str)]
    with_comma = [text for text in texts if _COMMA.fullmatch(text)]
    with_point = [text for text in texts if "." in text and _POINT.fullmatch(text)]
    if with_comma and with_point:
        raise UsageError(
            f"{grid.source}: scores are written with a comma ('{with_comma[0]}') and with a point "
            f"('{with_point[0]}'): write all decimals alike"
        )
    values: dict[str, list[float]] = {}
    for head in roles.scores:
        lines = zip(grid.rows, grid.column(head), strict=True)
        values[head] = [_parse_score(cell, head, where) for (where, _), cell in lines]
    notes = [f"commas are read as decimal points ({with_comma[0]})"] if with_comma else []
    return ScoreColumns(values, tuple(notes))


def _parse_score(cell: Any, head: str, where: str) -> float:
    if _is_missing(cell):
        return math.nan
    text = cell.removesuffix("%").strip() if isinstance(cell, str) else cell
    if isinstance(text, str) and _COMMA.fullmatch(text):
        text = text.replace(",", ".")
    is_infinite = str(text).casefold().lstrip("+-") in ("inf", "infinity")
    if is_infinite or not _is_number(text):
        word = shown(str(cell), 40)
        if _WITH_SPREAD.fullmatch(str(cell)):
            raise UsageError(f"{where}: {_explain_spread(str(cell), head)}")
        raise UsageError(f"{where}: '{word}' in the column '{head}' is no {'finite ' * is_infinite}number")
    return float(text)


def _explain_spread(cell: str, head: str) -> str:
    """Say what to do with a mean and its deviation in one cell."""
    return (
        f"'{shown(cell, 40)}' in the column '{head}' is a mean with something behind it: give the mean alone, for "
        "tests over data sets, or each seed's score in a line of its own, with a column 'seed'"
    )


def _refuse_no_numbers(grid: Grid) -> UsageError:
    """Return the error for a table without a column of numbers; of means with deviations, how to write them."""
    for where, cells in grid.rows:
        for head, cell in zip(grid.heads, cells, strict=True):
            if isinstance(cell, str) and _WITH_SPREAD.fullmatch(cell):
                return UsageError(f"{where}: {_explain_spread(cell, head)}")
    return UsageError(f"{grid.source}: no column holds numbers; its columns are {listed(grid.heads)}")


# --- columns ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Roles:
    """Heads of the columns by what they hold; empty for none."""

    method: str = ""
    dataset: str = ""
    seed: str = ""
    scores: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()  # columns of words that are none of these

    @property
    def named(self) -> tuple[str, ...]:
        return tuple(filter(None, (self.method, self.dataset, self.seed)))


def _letters(head: str) -> str:
    return re.sub(r"[^a-z0-9]", "", head.lower())


def _find_roles(grid: Grid, names: ColumnNames) -> Roles:
    """Return what each column holds, as the user says, as heads say, and as the cells show."""
    free = list(grid.heads)
    by_role: dict[str, str] = {}
    for role in ("method", "dataset", "seed"):
        word = getattr(names, role)
        if word not in ("auto", "none"):
            by_role[role] = _named(grid, role, word)
            free.remove(by_role[role])
    for role, heads in (("method", METHODS), ("dataset", DATASETS), ("seed", SEEDS)):
        if role in by_role or getattr(names, role) == "none":
            continue
        of_role = [head for head in free if _letters(head) in heads]
        of_role.sort(key=lambda head: heads.index(_letters(head)))
        is_scored = grid.scored is not None and of_role and of_role[0] in grid.scored
        if of_role and not is_scored:
            by_role[role] = of_role[0]
            free.remove(of_role[0])
    numbering = [head for head in free[:1] if head == grid.heads[0] and _counts_lines(grid.column(head))]
    numeric = [head for head in free if head not in numbering and _is_numeric(grid.column(head))]
    with_numbers = set(numeric)
    texts = [head for head in free if head not in with_numbers]
    if grid.scored is not None:
        numeric = [head for head in numeric if head in grid.scored]
    roles = Roles(**by_role, scores=tuple(numeric), texts=tuple(texts))
    return _with_texts(grid, _with_score(grid, roles, names), names)


def _named(grid: Grid, role: str, word: str) -> str:
    """Return the head that the user names for a role, whatever its capitals."""
    for head in grid.heads:
        if word in (head, head.casefold()) or head.casefold() == word.casefold():
            return head
    raise UsageError(f"{role}={word}: {grid.source} has no such column{nearest(word, grid.heads)}")


def _is_numeric(cells: Sequence[Any]) -> bool:
    """Return True if most of the cells that hold something are numbers."""
    filled = [cell for cell in cells if not _is_missing(cell)]
    return bool(filled) and 2 * sum(map(_is_number, filled)) > len(filled)


def _counts_lines(cells: Sequence[Any]) -> bool:
    """Return True for a column that numbers the lines from 0 or 1 on: a spreadsheet's or a frame's index."""
    numbers = [str(cell) for cell in cells]
    return len(numbers) > 1 and any(numbers == [str(start + n) for n in range(len(numbers))] for start in (0, 1))


def _with_score(grid: Grid, roles: Roles, names: ColumnNames) -> Roles:
    """Return the roles with the one column of scores that the user or its head names, if there is such a column."""
    if names.score != "auto":
        head = _named(grid, "score", names.score)
    else:
        candidates = [head for head in (*roles.scores, *roles.texts) if _letters(head) in SCORES]
        of_scores = [head for head in candidates if head in roles.scores] or candidates
        is_long = bool(roles.method and roles.dataset)
        if not of_scores or not (is_long or len(roles.scores) < 2):
            return roles
        head = min(of_scores, key=lambda head: SCORES.index(_letters(head)))
    texts = tuple(text for text in roles.texts if text != head)
    return replace(roles, scores=(head,), texts=texts)


def _with_texts(grid: Grid, roles: Roles, names: ColumnNames) -> Roles:
    """Return the roles with columns of words as method and data set, if their heads do not say it."""
    texts = [head for head in roles.texts if len(set(grid.column(head))) > 1 or len(grid.rows) == 1]
    lacking = [role for role in ("method", "dataset") if not getattr(roles, role) and getattr(names, role) != "none"]
    is_long = len(roles.scores) == 1 and len(texts) + 2 - len(lacking) >= 2
    is_wide = len(lacking) == 2 and not is_long
    if is_wide and texts and names.rows == "datasets":
        return replace(roles, dataset=texts[0])
    if is_wide:
        return replace(roles, method=texts[0]) if texts else roles
    if not is_long:
        return roles
    by_role = dict(zip(lacking, texts, strict=False))
    method, dataset = by_role.get("method", roles.method), by_role.get("dataset", roles.dataset)
    others = tuple(head for head in roles.texts if head not in by_role.values())
    return replace(roles, method=method, dataset=dataset, texts=others)


def _without_bookkeeping(grid: Grid) -> Grid:
    """Return an export of wandb or MLflow as a table of scores; any other table as it is."""
    exported = tracker_exports.read_export(grid.heads, [cells for _, cells in grid.rows])
    if exported is None:
        return grid
    rows = []
    for number in exported.rows:
        where, cells = grid.rows[number]
        rows.append((where, tuple(cells[position] for position in exported.columns)))
    if not rows:
        raise UsageError(f"{grid.source}: {exported.note}")
    table = replace(grid, heads=exported.heads, rows=tuple(rows), notes=(exported.note,))
    return replace(table, scored=exported.scored, is_export=True)


def _without_spreads(grid: Grid, names: ColumnNames) -> Grid:
    """Return the grid without columns that say how far scores spread around a mean that is there, with a note.

    Data sets are compared by means, so that a mean is a score. What a deviation could add, tests over the seeds of one
    data set, needs the seeds' scores.
    """
    named = {word.casefold() for word in (names.method, names.dataset, names.seed, names.score)}
    letters = {_letters(head) for head in grid.heads}
    spreads = [head for head in grid.heads if _is_spread_of_other(head, letters)]
    if spreads or not letters.isdisjoint(SCORES):
        spreads += [head for head in grid.heads if _letters(head) in SPREADS]
    left_out = set(spreads)
    spreads = [head for head in grid.heads if head in left_out and head.casefold() not in named]
    if not spreads or grid.is_export:
        return grid
    left_out = set(spreads)
    kept = [position for position, head in enumerate(grid.heads) if head not in left_out]
    rows = [(where, tuple(cells[position] for position in kept)) for where, cells in grid.rows]
    note = (
        f"left out, as they belong to means by their names: {listed(spreads)}; means are compared over data sets, and "
        "tests over seeds on one data set need a line per seed"
    )
    heads = tuple(grid.heads[position] for position in kept)
    return replace(grid, heads=heads, rows=tuple(rows), notes=(*grid.notes, note))


def _is_spread_of_other(head: str, letters: set[str]) -> bool:
    """Return True for the deviation or number of a mean that another column holds: `x_std` beside `x` or `x_mean`.

    letters: those of all columns.
    """
    name = _letters(head)
    for part in re.split(r"[^A-Za-z0-9]+", head):
        spread = part.lower()
        if spread not in SPREADS:
            continue
        rest = name.replace(spread, "", 1) if name.startswith(spread) else name.removesuffix(spread)
        if rest and not letters.isdisjoint({rest, f"{rest}mean", f"mean{rest}", f"{rest}avg"}):
            return True
    return False


# --- long and wide ----------------------------------------------------------------------------------------------------


def _read_long(grid: Grid, roles: Roles, numbers: ScoreColumns, notes: Iterable[str]) -> UserScores:
    """Return the scores of a table with a line per score."""
    if not roles.scores:
        raise _refuse_no_numbers(grid)
    head, further = roles.scores[0], roles.scores[1:]
    if _is_number(head):
        raise UsageError(f"{grid.source}: the first line should name the columns, and has the number {head}")
    seeds = grid.column(roles.seed) if roles.seed else [""] * len(grid.rows)
    columns = zip(grid.rows, grid.column(roles.method), grid.column(roles.dataset), seeds, strict=True)
    rows = []
    for (line, method, dataset, seed), score in zip(columns, numbers.values[head], strict=True):
        where = line[0]
        rows.append(ScoreRow(_name(method, where), _name(dataset, where), _seed(seed), score, where))
    said = f"columns: method '{roles.method}', data set '{roles.dataset}', "
    said += f"seed '{roles.seed}', " if roles.seed else "no seed, "
    said += f"score '{head}'"
    if further:
        said += f" (score= takes another: {listed(further)})"
    rows, left_out = _without_means(rows)
    cells = dict(grid.rows)
    read = {*roles.named, head}

    def tell_apart(first: str, second: str) -> list[str]:
        pairs = zip(grid.heads, cells[first], cells[second], strict=True)
        return [column for column, *values in pairs if column not in read and len({*map(str, values)}) > 1]

    return _with_axes(make_scores(rows, grid.source, [said, *left_out, *notes], head, tell_apart))


def _read_wide(grid: Grid, roles: Roles, numbers: ScoreColumns, names: ColumnNames, notes: Sequence[str]) -> UserScores:
    """Return the scores of a table with a column per data set, or per method."""
    if not roles.scores:
        raise _refuse_no_numbers(grid)
    name_head = roles.method or roles.dataset  # a numbering of the lines is no name
    keys = grid.column(name_head) if name_head else [f"row {number + 1}" for number in range(len(grid.rows))]
    seeds = grid.column(roles.seed) if roles.seed else [""] * len(grid.rows)
    is_named = _letters(roles.method) in METHODS or names.method != "auto"
    axes = table_axes.find_axes(
        rows=[str(key) for key in keys],
        columns=roles.scores,
        scores=pd.DataFrame({head: numbers.values[head] for head in roles.scores}),
        says=_axis_of_lines(roles, is_named),
        option=names.rows,
    )
    if len(roles.scores) == 1:
        _refuse_repeats(grid, roles, list(zip(map(str, keys), map(str, seeds), strict=True)))
    lines = []
    for number, ((where, _), key, seed) in enumerate(zip(grid.rows, keys, seeds, strict=True)):
        for head in roles.scores:
            pair = (_name(key, where), head) if axes.rows_are_methods else (head, _name(key, where))
            lines.append(ScoreRow(*pair, _seed(seed), numbers.values[head][number], where))
    ignored = [head for head in (*roles.texts, *roles.named) if head and head not in (name_head, roles.seed)]
    said = [axes.note + (f"; seed '{roles.seed}'" if roles.seed else "")]
    if ignored:
        said.append(f"left out, as it holds no scores: {listed(ignored)}")
    lines, left_out = _without_means(lines)
    return make_scores(lines, grid.source, [*said, *left_out, *notes], "score")


def _refuse_repeats(grid: Grid, roles: Roles, keys: Sequence[tuple[str, str]]) -> None:
    """Raise UsageError if lines with one score each have the same name and seed: a column that tells them apart lacks.

    keys: name and seed of each line.
    """
    if len(set(keys)) == len(keys) or (roles.method and roles.dataset):
        return
    role = "data set" if roles.method else "method"
    option = "dataset" if roles.method else "method"
    raise UsageError(
        f"{grid.source}: several lines have the same name and seed, and no column says the {role}: add a column "
        f"'{option}', or name it with {option}=; the columns are {listed(grid.heads)}"
    )


def _without_means(rows: Sequence[ScoreRow]) -> tuple[list[ScoreRow], list[str]]:
    """Return the scores without means over the data sets, and a note that names these.

    A mean is no further data set: counted as one, it would make every test surer than it is.
    """
    datasets = dict.fromkeys(row.dataset for row in rows)
    means = [name for name in datasets if _letters(name) in MEANS]
    if not means or len(datasets) - len(means) < 2:
        return list(rows), []
    kept = [row for row in rows if row.dataset not in means]
    return kept, [f"left out, as it is a mean of the others by its name: {listed(means)}"]


def _axis_of_lines(roles: Roles, is_named: bool) -> str:
    """Return what the lines of a wide table are by the head of their names; lines without names are data sets."""
    if roles.dataset or not roles.method:
        return "datasets"
    return "methods" if is_named else ""


def _with_axes(scores: UserScores) -> UserScores:
    """Return the scores with a note if their methods look like data sets and the other way round."""
    suspicion = table_axes.suspect_swap(scores.methods, scores.datasets)
    return replace(scores, notes=(*scores.notes, suspicion)) if suspicion else scores


def _name(cell: Any, where: str) -> str:
    """Return a name. Raises UsageError for an empty one, also for NaN as text."""
    if cell is None or cell != cell or str(cell).strip().casefold() in ("", "nan"):
        raise UsageError(f"{where}: has no name of a method or data set")
    return " ".join(str(cell).split())


def _seed(cell: Any) -> str:
    if _is_missing(cell):
        return ""
    if isinstance(cell, float) and cell.is_integer():
        return str(int(cell))
    return str(cell).strip()
