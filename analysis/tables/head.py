"""Head and body of a table: lines of the head, titles, remarks, sections, and heads that come again."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from biasbed.analysis.tables import vocabulary as say
from biasbed.analysis.tables.grid import Grid, select
from biasbed.analysis.tables.numbers import is_missing, parse_number
from biasbed.errors import UsageError, listed, shown

DASHES = {"-", "--", "–", "—"}


@dataclass
class Body:
    """Rows below the head, the levels of the head above each column, and the section that each row is in."""

    grid: Grid
    levels: list[list[str]]  # level -> text above each column
    sections: list[str]
    notes: list[str] = field(default_factory=list)

    def path(self, column: int) -> tuple[str, ...]:
        """Return the texts above a column, from the top, without empty ones and repetitions."""
        texts: list[str] = []
        for level in self.levels:
            if level[column] and (not texts or texts[-1] != level[column]):
                texts.append(level[column])
        if len(texts) > 1 and re.fullmatch(r"\([^()]*\)", texts[-1]):  # a unit below its measure
            texts[-2:] = [f"{texts[-2]} {texts[-1]}"]
        return tuple(texts)

    def name(self, column: int) -> str:
        """Return the head of a column in one line."""
        return " / ".join(self.path(column))

    def leaf(self, column: int) -> str:
        path = self.path(column)
        return path[-1] if path else ""

    def cells(self, column: int) -> list[str]:
        return [row[column] for row in self.grid.rows]


def is_figure(text: str) -> bool:
    """Return True for a cell that holds a number, in either notation."""
    return parse_number(text) is not None or parse_number(text, "comma") is not None


def split_head(grid: Grid, num_head_rows: int = 0) -> Body:
    """Return head and body. Raises UsageError if there is no head, or nothing below it.

    num_head_rows: lines of the head as the user says; 0: they are found out.
    """
    notes: list[str] = []
    grid = _without_titles(grid, notes)
    if len(grid.rows) < 2 or grid.width < 2:
        labels_shown = listed([text for text in grid.rows[0] if text], 6) if grid.rows else "nothing"
        raise UsageError(
            f"{grid.source}: a table has a head, and lines of a method and its scores; this one has "
            f"{labels_shown or 'nothing'}, and {max(len(grid.rows) - 1, 0)} lines below"
        )
    count = num_head_rows or _count_head_rows(grid)
    if count >= len(grid.rows):
        raise UsageError(f"{grid.source}: no line below the head has a number (head= says how many lines the head has)")
    _refuse_headless(grid, count, num_head_rows)
    levels = _fill_levels(grid, count)
    body = select(grid, range(count, len(grid.rows)))
    rows, sections, repeated, remarks = [], [], 0, []
    section = ""
    heads = [" ".join(dict.fromkeys(filter(None, texts))) for texts in zip(*levels, strict=True)]
    for number, row in enumerate(body.rows):
        texts = list(dict.fromkeys(filter(None, row)))
        is_alone = number in body.wide_rows or (len(texts) == 1 and bool(row[0]) and not is_figure(row[0]))
        if is_alone:
            section = texts[0]
            remarks.append(section)
        elif any(_repeats_head(row, level, heads) for level in levels):
            section = row[0] if row[0] and row[0] not in (heads[0], levels[-1][0]) else section
            repeated += 1
        else:
            rows.append(number)
            sections.append(section)
    if remarks:
        notes.append(f"lines of words alone: {listed([shown(text, 40) for text in remarks], 4)}")
    if repeated:
        notes.append(f"the head comes again {repeated} times")
    return Body(select(body, rows), levels, sections, notes)


def _without_titles(grid: Grid, notes: list[str]) -> Grid:
    """Return the grid without lines of one cell above the head and below the last row; the former say what it is."""
    rows = list(range(len(grid.rows)))
    titles: list[str] = []
    remarks: list[str] = []
    if grid.width > 2:
        while (
            len(rows) > 2 and (rows[0] in grid.wide_rows or not grid.num_head_rows) and _texts(grid.rows[rows[0]]) == 1
        ):
            titles.append("".join(dict.fromkeys(grid.rows[rows.pop(0)])))
    while grid.width > 2 and len(rows) > 2 and _texts(grid.rows[rows[-1]]) == 1:
        text = "".join(dict.fromkeys(grid.rows[rows.pop()]))
        remarks.insert(0, shown(text, 60))
    if remarks:
        notes.append(f"lines of one text below the scores: {listed(remarks, 4)}")
    if titles:
        notes.append(f"titles above the table: {listed([shown(title, 40) for title in titles], 3)}")
    result = select(grid, rows)
    result.caption = "\n".join(filter(None, [*titles[::-1], grid.caption]))
    return result


def _texts(row: Sequence[str]) -> int:
    return len(set(filter(None, row)))


def _count_head_rows(grid: Grid) -> int:
    """Return the number of lines of the head: those that are marked, and lines below without a number."""
    count = max(grid.num_head_rows, 1)
    with_scores = [row for row in range(1, count) if _has_scores(grid, row)]  # rules may stand below them
    count = min(count, *with_scores) if with_scores else count
    while count > 1 and count - 1 in grid.wide_rows:  # a section just below the head
        count -= 1
    numeric = _numeric_columns(grid, count)
    while count < len(grid.rows) - 1:
        row = grid.rows[count]
        texts = set(filter(None, row))
        if count in grid.wide_rows:
            break
        if _continues_head(grid, count):
            count += 1
            continue
        if not numeric:
            numeric = _numeric_columns(grid, count + 1)
        is_index_name = len(texts) == 1 and row[0] and not any(grid.rows[above][0] for above in range(count))
        is_index_name = bool(is_index_name) and not grid.num_head_rows
        labels = [column for column in numeric if row[column] and not is_missing(row[column])]
        has_number = any(is_figure(row[column]) for column in numeric)
        if not is_index_name and (has_number or not labels):
            break
        if labels and any(_is_value_like(row[column]) for column in labels):
            break
        num_names = 1 if grid.has_spans else max(min(numeric, default=1), 1)
        names = zip(row[:num_names], grid.rows[count - 1], strict=False)
        is_named = any(text and text != above for text, above in names)
        if is_named and labels and not _are_head_words([row[column] for column in labels]):
            break
        count += 1
    return count


def _has_scores(grid: Grid, row: int) -> bool:
    """Return True for a line with a name and mostly decimals, which is no line of a head even if it is marked so."""
    name, *cells = grid.rows[row]
    filled = [text for text in cells if not is_missing(text)]
    scores = [text for text in filled if "." in text and is_figure(text)]
    return bool(name) and name != grid.rows[0][0] and 2 * len(scores) > len(filled)


def _continues_head(grid: Grid, count: int) -> bool:
    """Return True for a line without decimals that tells equal heads apart, or that begins with a word of heads."""
    head, row = grid.rows[count - 1], grid.rows[count]
    cells = [text for text in row[1:] if not is_missing(text)]
    if not cells or any("." in text or "±" in text for text in cells):
        return False
    heads = list(filter(None, head[1:]))
    levels = zip(head[1:], row[1:], strict=True)
    if not grid.num_head_rows and not row[0] and len(set(heads)) < len(heads):  # as pandas writes two levels
        return len(set(levels)) == len(head) - 1
    starts_head = not head[0] or say.letters(head[0]) in say.GENERIC or say.letters(head[0]) in say.METHODS
    first = say.letters(next(filter(None, row)))
    if first in say.METHODS and not any(map(is_figure, cells)):
        return starts_head
    return starts_head and first in say.SECOND_HEADS and not all(map(is_figure, heads))


def _are_head_words(texts: Sequence[str]) -> bool:
    """Return True if most texts are measures, parts of data or the like: words of a head, and no cells of a row."""
    heads = [text for text in texts if say.is_metric(text) or say.split_kind(text) or say.average_kind(text)]
    stats = [text for text in texts if say.letters(text) in say.SPREADS or say.is_shots(text)]
    return len(heads) + len(stats) >= 0.7 * len(texts)


def _is_value_like(text: str) -> bool:
    """Return True for a cell of digits that is no plain number, as two values or settings in a cell."""
    digits, letters = sum(map(str.isdigit, text)), sum(map(str.isalpha, text))
    return digits > letters and digits > 1


def _numeric_columns(grid: Grid, first: int) -> list[int]:
    """Return the columns whose cells from a row on are mostly numbers, or have digits and no letters."""
    columns = []
    for column in range(grid.width):
        cells = [grid.rows[row][column] for row in range(first + 1, min(len(grid.rows), first + 60))]
        filled = [cell for cell in cells if not is_missing(cell)]
        if filled and 2 * sum(is_figure(cell) or _is_value_like(cell) for cell in filled) > len(filled):
            columns.append(column)
    return columns


def _refuse_headless(grid: Grid, count: int, num_head_rows: int) -> None:
    """Raise UsageError if the line that should name the columns holds scores."""
    if grid.num_head_rows or num_head_rows or grid.format == "DataFrame":
        return
    numbers = [text for text in grid.rows[count - 1] if is_figure(text)]
    has_digits = [text for text in numbers if "." in text or "," in text]
    if has_digits and len(numbers) >= max(1, _texts(grid.rows[count - 1]) // 3):
        raise UsageError(
            f"{grid.where(count - 1)}: the first line should name the columns, and has the number {has_digits[0]}"
        )


def _fill_levels(grid: Grid, count: int) -> list[list[str]]:
    """Return the lines of the head; a text of an upper line holds to the right until the next, if spans don't say."""
    levels = [["" if text in DASHES else text for text in grid.rows[row]] for row in range(count)]
    corners = [level[0] for level in levels]
    if len(set(corners)) > 1 and say.letters(corners[-1]) in say.SECOND_HEADS:  # they name the lines of the head
        for level in levels:
            level[0] = ""
    if grid.has_spans or count < 2:
        return levels
    for number, level in enumerate(levels[:-1]):
        _spread_centred(level, levels[number + 1])
        last = ""
        for column in range(1, len(level)):
            if level[column]:
                last = level[column]
            elif last and any(below[column] for below in levels[number + 1 :]):
                level[column] = last
    return levels


