"""Tables of scores, on columns and data sets and of every run.

Answers: Which columns does a table of scores have?
"""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pandas as pd

from biasbed.analysis import sections
from biasbed.analysis.report import groups, latex, wording
from biasbed.analysis.report.table_model import (
    DAGGER_LEGEND,
    CellMaker,
    Links,
    PrintedText,
    ReportTable,
    RowBelow,
    TableCell,
    TableColumn,
    TableRecord,
    make_table,
    number_cell,
    prepared,
    text_cell,
)
from biasbed.analysis.result import Analysis
from biasbed.analysis.runs.run import Run

INTERVALS = (
    " Below: the 95 % interval (Wilson) of a single model's accuracy, given the number of images of the set. A number "
    "links to its runs."
)
DUPLICATES = "Finished runs that do not count, because another run has the same configuration, data and seed."

# --- scores of columns and data sets ----------------------------------------------------------------------------------


def scores(analysis: Analysis, links: Links) -> ReportTable:
    """Return the table of scores: algorithms x columns, with averages of data sets.

    Sections add columns before the scores, and rows below.
    """
    further, below = sections.score_columns(analysis), sections.rows_below(analysis)
    num_sets = Counter(column.head for column in further)
    columns = [links.column()]
    for column in further:
        head = column.head
        if num_sets[head] > 1:
            head += f", {analysis.label(column.dataset)}"
        printed_head = head if column.is_printed else None
        columns.append(TableColumn(head, prepared((column.head, column.dataset)), printed=printed_head, style="turned"))
    columns += groups.score_columns(groups.groups(analysis), analysis.label)
    records = []
    for algorithm in analysis.algorithms:
        record = groups.score_record(analysis, links, algorithm)
        for column in further:
            if algorithm in column.cells:
                record[column.head, column.dataset] = column.cells[algorithm]
        records.append(record)
    legends_further = "".join(dict.fromkeys(column.legend for column in further))
    legends = "".join(dict.fromkeys(row.legend for row in below))
    caption = f"{_scores_caption(analysis)}{legends_further}{legends}{wording.empty_cells_legend(analysis)}"
    printed_caption = f"Scores in {analysis.units}."
    if wording.has_deviations(analysis):
        printed_caption = rf"Scores in {analysis.units}: mean $\pm$ {groups.printed_error(analysis)}."
    printed = groups.printed_text(analysis, "scores", printed_caption, legends)
    table = make_table(caption, columns, records, oracle=analysis.rule.oracle, printed=printed)
    rows = tuple(_make_row_below(columns, row) for row in below)
    file = "scores.csv, blocks.csv" if table.above else "scores.csv"
    return dataclasses.replace(table, file=file, below=rows, legend_below=legends)


def _scores_caption(analysis: Analysis) -> str:
    """Return the caption of the table of scores, without the legends of what sections add."""
    caption = f"Scores, in {analysis.units}. Bold: best of the column."
    if wording.has_deviations(analysis):
        divisor = wording.error_divisor(analysis)
        caption = (
            f"Mean ± {wording.deviation_name(analysis)} ({divisor}), in {analysis.units}. Bold: best of the column."
        )
    caption += groups.caption(analysis)
    if any(cell.interval_text for cell in analysis.cells.values()):
        caption += INTERVALS
        if any(column.set_record.conditions for column in analysis.sets):
            caption += " The views of one photograph under several conditions count as one image there."
    if analysis.daggers:
        caption += DAGGER_LEGEND
    return caption


def _make_row_below(columns: Sequence[TableColumn], row: RowBelow) -> tuple[TableCell, ...]:
    """Return a row's name and its cells, a dash in columns for which it has none."""
    cells = [column.make({"algorithm": "", **row.cells}) for column in columns[1:]]
    return (text_cell(row.name), *cells)


# --- scores of every run ----------------------------------------------------------------------------------------------


def by_run(analysis: Analysis, links: Links) -> ReportTable:
    """Return the scores of every run, or of every replicate if cells have runs of their own.

    Made once, and kept for page and LaTeX.
    """
    key = "scores of runs", links.prefix
    if key not in analysis.shown:
        analysis.shown[key] = _make_run_table(analysis, links)
    table: ReportTable = analysis.shown[key]
    return table


