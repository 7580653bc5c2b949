"""Tables of HTML, also of pages whose rows and cells are not closed."""

from __future__ import annotations

import html.parser
import re
from collections.abc import Iterator

from biasbed.analysis.tables.grid import Grid, RawCell, make_grid
from biasbed.analysis.tables.markup import clean_html, is_bold, words_around

MOST_WORDS = 5_000  # characters outside of tables in which a heading is looked for
_CAPTIONS = ("caption", "figcaption")
_INLINE = {"a", "b", "br", "code", "em", "font", "i", "img", "small", "span", "strong", "sub", "sup", "tt", "u"}


class _TableParser(html.parser.HTMLParser):
    """Collects the cells of tables. Rows and cells need not be closed; a table within a cell is part of it."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=False)
        self.tables: list[list[list[tuple[str, int, int, bool]]]] = []
        self.places: list[list[tuple[int, int]]] = []  # of each row: line and section (head or body)
        self.captions: list[str] = []  # and the words above a table, a line each
        self.num_head_rows: list[int] = []
        self._depth = 0
        self._cell: list[str] | None = None
        self._span = (1, 1, False)
        self._in_head = False
        self._section = 0
        self._caption: list[str] | None = None
        self._title, self._is_titled = "", False  # caption of the next table; True if the last one has a caption
        self._outside: list[str] = []  # words outside of tables as Markdown, with a stroke for each table

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "table":
            self._depth += 1
            if self._depth == 1:
                self._open_table()
            return
        if self._depth > 1 or tag not in ("tr", "td", "th", "thead", "tbody", *_CAPTIONS):
            if self._cell is not None:
                self._cell.append(self.get_starttag_text() or "")
            elif self._depth == 0 and tag not in _INLINE:
                self._outside.append("\n# " if re.fullmatch("h[1-6]", tag) else "\n")
            return
        self._close_cell()
        if tag == "tr":
            self._open_row()
        elif tag in ("td", "th"):
            self._open_cell(tag, dict(attrs))
        elif tag in ("thead", "tbody"):
            self._in_head = tag == "thead"
            self._section += 1
        elif tag in _CAPTIONS:
            self._caption = []

    def _open_table(self) -> None:
        lines = "".join(self._outside)[-MOST_WORDS:].split("\n")
        self._outside = ["\n".join([*lines, "|", ""])]
        self.tables.append([])
        self.places.append([])
        above = words_around(lines, len(lines) - 1, len(lines))
        self.captions.append("\n".join(filter(None, (self._title, above))))
        self._is_titled, self._title = bool(self._title), ""
        self.num_head_rows.append(0)

    def _open_row(self) -> None:
        if not self.tables:
            self._open_table()
        self.tables[-1].append([])
        self.places[-1].append((self.getpos()[0], self._section))
        self.num_head_rows[-1] += self._in_head

    def _open_cell(self, tag: str, attributes: dict[str, str | None]) -> None:
        if not self.tables or not self.tables[-1]:
            self._open_row()
        spans = []
        for name in ("colspan", "rowspan"):
            value = (attributes.get(name) or "1").strip()
            spans.append(int(value) if value.isdigit() and len(value) < 5 else 1)
        self._cell, self._span = [], (spans[0], spans[1], tag == "th")

    def _close_cell(self) -> None:
        if self._cell is not None:
            self.tables[-1][-1].append(("".join(self._cell), *self._span))
            self._cell = None

    def handle_endtag(self, tag: str) -> None:
        if tag == "table":
            self._depth = max(self._depth - 1, 0)
            if self._depth == 0:
                self._close_cell()
            return
        if self._depth > 1 or tag not in ("tr", "td", "th", "thead", *_CAPTIONS):
            if self._cell is not None:
                self._cell.append(f"</{tag}>")
            elif self._depth == 0 and tag not in _INLINE:
                self._outside.append("\n")
            return
        if tag in _CAPTIONS:
            self._close_caption()
            return
        self._close_cell()
        if tag == "thead":
            self._in_head = False
            self._section += 1
        if tag == "tr" and self.tables and self.tables[-1] and self.tables[-1][-1]:
            self.tables[-1].append([])
            self.places[-1].append((self.getpos()[0], self._section))

    def _close_caption(self) -> None:
        """Keep a caption for the table around it, the one just before it, or else the next one."""
        title = clean_html("".join(self._caption or ()))
        self._caption = None
        is_behind = not self._is_titled and not "".join(self._outside).rpartition("|")[2].strip()
        if self.captions and (self._depth or is_behind):
            self.captions[-1] = "\n".join(filter(None, (title, self.captions[-1])))
            self._is_titled = True
        else:
            self._title = title

    def close(self) -> None:
        """Read what is left, and close a cell that the page leaves open."""
        super().close()
        self._close_cell()

    def handle_data(self, data: str) -> None:
        target = self._caption if self._caption is not None else self._cell
        if target is not None:
            target.append(data)
        elif self._depth == 0 and self.cdata_elem is None:  # no script
            self._outside.append(re.sub(r"\n(?!\s*[\n#])", " ", data))

    def handle_entityref(self, name: str) -> None:
        self.handle_data(f"&{name};")

    def handle_charref(self, name: str) -> None:
        self.handle_data(f"&#{name};")


def html_grids(text: str, source: str) -> Iterator[Grid]:
    """Yield the tables of HTML."""
    parser = _TableParser()
    parser.feed(text)
    parser.close()
    for table, places, head, caption in zip(
        parser.tables, parser.places, parser.num_head_rows, parser.captions, strict=True
    ):
        filled = [(row, line, section) for row, (line, section) in zip(table, places, strict=True) if row]
        last = {section: number for number, (_, _, section) in enumerate(filled)}
        rows, lines = [], []
        for number, (row, line, section) in enumerate(filled):
            reach = last[section] - number + 1  # cells end with their section
            cells = [RawCell(clean_html(raw), is_bold(raw), columns, min(down, reach)) for raw, columns, down, _ in row]
            rows.append(cells)
            lines.append(line)
        if not rows:
            continue
        spanned = max((cell.rows for cell in rows[0]), default=1)
        is_marked = [all(is_head for *_, is_head in row) for row in table if row]
        marked = next((number for number, flag in enumerate(is_marked) if not flag), 0)
        grid = make_grid(source, rows, lines, max(head, marked, min(spanned, len(rows) - 1), 1), "HTML")
        grid.caption = caption
        yield grid
