"""Terminal output: progress bars, lines that are redrawn in place, columns of text, and colours.

Everything live is drawn by tqdm, in this file alone. On a stream that is no terminal, sparse lines are printed instead.
"""

from __future__ import annotations

import enum
import os
import shutil
import sys
import time
import unicodedata
from collections.abc import Container, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from tqdm import tqdm

BAR = "{percentage:3.0f}% |{bar}| {n_fmt}/{total_fmt}{unit}, {rate_noinv_fmt}, {remaining} left"


class ProgressBar:
    """Progress bar of a number of steps; in a log, a line every 30 seconds."""

    def __init__(self, total: int, unit: str, start: int = 0, silent: bool = False, every: float = 30.0) -> None:
        self.total, self.units, self.silent, self.every = total, plural(unit), silent, every
        self.done = self.start = start
        self.stream = sys.stderr
        self._began = self._printed = time.monotonic()
        self._bar: tqdm[Any] | None = None

    def tick(self, count: int = 1) -> None:
        self.done += count
        if self._bar is not None:
            self._bar.update(count)
        elif not self.silent and time.monotonic() - self._printed > self.every:
            self._printed = time.monotonic()
            print(self.status(), file=self.stream, flush=True)

    def status(self) -> str:
        """Return the progress as text: `120/600 steps, 31.2 steps/s, 0:15 left`."""
        seconds = max(time.monotonic() - self._began, 1e-9)
        rate = (self.done - self.start) / seconds
        left = f", {format_duration((self.total - self.done) / rate)} left" if rate > 0 else ""
        return f"{self.done}/{self.total} {self.units}, {rate:.3g} {self.units}/s{left}"

    def line(self, text: str) -> None:
        """Print a message that stays, above the bar or as a line of the log."""
        if not self.silent:
            _print_above(text, self.stream)

    def __enter__(self) -> ProgressBar:
        if not self.silent and is_live(self.stream):
            from tqdm import tqdm

            options: dict[str, Any] = {"unit": f" {self.units}", "bar_format": BAR, "dynamic_ncols": True}
            self._bar = tqdm(total=self.total, initial=self.start, file=self.stream, **options)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.close()


class LiveLines:
    """Lines that are redrawn in place at the bottom of a terminal. A stream that is no terminal gets none."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self.stream = stream or sys.stderr
        self.is_live = is_live(self.stream)
        self._bars: list[tqdm[Any]] = []  # one for each line, of which only the description is drawn
        self._texts: Sequence[str] = ()

    def say(self, text: str) -> None:
        """Print a message that stays, above the lines."""
        _print_above(text, self.stream)

    def show(self, texts: Sequence[str]) -> None:
        """Draw these lines in place of the present ones, cut to the size of the terminal."""
        if not self.is_live:
            return
        from tqdm import tqdm

        size = shutil.get_terminal_size()
        self._texts = texts
        shown = [text[: size.columns - 1] for text in texts[: size.lines - 2]]
        while len(self._bars) > len(shown):
            self._bars.pop().close()
        for bar, text in zip(self._bars, shown, strict=False):
            bar.set_description_str(text)
        for text in shown[len(self._bars) :]:
            self._bars.append(tqdm(desc=text, bar_format="{desc}", leave=False, file=self.stream))

    def close(self) -> None:
        """Leave the last lines on the terminal, as messages."""
        if self._bars:
            texts = self._texts
            self.show(())
            print("\n".join(texts), file=self.stream, flush=True)


def is_live(stream: TextIO) -> bool:
    """Return True if a stream is a terminal that can redraw its lines."""
    return stream.isatty() and os.environ.get("TERM", "dumb") != "dumb"


def plural(unit: str) -> str:
    """Return the plural of an English word: `steps`, `batches`."""
    return f"{unit}es" if unit.endswith("ch") else f"{unit}s"


def _print_above(text: str, terminal: TextIO) -> None:
    """Print a message, above the live lines if the terminal has any."""
    if is_live(terminal):
        from tqdm import tqdm

        tqdm.write(text, file=terminal)
    else:
        print(text, file=terminal, flush=True)


def format_duration(seconds: float) -> str:
    """Format seconds as `0:15` or `1:02:03`."""
    minutes, seconds = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes}:{seconds:02d}"


def aligned(table: Sequence[Sequence[str]], left: Container[int] | None = None) -> list[str]:
    """Return rows as aligned columns of text. left: the columns that are aligned to the left, if not all are."""
    widths = [max(map(text_width, column)) for column in zip(*table, strict=True)]
    lines = []
    for row in table:
        cells = []
        for column, (cell, width) in enumerate(zip(row, widths, strict=True)):
            blanks = " " * (width - text_width(cell))
            cells.append(cell + blanks if left is None or column in left else blanks + cell)
        lines.append("  ".join(cells).rstrip())
    return lines


def text_width(text: str) -> int:
    """Return the columns that a text takes on a terminal: two for an East Asian letter, none for a mark on a letter."""
    if text.isascii():
        return len(text)
    wide = sum(unicodedata.east_asian_width(letter) in "WF" for letter in text)
    return len(text) + wide - sum(unicodedata.category(letter) in ("Mn", "Me", "Cf") for letter in text)


class Style(enum.IntEnum):
    """Styles of text on a terminal, by their numbers in ECMA-48 (select graphic rendition)."""

    BOLD = 1
    DIM = 2
    GREEN = 32
    YELLOW = 33


def styled(text: str, style: Style) -> str:
    """Return text in this style for standard output, plain if that is no terminal or has no colours.

    `NO_COLOR` and `TERM=dumb` turn colours off.
    """
    if os.environ.get("NO_COLOR") or not is_live(sys.stdout):
        return text
    return f"\033[{style}m{text}\033[0m"