def _make_run_table(analysis: Analysis, links: Links) -> ReportTable:
    """Return the scores of every run or replicate (`by_run`)."""
    run, step = wording.replicate_noun(analysis), analysis.collection.protocol.step_unit
    printed_caption = f"Scores in {analysis.units} of every {run}."
    printed = PrintedText("runs", printed_caption, f"{latex.provenance(analysis)}.")
    caption = f"Every {run}'s scores in {analysis.units}, at the {step} that the selection rule picks."
    if analysis.collection.is_table:
        caption = f"Every {run}'s scores in {analysis.units}."
    has_steps = run == "run" and not analysis.collection.is_table
    if run == "run":
        records = _run_records(analysis, links, analysis.shown_runs, analysis.runs)
    else:
        records = _replicate_records(analysis, links)
        caption += " A number links to its run."
    return make_table(
        caption,
        _run_columns(analysis, links, step if has_steps else ""),
        records,
        "runs.csv",
        oracle=analysis.rule.oracle,
        ids=_first_anchors(links, [record["algorithm"] for record in records]),
        printed=printed,
    )


def duplicates(analysis: Analysis, links: Links) -> ReportTable | None:
    """Return the scores of the finished runs that do not count; None if all count."""
    if not analysis.collection.duplicates:
        return None
    records = _run_records(analysis, links, analysis.collection.duplicates, analysis.duplicates)
    columns = _run_columns(analysis, links, analysis.collection.protocol.step_unit)
    return make_table(DUPLICATES, columns, records, "duplicates.csv", oracle=analysis.rule.oracle)


def _run_columns(analysis: Analysis, links: Links, step: str = "") -> list[TableColumn]:
    """Return the columns of the table of runs. step: head of the column of steps; empty: there are none to show."""
    head = "seed" if step or analysis.collection.is_table else wording.replicate_noun(analysis)
    columns = [
        TableColumn("algorithm", _plain_name(links), printed="algorithm", align="l"),
        TableColumn(head, prepared("name"), printed="seed", align="l"),
    ]
    if step:
        columns += [TableColumn("run", prepared("run")), TableColumn(step, prepared("steps"))]
    return columns + [groups.set_column(analysis.label(name), name) for name in analysis.set_names]


def _plain_name(links: Links) -> CellMaker:
    """Show an algorithm's name without a link, in the table that the links lead to."""

    def make(record: TableRecord) -> TableCell:
        return links.algorithm_cell(record["algorithm"])._replace(href="")

    return make


def _run_records(
    analysis: Analysis, links: Links, runs: Sequence[Run], run_table: pd.DataFrame
) -> list[dict[str, Any]]:
    """Return the rows of the table of runs: a run's scores, with a link to it."""
    spans = _step_spans(run_table)
    run_scores = run_table.set_index(["run_id", "dataset"])["score"].astype(float).to_dict()
    records = []
    for run in runs:
        name = f"{run.seed} {run.test_domains}".strip()
        seed = float(run.seed) if run.seed.isdecimal() else None
        span = ""
        if not analysis.collection.published:
            span = spans.get(run.id, "")
        record: dict[str, Any] = {"algorithm": run.algorithm, "name": TableCell(name, seed, left=True)}
        record |= {"run": links.run_cell(run.id), "steps": TableCell(span)}
        for column in analysis.sets:
            record[column.name] = number_cell(run_scores.get((run.id, column.name), math.nan), column.digits)
        records.append(record)
    return records


def _replicate_records(analysis: Analysis, links: Links) -> list[dict[str, Any]]:
    """Return the rows of the table of replicates: for each column a score with a link to its run."""
    digits = {column.name: column.digits for column in analysis.sets}
    records: list[dict[str, Any]] = []
    for (algorithm, replicate), table in analysis.runs.groupby(["algorithm", "replicate"], sort=False):
        record: dict[str, Any] = {"algorithm": str(algorithm), "name": text_cell(str(replicate).strip())}
        for dataset, score, run_id in table[["dataset", "score", "run_id"]].itertuples(index=False, name=None):
            record[dataset] = number_cell(float(score), digits[dataset], href=links.to_run(run_id))
        records.append(record)
    return sorted(records, key=lambda record: analysis.algorithms.index(record["algorithm"]))


def _first_anchors(links: Links, algorithms: Sequence[str]) -> tuple[str, ...]:
    """Return the anchor of each row: that of its algorithm for an algorithm's first row, else an empty text."""
    anchors, seen = [], set()
    for algorithm in algorithms:
        anchors.append("" if algorithm in seen else links.algorithms[algorithm])
        seen.add(algorithm)
    return tuple(anchors)


def _step_spans(run_table: pd.DataFrame) -> dict[str, str]:
    """Return run id -> its selected steps: `12`, `60-90`, or `per set` if they differ between sets."""
    spans: dict[str, set[str]] = {}
    steps = run_table[["run_id", "first_step", "last_step"]].drop_duplicates()
    for run_id, first, last in steps.itertuples(index=False, name=None):
        span = str(int(first)) if first == last else f"{int(first)}-{int(last)}"
        spans.setdefault(run_id, set()).add(span)
    return {run_id: "per set" if len(of_run) > 1 else of_run.pop() for run_id, of_run in spans.items()}
