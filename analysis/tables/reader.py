"""Scores of a table whose layout is known: its numbers with their names, deviations, seeds and directions."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import replace

from biasbed.analysis.tables import checks
from biasbed.analysis.tables import vocabulary as say
from biasbed.analysis.tables.axes import suspect_swap
from biasbed.analysis.tables.column_meanings import find_line_meanings, find_measures, find_set_meanings
from biasbed.analysis.tables.directions import (
    contradicted_by_bold,
    errors_by_top_5,
    find_directions,
    turned_by_name,
    turned_signs,
)
from biasbed.analysis.tables.meanings import Meaning
from biasbed.analysis.tables.numbers import Number, is_missing, refuse_text
from biasbed.analysis.tables.repeats import tell_apart
from biasbed.analysis.tables.score_table import ScoreTable
from biasbed.analysis.tables.scores import Score
from biasbed.analysis.tables.understood import Understood
from biasbed.errors import UsageError, listed
from biasbed.measures import LARGEST_SCORE

MOST_ITEMS = 10**9
# Heads of the number of images that a score is a share of.
ITEMS = {
    *("images", "nimages", "numimages", "testimages", "samples", "nsamples", "numsamples", "testsamples", "testsize"),
    *("items", "nitems", "numitems", "examples", "nexamples", "numexamples", "questions", "numquestions", "ntest"),
}


class ScoreReader:
    """Reads the cells of a table of scores."""

    def __init__(self, table: ScoreTable) -> None:
        self.table = table
        body = table.body
        self.has_spread_brackets = table.are_brackets_spreads()
        self.of_lines = find_line_meanings(table) if table.is_long else {}
        self.of_sets = find_measures(table) if table.is_long else find_set_meanings(table)
        heads = [say.letters(body.leaf(column)) for column in range(body.grid.width)]
        self._items_column = next((column for column, head in enumerate(heads) if head in ITEMS), None)
        names = [say.letters(name) for name in body.cells(table.name_column or 0)]
        self._items_row = next((row for row, name in enumerate(names) if name in ITEMS), None)
        self.num_intervals = 0
        self.missing: list[tuple[str, str, str]] = []  # method, data set and seed of cells without a number

    def scores(self) -> list[Score]:
        """Return the scores in the order of the table. Raises UsageError for a cell that is no number."""
        table = self.table
        pairs = itertools.product(table.methods, table.sets)
        scores = []
        for row, column, method, of_set in sorted((*table.position(*pair), *pair) for pair in pairs):
            number, name = table.cells.number(row, column), table.names[method]
            meaning = self._meaning(method, of_set, row)
            if number is not None:
                self.num_intervals += number.has_interval
                score = self._score(number, name, meaning, row, column)
                scores.append(score._replace(seed=table.seeds.get(of_set, score.seed)))
            elif is_missing(table.cells.text(row, column)):
                self.missing.append((name, meaning.name, table.seeds.get(of_set) or self._seed(row)))
            else:
                raise refuse_text(table.cells.text(row, column), table.body.grid.where(row), table.body.name(column))
        if not scores:
            raise UsageError(f"{table.body.grid.source}: there are no scores in it")
        return scores

    def averages(self) -> list[Score]:
        """Return the averages, which are no scores."""
        table = self.table
        scores = []
        for average in table.averages:
            crossing = table.sets if table.is_long else table.methods
            for number_of_line in crossing:
                method, of_set = (average, number_of_line) if table.is_long else (number_of_line, average)
                row, column = table.position(method, of_set)
                path, measure = table.paths[of_set], ""
                if table.is_long:
                    path, measure = (table.body.grid.rows[row][table.columns.dataset or 0],), table.body.leaf(column)
                elif table.columns.metric is not None:
                    measure = table.body.grid.rows[row][table.columns.metric]
                number = table.cells.number(row, column)
                if number is not None:
                    direction = say.direction(" ".join((*path, measure)))
                    meaning = Meaning(" / ".join(path), measure, direction=direction)
                    score = self._score(number, table.names[method], meaning, row, column)
                    scores.append(score._replace(spread=None))  # of what it averages, it does not say
        return scores

    def ranks(self) -> list[tuple[str, float]]:
        """Return the printed ranks, each with its method; none of a table with a line per score."""
        table, ranks = self.table, []
        for of_ranks in table.ranks if not table.is_long else ():
            for method in table.methods:
                number = table.number(method, of_ranks)
                if number is not None:
                    ranks.append((table.names[method], number.value))
        return ranks

    def _meaning(self, method: int, of_set: int, row: int) -> Meaning:
        """Return what a number is a score on."""
        meaning = self.of_sets[of_set]
        if self.table.is_long:
            measure, meaning = meaning, self.of_lines[method]
            meaning = replace(
                meaning,
                metric=measure.metric or meaning.metric,
                split=measure.split or meaning.split,
                direction=measure.direction or meaning.direction,
                variant=measure.variant or meaning.variant,
            )
            if len(self.of_sets) > 1 and not meaning.block:
                meaning = replace(meaning, block=meaning.dataset)
        cells, columns = self.table.body.grid.rows[row], self.table.columns
        if columns.metric is not None and cells[columns.metric]:
            metric = cells[columns.metric]
            direction = say.direction(metric) or meaning.direction
            meaning = replace(meaning, metric=say.without_arrow(metric), direction=direction)
        if columns.arrows is not None and cells[columns.arrows]:
            meaning = replace(meaning, direction=say.arrow(cells[columns.arrows]))
        return meaning

    def _score(self, number: Number, method: str, meaning: Meaning, row: int, column: int) -> Score:
        body, columns = self.table.body, self.table.columns
        where, text = body.grid.where(row), self.table.cells.text(row, column)
        if abs(number.value) > LARGEST_SCORE:
            raise UsageError(f"{where}: the score {number.value:g} in the column '{body.name(column)}' is beyond 1e100")
        spread = number.spread if not number.bracket or self.has_spread_brackets else None
        if column in columns.spreads:
            beside = self.table.cells.number(row, columns.spreads[column])
            spread = beside.value if beside is not None else None
        return Score(
            method,
            meaning.name,
            self._seed(row),
            number.value,
            where,
            meaning.block,
            meaning.metric,
            meaning.split,
            meaning.direction,
            spread,
            num_runs=self.table.settings.num_runs or self._count(row, columns.num_runs),
            num_items=self._count(row, self._items_column) or self._count(self._items_row, column),
            row=row,
            column=column,
            line=body.grid.lines[row],
            text=text,
            digits=number.digits,
            half=0.5 * 10.0 ** (_exponent(text) - number.digits),
            is_bold=(row, column) in body.grid.bold,
        )

    def _count(self, row: int | None, column: int | None) -> int:
        """Return the whole number of a cell; 0 for none."""
        number = self.table.cells.number(row, column) if row is not None and column is not None else None
        return int(number.value) if number is not None and 1 <= number.value < MOST_ITEMS else 0

    def _seed(self, row: int) -> str:
        column = self.table.columns.seed
        text = self.table.body.grid.rows[row][column] if column is not None else ""
        if is_missing(text):
            return self.table.runs.get(row, "")
        return str(int(float(text))) if re.fullmatch(r"\d{1,15}\.0+", text) else text


def _exponent(text: str) -> int:
    match = re.match(r"\s*[+-]?[0-9.,]+[eE]([+-]?[0-9]{1,3})", text)
    return int(match[1]) if match else 0


def read_scores(table: ScoreTable, format_name: str, axes: str, is_export: bool) -> tuple[Understood, list[Score]]:
    """Return the scores of a table with all that is noted about them, and its averages."""
    grid, settings = table.body.grid, table.settings
    reader = ScoreReader(table)
    scores = reader.scores()
    if not settings.has_directions:
        checks.refuse_other_numbers([score.value for score in scores], table.hint, grid.caption, grid.source)
    scores = tell_apart(scores, table.body, table.columns, is_export, settings.dataset == "auto", table.notes)
    scores, turned = turned_signs(scores, table.body)
    scores, of_errors = errors_by_top_5(scores)
    averages, note = reader.averages(), ""
    if not settings.has_directions:
        scores = turned_by_name(scores, averages, table)
        scores, note = find_directions(scores, averages, reader.ranks(), table.titles, grid.source)
    scores = _without_validation(scores)
    methods, datasets = (list(dict.fromkeys(names)) for names in zip(*(score[:2] for score in scores), strict=True))
    _refuse_matrix(grid.source, methods, datasets)
    contradiction = "" if settings.has_directions else contradicted_by_bold(scores)
    result = Understood(grid.source, format_name, scores, axes, table.left_out, table.notes)
    result.notes += filter(None, (turned, of_errors, note, contradiction, _lost_seeds(scores, reader.missing)))
    if reader.num_intervals:
        result.notes.append(f"intervals behind {reader.num_intervals} scores are left out")
    result.notes += checks.same_numbers(result)
    result.notes += checks.opposite_columns(result)
    checks.refuse_too_little(result)
    undivided = list(dict.fromkeys(score.dataset for score in scores if not score.block))
    if suspicion := suspect_swap(methods, undivided):
        result.notes.append(suspicion)
    spread_heads = [table.body.leaf(column) for column in table.columns.spreads.values()]
    result.is_standard_error = any(say.has_word(head, say.STANDARD_ERRORS) for head in spread_heads)
    return result, averages


def _lost_seeds(scores: Sequence[Score], missing: Sequence[tuple[str, str, str]]) -> str:
    """Return a note on runs without a score where other runs of the method have one; empty for none."""
    scored = {(score.method, score.dataset) for score in scores}
    lost = []
    for method, dataset, seed in missing:
        if seed and (method, dataset) in scored:
            lost.append(f"{method} on {dataset} with seed {seed}")
    return f"left out, as no score is there: {listed(lost, 5)}" if lost else ""


def _refuse_matrix(source: str, methods: Sequence[str], datasets: Sequence[str]) -> None:
    """Raise UsageError for a matrix of sources and targets, in which nothing is a method."""
    shared = set(map(str.casefold, methods)) & set(map(str.casefold, datasets))
    if len(shared) > 2 and 2 * len(shared) > len(datasets):
        raise UsageError(
            f"{source}: no column says the method: lines and columns have the same names "
            f"({listed(sorted(shared), 3)}), as sources and targets; give a line per method"
        )


def _without_validation(scores: Sequence[Score]) -> list[Score]:
    """Return the scores with those of validation and training left out where test scores are beside them."""

    def key(score: Score) -> tuple[str, ...]:
        spoken = say.split_words(f"{score.block} {score.dataset} {score.metric}")
        return tuple(dict.fromkeys(w for w in spoken if w not in say.VALIDATION | say.TRAINING | {"test"}))

    tested = {key(score) for score in scores if score.split not in ("val", "train")}
    has_tests = any("test" in say.split_words(score.dataset) for score in scores)
    result = []
    for score in scores:
        is_beside = key(score) in tested or (bool(tested) and score.dataset == score.metric)
        is_beside |= not key(score) and has_tests  # `Dev` beside `Test-Net`
        if score.split in ("val", "train") and is_beside:
            kind = "validation" if score.split == "val" else "training"
            score = score._replace(left_out=f"{kind} scores beside test scores")
        result.append(score)
    return result
