"""Identity of a process, and whether the process of an identity is still running."""

from __future__ import annotations

import os
from pathlib import Path


def signature(pid: int | None = None) -> str:
    """A process by boot, process namespace, id and start: what can't be another one's later, or in a container.

    Of a process that is gone, or on a system without /proc, the start is missing.
    """
    pid = os.getpid() if pid is None else pid
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        namespace = os.readlink("/proc/self/ns/pid")
    except OSError:
        boot = namespace = ""
    return f"{boot} {namespace} {pid} {_start(pid)}"


def is_gone(name: str) -> bool:
    """Whether the process of this signature ran here and is no more; False where that can't be known."""
    words = _words_of_here(name)
    return words is not None and _start(int(words[2])) != words[3]


def is_alive(name: str) -> bool:
    """Return True if the process of this signature runs here; False also if that can't be known."""
    words = _words_of_here(name)
    return words is not None and _start(int(words[2])) == words[3]


def _words_of_here(name: str) -> list[str] | None:
    """Return the words of a signature of this boot and process namespace; None for any other text."""
    words, own = name.split(), signature().split()
    is_here = len(words) == len(own) == 4 and words[:2] == own[:2]
    return words if is_here and words[2].isascii() and words[2].isdigit() and len(words[2]) < 12 else None


def _start(pid: int) -> str:
    """Clock ticks from boot to its start; empty where there is no such process."""
    try:
        state, *fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if state == "Z" else fields[18]
