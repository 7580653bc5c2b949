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
import traceback
import warnings
from collections.abc import Iterator
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn

from biasbed.errors import to_one_line

if TYPE_CHECKING:
    import psutil

PARENT_PROCESS = "BIASBED_PARENT_PROCESS"  # environment variable of a child that must not outlive its parent
LIFELINE = "BIASBED_LIFELINE"  # environment variable of a command that must not outlive who holds its standard input
ENDING = (signal.SIGTERM, signal.SIGUSR2)  # what asks to end; Slurm sends SIGUSR2 before it takes a node away
SHUTDOWN = "TORCH_ELASTIC_SHUTDOWN_TIMEOUT"  # torchrun's: seconds that ranks have for their last checkpoint
STORE = "BIASBED_STORE"  # environment variable: the file in which the processes of one machine find each other
SHELLS = ("bash", "sh", "dash", "zsh")
WATCHER = "biasbed watcher"  # name of the threads that wait for another process to end and hold no lock meanwhile
COPIES = 2.0  # seconds in which further signals are copies of the first: `mlflow run` and `timeout` send two
AGAIN = 0.1  # seconds after which an exception that was discarded is raised again


def yield_while_waiting() -> None:
    """Let idle threads sleep: a step beside a busy neighbour takes its share longer, and not eight times as long.

    OpenMP reads this once, as torch loads it, so a command calls this before anything else; its children inherit it.
    By default an OpenMP thread that has finished its part spins until the others have, on a core that the neighbour or
    a loader process could use. Numbers don't depend on it. What the user has set stays.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")


def shorten_warnings() -> None:
    """Print warnings of libraries as one line each, `warning: ...`, without a path and a line of source."""

    def format_warning(
        message: Warning | str, category: type[Warning], filename: str, lineno: int, line: str | None = None
    ) -> str:
        return f"warning: {to_one_line(' '.join(str(message).split()))}\n"

    warnings.formatwarning = format_warning


def leave(code: int) -> NoReturn:
    """End this process as Python would, without freeing all objects first, which takes a second after torch and MLflow.

    As the children of `multiprocessing` end: wait for threads that are no daemons, call the functions of `atexit`, and
    flush what was printed. With `gc.freeze` and `sys.exit` instead, nanobind reports leaks.
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


def find_launcher() -> psutil.Process | None:
    """Return the process that started this command: the nearest ancestor that is neither a shell nor torchrun."""
    try:
        import psutil
    except ImportError:  # without the extra `train`
        return None
    with contextlib.suppress(psutil.Error):
        for ancestor in psutil.Process().parents():
            arguments = ancestor.cmdline()
            program = arguments[0].rpartition("/")[2] if arguments else ""
            if program not in (*SHELLS, "torchrun") and "torch.distributed.run" not in arguments:
                return ancestor
    return None


def follow_launcher(interval: float = 2.0) -> None:
    """Under `mlflow run`, end with SIGTERM when the launcher is gone: else its death leaves an orphan."""
    launcher = find_launcher()
    if launcher is not None:
        threading.Thread(target=_watch, args=(launcher, interval), name=WATCHER, daemon=True).start()


def _watch(launcher: psutil.Process, interval: float) -> None:
    while launcher.is_running():
        time.sleep(interval)
    if noted_signal() is None:
        os.kill(os.getppid() if in_torchrun() else os.getpid(), signal.SIGTERM)


def die_with_parent(with_signal: signal.Signals) -> None:
    """Ask Linux to signal this process when its parent dies, so that no orphan trains on unseen."""
    if sys.platform == "linux":
        pr_set_pdeathsig = 1
        ctypes.CDLL(None).prctl(pr_set_pdeathsig, int(with_signal))


def keep_freed_memory() -> None:
    """Let glibc keep the memory that is freed, for the next tensor; other C libraries are left as they are.

    It returns large blocks to the system, so that every activation on a CPU is made of fresh pages: a ResNet-50 on 256
    images of 224 pixels spends a third of its time on them.
    """
    trim_threshold, most_mapped = -1, -4  # M_TRIM_THRESHOLD and M_MMAP_MAX of malloc.h
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:
        mallopt(most_mapped, 0)
        mallopt(trim_threshold, 2**31 - 1)


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


