"""A worker: takes one trial after the other until every search has its trials. Several work at once, on any machine."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from biasbed.errors import Failure, UsageError
from biasbed.options import SweepOptions
from biasbed.studies.launchers import Launcher, open_launcher
from biasbed.studies.search import storage as storages
from biasbed.studies.search import trials
from biasbed.studies.search.liveness import signature
from biasbed.studies.search.objective import SlotLauncher, TrialObjective
from biasbed.studies.search.search import Search
from biasbed.system.processes import Interrupted, die_with_parent, ignore_signals, interruptible

if TYPE_CHECKING:
    from optuna import Study

WAIT = 1.0  # seconds between looks, while others have the last trials
STALE = 5.0  # seconds between looks for trials whose worker gives no sign of life


@dataclass(frozen=True)
class WorkerTask:
    """What a worker is told."""

    searches: tuple[Search, ...]
    url: str  # of the storage
    options: SweepOptions
    slot: int
    slots: int
    environment: Mapping[str, str]  # of its trainings
    log: Path  # what it prints
    parent: int | None  # process that it must not outlive


def work(task: WorkerTask) -> None:
    """A worker as a process of its own; its exit code is 0 once every search has its trials."""
    if task.parent is not None:
        die_with_parent(signal.SIGTERM)
        if os.getppid() != task.parent:
            sys.exit(143)
    os.setsid()  # a terminal's Ctrl-C reaches it through its parent alone
    with task.log.open("a") as log:
        for number in (1, 2):
            os.dup2(log.fileno(), number)
    os.environ.update(task.environment)  # the server that its parent uses
    sys.exit(_work(task))


def _work(task: WorkerTask) -> int:
    try:
        worker = Worker(task, open_launcher(task.options))
        try:
            with interruptible():
                worker.run()
        except Interrupted as error:
            ignore_signals()
            worker.release()
            return 128 + int(error.signal)
    except (Failure, UsageError) as error:
        print(f"biasbed: {error}", file=sys.stderr, flush=True)
        return error.exit_code
    return 0


class Worker:
    """Loops over `Study.optimize` for one trial: Optuna gives signs of life only inside of it."""

    def __init__(self, task: WorkerTask, launcher: Launcher, pause: float = 0.2) -> None:
        """pause: seconds between looks at a training."""
        from biasbed.studies.search.samplers import make_pruner, make_sampler

        self.task, self.stale_looked = task, 0.0
        self.launcher = SlotLauncher(launcher, task.slot, task.slots)
        self.studies: list[tuple[Search, Study, TrialObjective]] = []
        with storages.answering(task.url):
            storage = storages.open_storage(task.url, task.options.heartbeat, task.options.retries)
            for search in task.searches:
                study = storages.join(storage, search)

                def place(trial: object, study: Study = study) -> int:
                    return trials.place(trial, study.get_trials(deepcopy=False))  # type: ignore[arg-type]

                study.sampler = make_sampler(search.sampler, search.seed, search.space.is_conditional, place)
                study.pruner = make_pruner(search.pruner, search.run.total, search.run.cadence)
                objective = TrialObjective(search, self.launcher, task.environment, task.options.retries, pause)
                self.studies.append((search, study, objective))

    def run(self) -> None:
        """Until every search has its trials, those that others have now included: they may die."""
        with storages.answering(self.task.url):
            while True:
                self._look_for_stale()
                open_ = [entry for entry in self.studies if _has_work(entry[0], entry[1])]
                if open_:
                    self._one(*min(open_, key=lambda entry: trials.taken(entry[1].get_trials(deepcopy=False))))
                elif not any(_is_running(study) for _, study, _ in self.studies):
                    return
                else:
                    time.sleep(WAIT)

    def _one(self, search: Search, study: Study, objective: TrialObjective) -> None:
        try:
            study.optimize(objective, n_trials=1, catch=(Failure,))
        except Exception as error:
            # Whatever Optuna's own clearing up makes of it: a trial that was taken away, a storage that is away.
            if not self._was_given_up(study):
                raise storages.beneath(error) from None
            print(f"{search.title}: a trial was given to another worker, as this one gave no sign of life", flush=True)

    def _was_given_up(self, study: Study) -> bool:
        """Whether the last trial of this worker is another's by now."""
        every = study.get_trials(deepcopy=False)
        own = [trial.number for trial in every if trial.user_attrs.get(trials.WORKER) == signature()]
        return bool(own) and any(trial.user_attrs.get(trials.AGAIN) == own[-1] for trial in every)

    def release(self) -> None:
        """Queue again what this worker has."""
        with storages.answering(self.task.url):
            for _, study, _ in self.studies:
                trials.release_own(study, signature(), self.task.options.retries)

    def _look_for_stale(self) -> None:
        """Trials whose worker died on another machine."""
        from optuna.storages import fail_stale_trials

        if time.monotonic() - self.stale_looked > STALE:
            self.stale_looked, options = time.monotonic(), self.task.options
            for _, study, _ in self.studies:
                fail_stale_trials(study)
                trials.release_unstamped(study, 2.0 * options.heartbeat, options.retries)


def _has_work(search: Search, study: Study) -> bool:
    found = study.get_trials(deepcopy=False)
    waiting = any(trial.state.name == "WAITING" for trial in found)
    return waiting or trials.taken(found) < search.trials


def _is_running(study: Study) -> bool:
    return any(trial.state.name == "RUNNING" for trial in study.get_trials(deepcopy=False))
