"""At which calls a fault comes, and what it does there: patched into the process of one start, not into the product."""

from __future__ import annotations

import errno
import functools
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

# By the name that a ledger has: module:owner.attribute of the calls that a fault may come before or after.
POINTS = {
    "os.replace": "os:replace",
    "os.fsync": "os:fsync",
    "write_text": "pathlib:Path.write_text",
    "unlink": "pathlib:Path.unlink",
    "torch.save": "torch:save",
    "checkpoint.write": "biasbed.compute.checkpoint:write",
    "checkpoint.save": "biasbed.compute.checkpoint:save",
    "append_journal": "biasbed.tracking.folder:RunFolder.append_journal",
    "write_journal": "biasbed.tracking.folder:RunFolder.write_journal",
    "write_state": "biasbed.tracking.folder:RunFolder.write_state",
    "mark_done": "biasbed.tracking.folder:RunFolder.mark_done",
    "step": "biasbed.training.engine:Engine._update",
    "boundary": "biasbed.training.engine:Engine._evaluate_and_record",
    "note": "biasbed.training.engine:Engine.add_record",
    "evaluation": "biasbed.evaluation.evaluator:Evaluator._decide",
    "write_predictions": "biasbed.training.engine:write_predictions",
    "stage": "biasbed.training.state:TrainingState.begin_stage",
    "pass": "biasbed.training.per_example:gather_by_index",
    "piece": "biasbed.evaluation.prediction_store:PredictionStore.write_piece",
    "set": "biasbed.evaluation.prediction_store:PredictionStore.write_set",
    "trim": "biasbed.compute.checkpoint:trim",
    "farewell": "biasbed.training.train:_describe_end",
}
SENT = (
    *("create_experiment", "create_run", "get_run", "search_runs", "update_run", "delete_run", "delete_tag"),
    *("log_batch", "log_inputs", "log_artifact", "log_artifacts", "set_terminated"),
)
POINTS |= {f"mlflow.{name}": f"mlflow:MlflowClient.{name}" for name in SENT}
WRITES = ("os.fsync", "write_text", "checkpoint.write", "append_journal", "write_predictions", "piece")
# Where a process that is put to sleep holds no lock that others wait for.
UNLOCKED = ("step", "evaluation", "checkpoint.write", "checkpoint.save", "append_journal", "write_predictions")


@dataclass(frozen=True)
class Order:
    """A fault for one process: at the count-th call of a point, before it or after."""

    kind: str
    point: str
    count: int
    before: bool = True
    amount: float = 0.0  # of a clock's jump, in seconds

    @property
    def where(self) -> str:
        return f"{'before' if self.before else 'after'} {self.point} {self.count}"


def arm(orders: Sequence[Order], report: str, trace: str = "", hurry: bool = False) -> None:
    """Make this process, which gets a session of its own, do to itself what it is ordered to.

    report: the file that says which orders were carried out. trace: one that gets a line per call of a point. hurry: a
    server that is away is waited for seconds, where a user's would be for minutes.
    """
    os.setsid()
    # A shell that starts something in the background has it ignore Ctrl-C.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    _trust_the_disk()
    if hurry:
        tracker = sys.modules["biasbed.tracking.tracker"]
        vars(tracker).update(PATIENCE=12.0, RETRY_AFTER=1.0)
    log = os.open(trace, os.O_WRONLY | os.O_CREAT | os.O_APPEND) if trace else -1
    points = {order.point for order in orders}
    for point, target in POINTS.items():
        if trace or point in points:
            _wrap(point, target, [order for order in orders if order.point == point], report, log)


def _trust_the_disk() -> None:
    """sqlite waits for no disk: a process that is killed loses nothing that it has written, only a power cut does."""
    import sqlite3

    from sqlalchemy import event
    from sqlalchemy.engine import Engine

    @event.listens_for(Engine, "connect")
    def connected(connection: object, record: object) -> None:
        if isinstance(connection, sqlite3.Connection):
            connection.execute("PRAGMA synchronous = OFF")


