"""Queues from a loader's processes to the training: a batch that can't be sent is an error, and never a hang.

A worker's queue sends from a thread of its own. Where that thread fails (no shared memory, no more open files, no
socket), the standard library prints a traceback and drops the batch, for which the training then waits forever.

A worker that was killed is noticed where its batch is waited for, within five seconds. torch also has a handler of
SIGCHLD, which raises between any two lines, once for each worker, even while the first error is being reported.
"""

from __future__ import annotations

import errno
import multiprocessing
import multiprocessing.util
import os
import signal
import tempfile
from collections.abc import Iterable, Iterator
from multiprocessing.context import BaseContext
from multiprocessing.queues import Queue
from typing import Any, TypeVar

from torch.utils.data._utils import signal_handling

from biasbed.errors import FULL_SHARED_MEMORY, Failure, first_line

LONGEST_TEMPORARY = 70  # bytes of a temporary folder in which sockets still have a name of at most 107
SHORT = "/tmp"

T = TypeVar("T")


class UnsentBatch(Failure):
    """Error of a batch that a loader's process could not send."""


class ReportingQueue(Queue):  # type: ignore[type-arg]
    """Queue that sends an `UnsentBatch` in place of a batch that can't be sent."""

    def _on_queue_feeder_error(self, error: Exception, item: Any) -> None:
        """Send the error in place of the batch. If even that fails, kill this process, which the receiver notices."""
        index, content = item
        if isinstance(content, UnsentBatch):
            os.kill(os.getpid(), signal.SIGKILL)
        self.put((index, UnsentBatch(f"a loader's process could not send a batch: {reason(error)}")))


def make_context(workers: int) -> BaseContext:
    """Return the context of a loader's processes: the default one, with queues that report what they could not send.

    Raises Failure if the system has no room for the queues of so many workers. They are tried here because torch prints
    a traceback when a half-made iterator of its loader is destroyed.
    """
    _shorten_sockets()
    signal_handling._SIGCHLD_handler_set = True  # so that torch does not set it
    default = multiprocessing.get_context(multiprocessing.get_start_method())

    class Context(type(default)):  # type: ignore[misc]
        def Queue(self, maxsize: int = 0) -> ReportingQueue:
            return ReportingQueue(maxsize, ctx=self)

    context = Context()
    try:
        _ = [context.Event(), *(context.Queue() for _ in range(workers + 1))]
    except OSError as error:
        raise Failure(f"can't start a loader's processes: {reason(error)}") from None
    return context


def receive(batches: Iterable[T]) -> Iterator[T]:
    """Yield the batches that a loader's processes send.

    Raises UnsentBatch in place of a batch that could not be sent, or for which there was no shared memory.
    """
    try:
        for batch in batches:
            if isinstance(batch, UnsentBatch):
                raise batch
            yield batch
    except RuntimeError as error:  # torch raises a worker's error anew, with the worker's traceback as its text
        last_line = str(error).strip().rpartition("\n")[2].removeprefix("RuntimeError: ")
        if "unable to allocate shared memory" not in last_line:
            raise
        raise UnsentBatch(f"a loader's process could not make a batch: {last_line}: {FULL_SHARED_MEMORY}") from None


def reason(error: Exception) -> str:
    """Describe in a line why a batch was not sent. A full disk is named as the one of shared memory."""
    text = first_line(error)
    if "Too many open files" in text:
        return f"{text}: allow more open files (ulimit -n), or train with fewer workers"
    is_full = isinstance(error, OSError) and error.errno == errno.ENOSPC and error.filename is None
    if is_full or "shared memory" in text or "</torch_" in text:
        return f"{text}: {FULL_SHARED_MEMORY}"
    return text


def _shorten_sockets() -> None:
    """Keep multiprocessing's sockets in /tmp if the name of the temporary folder, as of a batch job, is too long.

    Processes that are started from here inherit the choice.
    """
    before = tempfile.tempdir
    if len(os.fsencode(tempfile.gettempdir())) <= LONGEST_TEMPORARY or not os.access(SHORT, os.W_OK):
        return
    tempfile.tempdir = SHORT
    try:
        multiprocessing.util.get_temp_dir()  # is made once, and remembered
    finally:
        tempfile.tempdir = before
