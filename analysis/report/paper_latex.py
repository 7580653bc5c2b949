"""The Align-Conflict paper's tables as LaTeX."""

from __future__ import annotations

from pathlib import Path

from biasbed.analysis.report import paper_tables
from biasbed.analysis.report.floats import bold, escape, floated
from biasbed.analysis.report.latex import heads, provenance
from biasbed.analysis.report.paper_tables import Entry, Panel, PaperTable, TableRow
from biasbed.analysis.result import Analysis

CHECK = r"$\checkmark$"


def write(analysis: Analysis, folder: Path) -> dict[str, str]:
    """Writes each into `folder/tables` and returns file name -> one line that says what it is."""
    files = {}
    for table in paper_tables.of(analysis).tables:
        name = f"tables/paper_{table.name}.tex"
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text(analysis, table), encoding="utf-8")
        files[name] = f"table {table.number} of the Align-Conflict paper: {table.title}, LaTeX"
    return files


def text(analysis: Analysis, table: PaperTable) -> str:
    """One table; where it has several measures they stand below each other, each under its title."""
    width = len(table.heads) + len(table.columns)
    rows: list[list[str]] = []
    for panel in table.panels:
        if len(table.panels) > 1:
            rule = r"\midrule " if rows else ""
            rows.append([rf"{rule}\multicolumn{{{width}}}{{l}}{{\emph{{{escape(panel.title)}}}}}"])
        rows += [_row(table, panel, row) for row in table.rows]
    header = heads(table.groups, analysis.label, ["", *map(escape, table.heads[1:])])
    columns = "l" + "c" * (len(table.heads) - 1) + "r" * len(table.columns)
    note = f"{escape(table.caption)} {provenance(analysis)}.".replace("±", r"$\pm$")
    caption = f"{'ORACLE: ' if table.oracle else ''}{escape(table.title)}."
    label = f"paper-{table.name}"
    return floated(header, rows, columns, label, caption=caption, note=note, packages="amssymb")


def _row(table: PaperTable, panel: Panel, row: TableRow) -> list[str]:
    about = [CHECK if said is True else "--" if said is False else escape(str(said)) for said in row.about]
    cells = [panel.cells.get((row.name, column)) for column in table.columns]
    return [escape(row.text), *about, *("--" if cell is None else _cell(cell) for cell in cells)]


def _cell(cell: Entry) -> str:
    found = bold(cell.text, cell.best)
    found = rf"\underline{{{found}}}" if cell.unaided else found
    return found + (rf" {{\scriptsize$\pm$ {cell.std_text}}}" if cell.std_text else "")