class Interrupted(KeyboardInterrupt):
    """A signal asked this process to end."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.signal = signal.Signals(number)


class _Request:
    """Signal that asked this process to end, and how far it was honoured.

    Python discards what a handler raises in `__del__`, in a callback of a weak reference or of the garbage collector,
    and some C code clears it. So the handler notes the signal, and raises again until the exception is under way.
    """

    def __init__(self) -> None:
        self.signal: signal.Signals | None = None
        self.is_postponed = False  # a first signal is noted, for the block to ask
        self.is_over = False  # the command has ended: a first signal changes nothing any more
        self.is_raised = False
        self._owner, self._when = os.getpid(), 0.0
        self._before: dict[signal.Signals, Any] = {}
        self._timer = (0.0, 0.0)
        self._hook = sys.unraisablehook

    def install(self) -> None:
        """Handle the signals, except Ctrl-C if whoever started us wants it otherwise."""
        for number in ENDING:
            self._set(number, self._handle)
        if signal.getsignal(signal.SIGINT) in (signal.default_int_handler, signal.SIG_DFL):
            self._set(signal.SIGINT, self._handle)
        sys.unraisablehook = self._report_discarded

    def restore(self) -> None:
        """Undo everything."""
        if self.is_raised:
            signal.setitimer(signal.ITIMER_REAL, *self._timer)
        for number, handler in self._before.items():
            signal.signal(number, handler)
        sys.unraisablehook = self._hook

    def end(self, number: int) -> NoReturn:
        """Raise Interrupted, again and again until it is under way."""
        self.signal = self.signal or signal.Signals(number)
        self._when = self._when or time.monotonic()
        if not self.is_raised:
            self.is_raised = True
            self._set(signal.SIGCHLD, signal.SIG_DFL)  # the death of a loader worker is no news any more
            self._set(signal.SIGALRM, self._remind)
            self._timer = signal.setitimer(signal.ITIMER_REAL, AGAIN, AGAIN)
        raise Interrupted(self.signal)

    def conclude(self) -> None:
        """Let a first signal change nothing from now on. A second one still ends the process at once."""
        self.is_over = True
        if self.is_raised:
            signal.setitimer(signal.ITIMER_REAL, 0)

    def raise_if_asked(self) -> None:
        """Raise Interrupted if a signal was noted, or was raised and then discarded."""
        if self.signal is not None and not self.is_over:
            self.end(self.signal)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if os.getpid() != self._owner:  # a copy of this process that has no handlers of its own yet
            os._exit(128 + number)
        is_first = self.signal is None
        if not is_first and time.monotonic() - self._when < COPIES:
            return
        if not is_first and (self.is_raised or self.is_over):
            os._exit(128 + number)
        self.signal, self._when = self.signal or signal.Signals(number), time.monotonic()
        if not (self.is_over or (is_first and self.is_postponed)):
            self.end(number)

    def _set(self, number: signal.Signals, handler: Any) -> None:
        previous = signal.signal(number, handler)
        self._before.setdefault(number, signal.SIG_DFL if previous is None else previous)

    def _remind(self, number: int, frame: FrameType | None) -> None:
        reports = _Request._report_discarded.__code__  # in which Python prints what we raise, as a fault of the hook
        if any(caller.f_code is reports for caller, _ in traceback.walk_stack(frame)):
            return
        error = sys.exc_info()[1]  # that is handled, or passes through a `finally`
        while error is not None:
            if isinstance(error, Interrupted):
                return
            error = error.__context__
        raise Interrupted(self.signal or signal.SIGTERM)

    def _report_discarded(self, unraisable: sys.UnraisableHookArgs) -> None:
        if not isinstance(unraisable.exc_value, Interrupted):
            self._hook(unraisable)


_request: _Request | None = None


def handle_signals() -> None:
    """From now on, end this process in good order when a signal asks it to."""
    global _request
    _request = _Request()
    _request.install()


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """End the block with `Interrupted` if a signal asks this process to end (SIGTERM, SIGUSR2, Ctrl-C).

    A signal is never lost: if the exception was discarded somewhere, it is raised again, at the end of the block at
    the latest. What comes within `COPIES` seconds of it changes nothing; a later one ends the process at once. Blocks
    may be nested. In a thread, where Python handles no signals, nothing happens.
    """
    global _request
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    is_outermost = _request is None
    if is_outermost:
        handle_signals()
    request = _request
    assert request is not None
    try:
        yield
        request.raise_if_asked()
    except Exception as error:
        if request.signal is not None and request.is_raised and not request.is_over:
            raise Interrupted(request.signal) from error  # what a library made of it
        raise
    finally:
        if is_outermost:
            request.restore()
            _request = None


@contextlib.contextmanager
def postponed() -> Iterator[None]:
    """In the block, only note a first signal to end; a second one acts."""
    with _with_postponed(True):
        yield


@contextlib.contextmanager
def acting_at_once() -> Iterator[None]:
    """Within a block that postpones signals, let them act; one that was noted before, too."""
    with _with_postponed(False):
        if _request is not None:
            _request.raise_if_asked()
        yield


@contextlib.contextmanager
def _with_postponed(value: bool) -> Iterator[None]:
    if _request is None:
        yield
        return
    before, _request.is_postponed = _request.is_postponed, value
    try:
        yield
    finally:
        _request.is_postponed = before


def noted_signal() -> signal.Signals | None:
    """Return the signal that asked this process to end, if any."""
    return None if _request is None else _request.signal


def end_by(number: int) -> NoReturn:
    """End what this process does as a signal would."""
    if _request is None:
        raise Interrupted(number)
    _request.end(number)


def signal_of(error: KeyboardInterrupt) -> signal.Signals:
    """Return the signal that ended something; others than we raise KeyboardInterrupt for Ctrl-C."""
    return error.signal if isinstance(error, Interrupted) else signal.SIGINT


def ignore_first_signal() -> None:
    """Note that all is done or settled, so that a signal does not change the outcome; a second one acts."""
    if _request is not None:
        _request.conclude()


def last_line(output: str) -> str:
    """Return the last line that a process which has ended printed."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    return lines[-1][:300] if lines else "it ended without a word"
