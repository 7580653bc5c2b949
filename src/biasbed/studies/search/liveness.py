"""Whether a process that left its name is gone, as far as this machine can tell."""

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
    words = name.split()
    own = signature().split()
    return len(words) == len(own) == 4 and words[:2] == own[:2] and _start(int(words[2])) != words[3]


def _start(pid: int) -> str:
    """Clock ticks from boot to its start; empty where there is no such process."""
    try:
        state, *fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if state == "Z" else fields[18]
