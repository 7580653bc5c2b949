"""Tables in plain text: Markdown, boxes of signs, separated values, and columns set with blanks."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Sequence

from biasbed.analysis.tables.grid import (
    LONGEST_CELL,
    MANY_ROWS,
    MOST_ROWS,
    Grid,
    RawCell,
    make_grid,
    sample_grid,
    texts_of,
)
from biasbed.analysis.tables.markup import clean_html, clean_latex, clean_markdown, is_bold, squeeze, words_around
from biasbed.errors import UsageError

DASHES = re.compile(r"\s*\|?\s*:?-{1,}:?\s*(?:[|+]\s*:?-{1,}:?\s*)*\|?\s*")
_RULE = re.compile(r"\s*[+|]?[-=+|: ]*[-=]{2}[-=+|: ]*\s*")


# --- Markdown and boxes of signs --------------------------------------------------------------------------------------


def markdown_grids(lines: Sequence[str], source: str) -> Iterator[Grid]:
    """Yield the tables of Markdown: a line of heads, a line of dashes, and rows."""
    number = 1
    while number < len(lines):
        is_table = "|" in lines[number - 1] and "-" in lines[number] and DASHES.fullmatch(lines[number])
        if not is_table or ("|" not in lines[number] and "+" not in lines[number]):
            number += 1
            continue
        rows, lines_of_rows = [_markdown_row(lines[number - 1])], [number]
        end = number + 1
        while end < len(lines) and "|" in lines[end]:
            if not DASHES.fullmatch(lines[end]):
                rows.append(_markdown_row(lines[end]))
                lines_of_rows.append(end + 1)
            end += 1
        grid = make_grid(source, rows, lines_of_rows, 1, "Markdown")
        grid.has_spans = False
        grid.caption = words_around(lines, number - 2, end)
        yield grid
        number = end + 1


def _markdown_row(line: str) -> list[RawCell]:
    text = line.strip()
    text = text[1:] if text.startswith("|") else text
    cells, current, in_code = [], "", False
    for position, sign in enumerate(text):
        if sign == "`":
            in_code = not in_code and text.count("`", position) > 1
        if sign == "|" and not in_code and not text[:position].endswith("\\"):
            cells.append(current)
            current = ""
        else:
            current += sign
    if current.strip():
        cells.append(current)
    return [RawCell(clean_markdown(cell), is_bold(cell)) for cell in cells]


def is_box_rule(line: str) -> bool:
    return bool(re.fullmatch(r"\s*\+[-=+]{3,}\+?\s*", line)) or bool(re.fullmatch(r"\s*={3,}(\s+={2,})+\s*", line))


def box_grid(lines: Sequence[str], source: str) -> Grid:
    """Return a table that is drawn with signs: `+---+`, `===  ===` or lines of a terminal."""
    if any(re.fullmatch(r"\s*={3,}(\s+={2,})+\s*", line) for line in lines):
        body = [line if not is_box_rule(line) else "" for line in lines]
        return fixed_width_grid("\n".join(body), source)
    rows: list[list[RawCell]] = []
    lines_of_rows = []
    head, seen_rule = 0, False
    for number, line in enumerate(lines, 1):
        line = re.sub("[│┃║]", "|", line)
        if re.search(r"[─━═]{2}", line) or _RULE.fullmatch(line):
            if rows and not seen_rule:
                head, seen_rule = len(rows), True
            continue
        if "|" in line:
            rows.append(_markdown_row(line))
            lines_of_rows.append(number)
    return make_grid(source, rows, lines_of_rows, head, "text")


# --- CSV and columns of blanks ----------------------------------------------------------------------------------------


def delimited_grid(text: str, source: str) -> Grid:
    """Return a table with commas, semicolons, tabs or bars between cells, or columns set with blanks."""
    delimiter = find_delimiter(text)
    if delimiter and text.count("\n") > MANY_ROWS:
        return _large_grid(text, source, delimiter)
    if not delimiter:
        refuse_many_lines(text.count("\n"), source)
        return fixed_width_grid(text, source)
    rows: list[list[str]] = []
    lines_of_rows = []
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, skipinitialspace=True, strict=True)
    last = 0
    try:
        for row in reader:
            rows.append(row)
            lines_of_rows.append(last + 1)
            last = reader.line_num
    except csv.Error as error:
        raise UsageError(f"{source}, line {reader.line_num}: can't be read as CSV ({error})") from None
    cleaned = []
    for row in rows:
        cells = [RawCell(_clean_plain(cell), is_bold(cell)) for cell in row]
        while len(cells) > 1 and not cells[-1].text:
            cells.pop()
        cleaned.append(cells)
    grid = make_grid(source, cleaned, lines_of_rows, 0, "CSV")
    grid.wide_rows.clear()
    return grid


def _large_grid(text: str, source: str, delimiter: str) -> Grid:
    """Return a table of very many lines, of which the first has the heads."""
    import pandas as pd

    try:
        frame = pd.read_csv(
            io.StringIO(text), sep=delimiter, header=None, dtype=str, keep_default_na=False, skipinitialspace=True
        )
    except pd.errors.ParserError as error:
        raise UsageError(f"{source}: can't be read as CSV ({str(error).strip().splitlines()[-1]})") from None
    frame = frame.apply(lambda column: column.str.strip())
    heads = frame.iloc[0].tolist()
    longest = max(int(frame[column].str.len().max()) for column in frame)
    if longest > LONGEST_CELL:
        raise UsageError(f"{source}: a cell has {longest:,} characters: is this a table of scores?")
    frame.index += 1
    return sample_grid(source, heads, frame.iloc[1:], "CSV")


def refuse_many_lines(count: int, source: str) -> None:
    """Raise UsageError for a table with too many lines."""
    if count > MOST_ROWS:
        raise UsageError(
            f"{source}: has more than {MOST_ROWS:,} lines: give them as CSV, with a column 'seed' (docs/tables.md)"
        )


def _clean_plain(cell: str) -> str:
    """Return a cell of a CSV file, which may hold bits of Markdown or LaTeX."""
    if "$" in cell or "\\" in cell or "_{" in cell:
        return clean_html(cell) if "$" in cell else clean_latex(cell)
    if "**" in cell or "](" in cell:
        return clean_markdown(cell)
    if "<" in cell or "&" in cell:
        return clean_html(cell)
    return squeeze(cell)


def find_delimiter(text: str) -> str:
    """Return the sign that separates the cells of most lines into the same number; empty if there is none."""
    sample = [line for line in text[:200_000].split("\n")[:200] if line.strip()]
    best, best_score = "", 0.0
    for delimiter in ("\t", ";", "|", ","):
        try:
            rows = list(csv.reader(sample, delimiter=delimiter, skipinitialspace=True))
        except csv.Error:
            continue
        widths = [len(row) for row in rows if len(row) > 1]
        if not widths:
            continue
        usual = max(set(widths), key=widths.count)
        score = widths.count(usual) / len(rows)
        if score >= 0.8 and best_score < 0.8:
            return delimiter
        if score > best_score:
            best, best_score = delimiter, score
    return best if best_score >= 0.4 else ""


def fixed_width_grid(text: str, source: str) -> Grid:
    """Return a table whose columns are set apart by two blanks or more. Raises UsageError if lines differ in length."""
    lines = [(number, line.expandtabs(8).rstrip()) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
    lines = [(number, line) for number, line in lines if not re.fullmatch(r"[\s\-=+_~]+", line)]
    multi = [(number, line) for number, line in lines if re.search(r"\S\s{2,}\S", line)] or lines
    fields = _set_with_blanks([line for _, line in multi])
    if not fields:
        raise UsageError(
            f"{source}: no sign separates the cells, and lines have different numbers of fields between two blanks: "
            "give the table as CSV or Markdown"
        )
    return make_grid(source, texts_of(fields), [number for number, _ in multi], 0, "text")


def _set_with_blanks(lines: Sequence[str]) -> list[list[str]]:
    """Return the fields of lines with two blanks between fields; empty if lines have different numbers of them.

    The head may lack the name of the first column.
    """
    fields = [[squeeze(field) for field in re.split(r"\s{2,}", line.strip())] for line in lines]
    widths = {len(row) for row in fields[1:]}
    if len(widths) != 1 or len(fields) < 2:
        return []
    width = widths.pop()
    if len(fields[0]) == width - 1:
        fields[0].insert(0, "")
    return fields if len(fields[0]) == width and width > 1 else []
