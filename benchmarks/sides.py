"""Base of all benchmarks: sides that take turns in one process, and rows with the results.

This machine and its neighbours are never quiet for long, so nothing here is a time by itself: every side runs in every
round, in an order that turns round, and what is told is the median of the rounds' ratios with its quartiles.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

Work = Callable[[], object]
Clock = Callable[[], float]


@dataclass(frozen=True)
class Goal:
    """Goal of a row."""

    value: float
    at_least: bool = False  # else at most

    def met(self, value: float) -> bool:
        return value >= self.value if self.at_least else value <= self.value

    def __str__(self) -> str:
        return f"at {'least' if self.at_least else 'most'} {self.value:g}"


@dataclass(frozen=True)
class Row:
    """A line of a table: a ratio, or a number with its unit, as the median of rounds with their quartiles."""

    name: str
    ratio: float
    low: float
    high: float
    goal: Goal | None = None
    note: str = ""
    unit: str = ""

    @classmethod
    def of(cls, name: str, values: Iterable[float], goal: Goal | None = None, note: str = "", unit: str = "") -> Row:
        ordered = sorted(values)
        low, middle, high = statistics.quantiles(ordered, n=4, method="inclusive") if len(ordered) > 1 else ordered * 3
        return cls(name, middle, low, high, goal, note, unit)

    @property
    def met(self) -> bool | None:
        """Return True if the median meets the goal; None without a goal."""
        return None if self.goal is None else self.goal.met(self.ratio)

    @property
    def verdict(self) -> str:
        return {None: "", True: "yes", False: "**no**"}[self.met]

    def cells(self) -> tuple[str, ...]:
        """Return the cells: subject, ratio, spread, goal, met, note."""
        unit = f" {self.unit}" if self.unit else ""
        spread = "" if self.low == self.high else f"{_short(self.low)} to {_short(self.high)}"
        return (
            *(self.name, _short(self.ratio) + unit, spread, "" if self.goal is None else f"{self.goal}{unit}"),
            *(self.verdict, self.note),
        )


def _short(value: float) -> str:
    """Return three digits after the point of a ratio near one, fewer of larger numbers."""
    size = abs(value)
    if 0 < size < 0.01:
        return f"{value:.2g}"
    return f"{value:,.{0 if size >= 100 else 1 if size >= 20 else 2 if size >= 4 else 3}f}"


def seconds(work: Work, clock: Clock = time.process_time) -> float:
    began = clock()
    work()
    return clock() - began


def interleaved(
    sides: Mapping[str, Work], rounds: int, clock: Clock = time.process_time, warm: int = 1
) -> dict[str, list[float]]:
    """Return each side's seconds, round by round; the first rounds warm up and are left out.

    clock: of the processor as a rule, which others on the machine disturb least; a wall clock where a side waits.
    """
    times: dict[str, list[float]] = {name: [] for name in sides}
    for number in range(rounds + warm):
        names = list(sides) if number % 2 else list(reversed(sides))
        for name in names:
            took = seconds(sides[name], clock)
            if number >= warm:
                times[name].append(took)
    return times


def ratios(times: Mapping[str, Sequence[float]], side: str, base: str) -> list[float]:
    """Return one side's times by another's, round by round."""
    return [numerator / denominator for numerator, denominator in zip(times[side], times[base], strict=True)]


def show(rows: Iterable[Row]) -> None:
    """Print them, for who runs one benchmark by itself."""
    for row in rows:
        name, ratio, spread, goal, _, note = row.cells()
        says = {None: "", True: f"   goal {goal}: met", False: f"   goal {goal}: NOT met"}[row.met]
        print(f"{name:56} {ratio:>12}  {f'({spread})' if spread else '':22}{says}{f'   {note}' if note else ''}")
