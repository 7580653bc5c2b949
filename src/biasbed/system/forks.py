"""Parallel tasks in forked copies of this process, which share its memory, so that no data are sent to them."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import pickle
import signal
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from biasbed.errors import Failure
from biasbed.system.garbage import collection_of_new
from biasbed.system.processes import ENDING, WATCHER, die_with_parent

NUMBER_BYTES = 4  # of a task's number
MOST_PROCESSES = 8  # each has its own copy of what it changes

ForkedTask = Callable[[], Any]


class ForkedTasks:
    """Tasks that run beside this process, or in it at the end if it can't be copied safely."""

    def __init__(self, tasks: Sequence[ForkedTask], purpose: str, folder: Path) -> None:
        """Start the tasks. purpose: what the processes do, for messages. folder: an empty one for their results."""
        self._tasks, self._purpose, self._folder = tasks, purpose, folder
        self._processes: list[Any] = []
        number = min(count_processes(), len(tasks))
        if number < 2:
            return
        context = multiprocessing.get_context("fork")
        # Every process takes the next number from the pipe, which holds thousands, until it is empty.
        numbers, numbers_end = os.pipe()
        os.write(numbers_end, b"".join(task.to_bytes(NUMBER_BYTES, "big") for task in range(len(tasks))))
        os.close(numbers_end)
        self._errors, errors_end = context.Pipe(duplex=False)
        for _ in range(number):
            process = context.Process(target=_do_tasks, args=(tasks, numbers, errors_end, folder), daemon=True)
            self._processes.append(process)
            process.start()
        os.close(numbers)
        errors_end.close()

    def finish(self) -> list[Any]:
        """Wait for all tasks and return their results.

        Raises the first error of a task, and Failure if a process was killed.
        """
        if not self._processes:
            with collection_of_new():
                return [task() for task in self._tasks]
        error = None
        with contextlib.suppress(EOFError):
            error = pickle.loads(self._errors.recv_bytes())
        if error is not None:
            raise error
        for process in self._processes:
            process.join()
            if process.exitcode:
                raise Failure(f"a process that {self._purpose} was killed; is there enough memory?")
        return [pickle.loads(_result_path(self._folder, task).read_bytes()) for task in range(len(self._tasks))]

    def end(self) -> None:
        """End all processes, whether they have finished or not."""
        for process in self._processes:
            process.kill()
            process.join()


@contextlib.contextmanager
def forked(tasks: Sequence[ForkedTask], purpose: str) -> Iterator[ForkedTasks]:
    """Yield tasks that have been started; their processes end with the block."""
    with tempfile.TemporaryDirectory() as folder:
        running = ForkedTasks(tasks, purpose, Path(folder))
        try:
            yield running
        finally:
            running.end()


def count_processes() -> int:
    """Return the number of copies to make: at most one per core, and 1 if this process can't be copied safely.

    A copy has only the thread that made it, so that a lock of another thread would stay locked. Watchers lock nothing;
    under `mlflow run` every command has one.
    """
    others = [thread for thread in threading.enumerate() if thread is not threading.current_thread()]
    if sys.platform != "linux" or any(thread.name != WATCHER for thread in others):
        return 1
    return min(len(os.sched_getaffinity(0)), MOST_PROCESSES)


def _do_tasks(tasks: Sequence[ForkedTask], numbers: int, errors: Any, folder: Path) -> None:
    """Do tasks until none is left, and write their results; send the first error and end.

    numbers: descriptor of the pipe with the numbers of the tasks that are left.
    """
    die_with_parent(signal.SIGKILL)
    for number in (*ENDING, signal.SIGINT):  # the parent ends its copies
        signal.signal(number, signal.SIG_IGN)
    try:
        with collection_of_new():  # collecting everything would write to shared memory, and so copy it
            while content := os.read(numbers, NUMBER_BYTES):
                task = int.from_bytes(content, "big")
                result = pickle.dumps(tasks[task](), pickle.HIGHEST_PROTOCOL)
                _result_path(folder, task).write_bytes(result)
    except Exception as error:
        errors.send_bytes(_pickle_error(error))


def _pickle_error(error: Exception) -> bytes:
    """Return an error as bytes; an error that can't be pickled becomes a RuntimeError with its traceback."""
    with contextlib.suppress(Exception):
        content = pickle.dumps(error)
        pickle.loads(content)
        return content
    return pickle.dumps(RuntimeError("".join(traceback.format_exception(error))))


def _result_path(folder: Path, task: int) -> Path:
    """Return the path of a task's pickled result."""
    return folder / str(task)
