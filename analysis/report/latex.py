"""LaTeX tables that fit where they stand: in a column, across a page, on a turned page; long ones in parts.

They need booktabs, graphicx and adjustbox; those on a turned page need rotating. Captions are short; a note below the
table says the rest.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence

from biasbed.analysis.report import wording
from biasbed.analysis.report.table_model import DAGGER, MISSING, ReportTable, TableCell, TableColumn, names_above
from biasbed.analysis.result import Analysis

_SPECIAL = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
_SPECIAL |= {"<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}", '"': r"\textquotedbl{}"}
_SPECIAL |= {character: f"\\{character}" for character in "&%$#_{}"}
_MARKS = {"✓": r"$\checkmark$", MISSING: "--"}  # cells that are one mark

COLUMN, PAGE = 84.0, 178.0  # millimetres: of one of two columns, and of both
CHARACTER, GAP = 1.5, 2.1  # millimetres: a digit at 8 pt, and the space between two columns
LINES = {"table": 46, "table*": 46, "sidewaystable*": 26}  # that a page takes besides caption, head and note
HELD = 20  # floats in a row; LaTeX holds back no more than 52


# --- text -------------------------------------------------------------------------------------------------------------


def escape(text: str) -> str:
    """Escape any text; characters that LaTeX's usual fonts lack (most beyond Latin-1) become a question mark."""
    characters = " ".join(text.split())
    return "".join(_SPECIAL.get(c, c if c.isprintable() and ord(c) < 256 else "?") for c in characters)


def prose(text: str) -> str:
    """Escape a sentence, with ± as LaTeX sets it."""
    return escape(text).replace("±", r"$\pm$")


def provenance(analysis: Analysis) -> str:
    """Return study, rule and number of runs, for notes, without names that only biasbed knows."""
    if analysis.collection.is_table:
        return escape(f"{analysis.title}; {analysis.runs_sentence}")
    scope = analysis.collection.scope
    return escape(f"Study {scope.study}; {wording.rule_label(analysis)}; {analysis.runs_sentence}")


# --- tables -----------------------------------------------------------------------------------------------------------


def render(table: ReportTable) -> str:
    """Render a table as a float, or several if it is longer than a page."""
    is_printed = [column.printed is not None for column in table.columns]
    columns = list(itertools.compress(table.columns, is_printed))
    rows = [list(map(render_cell, itertools.compress(row, is_printed))) for row in table.rows]
    below = [list(map(render_cell, itertools.compress(row, is_printed))) for row in table.below]
    assert table.printed is not None
    return floated(
        _header(columns),
        rows,
        "".join(column.align for column in columns),
        table.printed.label,
        caption=table.printed.caption,
        note=table.printed.note,
        footer=[*table.footer, *below],
    )


def _header(columns: Sequence[TableColumn]) -> list[str]:
    """Return the heads; above them, in the first, the names of data sets that have several columns, with rules."""
    heads = [_head(column) for column in columns]
    names, rules, start = [], [], 1
    for name, width in names_above(columns):
        end = start + width - 1
        is_first = not columns[start - 1].block
        names += [""] * width if is_first else [rf"\multicolumn{{{width}}}{{c}}{{{escape(name)}}}"]
        if name:
            rules.append(rf"\cmidrule(lr){{{start}-{end}}}")
        start = end + 1
    if names:
        heads[0] = " & ".join(names) + r" \\ " + " ".join(rules) + "\n" + heads[0]
    return heads


def _head(column: TableColumn) -> str:
    """Return a column's head with its unit as LaTeX."""
    head = (column.printed or "") + column.unit
    if column.style == "math":
        return f"${head}$"
    text = escape(head)
    if column.style == "turned":
        return rf"\rotatebox{{60}}{{{text}}}"
    return text


