"""Signs of life of the trials that a process has, for machines that can't look at it."""

from __future__ import annotations

import contextlib
import threading
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
