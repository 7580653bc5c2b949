"""Identity of a process, and whether the process of an identity is still running.

What lies in a folder is locked by whoever works on it. On a server or in a storage, which other machines see, the
process leaves a claim: it is over if the process ran here and is gone, or if it is too old.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import NamedTuple


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


class ProcessClaim(NamedTuple):
    """Process that works on something, and when it said so."""

    time: int  # ms since 1970, by the clock there
    host: str
    signature: str  # of the process

    def __str__(self) -> str:
        pid = (self.signature.split()[2:3] or ["?"])[0]
        return f"process {pid[:12]} on {self.host[:60]}"

    def is_over(self, seconds: float) -> bool:
        """Return True if the process ran here and is gone, or if the claim is older than this."""
        return is_gone(self.signature) or time.time() - self.time / 1000 > seconds


def new_claim(name: str = "") -> str:
    """Return the text of a claim of this process. name: a signature in place of its own."""
    return f"{int(time.time() * 1000)} {os.uname().nodename} {name or signature()}"


def parse_claim(text: str) -> ProcessClaim | None:
    """Return the claim in a text; None for any other text."""
    parts = text.split(" ", 2)
    if len(parts) != 3 or not parts[0].isascii() or not parts[0].isdigit() or len(parts[0]) > 18:
        return None
    return ProcessClaim(int(parts[0]), parts[1], parts[2])


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
