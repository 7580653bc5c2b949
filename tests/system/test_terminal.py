"""Progress on a terminal and in a log: messages stay whole, above the lines that are redrawn."""

from __future__ import annotations

import io

import pytest

from biasbed.system.terminal import LiveLines, ProgressBar
from helpers.screens import open_terminal


def work(bar: ProgressBar) -> None:
    for step in range(50):
        bar.tick()
        if step == 10:
            bar.line("first line")
        if step == 20:
            bar.line("a line")


MESSAGES = ["first line", "a line"]


def test_messages_stand_above_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = open_terminal(monkeypatch)
    with ProgressBar(50, "batch") as bar:
        work(bar)
        *messages, last = terminal.screen()
        assert messages == MESSAGES
        assert last.endswith("left")
        assert "/50 batches, " in last
    *messages, last, _ = terminal.screen()
    assert messages == MESSAGES
    assert last.startswith("100% |")


@pytest.mark.parametrize("term", ["dumb", None])
def test_a_terminal_that_redraws_nothing_gets_lines(term: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = open_terminal(monkeypatch)
    monkeypatch.delenv("TERM") if term is None else monkeypatch.setenv("TERM", term)
    with ProgressBar(50, "batch") as bar:
        work(bar)
    lines = LiveLines()
    lines.show(["a table"])
    lines.close()
    assert terminal.getvalue() == "".join(f"{message}\n" for message in MESSAGES)


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
    assert terminal.screen()[:4] == ["first done", "study: 1 done", "  a row", "  another"]
    lines.show(["study: 2 done", "  another"])
    assert [line for line in terminal.screen() if line][-2:] == ["study: 2 done", "  another"]
    lines.close()
    lines.close()
    messages = [line for line in terminal.screen() if line]
    assert messages == ["first done", "study: 2 done", "  another"]
