"""Columns and cells of score tables by data set, each data set's average behind its columns."""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from biasbed import measures
from biasbed.analysis.columns import Column, blocks, names_of
from biasbed.analysis.display_names import Labels
from biasbed.analysis.report import latex, wording
from biasbed.analysis.report.table_model import DAGGER_MEANING, Links, PrintedText, TableColumn, prepared, score_cell
from biasbed.analysis.report.wording import error_divisor, error_name, listing, repeat_noun
from biasbed.analysis.result import UNIT_WORDS, Analysis, Cell
from biasbed.analysis.selection.rules import Rule

AVERAGE = "Avg"


@dataclass(frozen=True)
class ColumnGroup:
    """Columns of one block, as tables show them."""

    block: str
    columns: tuple[Column, ...]
    counted: tuple[Column, ...]  # those whose mean is the block's value (`columns.blocks`)

    @property
    def wide(self) -> bool:
        """True if tables show an average behind its columns."""
        return len(self.counted) > 1

    def value(self, analysis: Analysis, algorithm: str) -> Cell:
        """Return the cell that stands for the block: its average, or that of its only counted column."""
        if self.wide:
            return analysis.averages[algorithm, self.block]
        return analysis.cells[algorithm, self.counted[0].name]


def unit_of(column: Column) -> str:
    """Return the unit as it stands behind a column's name; empty for percent, losses and scores shown as printed."""
    if column.unit in (*UNIT_WORDS, measures.PLAIN):
        return ""
    return f" ({column.unit})"


def groups(analysis: Analysis) -> list[ColumnGroup]:
    """Return all blocks in display order."""
    by_block: dict[str, list[Column]] = {}
    for column in analysis.sets:
        by_block.setdefault(column.block, []).append(column)
    counted = blocks(analysis.sets)
    return [ColumnGroup(name, tuple(columns), counted[name]) for name, columns in by_block.items()]


def caption(analysis: Analysis) -> str:
    """Return the sentences of a caption on averages and on columns of which less is better, each after a blank."""
    text = ""
    if any(group.wide for group in groups(analysis)):
        text += f" {AVERAGE}: plain mean over the columns of a data set"
        if any(cell.std_text for cell in analysis.averages.values()):
            text += f", ± the {error_name(analysis)} of this mean between {repeat_noun(analysis)}s"
            text += f" ({error_divisor(analysis)})"
        text += "."
    for group in groups(analysis):
        if len(group.counted) < len(group.columns):
            columns = listing(map(analysis.label, names_of(group.counted)))
            text += f" Of {analysis.label(group.block)} the tests take {columns}."
    lower = [column.name for column in analysis.sets if not column.higher_is_better]
    if len(lower) == len(analysis.sets):
        text += " Less is better."
    elif lower:
        text += f" Less is better: {listing(map(analysis.label, lower))}."
    return text


# --- tables -----------------------------------------------------------------------------------------------------------


def score_columns(column_groups: Sequence[ColumnGroup], label: Labels) -> list[TableColumn]:
    """Return the columns of these data sets, behind each its average if it has several."""
    columns = []
    for group in column_groups:
        prefix = ""
        if len(group.columns) > 1:
            prefix = f"{group.block}-"
        for column in group.columns:
            head, unit = label(column.name.removeprefix(prefix)), unit_of(column)
            shown = set_column(head, column.name, unit, label(group.block), label(column.name))
            columns.append(dataclasses.replace(shown, name=column.name))
        if group.wide:
            block = label(group.block)
            key = (AVERAGE, group.block)
            columns.append(set_column(AVERAGE, key, block=block, full_head=f"{block} {AVERAGE}"))
    return columns


def set_column(head: str, key: Hashable, unit: str = "", block: str = "", full_head: str | None = None) -> TableColumn:
    """Return a column of scores, whose cells records hold under `key`; its head is turned in LaTeX."""
    return TableColumn(head, prepared(key), printed=head, style="turned", unit=unit, block=block, full_head=full_head)


def score_record(analysis: Analysis, links: Links, algorithm: str) -> dict[Hashable, object]:
    """Return an algorithm's cells by column, and by (`AVERAGE`, block)."""
    href = links.to_algorithm(algorithm)
    record: dict[Hashable, object] = {"algorithm": algorithm}
    for column in analysis.sets:
        record[column.name] = score_cell(analysis.cells[algorithm, column.name], href)
    for (name, block), cell in analysis.averages.items():
        if name == algorithm:
            record[AVERAGE, block] = score_cell(cell, href)
    return record


def printed_error(analysis: Analysis) -> str:
    """Return what ± is in a LaTeX table, with its divisor if it is not the usual one."""
    text = wording.deviation_name(analysis)
    if analysis.error != Rule.error:
        text += f", variance by ${wording.error_divisor(analysis)}$"
    return text


def printed_text(analysis: Analysis, label: str, table_caption: str, further_note: str = "") -> PrintedText:
    """Return what LaTeX prints around a table of scores. table_caption: LaTeX. further_note: plain text."""
    parts = [
        f"{latex.provenance(analysis)}. Bold: best mean, which need not be a tested lead.",
        latex.prose(caption(analysis)),
        rf"\textsuperscript{{$\dagger$}}~underlined: {DAGGER_MEANING}. " if analysis.daggers else "",
        latex.prose(wording.empty_cells_legend(analysis, dash="--")),
        latex.prose(further_note),
    ]
    return PrintedText(label, table_caption, " ".join(filter(None, parts)))
