"""Starting and ending the processes of a command. No torch: it is imported where devices are counted."""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import os
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from types import FrameType
from typing import NoReturn

from biasbed.errors import in_a_line

PARENT_PROCESS = "BIASBED_PARENT_PROCESS"  # environment variable of a child that must not outlive its parent
LIFELINE = "BIASBED_LIFELINE"  # environment variable of a command that must not outlive who holds its standard input
ENDING = (signal.SIGTERM, signal.SIGUSR2)  # what asks to end; Slurm sends SIGUSR2 before it takes a node away
SHUTDOWN = "TORCH_ELASTIC_SHUTDOWN_TIMEOUT"  # torchrun's: seconds that ranks have for their last checkpoint
STORE = "BIASBED_STORE"  # environment variable: the file in which the processes of one machine find each other
WATCHER = "biasbed watcher"  # name of the threads that wait for another process to end and hold no lock meanwhile
PATIENCE = 10.0  # seconds in which further signals to end are taken for the first one's copies


def yield_while_waiting() -> None:
    """Let threads that have nothing to do sleep: beside a busy neighbour a step then takes its share longer, not eight
    times as long (benchmarks/neighbour.py).

    OpenMP reads this once, as torch loads it, so a command calls this before anything else; its children inherit it.
    By default an OpenMP thread that has finished its part spins until the others have, on a core that the neighbour or
    a loader process could use. Numbers don't depend on it. What the user has set stays.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")


def open_closed_streams() -> None:
    """Give a process that was started without standard streams (`>&-`) ones that lead nowhere.

    Else the first files that it opens take their numbers, and whatever is printed by a library or a child is written
    into these.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free, which is this one
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, "r" if name == "stdin" else "w", closefd=False))


def shorten_warnings() -> None:
    """Print warnings of libraries as one line each, `warning: ...`, without a path and a line of source."""

    def in_a_line_of_its_own(
        message: Warning | str, category: type[Warning], filename: str, lineno: int, line: str | None = None
    ) -> str:
        return f"warning: {in_a_line(' '.join(str(message).split()))}\n"

    warnings.formatwarning = in_a_line_of_its_own


def leave(code: int) -> NoReturn:
    """End this process as Python would, without freeing all objects first, which takes a second after torch and MLflow.

    As the children of `multiprocessing` end: threads that are no daemons are waited for, who wanted to be called at the
    end is called, and what was printed goes out.
    """
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in filter(None, (sys.stdout, sys.stderr)):
        with contextlib.suppress(OSError, ValueError):  # whoever reads it has seen enough, or it is closed
            stream.flush()
    os._exit(code)


def in_torchrun() -> bool:
    """Return True if torchrun started this process."""
    return "TORCHELASTIC_RUN_ID" in os.environ


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
        threading.Thread(target=_watch, args=(pid, interval), name=WATCHER, daemon=True).start()


def _watch(pid: int, interval: float) -> None:
    while _parent(pid):
        time.sleep(interval)
    os.kill(os.getppid() if in_torchrun() else os.getpid(), signal.SIGTERM)


def _parent(pid: int) -> int:
    """Return the parent's process id; 0 if the process is gone."""
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


def end_with_input() -> None:
    """With `LIFELINE` set, end with SIGTERM when the standard input does: a container has no parent to follow."""
    if os.environ.pop(LIFELINE, None) is not None:
        threading.Thread(target=_read_to_end, name=WATCHER, daemon=True).start()


def _read_to_end() -> None:
    with contextlib.suppress(OSError):
        while os.read(0, 4096):
            pass
    os.kill(os.getpid(), signal.SIGTERM)


class Interrupted(BaseException):
    """A signal asked this process to end."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.signal = signal.Signals(number)


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """A signal to end ends the block with `Interrupted`, so that journal and status are settled first."""
    owner = os.getpid()

    def handler(number: int, frame: FrameType | None) -> None:
        if os.getpid() == owner:
            ignore_signals()
            raise Interrupted(number)

    with _handled(handler):
        yield


@contextlib.contextmanager
def with_signals_kept() -> Iterator[None]:
    """Restore the signal handlers after the block: a command ends its process, a function in a notebook does not."""
    numbers = (*ENDING, signal.SIGINT, signal.SIGCHLD)
    before = {number: signal.getsignal(number) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def interrupt_once() -> None:
    """From now on Ctrl-C ends this process once, in good order, whatever it is at.

    What comes within `PATIENCE` seconds of it is taken for its copy: a second Ctrl-C, which would cut through what the
    first one makes it do, and the SIGTERM by which `mlflow run` passes it on. What comes later acts again.
    """
    if signal.getsignal(signal.SIGINT) not in (signal.default_int_handler, signal.SIG_DFL):
        return  # whoever started us wants it otherwise
    when = -PATIENCE

    def handler(number: int, frame: FrameType | None) -> None:
        nonlocal when
        if time.monotonic() - when > PATIENCE:
            when = time.monotonic()
            for ending in ENDING:
                _defer(ending, when + PATIENCE)
            raise KeyboardInterrupt

    signal.signal(signal.SIGINT, handler)


def _defer(number: signal.Signals, until: float) -> None:
    """Ignore a signal for a while, where it would end the process at once."""
    if signal.getsignal(number) is not signal.SIG_DFL:
        return

    def handler(_: int, frame: FrameType | None) -> None:
        if time.monotonic() > until:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

    signal.signal(number, handler)


class Postponed:
    """In its block a signal to end is only noted, for the block to end where it can best be continued."""

    def __init__(self) -> None:
        self.noted: signal.Signals | None = None
        self._when, self._at_once = 0.0, False

    @contextlib.contextmanager
    def __call__(self) -> Iterator[None]:
        before = {number: signal.getsignal(number) for number in ENDING}

        def handler(number: int, frame: FrameType | None) -> None:
            is_late = self.noted is not None and time.monotonic() - self._when > PATIENCE
            act = before[signal.Signals(number)]
            if (self._at_once or is_late) and callable(act):
                act(number, frame)
            elif self.noted is None:
                self.noted, self._when = signal.Signals(number), time.monotonic()

        with _handled(handler):
            yield

    @contextlib.contextmanager
    def suspended(self) -> Iterator[None]:
        """Within this inner block signals act at once, one that was noted before it, too."""
        self._at_once = True
        try:
            if self.noted is not None:
                raise Interrupted(self.noted)
            yield
        finally:
            self._at_once = False


def last_line(output: str) -> str:
    """Return the last line that a process which has ended printed."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    return lines[-1][:300] if lines else "it ended without a word"


@contextlib.contextmanager
def _handled(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    previous = {number: signal.signal(number, handler) for number in ENDING}
    try:
        yield
    finally:
        for number, former in previous.items():
            signal.signal(number, former)


def ignore_signals() -> None:
    """On the way out, once is enough; and the death of a loader worker is no news any more."""
    for number in (*ENDING, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
