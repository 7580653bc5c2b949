"""What is compared, as the report's tables: the rows with what they are, the cells with what they train on."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping

import pandas as pd

from biasbed.algorithms import NEEDS
from biasbed.analysis.report import compared
from biasbed.analysis.report.cells import Links, ReportTable, TableCell, decimal, text
from biasbed.analysis.result import Analysis

HEADS = {
    "kind": "kind",
    "method": "method",
    "backbone": "backbone",
    "start": "start",
    "weights": "weights",
    "training_data": "training data",
    "image_size": "image size",
    "preprocessing": "preprocessing",
    "parameters": "parameters (M)",
    "images_per_second": "images/s",
    "num_runs": "runs",
}
NUMBERS = {"parameters": 1, "images_per_second": 0, "num_runs": 0}  # digits after the point
KINDS = {"train": "trained", "trial": "trained", compared.TESTED: "only tested"}
MOST = 8  # settings in which rows differ that are shown; the file has all


def rows(analysis: Analysis, links: Links) -> ReportTable:
    """A line for each algorithm; what differs between its cells, each once. Columns without entries are left out."""
    frame = compared.rows(analysis)
    settings = [str(name) for name in frame if name not in compared.ROW_COLUMNS]
    columns = {name: _column(frame, name) for name in (*HEADS, *settings[:MOST])}
    shown = [name for name, entries in columns.items() if _tells(name, entries)]
    lines = [(links.algorithm(name), *(columns[column][name] for column in shown)) for name in analysis.algorithms]
    caption = "What is compared: every algorithm with what it is and what it was made from."
    if settings:
        more = f" ({len(settings) - MOST} more in the file)" if len(settings) > MOST else ""
        caption += f" Last, the settings in which they differ{more}."
    head = ("algorithm", *(HEADS.get(name, name) for name in shown))
    return ReportTable(caption, head, tuple(lines), False, "rows.csv")


def _tells(name: str, entries: Mapping[str, TableCell]) -> bool:
    """Whether a column says anything: not without entries, and not what everybody takes for granted."""
    granted = {"method": lambda algorithm: algorithm, "kind": lambda algorithm: KINDS["train"]}
    usual = granted.get(name, lambda algorithm: "")
    return any(cell.text not in ("", "-", usual(algorithm)) for algorithm, cell in entries.items())


def _column(frame: pd.DataFrame, name: str) -> dict[str, TableCell]:
    """Algorithm -> its entry."""
    found = {}
    for algorithm, own in frame.groupby("algorithm", sort=False)[name]:
        if name == "num_runs":
            found[str(algorithm)] = decimal(float(own.sum()), 0)
        elif name in NUMBERS:
            known = own.dropna()
            found[str(algorithm)] = decimal(float(known.mean()) if len(known) else math.nan, NUMBERS[name])
        else:
            values = [KINDS.get(str(value), str(value)) if name == "kind" else value for value in own]
            found[str(algorithm)] = text(compared.listed(values))
    return found


def cells(analysis: Analysis) -> ReportTable | None:
    """What each cell trains on and holds out; None without cells."""
    runs = Counter(run.cell for run in analysis.collection.runs)
    lines = []
    for cell, data, held_out, columns in compared.cells(analysis):
        labels = ", ".join(NEEDS.get(name, name) for name in sorted(cell.provides))
        entries = (text(data), text(held_out), text(labels), text(", ".join(columns)))
        lines.append((text(cell.name), *entries, decimal(runs[cell.name], 0)))
    heads = ("cell", "trained on", "held out", "has", "columns", "runs")
    if not lines:
        return None
    kept = [i for i in range(len(heads)) if any(line[i].text for line in lines)]
    caption = "Cells: what their runs train on, what is held out of training, and which columns they fill."
    table = tuple(tuple(line[i] for i in kept) for line in lines)
    return ReportTable(caption, tuple(heads[i] for i in kept), table, False)
