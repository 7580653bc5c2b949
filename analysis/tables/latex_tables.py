"""Tables of LaTeX: tabulars with rules, cells over several rows and columns, comments and macros."""

from __future__ import annotations

import re
from collections.abc import Iterator

from biasbed.analysis.tables.grid import LONGEST_CELL, Grid, RawCell, make_grid
from biasbed.analysis.tables.markup import brace_group, clean_latex, is_bold, skip_option, take_argument

_NAMES = r"(tabular[x*y]?|tabulary|longtable|longtabu|tabu|array|tblr|supertabular|NiceTabular)"
TABULAR = re.compile(rf"\\begin\{{{_NAMES}\}}")
_RULES = re.compile(
    r"\\(?:hline|hhline\s*\{[^}]*\}|toprule|midrule|bottomrule|addlinespace|heavyrule|Xhline|thickhline|specialrule|"
    r"cmidrule|cline|morecmidrules|rowcolor|noalign|arrayrulecolor|endhead|endfirsthead|endfoot|endlastfoot|"
    r"dashedline|hdashline|cdashline|rowfont|SetRow|tabucline)\b\s*(?:\[[^\]]*\]|\([^)]*\)|\{[^{}]*\})*"
)
_CAPTION = re.compile(r"\\(?:caption\*?|(?:captionof|tbl)\s*\{table\})\s*(?:\[[^\]]*\])?\s*(?=\{)")
_BODY_RULE = re.compile(r"\\(?:midrule|hline|Xhline|thickhline|specialrule|endhead|endfirsthead|hdashline)\b")


def latex_grids(text: str, source: str) -> Iterator[Grid]:
    """Yield the tabulars of LaTeX."""
    text = re.sub(r"(?<!\\)%[^\n]*", "", text)
    text = _with_macros(text)
    has_tabular, position = False, 0
    while match := TABULAR.search(text, position):
        end, inner = _environment(text, match)
        position = end
        has_tabular = True
        first = text[: match.start()].count("\n") + 1
        grid = _latex_grid(inner, source, first)
        above, below = text[max(0, match.start() - 1_500) : match.start()], text[end : end + 600]
        around = above.rpartition("\\end{table")[2] + below.partition("\\end{table")[0]
        caption = _CAPTION.search(around)
        if caption is not None:
            grid.caption = clean_latex(brace_group(around, caption.end())[0])[:500]
        yield grid
    if not has_tabular:
        yield _latex_grid(text, source, 1)


def _with_macros(text: str) -> str:
    """Return the text with macros that have no argument replaced by what they stand for."""
    for match in re.finditer(r"\\(?:re)?newcommand\*?\s*\{?\\([a-zA-Z]+)\}?\s*(?=\{)", text):
        body, _ = brace_group(text, match.end())
        if "#" not in body and len(body) < 200:
            text = re.sub(rf"\\{match.group(1)}(?![a-zA-Z])(?:\{{\}})?", body.replace("\\", r"\\"), text)
    return text


def _environment(text: str, match: re.Match[str]) -> tuple[int, str]:
    """Return the end of an environment, and what is in it. Tabulars within its cells become texts."""
    depth, position = 1, match.end()
    tokens = re.compile(rf"\\(begin|end)\{{{_NAMES}\}}")
    inner_start, body, last = -1, "", position
    while depth:
        token = tokens.search(text, position)
        if token is None:
            return len(text), body + text[last:]
        position = token.end()
        if token.group(1) == "begin":
            depth += 1
            if depth == 2:
                body += text[last : token.start()]
                inner_start = _column_format_end(text, token)
        else:
            depth -= 1
            if depth == 1:
                body += "{" + text[inner_start : token.start()].replace("\\\\", " ") + "}"
                last = position
            elif depth == 0:
                body += text[last : token.start()]
    start = _column_format_end(body, None, match.group(1))
    return position, body[start:]


def _column_format_end(text: str, token: re.Match[str] | None, name: str = "") -> int:
    """Return where the cells of a tabular begin: behind its options, its width and its format of columns."""
    position = token.end() if token is not None else 0
    name = token.group(2) if token is not None else name
    arguments = 2 if name in ("tabularx", "tabular*", "tabulary", "tabularx*") else 1
    for _ in range(arguments):
        while position < len(text) and (text[position].isspace() or text[position] == "["):
            position = (
                text.index("]", position) + 1 if text[position] == "[" and "]" in text[position:] else position + 1
            )
        if text[position : position + 1] == "{":
            _, position = brace_group(text, position)
    return position


