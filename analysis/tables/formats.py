"""Tables in files: which format a file has, and the grids in it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard

from biasbed.analysis.tables import records
from biasbed.analysis.tables.grid import MANY_ROWS, Grid, sample_grid, square
from biasbed.analysis.tables.html_tables import html_grids
from biasbed.analysis.tables.latex_tables import TABULAR, latex_grids
from biasbed.analysis.tables.markup import squeeze
from biasbed.analysis.tables.text_tables import (
    DASHES,
    box_grid,
    delimited_grid,
    is_box_rule,
    markdown_grids,
    refuse_many_lines,
)
from biasbed.errors import UsageError
from biasbed.system.strict import parse_json, read_bytes

if TYPE_CHECKING:
    import pandas as pd

MOST_BYTES = 2**28
# First bytes of files that hold no text.
BINARY = {
    **{b"\x89PNG": "an image (PNG)", b"\xff\xd8\xff": "an image (JPEG)", b"GIF8": "an image (GIF)", b"BM": "an image"},
    **{b"RIFF": "an image (WebP)", b"II*\0": "an image (TIFF)", b"MM\0*": "an image (TIFF)", b"%PDF": "a PDF"},
    **{b"PK\3\4": "a spreadsheet or an archive", b"\xd0\xcf\x11\xe0": "an Office file", b"\x1f\x8b": "packed (gzip)"},
    **{b"SQLite": "a database (SQLite)", b"PAR1": "a Parquet file", b"\x80": "a pickle or another binary file"},
}


def read_grids(path: Path) -> list[Grid]:
    """Return the tables of a file, in their order. Raises UsageError for what is no text or has no table."""
    text = _read_text(path)
    source = str(path)
    suffix = path.suffix.lower()
    if not text.strip():
        raise UsageError(f"{path}: the file is empty")
    grids = list(_grids_of(text, source, suffix))
    filled = [grid for grid in grids if grid.rows]
    grids = [grid for grid in filled if len(grid.rows) > 1 and grid.width > 1] or filled[:1]
    if not grids:
        raise UsageError(f"{path}: no table is in it; CSV, Markdown, LaTeX, HTML and JSON are read (docs/tables.md)")
    return grids


def _read_text(path: Path) -> str:
    """Return the text of a file. Raises UsageError that names the kind of a file without text."""
    try:
        content = read_bytes(path, MOST_BYTES)
    except OSError as error:
        raise UsageError(f"{path}: can't be read ({error.strerror})") from None
    for start, kind in BINARY.items():
        if content.startswith(start):
            raise UsageError(f"{path}: is {kind}: give the table as text, for example CSV or Markdown")
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise UsageError(f"{path}, line 1: can't be read as UTF-8: save the file as UTF-8")
    if b"\0" in content:
        raise UsageError(f"{path}: is no text (it has NUL bytes): give the table as text, saved as UTF-8")
    try:
        return content.decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise UsageError(f"{path}, line {line}: can't be read as UTF-8: save the file as UTF-8") from None


def _grids_of(text: str, source: str, suffix: str) -> Iterator[Grid]:
    """Yield the tables of a text."""
    start = text.lstrip()[:1]
    if suffix in (".json", ".jsonl", ".ndjson") or (start in "[{" and suffix not in (".md", ".tex")):
        yield from _json_grids(text, source, must=suffix.startswith((".json", ".ndjson")))
        return
    if suffix in (".yml", ".yaml"):
        yield from _yaml_grids(text, source)
        return
    if TABULAR.search(text) or (suffix == ".tex" and "&" in text):
        refuse_many_lines(text.count("\\\\"), source)
        yield from latex_grids(text, source)
        return
    text = re.sub(r"<!--.*?-->", lambda match: "\n" * match.group().count("\n"), text, flags=re.S)
    if re.search(r"<(table|tr|td|th)\b", text, re.I):
        refuse_many_lines(text.lower().count("<tr"), source)
        yield from html_grids(text, source)
        if suffix not in (".md", ".markdown"):
            return
    lines = text.split("\n")
    if any("|" in line and DASHES.fullmatch(line) for line in lines):
        refuse_many_lines(text.count("\n|"), source)
        yield from markdown_grids(lines, source)
        return
    if suffix in (".html", ".htm") or re.search(r"<table\b", text, re.I):
        return
    if any(is_box_rule(line) for line in lines) or "│" in text or "┃" in text:
        yield box_grid(lines, source)
        return
    yield delimited_grid(text, source)


def _json_grids(text: str, source: str, must: bool) -> Iterator[Grid]:
    if text.count("{") > MANY_ROWS and (frame := _flat_records(text)) is not None:
        yield sample_grid(source, list(frame.columns), frame.set_axis(range(frame.shape[1]), axis=1), "JSON")
        return
    try:
        value: Any = parse_json(text)
    except ValueError as error:
        lines = [line for line in text.split("\n") if line.strip()]
        try:
            value = [parse_json(line) for line in lines] if len(lines) > 1 else None
        except ValueError:
            value = None
        if value is None:
            if must:
                raise UsageError(f"{source}: can't be read as JSON ({error})") from None
            yield delimited_grid(text, source)
            return
    yield records.make_grid_of(value, source)


def _flat_records(text: str) -> pd.DataFrame | None:
    """Return many records without nesting, as a list or a line each, by their numbers from 1 on; None for others."""
    import pandas as pd

    try:
        records: Any = json.loads(text) if text.lstrip().startswith("[") else list(map(json.loads, text.splitlines()))
    except ValueError:
        return None
    if not isinstance(records, list) or not all(isinstance(record, dict) for record in records):
        return None
    frame = pd.DataFrame(records)
    if any(isinstance(value, dict | list) for value in frame.head(100).to_numpy().flat):
        return None
    frame.index += 1
    return frame


def _yaml_grids(text: str, source: str) -> Iterator[Grid]:
    from biasbed.system import strict_yaml

    try:
        value = strict_yaml.parse(text, source)
    except (ValueError, UsageError) as error:
        raise UsageError(
            f"{source}: can't be read as YAML ({str(error).splitlines()[0].rpartition('(')[2].rstrip(')')})"
        ) from None
    yield records.make_grid_of(value, source)


def is_frame(scores: object) -> TypeGuard[pd.DataFrame]:
    """Return True for a DataFrame, without importing pandas."""
    return type(scores).__name__ == "DataFrame" and hasattr(scores, "itertuples")


def grid_of_frame(frame: pd.DataFrame) -> Grid:
    """Return the cells of a DataFrame; an index with names becomes the first columns. Raises UsageError without any."""
    import pandas as pd

    if not frame.shape[1]:
        raise UsageError("the table: has no columns")
    if frame.index.name is not None or not pd.api.types.is_integer_dtype(frame.index):  # more than numbers of lines
        frame = frame.reset_index()
    num_levels = frame.columns.nlevels
    if num_levels == 1 and len(frame) > MANY_ROWS:
        names = [squeeze(str(name)) for name in frame.columns]
        return sample_grid("the table", names, frame.set_axis(range(len(names)), axis=1), "DataFrame")
    heads: list[list[str]] = [[] for _ in range(num_levels)]
    for name in frame.columns:
        parts: tuple[object, ...] = tuple(name) if num_levels > 1 else (name,)
        for level, part in enumerate(parts):
            heads[level].append("" if part in ("index", "level_0") else squeeze(str(part)))
    rows = list(heads)
    for cells in frame.itertuples(index=False, name=None):
        rows.append(["" if cell is None or cell is pd.NA or cell != cell else _cell_text(cell) for cell in cells])
    lines = [0] * num_levels + list(range(len(frame)))
    grid = Grid("the table", rows, lines, num_levels, format="DataFrame")
    return square(grid)


def _cell_text(cell: object) -> str:
    """Return a cell of a frame as text; a float with all its digits."""
    if isinstance(cell, float):
        return repr(float(cell))
    return squeeze(str(cell))
