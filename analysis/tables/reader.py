"""Scores of a table whose layout is known: names of lines and columns, numbers, deviations, splits and directions."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from biasbed.analysis.tables import averages, checks
from biasbed.analysis.tables import vocabulary as say
from biasbed.analysis.tables.axes import suspect_swap
from biasbed.analysis.tables.directions import contradicted_by_bold, find_directions, turned_signs
from biasbed.analysis.tables.head import Body
from biasbed.analysis.tables.layout import Layout
from biasbed.analysis.tables.markup import without_citation
from biasbed.analysis.tables.meanings import ONE_SET, Meaning, apply_blocks, find_meanings
from biasbed.analysis.tables.numbers import is_missing, is_pair, refuse_text, resolve_brackets
from biasbed.analysis.tables.repeats import NamedNumber
from biasbed.analysis.tables.roles import ParsedCells
from biasbed.analysis.tables.settings import ReaderSettings
from biasbed.analysis.tables.understood import Score, Understood
from biasbed.errors import UsageError, listed
from biasbed.measures import LARGEST_SCORE

_LAST_BRACKET = re.compile(r"(.+?)\s*\(([^()]+)\)")


class ScoreReader:
    """Reads the scores of a table whose layout is known."""

    def __init__(self, body: Body, cells: ParsedCells, layout: Layout, settings: ReaderSettings) -> None:
        self.body, self.cells, self.layout, self.settings = body, cells, layout, settings
        self.columns = layout.columns
        self.left_out = list(self.columns.left_out)
        self.notes: list[str] = []
        self._several_measures = False
        self._intervals = 0
        self._missing: list[tuple[int, int]] = []
        self._hint = f"{body.grid.caption} {' '.join(dict.fromkeys(body.sections))}"
        self._hint += f" {' '.join(level[0] for level in body.levels)}"

    def records(self) -> list[NamedNumber]:
        """Return a record for each number, in the order of the table."""
        names = self._names(self.layout.name_column)
        settings = [name for name in names if say.is_setting(name)]
        if 5 * len(settings) >= 3 * len(names):
            raise UsageError(
                f"{self.body.grid.source}: holds no scores: its lines are settings or sizes ({listed(settings, 3)})"
            )
        rows = [row for row in range(len(names)) if self._counts(names[row])]
        rows = self._without_average_sets(rows)
        rows = self._without_means_of_lines(rows, names)
        scored = list(self.columns.scores)
        if self.layout.kind != "turned":
            scored = self._without_average_columns(rows)
        else:
            rows = self._without_lines_of_words(names, rows, scored)
            rows = self._without_average_rows(names, rows, scored)
        spread_brackets = self._brackets(rows, scored)
        by_row = self._row_meanings(names, rows)
        by_column = self._column_meanings(scored, rows)
        records = []
        for row in rows:
            for column in scored:
                record = self._record(row, column, names, by_row, by_column, spread_brackets)
                if record is not None:
                    records.append(record)
        if not records:
            raise UsageError(f"{self.body.grid.source}: there are no scores in it")
        if not self.settings.has_directions:
            checks.refuse_other_numbers([record.value for record in records], self._hint, self.body.grid.source)
        return records

    def _names(self, column: int | None) -> list[str]:
        """Return the name of each line; an empty one repeats the name above if another column tells lines apart."""
        count = len(self.body.grid.rows)
        if column is None:
            return [f"row {row + 1}" for row in range(count)]
        names, last = [], ""
        tellers = [
            second
            for second in (self.columns.metric, self.columns.method, *self.columns.texts)
            if second is not None and second != column
        ]
        for row in range(count):
            name = without_citation(self.body.grid.rows[row][column])
            if not name:
                has_numbers = any(self.cells.number(row, score) for score in self.columns.scores)
                if last and any(self.body.grid.rows[row][second] for second in tellers):
                    name = last
                elif has_numbers:
                    raise UsageError(f"{self.body.grid.where(row)}: has no name of a method or data set")
            names.append(name)
            last = name or last
        plain = [self.body.grid.rows[row][column] for row in range(count)]
        if len(set(names)) < len({name for name in plain if name}):  # citations tell methods apart
            return [name or filled for name, filled in zip(plain, names, strict=True)]
        return names

    def _counts(self, name: str) -> bool:
        """Return True if a line is a method or a data set by its name; else note it."""
        if not name:
            return False
        if name.casefold() in map(str.casefold, self.settings.leave_out):
            self.left_out.append((f"line {name}", "as you say"))
            return False
        if name.casefold() in map(str.casefold, self.settings.keep):
            return True
        reason = averages.other_line(name)
        if reason and not (self.layout.kind == "long" and reason.startswith("a dev")):
            self.left_out.append((f"line {name}", reason))
            return False
        return True

    def _without_average_columns(self, rows: Sequence[int]) -> list[int]:
        """Return the columns of scores that are no averages of others."""
        scored = self.columns.scores
        if len(scored) < 2:
            return scored
        paths = {column: self.body.path(column) for column in scored}
        averaging, notes = averages.find_averages(paths, self.cells.lines(rows, scored))
        kept = [column for column in scored if column not in averaging or self._is_kept(column)]
        if not kept:
            return scored
        self.notes += notes
        self.left_out += [(self.body.name(column), averaging[column]) for column in scored if column not in kept]
        return kept

    def _without_average_sets(self, rows: list[int]) -> list[int]:
        """Return the lines of a long table without those whose data set is an average of the others."""
        column = self.columns.dataset
        if self.layout.kind != "long" or column is None:
            return rows
        texts = {row: self.body.grid.rows[row][column] for row in rows}
        averages_there = {text for text in texts.values() if say.average_kind(text) == "sure"}
        if not averages_there or len(set(texts.values()) - averages_there) < 2:
            return rows
        self.left_out.append((listed(sorted(averages_there)), "an average by its name"))
        return [row for row in rows if texts[row] not in averages_there]

    def _without_means_of_lines(self, rows: list[int], names: Sequence[str]) -> list[int]:
        """Return the lines without `erm (avg)` beside `erm (0)` and `erm (1)`: runs, and their mean."""
        split = {row: _LAST_BRACKET.fullmatch(names[row]) for row in rows}
        counts = Counter(match[1] for match in split.values() if match)
        means = []
        for row, match in split.items():
            if match and counts[match[1]] > 2 and say.average_kind(match[2]) == "sure":
                means.append(row)
        self.left_out += [(f"line {names[row]}", "an average of other lines, by its name") for row in means]
        return [row for row in rows if row not in means]

    def _is_kept(self, column: int) -> bool:
        spelled = {self.body.name(column).casefold(), self.body.leaf(column).casefold()}
        return not spelled.isdisjoint(map(str.casefold, self.settings.keep))

    def _without_lines_of_words(self, names: Sequence[str], rows: Sequence[int], scored: Sequence[int]) -> list[int]:
        """Return the lines of a turned table without those that say words of all methods, as `Architecture` does."""
        kept = []
        for row in rows:
            has_words = [self.cells.number(row, column) is None for column in scored]
            texts = [self.cells.text(row, column) for column in scored]
            if all(has_words) and not any(map(is_missing, texts)) and not any(map(is_pair, texts)):
                self.left_out.append((f"line {names[row]}", "words"))
            else:
                kept.append(row)
        return kept

    def _without_average_rows(self, names: Sequence[str], rows: Sequence[int], scored: Sequence[int]) -> list[int]:
        """Return the lines of a turned table that are no averages of others."""
        paths = {row: (names[row],) for row in rows}
        lines = dict(zip(rows, self.cells.lines(rows, scored), strict=True))
        turned = [{row: line[column] for row, line in lines.items() if column in line} for column in scored]
        averaging, notes = averages.find_averages(paths, turned)
        self.notes += notes
        self.left_out += [(f"line {names[row]}", reason) for row, reason in averaging.items()]
        return [row for row in rows if row not in averaging]

    def _brackets(self, rows: Sequence[int], scored: Sequence[int]) -> bool:
        """Return True if numbers in brackets are deviations."""
        numbers = []
        first = ""
        for column in scored:
            for row in rows:
                number = self.cells.number(row, column)
                if number is not None:
                    numbers.append(number)
                if number is not None and number.bracket:
                    first = first or f"{self.body.grid.where(row)}, column '{self.body.name(column)}'"
        kind, note = resolve_brackets(numbers, self.settings.brackets, first)
        if note:
            self.notes.append(note)
        return kind == "spread"

    def _row_meanings(self, names: Sequence[str], rows: Sequence[int]) -> dict[int, Meaning]:
        """Return what each line is a score of, of tables whose lines say it."""
        columns = self.columns
        if self.layout.kind == "straight":
            return {}
        paths: list[tuple[str, ...]] = []
        sections = [self.body.sections[row] for row in rows]
        is_filled_down = self.layout.kind == "long" and self.body.grid.format != "JSON"
        datasets = self._names(columns.dataset) if is_filled_down else self.body.cells(columns.dataset or 0)
        for row in rows:
            cells = self.body.grid.rows[row]
            if self.layout.kind == "turned":
                name = names[row]
                is_repeated = names.count(name) > 1 or bool(say.OF_DATA.search(self.body.sections[row]))
                path = (self.body.sections[row], name) if is_repeated and len(set(sections)) > 1 else (name,)
            else:
                assert columns.dataset is not None
                path = (datasets[row],)
                if not path[0]:
                    raise UsageError(f"{self.body.grid.where(row)}: has no name of a method or data set")
            if columns.part is not None:
                path = (*path, cells[columns.part])
            if columns.block is not None and cells[columns.block]:
                path = (cells[columns.block], *path)
            paths.append(tuple(filter(None, path)))
        unique = list(dict.fromkeys(paths))
        meanings, notes = find_meanings(unique, self._hint)
        if columns.block is not None or columns.part is not None:
            meanings = [
                replace(m, block=m.block or path[0], dataset=m.dataset or m.name)
                for m, path in zip(meanings, unique, strict=True)
            ]
        meanings = [self._named_by_measure(meaning, path) for meaning, path in zip(meanings, unique, strict=True)]
        if self.layout.kind == "turned":
            meanings = self._backbones_as_parts(meanings, [names[row] for row in rows])
        self.notes += notes
        by_path = dict(zip(unique, self._with_user_blocks(meanings), strict=True))
        return {row: by_path[path] for row, path in zip(rows, paths, strict=True)}

    def _named_by_measure(self, meaning: Meaning, path: Sequence[str]) -> Meaning:
        """Return the meaning of a line with a data set, also where its name is that of a measure."""
        return meaning if meaning.dataset else replace(meaning, dataset=" ".join(path))

    def _backbones_as_parts(self, meanings: list[Meaning], names: Sequence[str]) -> list[Meaning]:
        """Return the meanings as parts of one data set, which the table does not name, if all names are backbones."""
        are_backbones = all(say.BACKBONES.search(name) and not say.OF_DATA.search(name) for name in names)
        if not are_backbones or len(meanings) < 2:
            return meanings
        self.notes.append("backbones stand for one data set: they count once (`blocks` as none counts each)")
        return [replace(meaning, block=ONE_SET) for meaning in meanings]

    def _with_user_blocks(self, meanings: list[Meaning]) -> list[Meaning]:
        if not self.settings.blocks:  # none: each column counts by itself, in `convert`
            return meanings
        return apply_blocks(meanings, self.settings.blocks)

    def _column_meanings(self, scored: Sequence[int], rows: Sequence[int]) -> dict[int, Meaning]:
        """Return what each column is a score of; of turned tables which method it is, as the data set."""
        paths = [self._path(column) for column in scored]
        if self.layout.kind == "turned":
            names = [
                Meaning(dataset=" ".join(map(without_citation, path)) or f"column {column + 1}")
                for column, path in zip(scored, paths, strict=True)
            ]
            return dict(zip(scored, names, strict=True))
        self._refuse_other_heads(scored)
        meanings, notes = find_meanings(paths, self._hint)
        if self.layout.kind == "long":
            self._several_measures = len(scored) > 1
            are_parts = self._several_measures and not any(meaning.metric or meaning.direction for meaning in meanings)
            meanings = [
                replace(meaning, variant=" ".join(path)) if are_parts else self._measure_of(meaning, path)
                for meaning, path in zip(meanings, paths, strict=True)
            ]
            return dict(zip(scored, meanings, strict=True))
        if self.columns.metric is None:
            meanings = self._measures_of_one_set(meanings)
        self.notes += notes
        meanings = self._parts_of_corner(meanings)
        if not any(meaning.block or meaning.metric for meaning in meanings):
            meanings = self._backbones_as_parts(meanings, [meaning.dataset for meaning in meanings])
        self._refuse_unlike(scored, rows, meanings)
        return dict(zip(scored, self._with_user_blocks(meanings), strict=True))

    def _refuse_other_heads(self, scored: Sequence[int]) -> None:
        """Raise UsageError for a head of measures that count in both directions, of a seed, or of a variant."""
        for column in scored:
            head, leaf, reason = self.body.name(column), self.body.leaf(column), ""
            if "↑" in head and "↓" in head and not (self.settings.has_directions or self.settings.value_in_cell):
                reason = "has measures that count in both directions: leave it out with leave_out=, or say lower="
            elif re.fullmatch(r"(?:seed|run|fold|trial)[\s_]*\d+", leaf, re.I):
                reason = "is a seed, and no data set: give a line per seed, with a column 'seed'"
            elif say.is_ablation(leaf) and self.settings.rows == "auto":
                reason = (
                    "is a variant of the methods, and no data set: say rows=datasets if all columns are methods, "
                    "rows=methods to read it as a data set, or leave_out="
                )
            if reason:
                raise UsageError(f"{self.body.grid.source}: the column '{head}' {reason}")

    def _parts_of_corner(self, meanings: list[Meaning]) -> list[Meaning]:
        """Return the meanings as parts of the data set that the head of the names is; as they are if it is none."""
        column = self.layout.name_column
        corner = self.body.leaf(column) if column is not None else ""
        if not say.OF_DATA.search(corner) or say.OF_METHODS.search(corner) or len(meanings) < 2:
            return meanings
        if any(
            meaning.block not in ("", ONE_SET) or not meaning.dataset or say.OF_DATA.search(meaning.dataset)
            for meaning in meanings
        ):
            return meanings
        self.notes.append(f"columns are parts of {corner}, as the head of the names says")
        return [replace(meaning, block=corner) for meaning in meanings]

    def _path(self, column: int) -> tuple[str, ...]:
        """Return the names above a column of scores, without the word that says that they are means of something."""
        path = [text.removeprefix("metrics.") for text in self.body.path(column)]
        if column in self.columns.spreads:
            path = [say.without_mean(text) for text in path]
            path = [text for text in path if text] or list(self.body.path(column))
        return tuple(path)

    def _measure_of(self, meaning: Meaning, path: Sequence[str]) -> Meaning:
        """Return the meaning of a column of a long table: a measure."""
        name = " ".join(say.without_arrow(text) for text in path)
        is_plain = say.letters(name) in (
            "score",
            "scores",
            "value",
            "result",
            "mean",
            "wert",
            "valeur",
            "performance",
            "metric",
        )
        return Meaning("", "" if is_plain else name, "", meaning.split, "", meaning.direction)

    def _measures_of_one_set(self, meanings: list[Meaning]) -> list[Meaning]:
        """Return the meanings with a name for columns that are named by a measure alone."""
        nameless = [meaning for meaning in meanings if not meaning.dataset]
        if len(nameless) > 1:
            measures_shown = listed([meaning.metric for meaning in nameless], 6)
            self.notes.append(
                f"{measures_shown} are measures of one data set, which the table does not name (`blocks` says "
                "otherwise)"
            )
        return [meaning if meaning.dataset else replace(meaning, dataset=meaning.metric) for meaning in meanings]

    def _refuse_unlike(self, scored: Sequence[int], rows: Sequence[int], meanings: Sequence[Meaning]) -> None:
        """Raise UsageError if columns have numbers of unlike kinds and nothing says the direction."""
        negative, large = [], []
        for column, meaning in zip(scored, meanings, strict=True):
            numbers = [self.cells.number(row, column) for row in rows]
            values = [number.value for number in numbers if number is not None]
            if meaning.direction or self.settings.has_directions or not values or self._is_kept(column):
                continue
            if max(values) < 0:
                negative.append(self.body.name(column))
            elif min(values) > 1:
                large.append(self.body.name(column))
        if negative and (large or len(scored) > len(negative)):
            raise UsageError(
                f"{self.body.grid.source}: the columns are measures of different kinds ({negative[0]} is negative) and "
                "nothing says in which direction they count: say it with lower=, or leave columns out with leave_out="
            )

    def _record(
        self,
        row: int,
        column: int,
        names: Sequence[str],
        by_row: dict[int, Meaning],
        by_column: dict[int, Meaning],
        brackets: bool,
    ) -> NamedNumber | None:
        """Return the record of a cell; None for a missing one. Raises UsageError for a cell that is no number."""
        text = self.cells.text(row, column)
        number = self.cells.number(row, column)
        where = self.body.grid.where(row)
        if number is None:
            if is_missing(text):
                self._missing.append((row, column))
                return None
            raise refuse_text(text, where, self.body.name(column))
        if abs(number.value) > LARGEST_SCORE:
            raise UsageError(
                f"{where}: the score {number.value:g} in the column '{self.body.name(column)}' is beyond 1e100"
            )
        meaning = by_column[column]
        if self.layout.kind == "turned":
            method, meaning = meaning.dataset, by_row[row]
        elif self.layout.kind == "long":
            method, of_row = names[row], by_row[row]
            direction = meaning.direction or of_row.direction
            metric, split = meaning.metric or of_row.metric, meaning.split or of_row.split
            variant = meaning.variant or of_row.variant
            meaning = replace(of_row, metric=metric, split=split, direction=direction, variant=variant)
            if self._several_measures and not meaning.block:
                meaning = replace(meaning, block=meaning.dataset)
        else:
            method = names[row]
        meaning = self._with_measure_of_row(meaning, row)
        spread = number.spread if not number.bracket or brackets else None
        beside = self.columns.spreads.get(column)
        if beside is not None:
            second = self.cells.number(row, beside)
            spread = second.value if second is not None else None
        if number.has_interval:
            self._intervals += 1
        seed = ""
        if self.columns.seed is not None:
            seed = _seed(self.body.grid.rows[row][self.columns.seed])
        return NamedNumber(row, column, method, meaning, seed, number.value, spread, self.body.grid.lines[row], where)

    def _with_measure_of_row(self, meaning: Meaning, row: int) -> Meaning:
        """Return the meaning with the measure that a column of measures says, and the direction beside it."""
        cells = self.body.grid.rows[row]
        if self.columns.metric is not None and cells[self.columns.metric]:
            metric = cells[self.columns.metric]
            meaning = replace(
                meaning, metric=say.without_arrow(metric), direction=say.direction(metric) or meaning.direction
            )
        if self.columns.arrows is not None and cells[self.columns.arrows]:
            meaning = replace(meaning, direction=say.arrow(cells[self.columns.arrows]))
        return meaning

    def _num_runs(self, row: int) -> int:
        """Return the number of runs that a line says; 0 if it says none."""
        if self.columns.num_runs is None:
            return 0
        number = self.cells.number(row, self.columns.num_runs)
        if number is None or not 1 < number.value < 10_000:
            return 0
        return int(number.value)

    def _lost_seeds(self, records: Sequence[NamedNumber]) -> list[str]:
        """Return a note on runs without a score where other runs of the method have one."""
        if self.columns.seed is None:
            return []
        scored = {(record.method, record.meaning.name) for record in records}
        names = self._names(self.layout.name_column)
        lost = []
        for row, column in self._missing:
            is_long = self.layout.kind == "long" and self.columns.dataset is not None
            dataset = self.body.grid.rows[row][self.columns.dataset or 0] if is_long else self.body.leaf(column)
            if (names[row], dataset) in scored:
                lost.append(f"{names[row]} on {dataset} with seed {_seed(self.body.grid.rows[row][self.columns.seed])}")
        if not lost:
            return []
        return [f"left out, as no score is there: {listed(lost, 5)}"]

    def _refuse_matrix(self, methods: Sequence[str], datasets: Sequence[str]) -> None:
        """Raise UsageError for a matrix of sources and targets, in which nothing is a method."""
        shared = set(map(str.casefold, methods)) & set(map(str.casefold, datasets))
        if len(shared) > 2 and 2 * len(shared) > len(datasets):
            raise UsageError(
                f"{self.body.grid.source}: no column says the method: lines and columns have the same names "
                f"({listed(sorted(shared), 3)}), as sources and targets; give a line per method"
            )

    def finish(self, records: Sequence[NamedNumber]) -> Understood:
        """Return the scores of records, with directions, and with what the comparison leaves out."""
        grid = self.body.grid
        records, turned = turned_signs(records, self.body)
        directions, note = find_directions(records, grid.bold, grid.caption, grid.source)
        scores = []
        for record in records:
            meaning = record.meaning
            direction = meaning.direction or directions.get(record.set_key, "")
            scores.append(
                Score(
                    record.method,
                    meaning.name,
                    meaning.block,
                    meaning.metric,
                    record.value,
                    record.spread,
                    direction,
                    record.seed,
                    record.line,
                    record.where,
                    "" if meaning.split == "test" else meaning.split,
                    self._num_runs(record.row),
                )
            )
        scores = _without_validation(scores)
        methods = list(dict.fromkeys(score.method for score in scores))
        datasets = list(dict.fromkeys(score.dataset for score in scores))
        undivided = list(dict.fromkeys(score.dataset for score in scores if not score.block))
        self._refuse_matrix(methods, datasets)
        result = Understood(
            self.body.grid.source, self.body.grid.format, scores, self.layout.note, self.left_out, self.notes
        )
        contradiction = "" if self.settings.has_directions else contradicted_by_bold(records, directions, grid.bold)
        result.notes += filter(None, (turned, note, contradiction))
        result.notes += self._lost_seeds(records)
        if self._intervals:
            result.notes.append(f"intervals behind {self._intervals} scores are left out")
        result.notes += checks.same_numbers(result)
        result.notes += checks.opposite_columns(result)
        checks.refuse_too_little(result)
        if suspicion := suspect_swap(methods, undivided):
            result.notes.append(suspicion)
        spread_heads = [self.body.leaf(column) for column in self.columns.spreads.values()]
        result.is_standard_error = any(say.has_word(head, say.STANDARD_ERRORS) for head in spread_heads)
        return result


def _without_validation(scores: Sequence[Score]) -> list[Score]:
    """Return the scores with those of validation and training left out where test scores are beside them."""

    def key(score: Score) -> tuple[str, ...]:
        spoken = say.split_words(f"{score.block} {score.dataset} {score.metric}")
        return tuple(dict.fromkeys(w for w in spoken if w not in say.VALIDATION | say.TRAINING | {"test"}))

    tested = {key(score) for score in scores if not score.left_out}
    result = []
    for score in scores:
        if score.left_out in ("val", "train"):
            kind = "validation" if score.left_out == "val" else "training"
            is_beside = key(score) in tested or (bool(tested) and score.dataset == score.metric)
            result.append(score._replace(left_out=f"{kind} scores beside test scores" if is_beside else ""))
        else:
            result.append(score)
    return result


def _seed(text: str) -> str:
    if is_missing(text):
        return ""
    return str(int(float(text))) if re.fullmatch(r"\d{1,15}\.0+", text) else text