def render_cell(cell: TableCell) -> str:
    """Return a cell in LaTeX: value, spread, published value in brackets, marks."""
    if not cell.text and cell.published:
        return f"({cell.published})"
    text = escape(cell.text) if cell.left else cell.text.replace("<", "$<$")
    text = _MARKS.get(cell.text, text)
    text = rf"\textbf{{{text}}}" if cell.bold else text
    text = rf"\underline{{{text}}}" if cell.underlined else text
    if cell.spread:
        spread = escape(cell.spread).replace("±", r"$\pm$ ")
        text += rf" {{\scriptsize{spread}}}"
    if cell.published:
        text += f" ({cell.published})"
    if cell.sign == DAGGER:
        return rf"\underline{{{text}}}\textsuperscript{{$\dagger$}}"
    return rf"{text}\textsuperscript{{{cell.sign}}}" if cell.sign else text


def floated(
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    columns: str,
    label: str,
    *,
    caption: str,
    note: str,
    footer: Sequence[Sequence[str]] = (),
) -> str:
    """Return a table as a float; as several, one after the other, if it is longer than a page.

    header, rows, footer: cells as LaTeX. columns: their alignment.
    """
    kind = environment([header, *rows, *footer])
    needs = ["booktabs, graphicx, adjustbox", *(["rotating"] if kind.startswith("sideways") else [])]
    parts = [rows[start : start + LINES[kind]] for start in range(0, len(rows), LINES[kind])] or [rows]
    lines = [f"% needs: {', '.join(needs)}"]
    for number, part in enumerate(parts):
        is_first, is_last = number == 0, number == len(parts) - 1
        title = rf"\addtocounter{{table}}{{-1}}\caption{{{caption.strip()} (Continued.)}}"
        if is_first:
            title = rf"\caption{{{caption.strip()}}}\label{{tab:{label}}}"
        elif number % HELD == 0:
            lines.append(r"\clearpage")
        lines += [rf"\begin{{{kind}}}", r"\centering\footnotesize\setlength{\tabcolsep}{3pt}", title]
        lines.append(r"\begin{adjustbox}{max width=\linewidth}")
        lines += tabular(header, part, columns, footer if is_last else ())
        lines.append(r"\end{adjustbox}")
        below = rf"\par\smallskip\begin{{minipage}}{{\linewidth}}\scriptsize\raggedright {note.strip()}\end{{minipage}}"
        if note and is_first:
            lines.append(below)
        lines += [rf"\end{{{kind}}}"]
    return "\n".join([*lines, ""])


def environment(lines: Sequence[Sequence[str]]) -> str:
    """Return the float that is wide enough for these cells: of a column, a page or a turned page."""
    widths: dict[int, int] = {}
    for cells in lines:
        for i, cell in enumerate(cells):
            widths[i] = max(widths.get(i, 0), _count_characters(cell))
    width = sum(CHARACTER * characters + GAP for characters in widths.values())
    if width <= COLUMN:
        return "table"
    if width <= PAGE:
        return "table*"
    return "sidewaystable*"


def _count_characters(cell: str) -> int:
    """Estimate how many characters wide a cell is; heads that are turned or span columns need almost no width."""
    last_line = cell.rsplit("\n", 1)[-1]
    if r"\multicolumn" in last_line or r"\rotatebox" in last_line:
        return 3
    return len(re.sub(r"\\[a-zA-Z]+|[{}$\\]", "", last_line))


def tabular(
    header: Sequence[str], rows: Sequence[Sequence[str]], columns: str, footer: Sequence[Sequence[str]] = ()
) -> list[str]:
    """Return the lines of a table with booktabs' rules. header, rows, footer: cells as LaTeX."""
    lines = [rf"\begin{{tabular}}{{{columns}}}", r"\toprule"]
    lines += [" & ".join(header) + r" \\", r"\midrule", *map(_line, rows)]
    if footer:
        lines += [r"\midrule", *map(_line, footer)]
    return [*lines, r"\bottomrule", r"\end{tabular}"]


def _line(cells: Sequence[str]) -> str:
    """Join the cells of a line, with a minus sign for the hyphen before a number (not in exponents, which have one).

    A bracket or star at the start would be read as an argument of the line break before it.
    """
    start = "{}" if cells[0].startswith(("[", "*")) else ""
    return start + " & ".join(re.sub(r"(?<![\w\-])(?<!\^\{)-(?=\d)", "$-$", cell) for cell in cells) + r" \\"
