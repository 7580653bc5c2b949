"""Starting and ending the processes of a command. No torch: it is imported where devices are counted."""

from __future__ import annotations

import contextlib
import ctypes
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from types import FrameType
from typing import Literal

from biasbed.errors import UsageError

Device = Literal["cpu", "cuda"]
PARENT_PROCESS = "BIASBED_PARENT_PROCESS"  # environment variable of a child that must not outlive its parent


def in_torchrun() -> bool:
    """Whether torchrun started this process."""
    return "TORCHELASTIC_RUN_ID" in os.environ


def settle_device(device: str, nproc: int | str) -> tuple[Device, int]:
    """(cpu or cuda, number of training processes), as given, as torchrun says, or one process per GPU.

    Raises UsageError for a GPU that is not there and for more processes than GPUs.
    """
    import torch

    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    settled: Device = "cuda" if device == "cuda" or (device == "auto" and gpus) else "cpu"
    if settled == "cuda" and not gpus:
        raise UsageError("device=cuda: there is no GPU here")
    if in_torchrun():
        return settled, int(os.environ["WORLD_SIZE"])
    count = int(nproc) if nproc != "auto" else max(1, gpus if settled == "cuda" else 1)
    if settled == "cuda" and count > gpus:
        raise UsageError(f"nproc={count}: there are {gpus} GPUs, and each process needs one of its own")
    return settled, count


def run_torchrun(count: int, arguments: Sequence[str]) -> int:
    """`python -m biasbed <arguments>` `count` times on this machine under torchrun; returns the exit code."""
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.run import main

    # Each process has said in one line what went wrong; torchrun would add a page.
    logging.getLogger("torch.distributed.elastic").setLevel(logging.CRITICAL)
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // count)))
    os.environ[PARENT_PROCESS] = str(os.getpid())
    options = ["--standalone", "--nproc_per_node", str(count)]
    options += ["--local-addr", "127.0.0.1"]  # a container's own name may not resolve, and torchrun would wait for it
    try:
        # The bare dashes keep torchrun from reading our flags as abbreviations of its own.
        main([*options, "-m", "--", "biasbed", *arguments])
    except ChildFailedError as error:
        codes = [failure.exitcode for failure in error.failures.values()]
        return next((code for code in codes if code > 0), 1)
    except SignalException as error:
        return 128 + int(error.sigval)
    return 0


def follow_launcher(interval: float = 2.0) -> None:
    """Under `mlflow run`, end with SIGTERM when the launcher is gone: else its death leaves an orphan that trains on.

    The launcher is the nearest ancestor that is neither a shell nor torchrun.
    """
    if sys.platform != "linux":
        return
    pid = os.getppid()
    while (pid > 1 and _command(pid).rsplit("/", 1)[-1] in ("bash", "sh", "dash", "torchrun")) or _is_torchrun(pid):
        pid = _parent(pid)
    if pid > 1:
        threading.Thread(target=_watch, args=(pid, interval), daemon=True).start()


def _watch(pid: int, interval: float) -> None:
    while _parent(pid):
        time.sleep(interval)
    os.kill(os.getppid() if in_torchrun() else os.getpid(), signal.SIGTERM)


def _parent(pid: int) -> int:
    """The parent's process id; 0 where the process is gone."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return int(file.read().rpartition(")")[2].split()[1])
    except (OSError, ValueError, IndexError):
        return 0


def _command(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/cmdline") as file:
            return file.read().split("\0")[0]
    except OSError:
        return ""


def _is_torchrun(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/cmdline") as file:
            return "torch.distributed.run" in file.read()
    except OSError:
        return False


def die_with_parent(with_signal: signal.Signals) -> None:
    """Ask Linux to signal this process when its parent dies, so that no orphan trains on unseen."""
    if sys.platform == "linux":
        pr_set_pdeathsig = 1
        ctypes.CDLL(None).prctl(pr_set_pdeathsig, int(with_signal))


def end_with_parent() -> None:
    """End with SIGTERM when the process that named itself in `PARENT_PROCESS` is gone, or is gone already."""
    parent = os.environ.pop(PARENT_PROCESS, None)
    if parent is not None:
        die_with_parent(signal.SIGTERM)
        if os.getppid() != int(parent):
            os.kill(os.getpid(), signal.SIGTERM)


class Interrupted(BaseException):
    """A signal asked this process to end."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.signal = signal.Signals(number)


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """SIGTERM ends the block with `Interrupted`, so that journal and status are settled first."""
    owner = os.getpid()

    def handler(number: int, frame: FrameType | None) -> None:
        if os.getpid() == owner:
            ignore_signals()
            raise Interrupted(number)

    previous = signal.signal(signal.SIGTERM, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)


def ignore_signals() -> None:
    """On the way out, once is enough; and the death of a loader worker is no news any more."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
