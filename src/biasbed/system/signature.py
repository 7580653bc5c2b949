"""Identity of a process, and whether the process of an identity is still running."""

from __future__ import annotations

import os
from pathlib import Path


def signature(pid: int | None = None) -> str:
    """Return the boot, process namespace, id and start of a process: no later one has them, none in a container either.

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
    """Return True if the process of this signature ran here and is no more; False if that can't be known."""
    parts = _parts_of_here(name)
    return parts is not None and _start(int(parts[2])) != parts[3]


def is_alive(name: str) -> bool:
    """Return True if the process of this signature runs here; False also if that can't be known."""
    parts = _parts_of_here(name)
    return parts is not None and _start(int(parts[2])) == parts[3]


def _parts_of_here(name: str) -> list[str] | None:
    """Return the words of a signature of this boot and process namespace; None for any other text."""
    parts, here = name.split(), signature().split()
    is_here = len(parts) == len(here) == 4 and parts[:2] == here[:2]
    return parts if is_here and parts[2].isascii() and parts[2].isdigit() and len(parts[2]) < 12 else None


def _start(pid: int) -> str:
    """Return the clock ticks from boot to its start; empty if there is no such process."""
    try:
        state, *fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if state == "Z" else fields[18]
