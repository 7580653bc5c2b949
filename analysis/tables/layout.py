"""Layout of a table: a line per score, a line per method, or a line per data set; and which column names the lines."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from biasbed.analysis.tables import averages
from biasbed.analysis.tables import vocabulary as say
from biasbed.analysis.tables.axes import Evidence, find_axes
from biasbed.analysis.tables.head import Body
from biasbed.analysis.tables.roles import COST, DIFFERENCE, ParsedCells, TableColumns, are_links, is_cost
from biasbed.analysis.tables.settings import COLUMNS, ReaderSettings
from biasbed.errors import UsageError, listed

MANY_COSTS = 2  # columns of settings, more of which stand beside no methods


@dataclass
class Layout:
    """Layout of a table: the kind of its lines, and the column that names them."""

    columns: TableColumns
    kind: str  # long, straight (lines are methods) or turned (lines are data sets)
    name_column: int | None
    note: str

    @property
    def is_turned(self) -> bool:
        """True if lines are data sets and columns methods."""
        return self.kind == "turned"


def find_layout(
    body: Body, cells: ParsedCells, columns: TableColumns, settings: ReaderSettings, is_export: bool
) -> Layout:
    """Return the layout of a table. Raises UsageError if it is unclear, or if no column or line can be a method."""
    layout = _find_layout(body, cells, columns, settings, is_export)
    corner = say.letters(body.leaf(layout.name_column or 0)).removesuffix("s")
    if settings.rows == "auto" and (layout.is_turned or corner in say.SEEDS):
        _refuse_other_columns(body, columns)
    if not layout.is_turned and settings.seed != COLUMNS:
        _refuse_other_heads(body, columns, settings)
    return layout


def _refuse_other_columns(body: Body, columns: TableColumns) -> None:
    """Raise UsageError if the columns of a table are runs by their numbers, or settings, and no methods."""
    names = [body.leaf(column) for column in columns.scores]
    costs = [name for name, reason in columns.left_out if reason == COST]
    if len(names) > 1 and all(map(str.isdigit, names)):
        raise UsageError(
            f"{body.grid.source}: the columns are numbered ({listed(names, 3)}): they are runs, and no methods; say "
            "seed=columns rows=methods, or rows=datasets if they are methods"
        )
    if len(costs) > MANY_COSTS and len(costs) >= len(names):
        raise UsageError(
            f"{body.grid.source}: no column says the method, and most columns are settings or costs "
            f"({listed(costs, 4)}): name it with method=, or say rows=datasets if {listed(names, 2)} are methods"
        )


def _refuse_other_heads(body: Body, columns: TableColumns, settings: ReaderSettings) -> None:
    """Raise UsageError for a head of measures that count in both directions, of a seed, or of a variant."""
    has_difference = any(reason == DIFFERENCE for _, reason in columns.left_out)
    for column in columns.scores:
        head, leaf, reason = body.name(column), body.leaf(column), ""
        if "↑" in head and "↓" in head and not (settings.has_directions or settings.value_in_cell):
            reason = "has measures that count in both directions: leave it out with leave_out=, or say lower="
        elif re.fullmatch(r"(?:seed|run|fold|trial)[\s_]*\d+", leaf, re.I):
            reason = "is a seed, and no data set: say seed=columns"
        elif settings.rows == "auto" and (say.is_ablation(leaf) or (has_difference and len(columns.scores) == 2)):
            reason = (
                "is a variant of the methods, and no data set: say rows=datasets if all columns are methods, "
                "rows=methods to read it as a data set, or leave_out="
            )
        if reason:
            raise UsageError(f"{body.grid.source}: the column '{head}' {reason}")


def _find_layout(
    body: Body, cells: ParsedCells, columns: TableColumns, settings: ReaderSettings, is_export: bool
) -> Layout:
    if columns.dataset is not None and settings.dataset == "auto" and _groups_methods(body, columns):
        columns.texts.append(columns.dataset)
        columns.dataset = None
    if columns.method is not None and settings.rows == settings.method == "auto":
        _refuse_two_corners(body, columns.method)
    if columns.method is not None and columns.dataset is not None and settings.rows == "auto":
        return Layout(columns, "long", columns.method, _say_columns(body, columns))
    if settings.rows == "auto" and _is_turned_by_names(body, columns):
        columns.method, columns.dataset = None, columns.method
        note = (
            "lines are data sets and columns methods, by their names and against the head (`rows` as methods turns it)"
        )
        return Layout(columns, "turned", columns.dataset, note)
    is_weak = columns.method is not None and say.letters(body.leaf(columns.method)) == "name"
    is_weak = is_weak and settings.method == "auto" and not is_export and len(columns.scores) > 1
    if columns.method is not None and settings.rows != "datasets" and not is_weak:
        return Layout(columns, "straight", columns.method, "lines are methods and columns data sets, as the head says")
    if is_export:
        heads = listed([body.name(column) for column in (*columns.texts, *columns.scores)], 10)
        raise UsageError(
            f"{body.grid.source}: no column says the method of a run: name it with method=; the columns are {heads}"
        )
    if columns.dataset is not None and settings.rows == "auto" and _is_straight_by_names(body, columns):
        columns.method, columns.dataset = columns.dataset, None
        note = (
            "lines are methods and columns data sets, by their names and against the head (`rows` as datasets turns it)"
        )
        return Layout(columns, "straight", columns.method, note)
    if columns.dataset is not None and settings.rows != "methods":
        return _layout_of_named_sets(body, columns, settings)
    return _layout_by_evidence(body, cells, columns, settings)


def _refuse_two_corners(body: Body, column: int) -> None:
    """Raise UsageError if the lines of the head call the names both data sets and methods."""
    *upper, last = body.path(column)
    contradicting = next((name for name in upper if say.letters(name) in say.DATASETS), "")
    if contradicting:
        raise UsageError(
            f"{body.grid.source}: the names stand below '{contradicting}' and '{last}': say rows=methods or "
            "rows=datasets"
        )


def _layout_of_named_sets(body: Body, columns: TableColumns, settings: ReaderSettings) -> Layout:
    """Return the layout of a table whose head names data sets, and no methods: a column of words or the columns are."""
    if settings.rows == "auto" and _begin_with_measures(body.cells(columns.dataset or 0)):
        raise UsageError(
            f"{body.grid.source}: lines that begin with a measure stand below '{body.leaf(columns.dataset or 0)}': say "
            "rows=methods or rows=datasets"
        )
    first = next(iter(_name_columns(body, columns)), None)
    may_name = first is not None and settings.method != "none" and settings.rows == "auto"
    if first is not None and may_name and _may_be_methods(body, columns, first):
        columns.method = first
        columns.texts.remove(first)
        return Layout(columns, "long", first, _say_columns(body, columns))
    _refuse_without_methods(body, columns)
    return Layout(columns, "turned", columns.dataset, "lines are data sets and columns methods, as the head says")


def _layout_by_evidence(body: Body, cells: ParsedCells, columns: TableColumns, settings: ReaderSettings) -> Layout:
    """Return the layout of a table whose head does not say what its lines are."""
    candidates = [column for column in (columns.method, columns.dataset) if column is not None]
    candidates = candidates or _name_columns(body, columns)
    if columns.metric is not None and all(len(set(body.cells(column))) == 1 for column in candidates):
        candidates, columns.metric = [columns.metric], None  # measures of one data set, which nothing names
    if not candidates:
        return _nameless(body, columns, settings)
    column = candidates[0]
    axes = find_axes(_evidence(body, cells, columns, column), settings.rows, body.grid.source)
    columns.method, columns.dataset = (column, None) if axes.rows_are_methods else (None, column)
    if not axes.rows_are_methods:
        _refuse_without_methods(body, columns)
    columns.texts = [text for text in columns.texts if text != column]
    return Layout(columns, "straight" if axes.rows_are_methods else "turned", column, axes.note)


def _groups_methods(body: Body, columns: TableColumns) -> bool:
    """Return True if each method stands on one of several data sets: these are groups of methods."""
    if columns.dataset is None or columns.block is not None or len(columns.scores) < 2:
        return False
    name_column = columns.method
    if name_column is None and say.letters(body.leaf(columns.dataset)) in ("category", "categories", "group", "groups"):
        name_column = next(iter(_name_columns(body, columns)), None)
    if name_column is None:
        return False
    methods, datasets = body.cells(name_column), body.cells(columns.dataset)
    pairs = set(zip(methods, datasets, strict=True))
    return len(pairs) == len(set(methods)) and 1 < len(set(filter(None, datasets))) < len(pairs)


def _is_turned_by_names(body: Body, columns: TableColumns) -> bool:
    """Return True if the head calls the lines methods, and most of them are data sets by name, and no column."""
    if columns.method is None or columns.dataset is not None:
        return False
    names = [name for name in body.cells(columns.method) if not averages.other_line(name)]
    are_sets = [bool(say.OF_DATA.search(name)) for name in names]
    if any(map(say.OF_METHODS.search, names)) or sum(are_sets) < 0.7 * len(names) or len(names) < 2:
        return False
    heads = [body.leaf(column) for column in columns.scores]
    return not any(map(say.OF_DATA.search, heads)) and not any(map(say.is_metric, heads))


def _is_straight_by_names(body: Body, columns: TableColumns) -> bool:
    """Return True if the head calls the lines data sets, and the columns are data sets by name, and no line."""
    heads = [body.leaf(column) for column in columns.scores]
    lines = body.cells(columns.dataset or 0)
    are_sets = [bool(say.OF_DATA.search(head)) for head in heads]
    if any(map(say.OF_METHODS.search, heads)) or any(map(say.OF_DATA.search, lines)) or len(heads) < 2:
        return False
    if _begin_with_measures(lines):
        return not any(map(say.is_metric, heads))
    return sum(are_sets) >= 0.7 * len(heads)


def _begin_with_measures(lines: Sequence[str]) -> bool:
    """Return True for lines like `Accuracy DGL` and `MAE(ours)`."""
    first_words = [re.split(r"[ (]", line)[0] for line in lines]
    return all(map(say.is_metric, first_words)) and not all(map(say.is_metric, lines))


def _say_columns(body: Body, columns: TableColumns) -> str:
    roles = (("method", columns.method), ("data set", columns.dataset), ("part", columns.part), ("seed", columns.seed))
    said = [f"{role} '{body.name(column)}'" for role, column in roles if column is not None]
    return f"a line a score: columns {', '.join(said)}"


def _name_columns(body: Body, columns: TableColumns) -> list[int]:
    """Return the columns of words that may name the lines, the best first."""

    def order(column: int) -> tuple[bool, bool, int, int]:
        spoken = set(say.split_words(body.leaf(column)))
        texts = [text for text in body.cells(column) if text]
        is_reference = bool(spoken) and spoken <= say.REFERENCES | say.TEXTS
        is_number = bool(say.average_kind(body.leaf(column))) or is_cost(body.name(column), body.leaf(column), texts)
        is_number |= all(text[0].isdigit() for text in texts)  # `4 V100`
        is_unique = len(set(texts)) == len(texts)
        return is_reference or is_number, bool(spoken & say.VARIANTS) and not is_unique, -len(set(texts)), column

    named = []
    for column in columns.texts:
        texts = body.cells(column)
        is_name = _has_letters(texts) and not say.are_flags(texts) and not are_links(texts)
        if is_name or (column == 0 and not body.leaf(0)):
            named.append(column)
    return sorted(named, key=order)


def _has_letters(texts: Sequence[str]) -> bool:
    return any(map(str.isalpha, "".join(texts)))


def _may_be_methods(body: Body, columns: TableColumns, column: int) -> bool:
    """Return True if a column of words beside the data sets names methods: they and data sets repeat.

    Several columns of scores of which none is a measure are methods themselves.
    """
    assert columns.dataset is not None
    if say.split_words(body.leaf(column))[:1] == ("type",):
        return False
    are_methods = len(columns.scores) > 1 and not any(say.is_metric(body.leaf(score)) for score in columns.scores)
    if are_methods:
        return False
    datasets, methods = body.cells(columns.dataset), body.cells(column)
    num_pairs = len(set(zip(datasets, methods, strict=True)))
    repeat = max(len(set(datasets)), len(set(methods))) < len(datasets)
    return repeat and num_pairs > len(datasets) // 2


def _refuse_without_methods(body: Body, columns: TableColumns) -> None:
    """Raise UsageError if the columns of a table of data sets are measures or properties, and not methods."""
    names = [say.without_arrow(body.leaf(column)) for column in columns.scores]
    with_arrows = [body.leaf(column) for column in columns.scores if say.arrow(body.leaf(column))]
    if any(say.OF_METHODS.search(name) or say.BACKBONES.search(name) for name in names):
        return
    properties = [
        name
        for name in names
        if say.has_word(name, say.PROPERTIES)
        or say.is_measure_like(name)
        or say.says(name, say.SCORES)
        or say.SEEN_CLASSES.issuperset(say.split_words(name))
        or say.OF_SPLITS.search(name)
    ]
    if max(len(properties), len(with_arrows)) >= 0.7 * len(names):
        raise UsageError(
            f"{body.grid.source}: no column says the method: the columns {listed(names, 4)} are measures or properties "
            f"of data sets (one model only?): name a column with method=, or say rows=methods"
        )


def _nameless(body: Body, columns: TableColumns, settings: ReaderSettings) -> Layout:
    """Return the layout of a table without a column of names: lines are data sets, called row 1, 2, ..."""
    are_measures = any(say.is_metric(body.leaf(column)) for column in columns.scores)
    is_guess = body.grid.format != "DataFrame" and settings.rows == "auto"
    if len(columns.scores) < 2 or are_measures or is_guess:
        raise UsageError(f"{body.grid.source}: no column names the methods: name it with method=")
    kind = "straight" if settings.rows == "methods" else "turned"
    return Layout(columns, kind, None, "lines have no names; they are data sets and columns methods (`rows` turns it)")


def _evidence(body: Body, cells: ParsedCells, columns: TableColumns, name_column: int) -> Evidence:
    rows = range(len(body.grid.rows))
    numbers = cells.lines(rows, columns.scores)
    names = body.cells(name_column)
    paths = {column: body.path(column) for column in columns.scores}
    averaging, _ = averages.find_averages(paths, numbers)
    plain = [row for row in rows if not averages.other_line(names[row])]
    return Evidence(
        head=body.name(name_column),
        rows=[names[row] for row in plain],
        columns=[" ".join(paths[column]) for column in columns.scores if column not in averaging],
        leaves=[say.without_arrow(paths[column][-1]) for column in columns.scores if paths[column]],
        averages_rows=any(say.average_kind(names[row]) == "sure" for row in rows),
        averages_columns=bool(averaging),
        is_mapping=body.grid.format == "JSON" and not body.leaf(name_column),
    )
