"""Progress of long work (a bar on a terminal, sparse lines in a log), columns of text, and colours."""

from __future__ import annotations

import enum
import os
import sys
import time
from collections.abc import Container, Sequence
from types import TracebackType
from typing import TextIO


class ProgressBar:
    """Counts steps of a total; `line` prints a message that stays."""

    def __init__(self, total: int, unit: str, start: int = 0, silent: bool = False, every: float = 30.0) -> None:
        self.total, self.unit, self.silent, self.every = total, unit, silent, every
        self.done = self.start = start
        self.stream: TextIO = sys.stderr
        self._began = self._printed = time.monotonic()
        self._bar = None
        if not silent and self.stream.isatty():
            from tqdm import tqdm

            self._bar = tqdm(total=total, initial=start, unit=unit, dynamic_ncols=True, file=self.stream)

    def tick(self, count: int = 1) -> None:
        self.done += count
        if self._bar is not None:
            self._bar.update(count)
        elif not self.silent and time.monotonic() - self._printed > self.every:
            self._printed = time.monotonic()
            print(self.status(), file=self.stream, flush=True)

    def status(self) -> str:
        """`120/600 steps, 31.2 steps/s, 0:15 left`."""
        seconds = max(time.monotonic() - self._began, 1e-9)
        rate = (self.done - self.start) / seconds
        left = f", {clock((self.total - self.done) / rate)} left" if rate > 0 else ""
        return f"{self.done}/{self.total} {self.unit}s, {rate:.3g} {self.unit}s/s{left}"

    def line(self, text: str) -> None:
        """A message above the bar, or a line of the log."""
        if self.silent:
            return
        if self._bar is not None:
            self._bar.write(text, file=self.stream)
        else:
            print(text, file=self.stream, flush=True)

    def __enter__(self) -> ProgressBar:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.close()


def clock(seconds: float) -> str:
    """`0:15`, `1:02:03`."""
    minutes, seconds = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes}:{seconds:02d}"


def aligned(table: Sequence[Sequence[str]], left: Container[int] | None = None) -> list[str]:
    """Return rows as aligned columns of text. left: the columns that are aligned to the left, if not all are."""
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return [
        "  ".join(
            cell.ljust(width) if left is None or column in left else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in table
    ]


class Style(enum.IntEnum):
    """Looks of text on a terminal, by their numbers in ECMA-48 (select graphic rendition)."""

    BOLD = 1
    DIM = 2
    GREEN = 32
    YELLOW = 33


def styled(text: str, style: Style) -> str:
    """Return text that looks so on standard output; the plain text where that is no terminal, or has no colours.

    `NO_COLOR` and `TERM=dumb` turn colours off.
    """
    if os.environ.get("NO_COLOR") or os.environ.get("TERM", "dumb") == "dumb" or not sys.stdout.isatty():
        return text
    return f"\033[{style}m{text}\033[0m"
