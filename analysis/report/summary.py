"""Summary of an analysis as plain text of 100 columns: summary.txt."""

from __future__ import annotations

import textwrap
from collections.abc import Container, Sequence

from biasbed.analysis import sections
from biasbed.analysis.report import (
    groups,
    score_tables,
    wording,
)
from biasbed.analysis.report.answer import answer_paragraphs
from biasbed.analysis.report.table_model import DAGGER, DAGGER_MEANING, Links, ReportTable, TableCell
from biasbed.analysis.result import Analysis
from biasbed.analysis.sections.section import AnySection, ForSets, Sentences, ShownPart
from biasbed.analysis.selection.rules import Rule
from biasbed.system.terminal import aligned, text_width

WIDTH = 100
MOST_ROWS = 20  # of a table above the answer
ORACLE = "ORACLE numbers: selected on the test images themselves, which is impossible in practice."
NAMING = ("algorithm", "set")  # heads of first columns whose names say what they are


def render(analysis: Analysis) -> str:
    """Return the summary: warnings, scores with ranks, the answer, notes, then the sections.

    Above a table of more than `MOST_ROWS` rows the answer comes first.
    """
    links, part, rule = Links(analysis), analysis.collection.part, describe_rule(analysis)
    first = [_scores(analysis, links), wrap(answer_paragraphs(analysis))]
    parts = [
        f"Analysis of {analysis.title}",
        *([wrap([f"{wording.capitalized(part)}."], indent=0)] if part else []),
        wrap([analysis.runs_sentence + "."], indent=0),
        *([wrap(rule, indent=0)] if rule else []),
        *(reversed(first) if len(analysis.algorithms) > MOST_ROWS else first),
        *_section("Notes", analysis.notes, bullet="! "),
    ]
    answered = sections.answered_sentences(analysis)
    for section in sections.sections_of(analysis):
        parts += _of_section(section, analysis, links, answered)
    return "\n\n".join(parts)


def describe_rule(analysis: Analysis) -> list[str]:
    """Return the sentence on the selection rule, with a warning if it looks at test images; empty for a table."""
    rule = [] if analysis.collection.is_table else [f"Selection rule: {wording.rule_sentence(analysis)}."]
    return [*rule, ORACLE] if analysis.rule.oracle else rule


def _section(title: str, lines: Sequence[str], bullet: str = "") -> list[str]:
    """Return a title with lines below it; nothing without lines."""
    return ["\n".join([title, wrap(lines, bullet=bullet)])] if lines else []


def _of_section(section: AnySection, analysis: Analysis, links: Links, said: Container[str]) -> list[str]:
    """Return what the terminal shows of a section: a text for each choice of sets and one for the rest, with titles.

    said: sentences that are left out, as they stand above.
    """
    texts, lines = [], []
    for part in section.on_terminal(analysis, links):
        if isinstance(part, ForSets):
            texts.append("\n".join([wording.title_by_setting(analysis, part.setting), *_of_parts(part.parts)]))
        else:
            lines += _of_parts([part], said)
    if lines:
        texts.append("\n".join([section.terminal_title or section.title, *lines]))
    return texts


def _of_parts(parts: Sequence[ShownPart], said: Container[str] = ()) -> list[str]:
    """Render sentences other than those in `said`, and tables with their captions."""
    lines = []
    for part in parts:
        if isinstance(part, Sentences):
            lines += [wrap([line]) for line in part.lines if line not in said]
        elif isinstance(part, ReportTable):
            lines += [render_table(part), *([wrap([part.caption])] if part.caption else [])]
    return lines


# --- tables -----------------------------------------------------------------------------------------------------------


def _scores(analysis: Analysis, links: Links) -> str:
    """Return the table of scores with its title, and the meaning of its marks."""
    table = score_tables.scores(analysis, links)
    legends = list_legends(analysis, table)
    return "\n".join([score_title(analysis), render_table(table), *([wrap(legends)] if legends else [])])


def score_title(analysis: Analysis) -> str:
    """Return the title of the table of scores, with the divisor of ± if it is not the usual one."""
    if not wording.has_deviations(analysis):
        return f"Scores, {analysis.units}"
    divisor = "" if analysis.error == Rule.error else f" ({wording.error_divisor(analysis)})"
    return title_with_deviation(analysis) + divisor


def list_legends(analysis: Analysis, table: ReportTable) -> list[str]:
    """Return the meanings of the marks, columns and rows of the table of scores."""
    daggers = f"{DAGGER} {DAGGER_MEANING}" if analysis.daggers else ""
    legends = (daggers, groups.caption(analysis), wording.empty_cells_legend(analysis), table.legend_below)
    return [legend.strip() for legend in legends if legend]


def title_with_deviation(analysis: Analysis) -> str:
    """Return the title of the table of scores, which says what ± is."""
    return f"Scores, {analysis.units}: mean ± {wording.deviation_name(analysis)}"


# --- text -------------------------------------------------------------------------------------------------------------


def wrap(lines: Sequence[str], indent: int = 2, bullet: str = "") -> str:
    """Wrap each line at `WIDTH`; `bullet` stands before its first line."""
    first, rest = " " * indent + bullet, " " * (indent + len(bullet))
    wrapper = textwrap.TextWrapper(WIDTH, first, rest, break_on_hyphens=False)
    return "\n".join(wrapper.fill(line) for line in lines)


def render_table(table: ReportTable) -> str:
    """Render a table as text, a column of algorithms without a head."""
    return align(*_texts(table))


def column_widths(table: ReportTable) -> list[int]:
    """Return the width of each column in `render_table`."""
    header, rows = _texts(table)
    return [max(map(text_width, column)) for column in zip(header, *rows, strict=True)]


def _texts(table: ReportTable) -> tuple[list[str], list[list[str]]]:
    """Return the heads and the cells of a table as text."""
    rows = [[_cell_text(cell) for cell in cells] for cells in table.screen_rows]
    if table.below:
        rows += [[""] * len(table.heads), *([_cell_text(cell) for cell in cells] for cells in table.screen_below)]
    first, *heads = table.full_heads
    return ["" if first in NAMING else first, *heads], rows


def _cell_text(cell: TableCell) -> str:
    """Return `71.2 ±0.4 (70.9)†`; in a column with signs a blank behind cells without one."""
    published = ""
    if cell.published:
        published = f"({cell.published})"
    sign = "" if cell.sign is None else cell.sign or " "
    return " ".join(filter(None, (cell.text, cell.spread, published))) + sign


def align(header: Sequence[str], rows: Sequence[Sequence[str]], width: int = WIDTH) -> str:
    """Return a table with aligned columns. Columns that don't fit go into further blocks behind the first column."""
    widths = [max(map(text_width, column)) for column in zip(header, *rows, strict=True)]
    blocks: list[list[int]] = [[]]
    used = 2 + widths[0]
    for column in range(1, len(header)):
        if used + 2 + widths[column] > width and blocks[-1]:
            blocks.append([])
            used = 2 + widths[0]
        blocks[-1].append(column)
        used += 2 + widths[column]
    texts = []
    for block in blocks:
        table = [[row[column] for column in (0, *block)] for row in (header, *rows)]
        texts.append("\n".join(f"  {line}" for line in aligned(table, left=(0,))))
    return "\n\n".join(texts)