def _wrap(point: str, target: str, orders: Sequence[Order], report: str, log: int) -> None:
    module, _, path = target.partition(":")
    owner_path, _, name = path.rpartition(".")
    owner = resolve_name(f"{module}:{owner_path}") if owner_path else resolve_name(module)
    function, calls = getattr(owner, name), Counter[str]()

    @functools.wraps(function)
    def wrapper(*arguments: Any, **keywords: Any) -> Any:
        calls[point] += 1
        due = [order for order in orders if order.count == calls[point]]
        if log >= 0:
            os.write(log, f"{point}\n".encode())
        for order in due:
            if order.before:
                _act(order, report, arguments)
        result = function(*arguments, **keywords)
        for order in due:
            if not order.before:
                _act(order, report, arguments)
        return result

    setattr(owner, name, wrapper)


# --- what is done -----------------------------------------------------------------------------------------------------


def _act(order: Order, report: str, arguments: tuple[Any, ...]) -> None:
    say(report, order)
    ACTS[order.kind](order, arguments)


def say(report: str, order: Order) -> None:
    """Note that an order is carried out, past everything that is patched."""
    file = os.open(report, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(file, f"{order.kind}\t{order.where}\n".encode())
    os.close(file)


def _signals(number: signal.Signals) -> Callable[[Order, tuple[Any, ...]], None]:
    return lambda order, arguments: os.kill(os.getpid(), number)


def _kill_group(order: Order, arguments: tuple[Any, ...]) -> None:
    os.killpg(0, signal.SIGKILL)


def _kill_loader(order: Order, arguments: tuple[Any, ...]) -> None:
    for pid in children_of(os.getpid())[:1]:
        os.kill(pid, signal.SIGKILL)


def children_of(pid: int) -> list[int]:
    """Return processes that a process has started, and that are not dead yet."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return [int(word) for task in tasks for word in (task / "children").read_text().split()]


def _half(order: Order, arguments: tuple[Any, ...]) -> None:
    """End within the writing of a checkpoint: half of it is in the file."""
    path = Path(arguments[0])
    content = path.read_bytes() if path.exists() else bytes(1000)
    path.write_bytes(content[: len(content) // 2])
    os.kill(os.getpid(), signal.SIGKILL)


def _fill(order: Order, arguments: tuple[Any, ...]) -> None:
    """From now on nothing can be written where runs are kept."""

    def refused(*_: Any, **__: Any) -> Any:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "the disk")

    for module, name in (
        *(("biasbed.tracking.folder", "write_whole"), ("biasbed.tracking.folder", "append_line")),
        *(("biasbed.training.engine", "write_predictions"), ("biasbed.compute.checkpoint", "write")),
        *(("biasbed.evaluation.prediction_store", "write_predictions"),),
    ):
        if hasattr(sys.modules.get(module), name):
            setattr(sys.modules[module], name, refused)
    refused()


def _jump(order: Order, arguments: tuple[Any, ...]) -> None:
    """The clock goes on from another time; what measures spans is no clock, and stays."""
    now, now_ns = time.time, time.time_ns
    time.time = lambda: now() + order.amount
    time.time_ns = lambda: now_ns() + int(order.amount * 10**9)


ACTS: dict[str, Callable[[Order, tuple[Any, ...]], None]] = {
    "kill -9": _signals(signal.SIGKILL),
    "kill -9 of a rank": _signals(signal.SIGKILL),
    "kill -9 of the group": _kill_group,
    "kill -9 of a loader": _kill_loader,
    "kill -9 in a write": _half,
    "SIGTERM": _signals(signal.SIGTERM),
    "SIGINT": _signals(signal.SIGINT),
    "SIGUSR2": _signals(signal.SIGUSR2),
    "SIGTERM, then -9": _signals(signal.SIGTERM),
    "SIGSTOP, then -9": _signals(signal.SIGSTOP),
    "two at once": _signals(signal.SIGSTOP),
    "disk full": _fill,
    "clock jumps": _jump,
}
