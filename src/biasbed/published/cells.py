"""Papers that print means instead of runs: `<name>.yaml` describes the numbers (description.py), `<name>.csv` has them.

The CSV has a line for each printed number. Its columns are `selection` (if there are rules), `row`, `column`, `measure`
(if a column has several), `value`, `spread` (if the paper prints spreads; empty if it lacks one), `n` (if numbers of
runs differ). A column that a row was not tested on has no line.
"""

from __future__ import annotations

import importlib.resources
import io
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
from biasbed.system.csv_tables import parse_lines

FOLDER: Traversable = importlib.resources.files(__package__)
DESCRIPTION, NUMBERS = ".yaml", ".csv"
PRINTED = re.compile(r"-?[0-9]+(?:\.([0-9]+))?")

ColumnMeasure = tuple[str, str]  # column, measure
RowCells = Mapping[ColumnMeasure, Mapping[str, float]]  # values: `value`, and those of `measures.SUMMARY`
Cells = Mapping[tuple[str, str], RowCells]  # keyed by (selection, row)


@dataclass(frozen=True)
class PaperOfCells(Paper):
    """Paper that prints means."""

    description: Description
    cells: Cells

    @property
    def edition(self) -> str:
        return self.description.edition

    def runs(self) -> list[PublishedRun]:
        """Return one run for each row and rule."""
        return [self._run(selection, row, cells) for (selection, row), cells in self.cells.items()]

    def _run(self, selection: str, row: str, cells: RowCells) -> PublishedRun:
        """Return a published row as a run without a number: scores by column, printed spreads, other measures."""
        row_description, rule = self.description.rows.get(row), self.description.rules.get(selection)
        scores: dict[str, float] = {}
        further: dict[str, dict[str, float]] = {measure: {} for measure in measures.SUMMARY}
        others: dict[record.MetricName, float] = {}
        for (column, measure), cell in cells.items():
            summary = {name: cell[name] for name in measures.SUMMARY if name in cell}
            if measure == self.description.columns[column].measure:
                scores[column] = cell["value"]
                for name, value in summary.items():
                    further[name][column] = value
            else:
                others[record.MetricName("test", measure, column)] = cell["value"]
                for name, value in summary.items():
                    others[record.MetricName("test", name, column, measure)] = value
        for column, summary in self._mean_summaries(cells).items():
            for name, value in summary.items():
                further[name][column] = value
        needs: set[str] = set()
        for described in self.description.rows.values():
            needs.update(described.needs)
        return PublishedRun(
            rule=selection if rule is None else rule.rule or selection,
            n=0 if rule is None else rule.n,
            algorithm=row,
            number="",
            scores=scores,
            further=further,
            others=others,
            method="" if row_description is None else row_description.algorithm,
            summary=self.description.summary,
            needs=() if row_description is None else row_description.needs,
            provides=tuple(needs),
        )

    def _mean_summaries(self, cells: RowCells) -> dict[str, dict[str, float]]:
        """Return number of runs and rounding of columns whose measure is a mean of others: it is rounded no more."""
        summaries = {}
        for name, column in self.description.columns.items():
            derivation = self.description.derivations(name).get(column.measure)
            if derivation is None or derivation.function != "mean":
                continue
            inputs = [cells[name, measure] for measure in derivation.of if (name, measure) in cells]
            if len(inputs) == len(derivation.of):
                summaries[name] = {
                    "num_runs": min(cell["num_runs"] for cell in inputs),
                    "rounding": max(cell["rounding"] for cell in inputs),
                }
        return summaries


def names() -> tuple[str, ...]:
    """Return the names of all papers that have a description."""
    files = [file.name for file in FOLDER.iterdir()]
    return tuple(sorted(name.removesuffix(DESCRIPTION) for name in files if name.endswith(DESCRIPTION)))


def read(name: str) -> PaperOfCells:
    """Return a paper. Raises Failure with one line, which names the place, if its files are wrong."""
    file = name + DESCRIPTION
    paper = description.read(_read_text(file), file)
    cells = read_cells(_read_text(name + NUMBERS), name + NUMBERS, paper)
    used: dict[str, set[str]] = {"columns": set(), "rows": set(), "rules": set()}
    for (selection, row), row_cells in cells.items():
        used["rules"].add(selection)
        used["rows"].add(row)
        used["columns"].update(column for column, _ in row_cells)
    for part, in_numbers in used.items():
        if unused := sorted(set(getattr(paper, part)) - in_numbers):
            raise Failure(f"{file}: {part}.{unused[0]}: {name}{NUMBERS} has no number of it")
    training_data = {row: described.training_data for row, described in paper.rows.items() if described.training_data}
    return PaperOfCells(name, paper.citation, paper.protocol, training_data, paper, cells)


def _read_text(file: str) -> str:
    try:
        return FOLDER.joinpath(file).read_text(encoding="utf-8-sig")
    except OSError as error:
        raise Failure(f"{file}: can't be read ({error.strerror})") from None
    except UnicodeDecodeError:
        raise Failure(f"{file}: is not UTF-8") from None


