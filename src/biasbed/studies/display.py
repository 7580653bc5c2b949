"""How a study goes: one live table on a terminal, sparse lines in a log."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TextIO

from biasbed import measures
from biasbed.studies.plan import PlannedRun
from biasbed.studies.runner import Item
from biasbed.studies.standing import Estimate, RunStatus, estimate
from biasbed.system.terminal import clock

REDRAW, LOG_EVERY = 0.5, 60.0  # seconds


@dataclass(frozen=True)
class Table:
    """How a study goes."""

    counted: str  # how many trainings are in which state
    rows: Sequence[str]  # a line for each row and cell, or search
    seconds: float | None  # that the rest takes; None while nobody knows, 0 where nothing is left

    @property
    def head(self) -> str:
        return f"{self.counted}; about {clock(self.seconds)} left" if self.seconds else self.counted

    @property
    def lines(self) -> list[str]:
        return [self.head, *self.rows]


class Display:
    """Messages that stay, and below them the table; in a log, messages and now and then its first line."""

    def __init__(self, study: str, workers: int, stream: TextIO | None = None) -> None:
        self.study, self.workers = study, workers
        self.stream = stream or sys.stderr
        self.live = self.stream.isatty()
        self._shown: list[str] = []
        self._drawn = time.monotonic() if not self.live else 0.0
        self._looked, self._foreseen = self._drawn, False  # in a log: when last, and whether it has said how long

    def say(self, text: str) -> None:
        self._clear()
        print(text, file=self.stream, flush=True)
        self._draw(self._shown)

    def update(self, items: list[Item]) -> None:
        self.show(lambda: table(self.study, items, self.workers))

    def show(self, make: Callable[[], Table]) -> None:
        """Draw this table, or in a log print its first line: now and then, and when it first says how long."""
        now = time.monotonic()
        is_due = now - self._drawn >= (REDRAW if self.live else LOG_EVERY)
        if not is_due and (self.live or self._foreseen or now - self._looked < REDRAW):
            return
        made, self._looked = make(), now
        self._foreseen |= bool(made.seconds)
        if not (is_due or self._foreseen):
            return
        self._drawn = now
        if self.live:
            self._clear()
            size = shutil.get_terminal_size()
            self._draw([line[: size.columns - 1] for line in made.lines[: size.lines - 2]])
        else:
            print(made.head, file=self.stream, flush=True)

    def close(self) -> None:
        """Leave the last table on the terminal."""
        self._shown = []

    def _draw(self, shown: list[str]) -> None:
        self._shown = shown
        if self.live and shown:
            print("\n".join(shown), file=self.stream, flush=True)

    def _clear(self) -> None:
        if self.live and self._shown:
            print(f"\x1b[{len(self._shown)}F\x1b[J", end="", file=self.stream)


def table(study: str, items: Sequence[Item], workers: int) -> Table:
    """How many runs are in which state and how long the rest takes, then a line per row and cell."""
    counts = {state: sum(item.state == state for item in items) for state in STATES}
    counted = ", ".join(f"{count} {STATES[state]}" for state, count in counts.items() if count or state == "done")
    shown = []
    places = list(dict.fromkeys(item.run.place for item in items))
    width = max(map(len, places), default=0)
    for place in places:
        own = [item for item in items if item.run.place == place]
        done = sum(item.state == "done" for item in own)
        seeds = {i.standing.best: i.run.seed for i in own if i.standing.best is not None}
        best = measures.best(seeds, own[0].run.higher_is_better)
        parts = [f"  {place:{width}} {done:3}/{len(own)} done"]
        parts += [] if best is None else [f"best {measures.shown(best, own[0].run.monitor_unit)} (seed {seeds[best]})"]
        parts += [next(i.standing.tests for i in own if i.standing.best == best)] if best is not None else []
        for state in ("running", "elsewhere", "failed"):
            parts += [_of_seed(item) for item in own if item.state == state]
        shown.append(", ".join(filter(None, parts)))
    left = estimate([(item.run, item.standing) for item in items if item.state != "failed"], workers)
    return Table(f"{study}: {len(items)} runs: {counted}", shown, left.seconds)


STATES = {"done": "done", "running": "running", "elsewhere": "elsewhere", "failed": "failed", "waiting": "to do"}


def _of_seed(item: Item) -> str:
    run, state = item.run, "" if item.state == "running" else f" {item.state}"
    if run.kind == "evaluate":
        return item.state
    return f"seed {run.seed}{state} at {run.unit} {item.standing.reached}/{run.total}"


def listing(standings: Sequence[tuple[PlannedRun, RunStatus]], left: Estimate, workers: int) -> list[str]:
    """A dry run: every run with its state, then what is left."""
    shown = [_listed(run, standing) for run, standing in standings]
    states = [standing.state for _, standing in standings]
    counts = ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states))
    shown.append(f"{len(standings)} runs: {counts}; {workers} at a time")
    if left.seconds is None:
        shown.append("how long that takes is not known: no epoch of this study has been timed yet")
    elif left.seconds:
        hours = left.process_seconds / 3600
        guess = f"; not timed yet, taken as the others: {', '.join(left.guessed)}" if left.guessed else ""
        shown.append(f"about {clock(left.seconds)} left, {hours:.2f} device hours, by the epochs timed so far{guess}")
    else:
        shown.append("nothing is left to train")
    return shown


def _listed(run: PlannedRun, standing: RunStatus) -> str:
    partly = standing.reached and standing.state not in ("done", "not sent")
    where = f" at {run.unit} {standing.reached} of {run.total}" if partly else ""
    note = f" ({standing.note})" if standing.note and standing.state != "done" else ""
    return f"{standing.state:10} {run.name}{where}{note}"
