"""Tables of scores, on columns and data sets and of every run.

Answers: Which columns does a table of scores have?
"""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from biasbed.analysis.report import groups, latex, wording
from biasbed.analysis.report.phrases import say
from biasbed.analysis.report.table_model import (
    CellMaker,
    Links,
    PrintedText,
    ReportTable,
    RowBelow,
    ScoreColumn,
    TableCell,
    TableColumn,
    TableRecord,
    make_table,
    number_cell,
    prepared,
    text_cell,
)
from biasbed.analysis.result import Analysis, scores_by_run
from biasbed.analysis.runs.run import Run

# --- scores of columns and data sets ----------------------------------------------------------------------------------


def scores(
    analysis: Analysis, links: Links, further: Sequence[ScoreColumn] = (), below: Sequence[RowBelow] = ()
) -> ReportTable:
    """Algorithms x columns with the averages of data sets. further: columns before them. below: rows after them."""
    columns, number_of_sets = [links.column()], Counter(column.head for column in further)
    for column in further:
        head = column.head
        if number_of_sets[head] > 1:
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
    run = wording.repeated(analysis)
    slots = {
        "error": wording.error(analysis),
        "run": run,
        "divisor": wording.error_by(analysis),
        "units": analysis.units,
    }
    caption = say("scores", **slots) if wording.has_deviations(analysis) else say("single_scores", units=analysis.units)
    caption += groups.caption(analysis)
    if any(cell.interval_text for cell in analysis.cells.values()):
        caption += say("scores_intervals")
        if any(column.set_record.conditions for column in analysis.sets):
            caption += say("scores_views")
    if analysis.daggers:
        caption += say("scores_dagger")
    caption += "".join(dict.fromkeys(column.legend for column in further))
    legends = "".join(dict.fromkeys(row.legend for row in below))
    caption += legends
    caption += wording.not_applicable(analysis)
    printed_caption = f"Scores in {analysis.units}."
    if wording.has_deviations(analysis):
        printed_caption = rf"Scores in {analysis.units}: mean $\pm$ {groups.printed_error(analysis)}."
    printed = groups.printed_text(analysis, "scores", printed_caption, legends)
    table = make_table(caption, columns, records, oracle=analysis.rule.oracle, printed=printed)
    rows = tuple(_make_row_below(columns, row) for row in below)
    file = "scores.csv, blocks.csv" if table.above else "scores.csv"
    return dataclasses.replace(table, file=file, below=rows, legend_below=legends)


def _make_row_below(columns: Sequence[TableColumn], row: RowBelow) -> tuple[TableCell, ...]:
    """Return a row's name and its cells; a dash where it has none, as in the column of ranks."""
    cells = [column.make({"algorithm": "", **row.cells}) for column in columns[1:]]
    return (text_cell(row.name), *cells)


# --- scores of every run ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Repeat:
    """One line of the scores behind the means: a run, or a replicate with its run for each column."""

    algorithm: str
    name: str  # its seed and the domains held out, or the replicate's
    scores: Mapping[str, float]  # column -> score
    runs: Mapping[str, str]  # column -> id of the run


def repeats(analysis: Analysis) -> list[Repeat]:
    """Return all repeats by algorithm in display order."""
    run_names = {run.id: f"{run.seed} {run.test_domains}" for run in analysis.collection.runs}
    is_run = wording.repeated(analysis) == "run"
    lines = []
    for (algorithm, name), table in analysis.runs.groupby(["algorithm", "replicate"], sort=False):
        columns = [str(column) for column in table["dataset"]]
        scores = dict(zip(columns, table["score"].astype(float), strict=True))
        runs = dict(zip(columns, table["run_id"], strict=True))
        lines.append(Repeat(str(algorithm), run_names[str(name)] if is_run else str(name).strip(), scores, runs))
    return sorted(lines, key=lambda line: analysis.algorithms.index(line.algorithm))


def by_run(analysis: Analysis, links: Links) -> ReportTable:
    """Scores of every run, or of every replicate if an algorithm's replicate has a run on each cell."""
    run, step = wording.repeated(analysis), analysis.collection.protocol.step_unit
    slots = {"run": run, "units": analysis.units}
    printed = PrintedText("runs", say("printed_runs", **slots), f"{latex.provenance(analysis)}.")
    if analysis.collection.is_table:
        records = _run_records(analysis, links, analysis.shown_runs, analysis.runs)
        columns, caption = _run_columns(analysis, links), say("scores_of_table", **slots)
    elif run == "run":
        records = _run_records(analysis, links, analysis.shown_runs, analysis.runs)
        columns, caption = _run_columns(analysis, links, step), say("scores_of_runs", step=step, **slots)
    else:
        records = [_replicate_record(analysis, links, repeat) for repeat in repeats(analysis)]
        columns, caption = (
            _run_columns(analysis, links),
            say("scores_of_runs", step=step, **slots) + say("scores_of_runs_links"),
        )
    return make_table(
        caption,
        columns,
        records,
        "runs.csv",
        oracle=analysis.rule.oracle,
        ids=_first_anchors(links, [record["algorithm"] for record in records]),
        printed=printed,
    )


def duplicates(analysis: Analysis, links: Links) -> ReportTable | None:
    """Scores of the finished runs that do not count."""
    if not analysis.collection.duplicates:
        return None
    records = _run_records(analysis, links, analysis.collection.duplicates, analysis.duplicates)
    columns = _run_columns(analysis, links, analysis.collection.protocol.step_unit)
    return make_table(say("duplicates"), columns, records, "duplicates.csv", oracle=analysis.rule.oracle)


def _run_columns(analysis: Analysis, links: Links, step: str = "") -> list[TableColumn]:
    """Return the columns of runs, or without `step` of replicates, which have no steps of their own."""
    head = "seed" if step or analysis.collection.is_table else wording.repeated(analysis)
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
    scores, spans = scores_by_run(run_table), _step_spans(run_table)
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
            record[column.name] = number_cell(scores.get((run.id, column.name), math.nan), column.digits)
        records.append(record)
    return records


def _replicate_record(analysis: Analysis, links: Links, repeat: Repeat) -> dict[str, Any]:
    record: dict[str, Any] = {"algorithm": repeat.algorithm, "name": text_cell(repeat.name)}
    for column in analysis.sets:
        href = links.to_run(repeat.runs.get(column.name))
        record[column.name] = number_cell(repeat.scores.get(column.name, math.nan), column.digits, href=href)
    return record


def _first_anchors(links: Links, algorithms: Sequence[str]) -> tuple[str, ...]:
    """Return an algorithm's anchor for its first row, and nothing for its further ones."""
    anchors, seen = [], set()
    for algorithm in algorithms:
        anchors.append("" if algorithm in seen else links.algorithms[algorithm])
        seen.add(algorithm)
    return tuple(anchors)


def _step_spans(run_table: pd.DataFrame) -> dict[str, str]:
    """Return the selected steps by run; `per set` if each set has its own."""
    spans: dict[str, set[str]] = {}
    steps = run_table[["run_id", "first_step", "last_step"]].drop_duplicates()
    for run_id, first, last in steps.itertuples(index=False, name=None):
        span = str(int(first)) if first == last else f"{int(first)}-{int(last)}"
        spans.setdefault(run_id, set()).add(span)
    return {run_id: "per set" if len(of_run) > 1 else of_run.pop() for run_id, of_run in spans.items()}
