"""One start of a command, in one process or several, that can be watched, signalled and waited for."""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess
from pathlib import Path

from faults import Fault
from faults.moments import Order, arm
from helpers import children


@dataclass
class Start:
    """A command in forked processes, rank by rank; each leads a session of its own."""

    words: Sequence[str]
    environment: Mapping[str, str | None]
    folder: Path  # where it runs
    output: Path  # its ranks' output is in <output>.<rank>.out and .err
    processes: int = 1
    orders: Mapping[int, Sequence[Order]] = field(default_factory=dict)  # by rank
    trace: str = ""
    hurry: bool = False
    ranks: list[BaseProcess] = field(default_factory=list)

    def begin(self) -> Start:
        nobodys = dict.fromkeys(("MLFLOW_EXPERIMENT_ID", "BIASBED_PARENT_RUN"))
        armed = [
            functools.partial(arm, list(self.orders.get(rank, ())), f"{self.output}.fired", self.trace, self.hurry)
            for rank in range(self.processes)
        ]
        environment, unkilled = {**self.environment, **nobodys}, [None] * self.processes
        self.ranks = children.start(self.words, environment, self.folder, f"{self.output}.", unkilled, armed)
        return self

    @property
    def pids(self) -> list[int]:
        return [rank.pid for rank in self.ranks if rank.pid is not None]

    @property
    def is_alive(self) -> bool:
        return any(rank.is_alive() for rank in self.ranks)

    @property
    def is_stopped(self) -> bool:
        return any(state_of(pid) == "T" for pid in self.pids)

    def wait(self, seconds: float) -> bool:
        """Return True if all processes have ended in this time."""
        deadline = time.monotonic() + seconds
        for rank in self.ranks:
            rank.join(max(0.0, deadline - time.monotonic()))
        return not self.is_alive

    def wait_until_stopped(self, seconds: float) -> bool:
        """Return True if a process has put itself to sleep, and not ended before."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and self.is_alive:
            if self.is_stopped:
                return True
            time.sleep(0.01)
        return False

    def signal(self, number: signal.Signals, rank: int | None = None) -> None:
        for pid in self.pids if rank is None else [self.pids[rank]]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def kill(self) -> None:
        """All of it, with what it has started."""
        for pid in self.pids:
            with contextlib.suppress(OSError):
                os.killpg(pid, signal.SIGKILL)
        self.signal(signal.SIGKILL)
        for rank in self.ranks:
            rank.join()

    @property
    def codes(self) -> list[int]:
        return [rank.exitcode if rank.exitcode is not None else 0 for rank in self.ranks]

    def said(self, rank: int) -> str:
        path = Path(f"{self.output}.{rank}.err")
        return path.read_text(errors="backslashreplace") if path.exists() else ""

    def fired(self) -> list[Fault]:
        """Return the orders that were carried out."""
        path = Path(f"{self.output}.fired")
        lines = path.read_text().splitlines() if path.exists() else []
        return [Fault(*line.split("\t")) for line in lines]


def state_of(pid: int) -> str:
    """Return a process's state as Linux says it; empty where there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return ""


def left_over(sessions: set[int], home: str) -> list[int]:
    """Return processes that are still there of these sessions, or that were started for this home."""
    pids, mark = [], f"BIASBED_HOME={home}".encode()
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, IndexError):
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            if fields[0] == "Z" or int(folder.name) == os.getpid():
                continue
            if int(fields[3]) in sessions or mark in (folder / "environ").read_bytes().split(b"\0"):
                pids.append(int(folder.name))
    return pids


def gone(sessions: set[int], home: str, seconds: float) -> list[int]:
    """Return the processes that remain after a while; they are killed."""
    deadline = time.monotonic() + seconds
    while (pids := left_over(sessions, home)) and time.monotonic() < deadline:
        time.sleep(0.1)
    for pid in pids:
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)
    return pids
