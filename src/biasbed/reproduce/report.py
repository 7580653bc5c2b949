"""Report of a reproduction: tables for the terminal, and files."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from pathlib import Path

from biasbed import record
from biasbed.reproduce.differences import Difference
from biasbed.reproduce.original import Original
from biasbed.reproduce.verdict import BIT_EQUAL, DIFFERENT, LEAST_SEEDS, NO_SPREAD, WITHIN, Agreement, Compared, overall
from biasbed.system.csv_tables import write_rows
from biasbed.system.terminal import aligned

TableRows = Sequence[Sequence[str]]
METRIC_HEAD = ("metric", "recorded", "here", "difference", "spread", "limit", "verdict")
DIFFERENCE_HEAD = ("", "recorded", "here")
AGREEMENT_HEAD = ("set", "evaluation", "images", "equal decisions")


def difference_rows(differences: Iterable[Difference]) -> list[tuple[str, str, str]]:
    """Return the rows of the differences that are shown."""
    shown = (difference for difference in differences if difference.shown and not difference.same)
    return [(difference.name, difference.there or "-", difference.here or "-") for difference in shown]


def metric_rows(rows: Iterable[Compared]) -> list[tuple[str, ...]]:
    """Return the rows of the metrics that decide."""
    texts: list[tuple[str, ...]] = []
    for row in rows:
        if row.decides:
            values = _number(row.recorded), _number(row.here), _signed(row), _short(row.spread), _short(row.limit)
            texts.append((row.metric, *values, row.verdict))
    return texts


def agreement_rows(agreements: Iterable[Agreement]) -> list[tuple[str, ...]]:
    """Return the rows of the agreements on single images."""
    return [(item.set, item.which, str(item.images), f"{100 * item.share:.2f} %") for item in agreements]


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
        text += f"; not equal among the others: {', '.join(unequal[:5])}{', ...' * (len(unequal) > 5)}"
    seeds = max((row.seeds for row in deciding), default=0)
    if verdict in (WITHIN, DIFFERENT):
        text += f"; the spread is that of {seeds} other seeds"
    if verdict == NO_SPREAD:
        text += f"; {seeds} other seeds are on the server, a spread takes {LEAST_SEEDS} that differ"
    return text + ")"


def _count(rows: Iterable[Compared], verdict: str) -> int:
    return sum(row.verdict == verdict for row in rows)


def write(
    folder: Path,
    original: Original,
    differences: Sequence[Difference],
    rows: Sequence[Compared],
    agreements: Sequence[Agreement],
) -> list[Path]:
    """Write `reproduction.csv`, `differences.csv` and `reproduction.md`; return their paths."""
    columns = [field.name for field in dataclasses.fields(Compared)]
    columns.insert(columns.index("here") + 1, "difference")
    with (folder / record.REPRODUCTION_FILE).open("w", newline="") as file:
        write_rows(file, columns, ({name: getattr(row, name) for name in columns} for row in rows))
    with (folder / record.DIFFERENCES_FILE).open("w", newline="") as file:
        heads = ("what", "recorded", "here", "same")
        cells = ((item.name, item.there, item.here, str(item.same).lower()) for item in differences)
        write_rows(file, heads, (dict(zip(heads, row, strict=True)) for row in cells))
    (folder / record.REPRODUCTION_NOTE).write_text(_note(original, differences, rows, agreements))
    return [folder / name for name in (record.REPRODUCTION_FILE, record.DIFFERENCES_FILE, record.REPRODUCTION_NOTE)]


def _note(
    original: Original,
    differences: Sequence[Difference],
    rows: Sequence[Compared],
    agreements: Sequence[Agreement],
) -> str:
    """Return the note of a repeated run in Markdown: what differs here, the deciding metrics, and single decisions."""
    different = difference_rows(differences)
    parts = [
        f"# {original.name} {'trained' if original.command == 'train' else 'tested'} again: {overall(rows)}",
        f"Run {original.id}: {conclusion(rows)}.",
        "## What is different here",
        _markdown(DIFFERENCE_HEAD, different) if different else "Nothing that was compared.",
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
