"""The Align-Conflict paper's tables as the report shows them."""

from __future__ import annotations

import math
from dataclasses import dataclass

from biasbed.analysis.report import groups, paper_tables
from biasbed.analysis.report.cells import Links, ReportTable, TableCell
from biasbed.analysis.report.paper_tables import Entry, Panel, PaperTable, TableRow
from biasbed.analysis.result import Analysis

FILE = "paper_tables.csv"


@dataclass(frozen=True)
class PaperSection:
    """What the report has of them; empty, and not shown, for data without a bias."""

    tables: tuple[ReportTable, ...]  # one for each measure
    reasons: tuple[str, ...]  # why others are not there

    def __bool__(self) -> bool:
        return bool(self.tables or self.reasons)


def section(analysis: Analysis, links: Links) -> PaperSection:
    """All that was asked for."""
    found = paper_tables.of(analysis)
    tables = [_shown(table, panel, links) for table in found.tables for panel in table.panels]
    return PaperSection(tuple(tables), tuple(found.reasons))


def _shown(table: PaperTable, panel: Panel, links: Links) -> ReportTable:
    heads = [name for group in table.groups for name in group.heads]
    over = groups.above(table.groups)
    above = (("", len(table.heads)), *over) if over else ()
    rows = tuple(_row(table, panel, row, links) for row in table.rows)
    caption = f"Table {table.number}. {panel.title}. "
    caption += table.caption if panel is table.panels[0] else "Marks as above."
    return ReportTable(caption, (*table.heads, *heads), rows, table.oracle, FILE, above=above)


def _row(table: PaperTable, panel: Panel, row: TableRow, links: Links) -> tuple[TableCell, ...]:
    is_method = row.name in links.algorithms
    name = links.algorithm(row.name) if is_method else TableCell(row.text, left=True)
    href = name.href if is_method else ""
    cells = [panel.cells.get((row.name, column)) for column in table.columns]
    return (name, *map(_said, row.about), *(_cell(cell, href) for cell in cells))


def _said(about: bool | str) -> TableCell:
    """A check mark, or words."""
    if isinstance(about, bool):
        return TableCell("✓" if about else "-", value=float(about))
    return TableCell(about, left=True)


def _cell(cell: Entry | None, href: str) -> TableCell:
    if cell is None:
        return TableCell("-", value=-math.inf)
    return TableCell(
        cell.text,
        value=-math.inf if math.isnan(cell.mean) else cell.mean,
        small=f"±{cell.std_text}" if cell.std_text else "",
        href="" if math.isnan(cell.mean) else href,
        bold=cell.best,
        underlined=cell.unaided,
    )
