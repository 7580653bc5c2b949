"""Papers that print means in place of runs: `<name>.yaml` says what they are (description.py), `<name>.csv` has them.

The CSV has a line for each number, as it is printed: `selection` (where there are rules), `row`, `column`, `measure`
(where several are printed of a column), `value`, `spread` (where there is one; empty where the paper lacks it), `n`
(where it is not the same for all). What a row was not tested on has no line.
"""

from __future__ import annotations

import importlib.resources
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.resources.abc import Traversable

from biasbed import measures, record
from biasbed.errors import Failure, UsageError
from biasbed.published import description
from biasbed.published.description import Description
from biasbed.published.paper import Paper, PublishedRun
from biasbed.settings import nearest
from biasbed.system.tables import parse_lines

FOLDER: Traversable = importlib.resources.files(__package__)
DESCRIPTION, NUMBERS = ".yaml", ".csv"
PRINTED = re.compile(r"-?[0-9]+(?:\.([0-9]+))?")

ColumnMeasure = tuple[str, str]  # column, measure
Cells = Mapping[
    tuple[str, str], Mapping[ColumnMeasure, Mapping[str, float]]
]  # selection, row -> place -> what -> stored value


@dataclass(frozen=True)
class PaperOfCells(Paper):
    """A paper that prints means."""

    description: Description
    cells: Cells

    def runs(self) -> list[PublishedRun]:
        """One for each row and rule."""
        return [self._run(selection, row, cells) for (selection, row), cells in self.cells.items()]

    def _run(self, selection: str, row: str, cells: Mapping[ColumnMeasure, Mapping[str, float]]) -> PublishedRun:
        words, rule = self.description.rows.get(row), self.description.rules.get(selection)
        columns = self.description.columns
        headlines = {column: cell for (column, measure), cell in cells.items() if measure == columns[column].measure}
        further = {
            measure: {column: cell[measure] for column, cell in headlines.items() if measure in cell}
            for measure in measures.SUMMARY
        }
        others: dict[record.MetricName, float] = {}
        for (column, measure), cell in cells.items():
            if measure != columns[column].measure:
                others[record.MetricName("test", measure, column)] = cell["value"]
                beside = {name: cell[name] for name in measures.SUMMARY if name in cell}
                others |= {record.MetricName("test", name, column, measure): value for name, value in beside.items()}
        for column, known in self._derived(cells).items():
            for measure, value in known.items():
                further[measure][column] = value
        return PublishedRun(
            rule=selection if rule is None else rule.rule or selection,
            n=0 if rule is None else rule.n,
            algorithm=row,
            number="",
            scores={column: cell["value"] for column, cell in headlines.items()},
            further=further,
            others=others,
            method="" if words is None else words.algorithm,
            summary=self.description.paper.summary,
            needs=() if words is None else words.needs,
            provides=tuple({need for each in self.description.rows.values() for need in each.needs}),
        )

    def _derived(self, cells: Mapping[ColumnMeasure, Mapping[str, float]]) -> dict[str, dict[str, float]]:
        """What stands beside columns whose own measure is a mean of others, which is rounded no more than these."""
        found = {}
        for name, words in self.description.columns.items():
            own = self.description.follows(name).get(words.measure)
            inputs = [cells[name, measure] for measure in own.of if (name, measure) in cells] if own else []
            if own and own.function == "mean" and len(inputs) == len(own.of):
                found[name] = {
                    "num_runs": min(cell["num_runs"] for cell in inputs),
                    "rounding": max(cell["rounding"] for cell in inputs),
                }
        return found


def names() -> tuple[str, ...]:
    """Every paper of which there is a description."""
    files = [file.name for file in FOLDER.iterdir()]
    return tuple(sorted(name.removesuffix(DESCRIPTION) for name in files if name.endswith(DESCRIPTION)))


def read(name: str) -> PaperOfCells:
    """A paper. Failure, of one line that says where, for whatever is wrong with its files."""
    file = name + DESCRIPTION
    said = description.read(_text(file), file)
    cells = read_cells(_text(name + NUMBERS), name + NUMBERS, said)
    used = {
        "columns": {column for of_row in cells.values() for column, _ in of_row},
        "rows": {row for _, row in cells},
        "rules": {selection for selection, _ in cells},
    }
    for part, there in used.items():
        if unused := sorted(set(getattr(said, part)) - there):
            raise Failure(f"{file}: {part}.{unused[0]}: {name}{NUMBERS} has no number of it")
    training_data = {row: words.training_data for row, words in said.rows.items() if words.training_data}
    return PaperOfCells(name, said.paper.citation, said.protocol, training_data, said, cells)


