"""Who has a trial, and whether that process lives: by its name on the same machine, by its signs of life on others."""

from __future__ import annotations

import contextlib
import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from optuna.storages import RDBStorage


class SignsOfLife(threading.Thread):
    """Gives them for the trials that this process has, whatever else it is busy with.

    Optuna does so inside of `Study.optimize` alone.
    """

    def __init__(self, storage: RDBStorage, seconds: float) -> None:
        """seconds: from one to the next."""
        super().__init__(daemon=True)
        self.storage, self.seconds = storage, seconds
        self.trials: set[int] = set()  # by Optuna's ids
        self.is_over = threading.Event()

    def add(self, trial: int) -> None:
        self.storage.record_heartbeat(trial)
        self.trials.add(trial)

    def give(self) -> None:
        for trial in tuple(self.trials):
            self.storage.record_heartbeat(trial)

    def run(self) -> None:
        while not self.is_over.wait(self.seconds):
            with contextlib.suppress(Exception):  # a storage that is away gets the next one
                self.give()

    def end(self) -> None:
        self.is_over.set()


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
