"""LaTeX tables that fit where they stand: in a column, across a page, on a page turned; long ones in parts.

They need booktabs, graphicx and adjustbox; those on a turned page rotating. Short captions; the rest is a note below.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

_SPECIAL = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
_SPECIAL |= {"<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}", '"': r"\textquotedbl{}"}
_SPECIAL |= {character: f"\\{character}" for character in "&%$#_{}"}

COLUMN, PAGE = 84.0, 178.0  # millimetres: of one of two columns, and of both
CHARACTER, GAP = 1.5, 2.1  # millimetres: a digit at 8 pt, and what stands between two columns
LINES = {"table": 46, "table*": 46, "sidewaystable*": 26}  # that a page takes besides caption, head and note
HELD = 20  # floats in a row; LaTeX holds back no more than 52


def escape(text: str) -> str:
    """Any text as LaTeX prints it; what its usual fonts lack (most beyond Latin-1) becomes a question mark."""
    return "".join(_SPECIAL.get(c, c if c.isprintable() and ord(c) < 256 else "?") for c in " ".join(text.split()))


def bold(text: str, is_bold: bool) -> str:
    """The text, bold if it is to be."""
    return rf"\textbf{{{text}}}" if is_bold else text


def turned(text: str) -> str:
    """The head of a narrow column."""
    return rf"\rotatebox{{60}}{{{escape(text)}}}"


def floated(
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    columns: str,
    label: str,
    *,
    caption: str,
    note: str,
    footer: Sequence[Sequence[str]] = (),
    packages: str = "",
) -> str:
    """A table as a float; as several, one after the other, where it is longer than a page.

    header, rows, footer: cells as LaTeX has them. columns: their alignment. packages: that it needs besides.
    """
    kind = environment([header, *rows, *footer])
    needs = ["booktabs, graphicx, adjustbox", *(["rotating"] if kind.startswith("sideways") else []), packages]
    parts = [rows[start : start + LINES[kind]] for start in range(0, len(rows), LINES[kind])] or [rows]
    lines = [f"% needs: {', '.join(filter(None, needs))}"]
    for number, part in enumerate(parts):
        named = rf"\caption{{{caption.strip()}}}\label{{tab:{label}}}"
        if number:
            named = rf"\addtocounter{{table}}{{-1}}\caption{{{caption.strip()} (Continued.)}}"
        lines += [r"\clearpage"] if number and not number % HELD else []
        lines += [rf"\begin{{{kind}}}", r"\centering\footnotesize\setlength{\tabcolsep}{3pt}", named]
        lines += _tabular(header, part, columns, footer if number == len(parts) - 1 else ())
        below = rf"\par\smallskip\begin{{minipage}}{{\linewidth}}\scriptsize\raggedright {note.strip()}\end{{minipage}}"
        lines += [below] if note and not number else []
        lines += [rf"\end{{{kind}}}"]
    return "\n".join([*lines, ""])


def environment(lines: Sequence[Sequence[str]]) -> str:
    """The float that is wide enough for these cells: a column's, a page's, or a turned page's."""
    widths: dict[int, int] = {}
    for cells in lines:
        for place, cell in enumerate(cells):
            widths[place] = max(widths.get(place, 0), _characters(cell))
    width = sum(CHARACTER * most + GAP for most in widths.values())
    return "table" if width <= COLUMN else "table*" if width <= PAGE else "sidewaystable*"


def _characters(cell: str) -> int:
    """About how many a cell takes; what spans columns, or stands above a column at an angle, takes no room in it."""
    own = cell.rsplit("\n", 1)[-1]
    if r"\multicolumn" in own or r"\rotatebox" in own:
        return 3
    return len(re.sub(r"\\[a-zA-Z]+|[{}$\\]", "", own))


def _tabular(
    header: Sequence[str], rows: Sequence[Sequence[str]], columns: str, footer: Sequence[Sequence[str]]
) -> list[str]:
    lines = [r"\begin{adjustbox}{max width=\linewidth}", rf"\begin{{tabular}}{{{columns}}}", r"\toprule"]
    lines += [" & ".join(header) + r" \\", r"\midrule", *map(_row, rows)]
    lines += [r"\midrule", *map(_row, footer)] if footer else []
    return [*lines, r"\bottomrule", r"\end{tabular}", r"\end{adjustbox}"]


def _row(cells: Sequence[str]) -> str:
    """A line of a table; a minus before a number is no hyphen, nor is it in an exponent, which has one already."""
    return " & ".join(re.sub(r"(?<![\w\-])(?<!\^\{)-(?=\d)", "$-$", cell) for cell in cells) + r" \\"
