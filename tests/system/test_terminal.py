"""Progress on a terminal and in a log: messages stay whole, above the lines that are redrawn."""

from __future__ import annotations

import io
import sys

import pytest

from biasbed.system.terminal import LiveLines, ProgressBar
from helpers.screens import open_terminal


def work(bar: ProgressBar) -> None:
    for step in range(50):
        bar.tick()
        if step == 10:
            print("to standard output")
        if step == 20:
            bar.line("a line")
        if step == 30:
            print("to standard ", end="", file=sys.stderr)
            print("error", file=sys.stderr)
    print("no end", end="")


MESSAGES = ["to standard output", "a line", "to standard error"]


def test_messages_stand_above_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = open_terminal(monkeypatch)
    with ProgressBar(50, "batch") as bar:
        work(bar)
        *messages, last = terminal.screen()
        assert messages == MESSAGES
        assert last.endswith("left")
        assert "/50 batches, " in last
    assert sys.stdout is sys.stderr is terminal
    *messages, last, rest = terminal.screen()
    assert messages == MESSAGES
    assert last.startswith("100% |")
    assert rest == "no end"


@pytest.mark.parametrize("term", ["dumb", None])
def test_a_terminal_that_redraws_nothing_gets_lines(term: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = open_terminal(monkeypatch)
    monkeypatch.delenv("TERM") if term is None else monkeypatch.setenv("TERM", term)
    with ProgressBar(50, "batch") as bar:
        work(bar)
    lines = LiveLines()
    lines.show(["a table"])
    lines.close()
    assert terminal.getvalue() == "\n".join([*MESSAGES, "no end"])


def test_a_log_gets_messages_and_now_and_then_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    log = io.StringIO()
    monkeypatch.setattr("sys.stderr", log)
    with ProgressBar(3, "step", every=-1) as bar:
        bar.tick()
        bar.line("a line")
        bar.tick(2)
    first, message, last = log.getvalue().splitlines()
    assert first.startswith("1/3 steps, ")
    assert message == "a line"
    assert last.startswith("3/3 steps, ")
    assert last.endswith("0:00 left")


def test_live_lines_are_redrawn_below_messages_and_stay_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = open_terminal(monkeypatch)
    lines = LiveLines()
    lines.show(["study: 0 done", "  a row that is long"])
    lines.say("first done")
    lines.show(["study: 1 done", "  a row", "  another"])
    print("a warning", file=sys.stderr)
    assert terminal.screen()[:5] == ["first done", "a warning", "study: 1 done", "  a row", "  another"]
    lines.show(["study: 2 done", "  another"])
    assert [line for line in terminal.screen() if line][-2:] == ["study: 2 done", "  another"]
    lines.close()
    lines.close()
    assert sys.stderr is terminal
    messages = [line for line in terminal.screen() if line]
    assert messages == ["first done", "a warning", "study: 2 done", "  another"]
