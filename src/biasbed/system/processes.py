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
LIFELINE = "BIASBED_LIFELINE"  # environment variable of a command that must end when its standard input does
ENDING = (signal.SIGTERM, signal.SIGUSR2)  # signals that ask to end; Slurm sends SIGUSR2 before it ends a job
SHUTDOWN = "TORCH_ELASTIC_SHUTDOWN_TIMEOUT"  # torchrun's: seconds that ranks have for their last checkpoint
STORE = "BIASBED_STORE"  # environment variable: the file in which the processes of one machine find each other
SHELLS = ("bash", "sh", "dash", "zsh")
WATCHER = "biasbed watcher"  # name of the threads that wait for another process to end and hold no lock meanwhile
COPIES = 2.0  # seconds in which further signals are copies of the first: `mlflow run` and `timeout` send two
FOLLOW_EVERY = 2.0  # seconds between looks at the process that started the command
AGAIN = 0.1  # seconds after which an exception that was discarded is raised again


def yield_while_waiting() -> None:
    """Let OpenMP's idle threads sleep, so that a busy machine slows training in proportion, and not eightfold.

    By default a thread that has finished its part spins until the others have, on a core that other processes could
    use. Numbers don't depend on it. OpenMP reads the variable when torch is loaded, so a command calls this first.
    Child processes inherit it. A value that the user has set stays.
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
    """End this process without freeing all objects, which takes a second after torch and MLflow.

    Like children of `multiprocessing`, it waits for non-daemon threads, calls the functions of `atexit` and flushes its
    output. With `gc.freeze` and `sys.exit` instead, nanobind would report leaks.
    """
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in filter(None, (sys.stdout, sys.stderr)):
        with contextlib.suppress(OSError, ValueError):  # its reader is gone, or it is closed
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


def follow_launcher() -> None:
    """End with SIGTERM when `mlflow run`, which started this command, is gone, so that no orphan stays."""
    launcher = find_launcher()
    if launcher is not None:
        threading.Thread(target=_end_after_launcher, args=(launcher,), name=WATCHER, daemon=True).start()


def _end_after_launcher(launcher: psutil.Process) -> None:
    while launcher.is_running():
        time.sleep(FOLLOW_EVERY)
    if noted_signal() is None:
        os.kill(os.getppid() if in_torchrun() else os.getpid(), signal.SIGTERM)


def die_with_parent(with_signal: signal.Signals) -> None:
    """Ask Linux to signal this process when its parent dies, so that no orphan trains on unseen."""
    if sys.platform == "linux":
        pr_set_pdeathsig = 1
        ctypes.CDLL(None).prctl(pr_set_pdeathsig, int(with_signal))


def end_with_parent() -> None:
    """End with SIGTERM when the parent process that `PARENT_PROCESS` names ends, or if it has ended already."""
    parent = os.environ.pop(PARENT_PROCESS, None)
    if parent is not None:
        die_with_parent(signal.SIGTERM)
        if os.getppid() != int(parent):
            os.kill(os.getpid(), signal.SIGTERM)


def end_with_input() -> None:
    """End with SIGTERM when the standard input ends, if `LIFELINE` is set: a container has no parent to follow."""
    if os.environ.pop(LIFELINE, None) is not None:
        threading.Thread(target=_end_after_input, name=WATCHER, daemon=True).start()


def _end_after_input() -> None:
    with contextlib.suppress(OSError):
        while os.read(0, 4096):
            pass
    os.kill(os.getpid(), signal.SIGTERM)


class Interrupted(KeyboardInterrupt):
    """Exception that ends this process after a signal that asks for it."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.signal = signal.Signals(number)


