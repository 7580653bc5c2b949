"""Papers that print means instead of runs: `<name>.yaml` describes the numbers (description.py), `<name>.csv` has them.

The CSV has a line for each printed number. Its columns are `selection` (if there are rules), `row`, `column`, `measure`
(if a column has several), `value`, `spread` (if the paper prints spreads; empty if it lacks one), `n` (if numbers of
runs differ). A column that a row was not tested on has no line.
"""

from __future__ import annotations

import csv
import importlib.resources
import io
import math
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources.abc import Traversable

from biasbed import measures, record
from biasbed.published import description
from biasbed.published.description import Description
from biasbed.published.paper import Paper, PublishedRun

FOLDER: Traversable = importlib.resources.files(__package__)
DESCRIPTION, NUMBERS = ".yaml", ".csv"

ColumnMeasure = tuple[str, str]  # column, measure
RowCells = Mapping[ColumnMeasure, Mapping[str, float]]  # values: `value`, and those of `measures.SUMMARY`
Cells = Mapping[tuple[str, str], RowCells]  # keyed by (selection, row)


@dataclass(frozen=True)
class PaperOfCells(Paper):
    """Paper that prints means instead of runs."""

    description: Description
    cells: Cells

    @property
    def edition(self) -> str:
        return self.description.edition

    def runs(self) -> list[PublishedRun]:
        """Return one run for each row and rule."""
        return [self._run(selection, row, cells) for (selection, row), cells in self.cells.items()]

    def _run(self, selection: str, row: str, cells: RowCells) -> PublishedRun:
        """Return a row of the paper as a run: scores by column, printed spreads, and other measures."""
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
        """Return `num_runs` and `rounding` of columns whose headline is the mean of other printed measures."""
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
    """Return a paper. Its files are package data, which the tests hold to their format."""
    file = name + DESCRIPTION
    paper = description.read(FOLDER.joinpath(file).read_text(encoding="utf-8"), file)
    cells = read_cells(FOLDER.joinpath(name + NUMBERS).read_text(encoding="utf-8"), paper)
    training_data = {row: described.training_data for row, described in paper.rows.items() if described.training_data}
    return PaperOfCells(name, paper.citation, paper.protocol, training_data, paper, cells)


def read_cells(text: str, paper: Description) -> Cells:
    """Return every number, in the order of the lines."""
    cells: dict[tuple[str, str], dict[ColumnMeasure, dict[str, float]]] = {}
    for line in csv.DictReader(io.StringIO(text, newline="")):
        column = line["column"]
        measure = line.get("measure") or paper.columns[column].measure
        cells.setdefault((line.get("selection", ""), line["row"]), {})[column, measure] = _cell(line, paper)
    return cells


def _cell(line: Mapping[str, str], paper: Description) -> dict[str, float]:
    """Return the stored numbers of a line: its value, number of runs, rounding and standard deviation."""
    column, printed = paper.columns[line["column"]], line["value"]
    decimals = len(printed.partition(".")[2])
    runs = 1 if paper.runs == "none" else paper.runs
    if "n" in line:
        runs = int(line["n"])
    cell = {
        "value": column.stored(float(printed)),
        "num_runs": float(runs),
        "rounding": 0.5 / 10**decimals / column.scale,
    }
    if line.get("spread", ""):
        cell["std_over_runs"] = _standard_deviation(float(line["spread"]), runs, paper) / column.scale
    return cell


def _standard_deviation(spread: float, runs: int, paper: Description) -> float:
    """Return the standard deviation with n - 1 behind a printed spread, in the same unit."""
    deviation = spread * math.sqrt(runs) if paper.spread == "standard_error" else spread
    return deviation * math.sqrt((runs - int(paper.ddof)) / (runs - 1))


def corruption_errors(row: str) -> list[float]:
    """Return a row's printed error under each corruption of ImageNet-C by AlexNet's, as fractions.

    Hendrycks et al., The Many Faces of Robustness, table 7.
    """
    by_measure = read("robustness").cells["", row]
    return [cell["value"] for (_, measure), cell in by_measure.items() if measure.startswith("ce_")]