def _latex_grid(body: str, source: str, first_line: int) -> Grid:
    """Return the rows of a tabular."""
    rows: list[list[RawCell]] = []
    places: list[int] = []
    hints: list[int] = []
    line = first_line
    for raw in _split(body, "\\\\"):
        stripped = re.sub(r"^\s*(\*|\[[^\]]*\])", "", raw)
        lead = re.match(rf"(?:\s|{_RULES.pattern})*", stripped)
        leading = lead.group() if lead else ""
        if rows and _BODY_RULE.search(leading):
            hints.append(len(rows))
        text = _RULES.sub(" ", stripped)
        text = re.sub(
            r"\\(?:begin|end)\{[a-zA-Z*]+\}(?:\[[^\]]*\])?|\\(?:centering|sisetup\{[^}]*\}|small|footnotesize|scriptsize|tiny)",
            " ",
            text,
        )
        if text.strip():
            cells = [_latex_cell(cell) for cell in _split(text, "&")]
            rows.append(cells)
            places.append(line + leading.count("\n"))
        line += raw.count("\n")
    return make_grid(source, _without_covered(rows), places, hints[0] if hints else 0, "LaTeX")


def _without_covered(rows: list[list[RawCell]]) -> list[list[RawCell]]:
    """Return the rows with the text of a multi-row cell repeated below it, where the source has empty cells."""
    result: list[list[RawCell]] = []
    covers: dict[int, tuple[RawCell, int]] = {}
    for number, row in enumerate(rows):
        filled, column = [], 0
        for cell in row:
            text_cell = cell
            if column in covers and not cell.text:
                above, left = covers[column]
                text_cell = RawCell(above.text, above.is_bold, cell.columns)
                covers[column] = (above, left - 1)
                if left <= 1:
                    del covers[column]
            elif cell.rows > 1:
                covers[column] = (cell, cell.rows - 1)
                text_cell = cell._replace(rows=1)
            elif cell.rows < -1:
                _fill_up(result, column, cell, number)
                text_cell = cell._replace(rows=1)
            else:
                covers.pop(column, None)
            filled.append(text_cell._replace(rows=1))
            column += max(cell.columns, 1)
        result.append(filled)
    return result


def _fill_up(rows: list[list[RawCell]], column: int, cell: RawCell, number: int) -> None:
    """Repeat the text of a multi-row cell that stands in its last row, in the rows above."""
    for above in range(max(number + cell.rows + 1, 0), number):
        column_number = 0
        for position, neighbour in enumerate(rows[above]):
            if column_number == column and not neighbour.text:
                rows[above][position] = RawCell(cell.text, cell.is_bold, neighbour.columns)
            column_number += max(neighbour.columns, 1)


def _latex_cell(raw: str) -> RawCell:
    """Return a cell, with what `multicolumn` and `multirow` say about its size."""
    if len(raw) > 10 * LONGEST_CELL:  # `square` refuses it; cleaning it would take very long
        return RawCell(raw)
    columns = rows = 1
    text = raw.strip()
    for _ in range(4):
        stripped = text.strip()
        while stripped.startswith("{") and brace_group(stripped, 0)[1] == len(stripped):
            stripped = stripped[1:-1].strip()
        match = re.match(r"\\(multicolumn|multirow)\s*", stripped)
        if match is None:
            match = re.match(r"\\(textbf|emph|textit|underline)\s*\{\s*(?=\\multi)", stripped)
            if match is None:
                break
            text = brace_group(stripped, stripped.index("{"))[0]
            continue
        position, arguments = match.end(), []
        for _ in range(3):
            argument, position = take_argument(stripped, skip_option(stripped, position))
            arguments.append(argument)
        size = re.sub(r"[^0-9-]", "", arguments[0])
        number = int(size) if re.fullmatch(r"-?[0-9]{1,4}", size) else 1
        if match.group(1) == "multicolumn":
            columns = max(number, 1)
        else:
            rows = number or 1
        text = arguments[2] + stripped[position:]
    return RawCell(clean_latex(text), is_bold(raw), columns, rows)


def _split(text: str, sign: str) -> list[str]:
    """Split LaTeX at a sign outside of braces."""
    parts, start, depth, position = [], 0, 0, 0
    while position < len(text):
        if depth == 0 and text.startswith(sign, position):
            parts.append(text[start:position])
            position += len(sign)
            start = position
            continue
        if text[position] == "\\":
            position += 2
            continue
        depth += (text[position] == "{") - (text[position] == "}")
        depth = max(depth, 0)
        position += 1
    parts.append(text[start:])
    return parts
