"""CSV and JSON files of the result. docs/report.md and docs/analysis.md describe every column."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd

from biasbed.analysis import scores, sections
from biasbed.analysis.report import wording
from biasbed.analysis.result import SCORE_DIGITS, Analysis
from biasbed.analysis.sections.section import CsvFile, JsonFile
from biasbed.system.csv_tables import escape_formula

FLOAT_FORMAT = "%.10g"


def write(analysis: Analysis, folder: Path) -> dict[str, str]:
    """Write all tables and return file name -> one line that says what it is."""
    files = {}
    for name, (frame, description) in frames(analysis).items():
        with (folder / name).open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(map(escape_formula, frame.columns))
            writer.writerows(zip(*(_texts(frame[column]) for column in frame.columns), strict=True))
        files[name] = description
    for name, content, description in sections.files(JsonFile, analysis):
        (folder / name).write_text(json.dumps(content, indent=2, allow_nan=False) + "\n", encoding="utf-8")
        files[name] = description
    return files


def _texts(column: pd.Series[Any]) -> list[Any]:
    """Return a column as it is written: empty if a value is missing. There may be hundreds of thousands of values."""
    values = column.tolist()
    if column.dtype.kind == "f":
        return ["" if math.isnan(value) else FLOAT_FORMAT % value for value in values]
    if column.dtype.kind in "iub" and not column.hasnans:
        return values
    if isinstance(column.dtype, pd.StringDtype):
        texts = {value: _text(value) for value in set(values)}  # few names, many times
        return [texts[value] for value in values]
    return list(map(_text, values))


def _text(value: Any) -> Any:
    """Return a value as it is written: empty if it is missing, and harmless to spreadsheets."""
    if pd.isna(value):
        return ""
    return escape_formula(value)


def frames(analysis: Analysis) -> dict[str, tuple[pd.DataFrame, str]]:
    """Return CSV file name -> its content and one line that says what it is; those without rows are left out."""
    tables = {}
    for name, frame, description in (*_score_files(analysis), *sections.files(CsvFile, analysis)):
        if len(frame):
            # No file of oracle numbers should look like one of others.
            is_marked = "oracle" in frame or not analysis.rule.oracle
            tables[name] = (frame if is_marked else frame.assign(oracle=True), description)
    return tables


def _score_files(analysis: Analysis) -> Iterator[CsvFile]:
    """Yield what is scored and chosen."""
    about = "every run, evaluation set and rule: the selected score"
    yield CsvFile("runs.csv", run_rows(analysis, analysis.runs), about)
    about = "mean and standard deviation over runs of each algorithm on each set, and what the set's size leaves open"
    yield CsvFile("scores.csv", scores.with_intervals(analysis.scores, analysis.sets), about)
    about = "like runs.csv, of finished runs that do not count"
    yield CsvFile("duplicates.csv", run_rows(analysis, analysis.duplicates), about)


def run_rows(analysis: Analysis, runs: pd.DataFrame) -> pd.DataFrame:
    """Return one row per run, evaluation set and rule."""
    collection = analysis.collection
    origin = {run.id: run for run in (*collection.runs, *collection.duplicates)}
    origins = [origin[run_id] for run_id in runs["run_id"].tolist()]
    scope = {}
    for name in ("kind", "suite", "study", "protocol"):
        scope[name] = [getattr(run, name) for run in origins]
    frame = runs.assign(**scope, rule=analysis.rule.name, oracle=analysis.rule.oracle)
    if wording.replicate_noun(analysis) == "run":
        frame = frame.drop(columns=["cell", "replicate"])  # they would say nothing
    first = [*scope, "algorithm", "seed", "test_domains", "dataset", "rule", "oracle"]
    return frame[[*first, *(name for name in frame if name not in first)]].round(SCORE_DIGITS)
