"""A terminal in memory, and what stands on it in the end."""

from __future__ import annotations

import io
import re

import pytest


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True

    def screen(self) -> list[str]:
        """Lines that stand there: carriage return, line feed and cursor up move; any other character overwrites."""
        lines, row, column = [""], 0, 0
        for part in re.findall(r"\x1b\[A|\r|\n|[^\r\n\x1b]+", self.getvalue()):
            if part == "\x1b[A":
                row -= 1
            elif part == "\r":
                column = 0
            elif part == "\n":
                row, column = row + 1, 0
                lines += [""] * (row == len(lines))
            else:
                line = lines[row].ljust(column)
                lines[row] = line[:column] + part + line[column + len(part) :]
                column += len(part)
        return [line.rstrip() for line in lines]


def open_terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Make standard output and error one terminal."""
    terminal = Terminal()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("sys.stdout", terminal)
    monkeypatch.setattr("sys.stderr", terminal)
    return terminal
