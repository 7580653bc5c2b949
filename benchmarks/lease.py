"""Measurements on a machine that is lent by the minute: pieces in order of worth, each kept at once, continued by call.

A piece is what is measured and kept together. `measure` takes those that are missing in the ledger, a file of JSON
lines, for as long as the call lasts. A call that is cut or killed loses the piece it was at, and nothing else.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from sides import Goal, Row

LEAST, USUAL = 5.0, 30.0  # seconds: a call with less left is over; what a piece takes of which nothing is known
DONE, FAILED, CUT = "done", "failed", "cut"


class OutOfTime(Exception):
    """The call's time is over."""


@dataclass(frozen=True)
class Piece:
    """Rows of one part's table that are measured together."""

    part: str
    name: str
    work: Callable[[], Sequence[Row]]


@dataclass(frozen=True)
class Entry:
    """End of a piece: `done` with rows, `failed` with a message, or `cut` by the end of its call."""

    key: str  # what was measured on, how large, and of which commit: other keys are other measurements
    part: str
    piece: str
    end: str
    took: float  # seconds
    rows: tuple[Row, ...] = ()
    message: str = ""


class Ledger:
    """Entries of all calls for one key, in a file that is only ever appended to."""

    def __init__(self, path: Path, key: str) -> None:
        self.path, self.key = path, key
        self.entries = [entry for entry in self._read() if entry.key == key]

    def _read(self) -> Iterator[Entry]:
        lines = self.path.read_text(encoding="utf-8").splitlines() if self.path.exists() else []
        for line in lines:
            try:
                values = json.loads(line)
            except ValueError:  # the last line of a call that was killed
                continue
            values["rows"] = tuple(_row(row) for row in values["rows"])
            yield Entry(**values)

    def add(self, entry: Entry) -> None:
        """Keep an entry; it is on disk when this returns."""
        self.entries.append(entry)
        broken = self.path.exists() and not self.path.read_bytes().endswith(b"\n")
        with self.path.open("a", encoding="utf-8") as file:
            file.write(("\n" if broken else "") + json.dumps(asdict(entry)) + "\n")
            file.flush()
            os.fsync(file.fileno())

    def of(self, part: str, *ends: str) -> list[Entry]:
        return [entry for entry in self.entries if entry.part == part and entry.end in ends]

    def is_settled(self, piece: Piece, again: bool = False) -> bool:
        """Return True for a piece that is done, or failed or was cut twice; with `again` failed ones are missing."""
        ends = [entry.end for entry in self.of(piece.part, DONE, FAILED, CUT) if entry.piece == piece.name]
        return DONE in ends or (not again and (FAILED in ends or ends.count(CUT) > 1))

    def seconds(self, part: str) -> float:
        """Return the time to expect of one more piece of a part: the longest so far."""
        return max((entry.took for entry in self.of(part, DONE, CUT)), default=USUAL)


def _row(values: dict[str, Any]) -> Row:
    goal = values.pop("goal")
    return Row(**values, goal=None if goal is None else Goal(**goal))


def measure(
    pieces: Sequence[Piece],
    ledger: Ledger,
    seconds: float,
    kept: Callable[[str], None],
    again: bool = False,
    clock: Callable[[], float] = time.perf_counter,
) -> list[Piece]:
    """Take the pieces that the ledger lacks, in order, for so many seconds; return those that are left.

    kept: called with the part's name whenever the ledger has something new of it.
    """
    end, left = clock() + seconds, [piece for piece in pieces if not ledger.is_settled(piece, again)]
    first = True
    while left:
        time_left = end - clock()
        if time_left < LEAST or (not first and time_left < ledger.seconds(left[0].part)):
            break
        ledger.add(taken(left.pop(0), ledger.key, time_left, clock))
        kept(ledger.entries[-1].part)
        first = False
    return [piece for piece in pieces if not ledger.is_settled(piece)]


def taken(piece: Piece, key: str, time_left: float, clock: Callable[[], float]) -> Entry:
    """Measure one piece, at most for the time that is left."""
    print(f"--- {piece.part}: {piece.name}", flush=True)
    began, rows, end, message = clock(), (), DONE, ""
    try:
        with limited(time_left):
            rows = tuple(piece.work())
    except OutOfTime:
        end, message = CUT, f"not done after {time_left:.0f} s"
    except Exception as error:  # the other pieces are worth having
        traceback.print_exc()
        end, message = FAILED, f"{type(error).__name__}: {error}".splitlines()[0][:200]
    if end != DONE:
        print(f"{piece.part}: {piece.name}: {message}", file=sys.stderr)
    return Entry(key, piece.part, piece.name, end, clock() - began, rows, message)


@contextmanager
def limited(seconds: float) -> Iterator[None]:
    """Raise OutOfTime inside the block after so many seconds."""

    def stop(number: int, frame: Any) -> None:
        raise OutOfTime

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def table(ledger: Ledger, part: str) -> list[Row]:
    """Return all rows of a part so far, those of pieces that ended badly as rows without a number."""
    newest: Mapping[str, Entry] = {entry.piece: entry for entry in ledger.of(part, DONE, FAILED, CUT)}
    rows = []
    for entry in newest.values():
        missing = Row(f"{entry.piece}: {entry.end}", *[float("nan")] * 3, note=entry.message)
        rows += entry.rows if entry.end == DONE else [missing]
    return rows