class _Request:
    """Signal that asked this process to end, and the state of ending it.

    Python discards an exception that a handler raises within `__del__`, or within a callback of a weak reference or of
    the garbage collector, and some C code clears it. So the handler notes the signal, and `Interrupted` is raised again
    until some code handles it.
    """

    def __init__(self) -> None:
        self.signal: signal.Signals | None = None
        self.is_postponed = False  # True: a first signal is only noted (`postponed`)
        self.is_over = False  # True: the work is done, and a first signal changes nothing any more
        self.is_raised = False  # True once Interrupted was raised
        self._owner, self._first_time = os.getpid(), 0.0  # process that handles signals; when the first one came
        self._former_handlers: dict[signal.Signals, Any] = {}
        self._former_timer = (0.0, 0.0)
        self._former_hook = sys.unraisablehook

    def install(self) -> None:
        """Handle the signals; Ctrl-C only if the process that started this one has not changed its handler."""
        for number in ENDING:
            self._replace_handler(number, self._handle)
        if signal.getsignal(signal.SIGINT) in (signal.default_int_handler, signal.SIG_DFL):
            self._replace_handler(signal.SIGINT, self._handle)
        sys.unraisablehook = self._report_discarded

    def restore(self) -> None:
        """Restore the handlers, the timer and the hook of before."""
        if self.is_raised:
            signal.setitimer(signal.ITIMER_REAL, *self._former_timer)
        for number, handler in self._former_handlers.items():
            signal.signal(number, handler)
        sys.unraisablehook = self._former_hook

    def end(self, number: int) -> NoReturn:
        """Raise Interrupted, and start a timer that raises it again until some code handles it."""
        self.signal = self.signal or signal.Signals(number)
        self._first_time = self._first_time or time.monotonic()
        if not self.is_raised:
            self.is_raised = True
            # torch's handler would raise errors about ended loader workers.
            self._replace_handler(signal.SIGCHLD, signal.SIG_DFL)
            self._replace_handler(signal.SIGALRM, self._raise_again)
            self._former_timer = signal.setitimer(signal.ITIMER_REAL, AGAIN, AGAIN)
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
        """Handle a signal: note or act on the first one, ignore its copies, and end at once on a later one."""
        if os.getpid() != self._owner:  # a copy of this process that has no handlers of its own yet
            os._exit(128 + number)
        if self.signal is None:
            self.signal, self._first_time = signal.Signals(number), time.monotonic()
            if not (self.is_over or self.is_postponed):
                self.end(number)
        elif time.monotonic() - self._first_time >= COPIES:
            if self.is_raised or self.is_over:
                os._exit(128 + number)
            self._first_time = time.monotonic()
            self.end(number)

    def _replace_handler(self, number: signal.Signals, handler: Any) -> None:
        """Set a handler, and keep the one of before for `restore`."""
        previous = signal.signal(number, handler)
        self._former_handlers.setdefault(number, signal.SIG_DFL if previous is None else previous)

    def _raise_again(self, number: int, frame: FrameType | None) -> None:
        """Raise Interrupted again unless some code handles it now."""
        reports = _Request._report_discarded.__code__  # an exception in it would be reported as an error of the hook
        if any(caller.f_code is reports for caller, _ in traceback.walk_stack(frame)):
            return
        error = sys.exc_info()[1]  # the exception that is handled now, or passes through a `finally`
        while error is not None:
            if isinstance(error, Interrupted):
                return
            error = error.__context__
        raise Interrupted(self.signal or signal.SIGTERM)

    def _report_discarded(self, unraisable: sys.UnraisableHookArgs) -> None:
        """Report an exception that Python discards, as before; but not our own, which is raised again."""
        if not isinstance(unraisable.exc_value, Interrupted):
            self._former_hook(unraisable)


_request: _Request | None = None


def handle_signals() -> None:
    """Install the handlers: from now on a signal ends this process in good order, by `Interrupted`."""
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
            raise Interrupted(request.signal) from error  # a library has converted it to this error
        raise
    finally:
        if is_outermost:
            request.restore()
            _request = None


@contextlib.contextmanager
def postponed() -> Iterator[None]:
    """Postpone a first signal within the block: it is only noted (`noted_signal`). A second one ends the process."""
    with _with_postponed(True):
        yield


@contextlib.contextmanager
def acting_at_once() -> Iterator[None]:
    """Let signals end the process again within a part of a `postponed` block, also one that was noted before."""
    with _with_postponed(False):
        if _request is not None:
            _request.raise_if_asked()
        yield


@contextlib.contextmanager
def _with_postponed(value: bool) -> Iterator[None]:
    """Set `_Request.is_postponed` within the block."""
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


def end_by_signal(number: int) -> NoReturn:
    """Raise Interrupted as if this signal had come."""
    if _request is None:
        raise Interrupted(number)
    _request.end(number)


def signal_of(error: KeyboardInterrupt) -> signal.Signals:
    """Return the signal behind a KeyboardInterrupt; SIGINT unless biasbed has raised it."""
    return error.signal if isinstance(error, Interrupted) else signal.SIGINT


def ignore_first_signal() -> None:
    """Ignore a first signal from now on, as the outcome is settled; a second one still ends the process."""
    if _request is not None:
        _request.conclude()


def last_line(output: str) -> str:
    """Return the last line that a process which has ended printed."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    return lines[-1][:300] if lines else "it ended without a word"