def _spread_centred(level: list[str], below: Sequence[str]) -> None:
    """Repeat a text over its columns if it stands in their middle, or if those below come again in one order."""
    places = [column for column in range(1, len(level)) if level[column]]
    if len(places) < 2:
        return
    width = places[1] - places[0]
    start = len(level) - width * len(places)
    starts = range(start, len(level), width)
    groups = [tuple(below[first : first + width]) for first in starts]
    if start < 1 or start == places[0] or not all(map(all, groups)):
        return
    for first, column in zip(starts, places, strict=True):
        is_centred = column == first + width // 2
        if not first <= column < first + width or (len(set(groups)) > 1 and not is_centred):
            return
    for first, text in zip(starts, [level[column] for column in places], strict=True):
        level[first : first + width] = [text] * width


def _repeats_head(row: Sequence[str], leaves: Sequence[str], heads: Sequence[str]) -> bool:
    """Return True for a row that says the head once more, perhaps with another corner or shorter names."""
    if not any(row[1:]) or any(is_figure(text) and text not in leaves for text in row[1:] if text):
        return False
    same = compared = 0
    for text, leaf, head in zip(row[1:], leaves[1:], heads[1:], strict=True):
        if text:
            compared += 1
            same += text in (leaf, head) or (len(text) > 2 and text in leaf)
    return compared >= 1 and same >= 0.8 * compared and compared >= 0.5 * sum(1 for leaf in leaves[1:] if leaf)
