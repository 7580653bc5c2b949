"""Starting and ending the processes of a command. No torch: it is imported where devices are counted."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from types import FrameType


def in_torchrun() -> bool:
    """Whether torchrun started this process."""
    return "TORCHELASTIC_RUN_ID" in os.environ


def processes(nproc: int | str) -> int:
    """The number of training processes: given, torchrun's, the GPUs there are, or one."""
    if in_torchrun():
        return int(os.environ["WORLD_SIZE"])
    if nproc != "auto":
        return int(nproc)
    import torch

    return max(1, torch.cuda.device_count())


def become_torchrun(count: int, arguments: Sequence[str]) -> None:
    """Replace this process by torchrun, which runs `python -m biasbed <arguments>` `count` times on this machine."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", str(count)]
    command += ["--local-addr", "127.0.0.1"]  # a container's own name may not resolve, and torchrun would wait for it
    sys.stdout.flush()
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // count)))
    # The bare dashes keep torchrun from reading our flags as abbreviations of its own.
    os.execv(sys.executable, [*command, "-m", "--", "biasbed", *arguments])


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
            signal.signal(number, signal.SIG_IGN)  # once is enough: the rest is the way out
            raise Interrupted(number)

    previous = signal.signal(signal.SIGTERM, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)