def read_cells(text: str, file: str, paper: Description) -> Cells:
    """Return every number. Raises Failure with the line of the first that is wrong, repeated or not described."""
    cells: dict[tuple[str, str], dict[ColumnMeasure, dict[str, float]]] = {}
    seen: dict[tuple[str, ...], int] = {}
    for number, line in _read_lines(text, file, paper):
        selection, row, column = line.get("selection", ""), line["row"], line["column"]
        measure = line.get("measure", "")
        key = selection, row, column, measure
        try:
            _check_names(line, paper)
            if key in seen:
                raise ValueError(f"{row} on {column} is there already, in line {seen[key]}")
            cell = _cell(line, paper)
        except ValueError as error:
            raise Failure(f"{file}, line {number}: {error}") from None
        seen[key] = number
        cells.setdefault((selection, row), {})[column, measure or paper.columns[column].measure] = cell
    if not cells:
        raise Failure(f"{file}: has no numbers")
    return cells


def _read_lines(text: str, file: str, paper: Description) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield the number of each line and its values by name."""
    lines = parse_lines(io.StringIO(text, newline=""), file)
    try:
        number, head = next(lines, (1, []))
        allowed = _allowed_heads(paper)
        if head not in allowed:
            expected = " or ".join(",".join(names) for names in allowed)
            described_in = f"{file.removesuffix(NUMBERS)}{DESCRIPTION}"
            raise Failure(f"{file}, line {number}: should be {expected}, as {described_in} has it")
        for number, row in lines:
            if len(row) != len(head):
                raise Failure(f"{file}, line {number}: has {len(row)} entries, expected {len(head)}")
            yield number, dict(zip(head, row, strict=True))
    except UsageError as error:
        raise Failure(str(error)) from None


def _allowed_heads(paper: Description) -> list[list[str]]:
    """Return the first lines that the CSV may have."""
    head = ["row", "column"]
    if paper.rules:
        head.insert(0, "selection")
    if paper.has_measures:
        head.append("measure")
    head.append("value")
    if paper.spread != "none":
        head.append("spread")
    return [head] if paper.runs != "none" else [head, [*head, "n"]]


def _check_names(line: Mapping[str, str], paper: Description) -> None:
    """Raise ValueError for a rule, column or measure that is not described, or a row with a bad name."""
    for kind, described in (("selection", paper.rules), ("column", paper.columns)):
        if kind in line and line[kind] not in described:
            raise ValueError(f"there is no {kind} '{line[kind]}'{nearest(line[kind], described)}")
    if "measure" in line:
        printed = paper.printed(line["column"])
        if line["measure"] not in printed:
            raise ValueError(f"there is no measure '{line['measure']}'{nearest(line['measure'], printed)}")
    if line["row"] != record.slug(line["row"]):
        raise ValueError(f"the row '{line['row']}' should be called '{record.slug(line['row'])}'")


def _cell(line: Mapping[str, str], paper: Description) -> dict[str, float]:
    """Return the stored numbers of a line: its value, number of runs, rounding and standard deviation."""
    column = paper.columns[line["column"]]
    value, decimals = _parse_printed(line["value"])
    runs = 1 if paper.runs == "none" else paper.runs
    if "n" in line:
        if not line["n"].isdecimal() or int(line["n"]) < 1:
            raise ValueError(f"n={line['n']}: should be a number of runs")
        runs = int(line["n"])
    cell = {"value": column.stored(value), "num_runs": float(runs), "rounding": 0.5 / 10**decimals / column.scale}
    if line.get("spread", ""):
        spread, _ = _parse_printed(line["spread"])
        cell["std_over_runs"] = _standard_deviation(spread, runs, paper) / column.scale
    return cell


def _parse_printed(text: str) -> tuple[float, int]:
    """Return a number and how many digits it has after the point."""
    match = PRINTED.fullmatch(text)
    if match is None:
        raise ValueError(f"'{text}' is no number as papers print it")
    return float(text), len(match[1] or "")


def _standard_deviation(spread: float, runs: int, paper: Description) -> float:
    """Return the standard deviation with n - 1 behind a printed spread, in the same unit."""
    if spread < 0:
        raise ValueError(f"spread={spread:g}: should not be negative")
    if runs < 2:
        raise ValueError("a spread of one run: say how many there are, by runs or in a column n")
    deviation = spread * math.sqrt(runs) if paper.spread == "standard_error" else spread
    return deviation * math.sqrt((runs - int(paper.ddof)) / (runs - 1))


def corruption_errors(row: str) -> list[float]:
    """Return a row's printed error under each corruption of ImageNet-C by AlexNet's, as fractions.

    Hendrycks et al., The Many Faces of Robustness, table 7.
    """
    by_measure = read("robustness").cells["", row]
    return [cell["value"] for (_, measure), cell in by_measure.items() if measure.startswith("ce_")]
