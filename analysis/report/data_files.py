"""CSV and JSON files of the result. docs/report.md and docs/analysis.md describe every column."""

from __future__ import annotations

import csv
import json
import math
from pathlib import Path
from typing import Any

import pandas as pd

from biasbed.analysis import scores, sections
from biasbed.analysis.report import groups, laid_out_tables, phrases, wording
from biasbed.analysis.report.table_model import Links
from biasbed.analysis.result import SCORE_DIGITS, Analysis
from biasbed.analysis.sections.section import CsvFile, JsonFile
from biasbed.system.csv_tables import harmless

FLOAT_FORMAT = "%.10g"


def write(analysis: Analysis, folder: Path) -> dict[str, str]:
    """Write all tables and return file name -> one line that says what it is."""
    files = {}
    for name, (frame, description) in frames(analysis).items():
        with (folder / name).open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(map(harmless, frame.columns))
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
    if pd.isna(value):
        return ""
    return harmless(value)


def frames(analysis: Analysis) -> dict[str, tuple[pd.DataFrame, str]]:
    """Return CSV file name -> its content and one line that says what it is; those without rows are left out."""
    descriptions, files = phrases.group("files"), []
    for name, frame in _score_frames(analysis).items():
        if frame is not None:
            files.append(CsvFile(name, frame, descriptions[name]))
    tables = {}
    for name, frame, description in (*files, *sections.files(CsvFile, analysis)):
        if len(frame):
            # No file of oracle numbers should look like one of others.
            is_marked = "oracle" in frame or not analysis.rule.oracle
            tables[name] = (frame if is_marked else frame.assign(oracle=True), description)
    return tables


def _score_frames(analysis: Analysis) -> dict[str, pd.DataFrame | None]:
    """Return what is scored, chosen and laid out."""
    laid_out = laid_out_tables.frame(laid_out_tables.laid_out_tables(analysis, Links(analysis)))
    return {
        "runs.csv": run_rows(analysis, analysis.runs),
        "scores.csv": scores.with_intervals(analysis.scores, analysis.sets),
        "blocks.csv": analysis.blocks.round(SCORE_DIGITS),
        "averages.csv": average_rows(analysis) if len(analysis.blocks) else None,
        "choices.csv": analysis.choices,
        "bias_measures.csv": analysis.measured.round(SCORE_DIGITS),
        "duplicates.csv": run_rows(analysis, analysis.duplicates),
        "spread.csv": analysis.spread,
        laid_out_tables.CSV: laid_out,
        "reproduction.csv": analysis.reproduction,
    }


def run_rows(analysis: Analysis, runs: pd.DataFrame) -> pd.DataFrame:
    """Return one row per run, evaluation set and rule."""
    collection = analysis.collection
    origin = {run.id: run for run in (*collection.runs, *collection.duplicates)}
    origins = [origin[run_id] for run_id in runs["run_id"].tolist()]
    scope = {}
    for name in ("kind", "suite", "study", "protocol"):
        scope[name] = [getattr(run, name) for run in origins]
    frame = runs.assign(**scope, rule=analysis.rule.name, oracle=analysis.rule.oracle)
    if wording.repeated(analysis) == "run":
        frame = frame.drop(columns=["cell", "replicate"])  # they would say nothing
    first = [*scope, "algorithm", "seed", "test_domains", "dataset", "rule", "oracle"]
    return frame[[*first, *(name for name in frame if name not in first)]].round(SCORE_DIGITS)


def average_rows(analysis: Analysis) -> pd.DataFrame:
    """Return one row per algorithm and column, data set of several columns, and over all data sets.

    Columns algorithm, dataset (of the last kind `AVERAGE`), mean, error (what ± is in tables; none over data sets), its
    kind and ddof, num_runs.
    """
    kind, ddof = scores.ERRORS[analysis.error]
    averages = groups.averages(analysis)
    rows: list[tuple[object, ...]] = []
    for algorithm in analysis.algorithms:
        cells = []
        for group in groups.groups(analysis):
            cells += [(column.name, analysis.cells[algorithm, column.name]) for column in group.columns]
            if group.wide:
                cells.append((group.block, analysis.averages[algorithm, group.block]))
        for name, cell in cells:
            rows.append((algorithm, name, cell.mean, cell.std, kind, ddof, cell.num_runs))
        if averages is not None and averages.means:
            rows.append((algorithm, groups.AVERAGE, averages.means[algorithm], math.nan, "", None, None))
    columns = ["algorithm", "dataset", "mean", "error", "kind", "ddof", "num_runs"]
    return pd.DataFrame(rows, columns=columns).astype({"ddof": "Int64", "num_runs": "Int64"})
