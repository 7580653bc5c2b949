"""Table of scores with a line per method, whatever lines and columns were; or with a line per score."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath

from biasbed.analysis.tables import averages
from biasbed.analysis.tables import vocabulary as say
from biasbed.analysis.tables.head import Body
from biasbed.analysis.tables.layout import Layout
from biasbed.analysis.tables.lines import LeftOut, name_lines, runs_of_lines, select_lines
from biasbed.analysis.tables.markup import without_citation
from biasbed.analysis.tables.meanings import ONE_SET
from biasbed.analysis.tables.numbers import Number, resolve_brackets
from biasbed.analysis.tables.roles import ParsedCells
from biasbed.analysis.tables.settings import COLUMNS, ReaderSettings
from biasbed.errors import UsageError, listed


class ScoreTable:
    """Methods and data sets of a table, by the numbers of its lines and columns.

    A table whose lines are data sets is turned here: `methods` are then its columns, and `sets` its lines. In a table
    with a line per score, `methods` are its lines, and `sets` its columns of scores.
    """

    def __init__(self, body: Body, cells: ParsedCells, layout: Layout, settings: ReaderSettings) -> None:
        self.body, self.cells, self.columns, self.settings = body, cells, layout.columns, settings
        self.is_turned, self.is_long = layout.is_turned, layout.kind == "long"
        self.name_column = layout.name_column
        self.left_out: LeftOut = list(layout.columns.left_out)
        self.notes: list[str] = []
        self.line_names = name_lines(body, cells, layout.columns, layout.name_column)
        rows = select_lines(body, cells, layout, self.line_names, settings, self.left_out)
        heads = {column: _head(body, layout, column) for column in layout.columns.scores}
        self.averages: list[int] = []  # data sets that average others; of a table with a line per score lines
        self.runs: dict[int, str] = {}  # by line, if a further line is their mean
        self.ranks = list(layout.columns.ranks)  # columns or lines of printed ranks
        if self.is_turned:
            self.methods, self.sets = list(heads), rows
            others = [row for row in range(len(self.line_names)) if row not in rows]
            self.ranks = [row for row in others if say.is_rank(self.line_names[row])]
            for row in others:
                if row not in self.ranks and say.average_kind(self.line_names[row]):
                    self.averages.append(row)
            self.paths = {row: self._line_path(row, rows) for row in (*rows, *self.averages)}
            self.names = {}
            for column, path in heads.items():
                self.names[column] = " ".join(map(without_citation, path)) or f"column {column + 1}"
        else:
            self.methods, self.sets, self.paths = rows, list(heads), heads
            self.names = dict(enumerate(self.line_names))
            runs = runs_of_lines(rows, self.line_names)
            self.names |= {row: method for row, (method, _) in runs.items()}
            self.runs = {row: run for row, (_, run) in runs.items()}
        if self.is_long:
            self._leave_out_average_lines()
        else:
            self._leave_out_average_sets()
        self.seeds: dict[int, str] = {}  # by data set, if the user says that each of its columns (or lines) is a seed
        if settings.seed == COLUMNS:
            for of_set, path in self.paths.items():
                self.seeds[of_set] = path[-1]
                self.paths[of_set] = path[:-1] or (ONE_SET,)

    def _line_path(self, row: int, rows: Sequence[int]) -> tuple[str, ...]:
        """Return what a line of a turned table says about its data set: block, section, name and part."""
        name, section = self.line_names[row], self.body.sections[row]
        is_repeated = self.line_names.count(name) > 1 or bool(say.OF_DATA.search(section))
        is_divided = is_repeated and len({self.body.sections[counted] for counted in rows}) > 1
        return self.with_parts(row, (section, name) if is_divided else (name,))

    def with_parts(self, row: int, path: tuple[str, ...]) -> tuple[str, ...]:
        """Return a path with the block and the part that columns of a line say."""
        cells = self.body.grid.rows[row]
        if self.columns.part is not None:
            path = (*path, cells[self.columns.part])
        if self.columns.block is not None:
            path = (cells[self.columns.block], *path)
        return tuple(filter(None, path))

    @property
    def titles(self) -> str:
        """Titles of the table, a line each, the nearest first: a measure at the end of its corner, and its caption."""
        corner = self.body.leaf(self.name_column or 0).split()
        measure = corner[-1] if corner and say.is_metric(corner[-1]) else ""
        return f"{measure}\n{self.body.grid.caption}".strip()

    @property
    def hint(self) -> str:
        """Words around the table: its caption, sections and corner, and the name of its file."""
        corners = (level[0] for level in self.body.levels)
        stem = PurePath(self.body.grid.source).stem.replace("_", " ")
        return " ".join([self.body.grid.caption, *dict.fromkeys(self.body.sections), *corners, stem])

    def position(self, method: int, of_set: int) -> tuple[int, int]:
        """Return row and column of a number."""
        return (of_set, method) if self.is_turned else (method, of_set)

    def number(self, method: int, of_set: int) -> Number | None:
        return self.cells.number(*self.position(method, of_set))

    def values(self, of_set: int) -> list[float]:
        """Return the numbers of a data set."""
        numbers = (self.number(method, of_set) for method in self.methods)
        return [number.value for number in numbers if number is not None]

    def label(self, of_set: int) -> str:
        """Return a data set as its line or column is called."""
        return f"line {self.line_names[of_set]}" if self.is_turned else self.body.name(of_set)

    def is_kept(self, of_set: int) -> bool:
        """Return True if the user keeps a data set that would be left out."""
        spelled = set(map(str.casefold, (self.label(of_set), *self.paths[of_set][-1:])))
        return not spelled.isdisjoint(map(str.casefold, self.settings.keep))

    def _leave_out_average_sets(self) -> None:
        """Leave out data sets that are averages of others."""
        lines = []
        for method in self.methods:
            numbers = {of_set: self.number(method, of_set) for of_set in self.sets}
            lines.append({of_set: number.value for of_set, number in numbers.items() if number is not None})
        paths = {of_set: self.paths[of_set] for of_set in self.sets}
        are_averages = len(self.sets) > 1
        for of_set in self.sets:
            leaf = "".join(self.paths[of_set][-1:])
            are_averages &= say.average_kind(leaf) in ("sure", "partly") and not say.is_metric(leaf)
        if are_averages:
            raise UsageError(f"{self.body.grid.source}: holds only averages, and not what they are averages of")
        reasons, notes = averages.find_averages(paths, lines)
        averaging = [of_set for of_set in self.sets if of_set in reasons and not self.is_kept(of_set)]
        if len(averaging) < len(self.sets):
            self.notes += notes
            self.left_out += [(self.label(of_set), reasons[of_set]) for of_set in averaging]
            self.sets = [of_set for of_set in self.sets if of_set not in averaging]
            self.averages += averaging

    def _leave_out_average_lines(self) -> None:
        """Leave out lines whose data set is an average of the others."""
        if self.columns.dataset is None:
            return
        texts = {row: self.body.grid.rows[row][self.columns.dataset] for row in self.methods}
        averaging = {text for text in texts.values() if say.average_kind(text) == "sure"}
        if averaging and len(set(texts.values()) - averaging) > 1:
            self.left_out.append((listed(sorted(averaging)), "an average by its name"))
            self.averages = [row for row in self.methods if texts[row] in averaging]
            self.methods = [row for row in self.methods if texts[row] not in averaging]

    def are_brackets_spreads(self) -> bool:
        """Return True if numbers in brackets are deviations."""
        numbers = []
        first = ""
        for of_set in self.sets:
            for method in self.methods:
                number = self.number(method, of_set)
                if number is not None:
                    numbers.append(number)
                    if number.bracket and not first:
                        row, column = self.position(method, of_set)
                        first = f"{self.body.grid.where(row)}, column '{self.body.name(column)}'"
        kind, note = resolve_brackets(numbers, self.settings.brackets, first)
        if note:
            self.notes.append(note)
        return kind == "spread"


def _head(body: Body, layout: Layout, column: int) -> tuple[str, ...]:
    """Return the names above a column of scores, without the word that says that they are means of something."""
    path = tuple(text.removeprefix("metrics.") for text in body.path(column))
    if column in layout.columns.spreads:
        return tuple(filter(None, map(say.without_mean, path))) or body.path(column)
    return path
