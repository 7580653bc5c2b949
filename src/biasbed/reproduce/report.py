"""What a reproduction says: on the terminal, and as files."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from pathlib import Path

from biasbed import record
from biasbed.reproduce.differences import Difference
from biasbed.reproduce.original import Original
from biasbed.reproduce.verdict import BIT_EQUAL, DIFFERENT, LEAST_SEEDS, NO_SPREAD, WITHIN, Agreement, Compared, overall
from biasbed.system.tables import write_rows
from biasbed.system.terminal import aligned

TableRows = Sequence[Sequence[str]]
METRIC_HEAD = ("metric", "recorded", "here", "difference", "spread", "limit", "verdict")
DIFFERENCE_HEAD = ("", "recorded", "here")
AGREEMENT_HEAD = ("set", "evaluation", "images", "equal decisions")


def difference_rows(found: Iterable[Difference]) -> list[tuple[str, str, str]]:
    """Those that are shown."""
    return [(d.what, d.there or "-", d.here or "-") for d in found if d.shown and not d.same]


def metric_rows(rows: Iterable[Compared]) -> list[tuple[str, ...]]:
    """The metrics that decide."""
    return [
        (
            row.metric,
            *map(_number, (row.recorded, row.here)),
            _signed(row),
            *map(_short, (row.spread, row.limit)),
            row.verdict,
        )
        for row in rows
        if row.decides
    ]


def agreement_rows(found: Iterable[Agreement]) -> list[tuple[str, ...]]:
    return [(one.set, one.which, str(one.images), f"{100 * one.share:.2f} %") for one in found]


def table(head: Sequence[str], rows: TableRows) -> str:
    """Columns of text."""
    return "\n".join(aligned([head, *rows]))


def conclusion(rows: Sequence[Compared]) -> str:
    """One sentence; it starts with the verdict."""
    found = overall(rows)
    deciding = [row for row in rows if row.decides]
    text = f"{found} ({_count(deciding, found)} of {len(deciding)} metrics that decide"
    others = [row.metric for row in rows if not row.decides and row.verdict != BIT_EQUAL]
    if found == BIT_EQUAL and others:
        text += f"; not equal among the others: {', '.join(others[:5])}{', ...' * (len(others) > 5)}"
    seeds = max((row.seeds for row in deciding), default=0)
    if found in (WITHIN, DIFFERENT):
        text += f"; the spread is that of {seeds} other seeds"
    if found == NO_SPREAD:
        text += f"; {seeds} other seeds are on the server, a spread takes {LEAST_SEEDS} that differ"
    return text + ")"


def _count(rows: Iterable[Compared], verdict: str) -> int:
    return sum(row.verdict == verdict for row in rows)


def write(
    folder: Path,
    original: Original,
    code: str,
    found: Sequence[Difference],
    rows: Sequence[Compared],
    agreements: Sequence[Agreement],
) -> list[Path]:
    """`reproduction.csv`, `differences.csv` and `reproduction.md`."""
    columns = [field.name for field in dataclasses.fields(Compared)]
    at = columns.index("here") + 1
    columns.insert(at, "difference")
    with (folder / record.REPRODUCTION_FILE).open("w", newline="") as file:
        write_rows(file, columns, ({name: getattr(row, name) for name in columns} for row in rows))
    with (folder / record.DIFFERENCES_FILE).open("w", newline="") as file:
        heads = ("what", "recorded", "here", "same")
        cells = ((d.what, d.there, d.here, str(d.same).lower()) for d in found)
        write_rows(file, heads, (dict(zip(heads, row, strict=True)) for row in cells))
    (folder / record.REPRODUCTION_NOTE).write_text(_note(original, code, found, rows, agreements))
    return [folder / n for n in (record.REPRODUCTION_FILE, record.DIFFERENCES_FILE, record.REPRODUCTION_NOTE)]


def _note(
    original: Original,
    code: str,
    found: Sequence[Difference],
    rows: Sequence[Compared],
    agreements: Sequence[Agreement],
) -> str:
    parts = [
        f"# {original.name} {'trained' if original.command == 'train' else 'tested'} again: {overall(rows)}",
        f"Run {original.id}, with {code}: {conclusion(rows)}.",
        "## What is different here",
        _markdown(DIFFERENCE_HEAD, difference_rows(found)) if difference_rows(found) else "Nothing that was compared.",
        "## Metrics that decide",
        "Values of each training's own best epoch by the monitor; spread: standard deviation of other seeds; limit: "
        "the difference from which on a metric is called different in any case.",
        _markdown(METRIC_HEAD, metric_rows(rows)),
    ]
    if agreements:
        parts += ["## Decisions on single images", _markdown(AGREEMENT_HEAD, agreement_rows(agreements))]
    parts.append(f"All metrics: `{record.REPRODUCTION_FILE}`; all that was compared: `{record.DIFFERENCES_FILE}`.")
    return "\n\n".join(parts) + "\n"


def _markdown(head: Sequence[str], rows: TableRows) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows))


def _number(value: float) -> str:
    return f"{value:.6g}" if value == value else "-"


def _short(value: float) -> str:
    return f"{value:.3g}" if value == value else "-"


def _signed(row: Compared) -> str:
    if row.verdict == BIT_EQUAL:
        return "0"
    return f"{row.difference:+.3g}" if row.difference == row.difference else "-"
