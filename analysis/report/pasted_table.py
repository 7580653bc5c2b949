"""Table of scores with ranks in Markdown, HTML or LaTeX, to paste into a README, a page or a paper.

Answers: What does `compare --format` print? What does `analyze` write as Markdown?
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, get_args

from biasbed.analysis.report import latex, score_tables, summary
from biasbed.analysis.report.answer import answer_sentences
from biasbed.analysis.report.table_model import Links, ReportTable, TableCell
from biasbed.analysis.result import Analysis

TableFormat = Literal["markdown", "html", "latex"]
Arrows = Mapping[str, str]  # data set -> arrow behind its name
FORMATS: tuple[TableFormat, ...] = get_args(TableFormat)
MARKDOWN_SIGNS = re.compile(r"([\\`*_|<>\[\]~$#&])")


def render(analysis: Analysis, table_format: TableFormat) -> str:
    """Return the table of scores: rows, ranks, those that may be first with a star, means and scores."""
    table = score_tables.scores(analysis, Links(analysis))
    scores = analysis.inputs.user_scores
    arrows = {}
    for column in analysis.sets:
        if scores is not None and column.name in scores.directed:
            arrows[column.name] = " ↑" if column.higher_is_better else " ↓"
    return {"markdown": _markdown, "html": _html, "latex": _latex}[table_format](table, arrows)


def render_page(analysis: Analysis) -> str:
    """Return the table of scores in Markdown between its title and what a reader needs to know of it."""
    table = score_tables.scores(analysis, Links(analysis))
    below = [*summary.list_legends(analysis, table), *answer_sentences(analysis), *summary.describe_rule(analysis)]
    return "\n\n".join([summary.score_title(analysis), _markdown(table, {}), *map(_escape_markdown, below)]) + "\n"


def _heads(table: ReportTable, arrows: Arrows, escape: Callable[[str], str]) -> list[str]:
    """Return the heads as safe text, with arrows on data sets whose direction is known."""
    heads = zip(table.screen_columns, table.full_heads, strict=True)
    return [escape(head) + arrows.get(column.name, "") for column, head in heads]


def _markdown(table: ReportTable, arrows: Arrows) -> str:
    rows = [_heads(table, arrows, _escape_markdown), *_texts(table, _escape_markdown, "**{}**")]
    rules = ["---", *["---:"] * (len(rows[0]) - 1)]
    return "\n".join(f"| {' | '.join(row)} |" for row in (rows[0], rules, *rows[1:]))


def _html(table: ReportTable, arrows: Arrows) -> str:
    rows = _texts(table, html.escape, "<b>{}</b>")
    lines = ["<table>", "<thead>", _html_row(_heads(table, arrows, html.escape), "th"), "</thead>", "<tbody>"]
    return "\n".join([*lines, *(_html_row(row, "td") for row in rows), "</tbody>", "</table>"])


def _latex(table: ReportTable, arrows: Arrows) -> str:
    signs = {" ↑": r" $\uparrow$", " ↓": r" $\downarrow$"}
    heads = _heads(table, {name: signs[arrow] for name, arrow in arrows.items()}, latex.escape)
    rows = [list(map(latex.render_cell, row)) for row in table.screen_rows]
    below = [list(map(latex.render_cell, row)) for row in table.screen_below]
    return "\n".join(latex.tabular(heads, rows, "l" + "r" * (len(heads) - 1), below))


def _texts(table: ReportTable, escape: Callable[[str], str], bold: str) -> list[list[str]]:
    """Return the cells of each row as text of one line."""
    texts = []
    for row in (*table.screen_rows, *table.screen_below):
        texts.append([_cell_text(cell, escape, bold) for cell in row])
    return texts


def _cell_text(cell: TableCell, escape: Callable[[str], str], bold: str) -> str:
    """Return a cell as text. escape: makes a text safe. bold: format of bold text, as `**{}**`."""
    text = escape(cell.text)
    text = bold.format(text) if cell.bold else text
    spread = f" {escape(cell.spread)}" if cell.spread else ""
    return text + escape(cell.sign or "") + spread


def _escape_markdown(text: str) -> str:
    return MARKDOWN_SIGNS.sub(r"\\\1", " ".join(text.split()))


def _html_row(cells: Sequence[str], element: str) -> str:
    return "<tr>" + "".join(f"<{element}>{cell}</{element}>" for cell in cells) + "</tr>"