def _text(file: str) -> str:
    try:
        return FOLDER.joinpath(file).read_text(encoding="utf-8-sig")
    except OSError as error:
        raise Failure(f"{file}: can't be read ({error.strerror})") from None
    except UnicodeDecodeError:
        raise Failure(f"{file}: is not UTF-8") from None


def read_cells(text: str, file: str, said: Description) -> Cells:
    """Every number. Failure with the line of the first that is wrong, there twice, or of nothing that is described."""
    found: dict[tuple[str, str], dict[ColumnMeasure, dict[str, float]]] = {}
    seen: dict[tuple[str, ...], int] = {}
    for number, line in _lines(text, file, said):
        measure = line.get("measure", "")
        place = (line.get("selection", ""), line["row"], line["column"], measure)
        try:
            _check_place(line, said)
            if place in seen:
                raise ValueError(f"{line['row']} on {line['column']} is there already, in line {seen[place]}")
            cell = _cell(line, said)
        except ValueError as error:
            raise Failure(f"{file}, line {number}: {error}") from None
        seen[place] = number
        column = line["column"]
        found.setdefault(place[:2], {})[column, measure or said.columns[column].measure] = cell
    if not found:
        raise Failure(f"{file}: has no numbers")
    return found


def _lines(text: str, file: str, said: Description) -> Iterator[tuple[int, dict[str, str]]]:
    """(number of the line, its entries by name)."""
    lines = parse_lines(text, file)
    try:
        number, head = next(lines, (1, []))
        rules, spread = ["selection"] * bool(said.rules), ["spread"] * (said.paper.spread != "none")
        usual = [*rules, "row", "column", *["measure"] * said.has_measures, "value", *spread]
        allowed = [usual] if said.paper.runs != "none" else [usual, [*usual, "n"]]
        if head not in allowed:
            expected = " or ".join(",".join(names) for names in allowed)
            about = f"{file.removesuffix(NUMBERS)}{DESCRIPTION}"
            raise Failure(f"{file}, line {number}: should be {expected}, as {about} has it")
        for number, row in lines:
            if len(row) != len(head):
                raise Failure(f"{file}, line {number}: has {len(row)} entries, expected {len(head)}")
            yield number, dict(zip(head, row, strict=True))
    except UsageError as error:
        raise Failure(str(error)) from None


def _check_place(line: Mapping[str, str], said: Description) -> None:
    """ValueError for a rule, row or column that can't be."""
    for what, known in (("selection", said.rules), ("column", said.columns)):
        if what in line and line[what] not in known:
            raise ValueError(f"there is no {what} '{line[what]}'{nearest(line[what], known)}")
    if "measure" in line:
        printed = said.printed(line["column"])
        if line["measure"] not in printed:
            raise ValueError(f"there is no measure '{line['measure']}'{nearest(line['measure'], printed)}")
    if line["row"] != record.slug(line["row"]):
        raise ValueError(f"the row '{line['row']}' should be called '{record.slug(line['row'])}'")


def _cell(line: Mapping[str, str], said: Description) -> dict[str, float]:
    """What is stored of a line: the value, and by `measures.SUMMARY` what stands beside it."""
    column = said.columns[line["column"]]
    value, decimals = _printed(line["value"])
    runs = 1 if said.paper.runs == "none" else said.paper.runs
    if "n" in line:
        if not line["n"].isdecimal() or int(line["n"]) < 1:
            raise ValueError(f"n={line['n']}: should be a number of runs")
        runs = int(line["n"])
    cell = {"value": column.stored(value), "num_runs": float(runs), "rounding": 0.5 / 10**decimals / column.scale}
    if line.get("spread", ""):
        spread, _ = _printed(line["spread"])
        cell["std_over_runs"] = _standard_deviation(spread, runs, said) / column.scale
    return cell


def _printed(text: str) -> tuple[float, int]:
    """A number and its digits after the point."""
    found = PRINTED.fullmatch(text)
    if found is None:
        raise ValueError(f"'{text}' is no number as papers print it")
    return float(text), len(found[1] or "")


def _standard_deviation(spread: float, runs: int, said: Description) -> float:
    """The standard deviation with n - 1 behind a printed spread, in the same unit."""
    if spread < 0:
        raise ValueError(f"spread={spread:g}: should not be negative")
    if runs < 2:
        raise ValueError("a spread of one run: say how many there are, by runs or in a column n")
    deviation = spread * math.sqrt(runs) if said.paper.spread == "standard_error" else spread
    return deviation * math.sqrt((runs - int(said.paper.ddof)) / (runs - 1))
