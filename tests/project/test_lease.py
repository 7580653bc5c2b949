"""Measurements on a lent machine (benchmarks/lease.py): kept piece by piece, continued, never over their time."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from helpers import benchmarks

lease, sides = benchmarks.load("lease"), benchmarks.load("sides")
SECONDS = 100.0  # of a call


class Clock:
    """A clock that pieces move on."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Lease:
    """Pieces that take a time each, and the calls that measure them."""

    def __init__(self, folder: Path, takes: Sequence[float]) -> None:
        self.path, self.clock, self.measured = folder / "results.jsonl", Clock(), list[str]()
        self.takes = {f"piece{number}": took for number, took in enumerate(takes)}
        self.bad: dict[str, Exception] = {}

    def work(self, name: str) -> Callable[[], list[Any]]:
        def measure() -> list[Any]:
            self.clock.now += self.takes[name]
            self.measured.append(name)
            if name in self.bad:
                raise self.bad[name]
            return [sides.Row.of(name, [1.0, 2.0, 4.0], sides.Goal(3.0), "a note", "s")]

        return measure

    def call(self, key: str = "card", again: bool = False) -> list[str]:
        """Return the names of the pieces that one call leaves."""
        pieces = [lease.Piece("part", name, self.work(name)) for name in self.takes]
        self.kept: list[str] = []
        left = lease.measure(pieces, self.ledger(key), SECONDS, self.kept.append, again, self.clock)
        return [piece.name for piece in left]

    def ledger(self, key: str = "card") -> Any:
        return lease.Ledger(self.path, key)


def test_calls_continue_where_the_last_one_ended(tmp_path: Path) -> None:
    """A call begins no piece for which it has too little time, and none is measured twice."""
    lent = Lease(tmp_path, [40, 40, 40, 40])
    assert lent.call() == ["piece2", "piece3"]
    assert lent.clock.now == 80
    assert lent.call() == []
    assert lent.measured == ["piece0", "piece1", "piece2", "piece3"]
    assert lent.call() == []
    assert len(lent.measured) == 4
    assert [row.name for row in lease.table(lent.ledger(), "part")] == list(lent.takes)


def test_a_piece_is_on_disk_before_the_next_begins(tmp_path: Path) -> None:
    lent = Lease(tmp_path, [1, 1])
    lent.bad["piece1"] = KeyboardInterrupt()  # type: ignore[assignment]  # as a kill: no handler of the lease's runs
    with pytest.raises(KeyboardInterrupt):
        lent.call()
    assert lent.kept == ["part"]
    (row,) = lease.table(lent.ledger(), "part")
    assert row == sides.Row.of("piece0", [1.0, 2.0, 4.0], sides.Goal(3.0), "a note", "s")
    lent.bad.clear()
    assert lent.call() == []
    assert lent.measured == ["piece0", "piece1", "piece1"]


def test_half_a_line_is_no_entry_and_spoils_none(tmp_path: Path) -> None:
    lent = Lease(tmp_path, [1, 1])
    lent.call()
    text = lent.path.read_text()
    lent.path.write_text(text[: len(text) - 40])
    assert lent.call() == []
    assert lent.measured == ["piece0", "piece1", "piece1"]
    assert [row.name for row in lease.table(lent.ledger(), "part")] == ["piece0", "piece1"]
    assert len(list(filter(None, lent.path.read_text().splitlines()))) == 3


def test_what_fails_is_a_row_and_is_tried_again_if_asked(tmp_path: Path) -> None:
    lent = Lease(tmp_path, [1, 1])
    lent.bad["piece0"] = RuntimeError("no such kernel\nand more")
    assert lent.call() == []
    failed, done = lease.table(lent.ledger(), "part")
    assert (failed.name, failed.note, done.name) == ("piece0: failed", "RuntimeError: no such kernel", "piece1")
    lent.bad.clear()
    lent.call()
    assert lent.measured == ["piece0", "piece1"]
    lent.call(again=True)
    assert lent.measured == ["piece0", "piece1", "piece0"]
    assert [row.name for row in lease.table(lent.ledger(), "part")] == ["piece0", "piece1"]


def test_another_card_or_commit_is_measured_anew(tmp_path: Path) -> None:
    lent = Lease(tmp_path, [1])
    lent.call()
    lent.call("another")
    assert lent.measured == ["piece0", "piece0"]
    assert {json.loads(line)["key"] for line in lent.path.read_text().splitlines()} == {"card", "another"}


def test_a_piece_that_outlasts_its_call_is_cut(tmp_path: Path) -> None:
    """Twice: then it is no longer tried."""
    pieces = [lease.Piece("part", "endless", lambda: time.sleep(30) or [])]
    for left in (["endless"], []):
        began = time.monotonic()
        found = lease.measure(pieces, lease.Ledger(tmp_path / "a.jsonl", "card"), lease.LEAST + 0.2, lambda part: None)
        assert [piece.name for piece in found] == left
        assert time.monotonic() - began < 25
    (row,) = lease.table(lease.Ledger(tmp_path / "a.jsonl", "card"), "part")
    assert row.name == "endless: cut"
