"""Report of a reproduction: tables for the terminal, and files."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Sequence
from pathlib import Path

from biasbed import record
from biasbed.reproduce.differences import Difference
from biasbed.reproduce.verdict import BIT_EQUAL, DIFFERENT, LEAST_SEEDS, NO_SPREAD, WITHIN, Compared, overall
from biasbed.system.csv_tables import write_rows
from biasbed.system.terminal import aligned

TableRows = Sequence[Sequence[str]]
METRIC_HEAD = ("metric", "recorded", "here", "difference", "spread", "limit", "verdict")
DIFFERENCE_HEAD = ("", "recorded", "here")


def difference_rows(differences: Iterable[Difference]) -> TableRows:
    """Return a table's rows (name, recorded, here) of the differences that are shown."""
    rows = []
    for difference in differences:
        if difference.shown and not difference.same:
            rows.append((difference.name, difference.there or "-", difference.here or "-"))
    return rows


def metric_rows(rows: Iterable[Compared]) -> TableRows:
    """Return a table's rows (`METRIC_HEAD`) of the metrics that decide."""
    texts: list[tuple[str, ...]] = []
    for row in rows:
        if row.decides:
            values = _format(row.recorded, ".6g"), _format(row.here, ".6g"), _format_difference(row)
            limits = _format(row.spread, ".3g"), _format(row.limit, ".3g")
            texts.append((row.metric, *values, *limits, row.verdict))
    return texts


def table(head: Sequence[str], rows: TableRows) -> str:
    """Return a table in aligned columns of text."""
    return "\n".join(aligned([head, *rows]))


def conclusion(rows: Sequence[Compared]) -> str:
    """Return the conclusion as one sentence, which starts with the verdict."""
    verdict = overall(rows)
    deciding = [row for row in rows if row.decides]
    text = f"{verdict} ({_count(deciding, verdict)} of {len(deciding)} metrics that decide"
    unequal = [row.metric for row in rows if not row.decides and row.verdict != BIT_EQUAL]
    if verdict == BIT_EQUAL and unequal:
        more = ", ..." if len(unequal) > 5 else ""
        text += f"; not equal among the others: {', '.join(unequal[:5])}{more}"
    seeds = max((row.seeds for row in deciding), default=0)
    if verdict in (WITHIN, DIFFERENT):
        text += f"; the spread is that of {seeds} other seeds"
    if verdict == NO_SPREAD:
        text += f"; {seeds} other seeds are on the server, a spread takes {LEAST_SEEDS} that differ"
    return text + ")"


def _count(rows: Iterable[Compared], verdict: str) -> int:
    return sum(row.verdict == verdict for row in rows)


def write(folder: Path, differences: Sequence[Difference], rows: Sequence[Compared]) -> list[Path]:
    """Write `reproduction.csv` and `differences.csv`; return their paths."""
    columns = [field.name for field in dataclasses.fields(Compared)]
    columns.insert(columns.index("here") + 1, "difference")
    with (folder / record.REPRODUCTION_FILE).open("w", newline="") as file:
        write_rows(file, columns, ({name: getattr(row, name) for name in columns} for row in rows))
    with (folder / record.DIFFERENCES_FILE).open("w", newline="") as file:
        heads = ("what", "recorded", "here", "same")
        cells = []
        for item in differences:
            values = (item.name, item.there, item.here, str(item.same).lower())
            cells.append(dict(zip(heads, values, strict=True)))
        write_rows(file, heads, cells)
    return [folder / name for name in (record.REPRODUCTION_FILE, record.DIFFERENCES_FILE)]


def _format(value: float, spec: str) -> str:
    """Format a number; `-` if it is unknown."""
    if math.isnan(value):
        return "-"
    return format(value, spec)


def _format_difference(row: Compared) -> str:
    if row.verdict == BIT_EQUAL:
        return "0"
    return _format(row.difference, "+.3g")
