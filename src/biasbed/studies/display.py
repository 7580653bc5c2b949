"""Progress of a study on the terminal: a live table, or sparse lines in a log."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TextIO

from biasbed import measures
from biasbed.studies.runner import Item
from biasbed.studies.status import estimate
from biasbed.system.terminal import LiveLines, format_duration

REDRAW, LOG_EVERY = 0.5, 60.0  # seconds
STATES = {"done": "done", "running": "running", "elsewhere": "elsewhere", "failed": "failed", "waiting": "to do"}


@dataclass(frozen=True)
class Table:
    """Progress of a study."""

    counts: str  # trainings by state
    rows: Sequence[str]  # a line for each row and cell, or search
    seconds: float | None  # time left; None if unknown, 0 if nothing is left

    @property
    def head(self) -> str:
        return f"{self.counts}; about {format_duration(self.seconds)} left" if self.seconds else self.counts

    @property
    def lines(self) -> list[str]:
        return [self.head, *self.rows]


class Display:
    """Terminal output of a study: messages that stay, above a live table. A log gets messages and a few summaries."""

    def __init__(self, study: str, workers: int, stream: TextIO | None = None) -> None:
        self.study, self.workers = study, workers
        self._lines = LiveLines(stream)
        self._drawn = time.monotonic() if not self._lines.is_live else 0.0  # last draw
        self._made = self._drawn  # last time that a table was made for a log
        self._make: Callable[[], Table] | None = None  # makes the live table
        self._has_estimate = False  # True once the log has an estimate of the time left
        self._head = ""  # last head of the table in the log

    def say(self, text: str) -> None:
        self._lines.say(text)

    def update(self, items: list[Item]) -> None:
        self.show(lambda: make_table(self.study, items, self.workers))

    def show(self, make: Callable[[], Table]) -> None:
        """Draw the table. A log gets its head every minute, and as soon as that estimates the time left."""
        now, is_live = time.monotonic(), self._lines.is_live
        is_due = now - self._drawn >= (REDRAW if is_live else LOG_EVERY)
        if not is_due and (is_live or self._has_estimate or now - self._made < REDRAW):
            return
        table, self._made = make(), now
        self._has_estimate |= bool(table.seconds)
        if not (is_due or self._has_estimate):
            return
        self._drawn = now
        if is_live:
            self._make = make
            self._lines.show(table.lines)
        elif table.head != self._head:
            self._head = table.head
            self._lines.say(table.head)

    def close(self) -> None:
        """Leave the table of the final state on the terminal."""
        if self._make is not None:
            self._lines.show(self._make().lines)
        self._lines.close()


def make_table(study: str, items: Sequence[Item], workers: int) -> Table:
    """Count the runs by state and estimate the time left; then a line per row and cell."""
    counts = []
    for state, name in STATES.items():
        count = sum(item.state == state for item in items)
        if count or state == "done":
            counts.append(f"{count} {name}")
    groups: dict[str, list[Item]] = {}
    for item in items:
        groups.setdefault(item.run.group, []).append(item)
    width = max(map(len, groups), default=0)
    lines = [f"  {name:{width}} {_format_group(members)}" for name, members in groups.items()]
    left = estimate([(item.run, item.status) for item in items if item.state != "failed"], workers)
    return Table(f"{study}: {len(items)} runs: {', '.join(counts)}", lines, left.seconds)


def _format_group(items: Sequence[Item]) -> str:
    """Format the runs of a row in a cell: how many are done, the best, and each that runs or has failed."""
    run, done = items[0].run, sum(item.state == "done" for item in items)
    parts = [f"{done:3}/{len(items)} done"]
    by_value = {item.status.best: item for item in reversed(items) if item.status.best is not None}
    best = measures.best(by_value, run.higher_is_better)
    if best is not None:
        parts.append(f"best {measures.shown(best, run.monitor_unit)} (seed {by_value[best].run.seed})")
    for state in ("running", "elsewhere", "failed"):
        parts += [_format_item(item) for item in items if item.state == state]
    return ", ".join(parts)


def _format_item(item: Item) -> str:
    run, state = item.run, "" if item.state == "running" else f" {item.state}"
    if run.kind == "evaluate":
        return item.state
    return f"seed {run.seed}{state} at {run.unit} {item.status.reached}/{run.total}"
