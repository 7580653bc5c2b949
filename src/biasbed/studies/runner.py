"""Runs a plan: so many trainings at a time, resumed, retried, and shared with other commands by locks on their folders.

A plan may grow: what is fed to the runner when it has room is trained like all else.

Nothing is kept in memory that a kill could lose: what is done, and how far the rest is, is in the run folders. So this
process, a training or one of its ranks may be killed at any moment, and the same command goes on.
"""

from __future__ import annotations

import signal
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol, TextIO

from biasbed import measures
from biasbed.errors import Failure
from biasbed.studies import attempts
from biasbed.studies.launchers import Launcher, StartedTraining, TrainCommand
from biasbed.studies.plan import PlannedRun
from biasbed.studies.standing import RunStatus, standing
from biasbed.tracking.folder import RunFolder

LOOK = 1.0  # seconds between looks at the journal of a training
ELSEWHERE = 5.0  # seconds between looks at a run that another command has, or that the launcher refused
GRACE = 60.0  # seconds that trainings have to end in good order
REFUSED = 2  # exit code of a command that is wrong: it would be wrong again


class Reporter(Protocol):
    """Shows how the study goes."""

    def say(self, text: str) -> None:
        """A message that stays."""

    def update(self, items: list[Item]) -> None:
        """The present state; called several times a second."""


@dataclass
class Refused:
    """A training that the launcher would not start."""

    failure: Failure

    def poll(self) -> int | None:
        raise self.failure

    def stop(self) -> None:
        """There is nothing to end."""

    def kill(self) -> None:
        """There is nothing to end."""


@dataclass
class Active:
    """A training under way."""

    training: StartedTraining
    folder: RunFolder
    claim: TextIO
    slot: int
    log_start: int  # bytes of earlier attempts in its log
    began: float = field(default_factory=time.monotonic)


@dataclass
class Item:
    """One run of the plan, as this command sees it."""

    run: PlannedRun
    standing: RunStatus
    state: Literal["waiting", "running", "elsewhere", "done", "failed", "stopped"] = "waiting"
    starts: int = 0
    failure: str = ""
    look_again: float = 0.0  # when
    active: Active | None = None
    stop: bool = False  # set by who watches it: it is to end in good order, and not to be tried again
    deadline: float | None = None  # until when a training that was asked to end has time

    @property
    def has_ended(self) -> bool:
        """Whether this command does no more for it."""
        return self.state in ("done", "failed", "stopped")


class Feed(Protocol):
    """A plan that grows."""

    is_open: bool  # whether more may come

    def next(self) -> Item | None:
        """One more run, if one is to be had now."""


class Runner:
    """Carries out a plan; `items` says how each run ended."""

    def __init__(
        self,
        standings: Sequence[tuple[PlannedRun, RunStatus]],
        workers: int,
        launcher: Launcher,
        retries: int,
        report: Reporter,
        environment: Mapping[str, str] | None = None,
        finished: Callable[[PlannedRun], bool] = lambda run: False,
        feed: Feed | None = None,
        pause: float = 0.2,
    ) -> None:
        """workers: trainings at a time. finished: whether the server has a finished run, asked before each new start.

        feed: of runs besides those that are planned. pause: seconds between looks.
        """
        self.workers, self.launcher, self.retries, self.report = workers, launcher, retries, report
        self.environment, self.finished, self.feed, self.pause = dict(environment or {}), finished, feed, pause
        self.items = [Item(run, s, "done" if s.state == "done" else "waiting") for run, s in standings]
        waiting = [item for item in self.items if item.state == "waiting"]
        self.queue = deque(sorted(waiting, key=lambda item: item.standing.state == "to do"))  # unfinished ones first

    def run(self) -> None:
        """Until every run has ended, also those that other commands are training, and no more may come."""
        while True:
            for item in self._running():
                assert item.active is not None
                code = self._poll(item, item.active)
                if code is not None:
                    self._ended(item, item.active, code)
                elif item.stop and item.deadline is None:
                    self._end(item, item.active)
                else:
                    self._look(item)
            self._fill()
            self.report.update(self.items)
            if not self.queue and not any(self._running()) and not (self.feed and self.feed.is_open):
                return
            time.sleep(self.pause)

    def stop(self) -> None:
        """End what is running, in good order; detached trainings that their launcher finds again go on."""
        ending = [item for item in self._running() if not self._goes_on(item)]
        if len(ending) < len(list(self._running())):
            self.report.say("the trainings go on; the same command watches them")
        for item in ending:
            assert item.active is not None
            self._end(item, item.active)
        while any(item.active for item in ending):
            for item in ending:
                code = self._poll(item, item.active) if item.active is not None else None
                if item.active is not None and code is not None:
                    self._ended(item, item.active, code)
            time.sleep(min(self.pause, 0.1))

    # --- starting ----------------------------------------------------------------------------------------------------

    def _running(self) -> Iterator[Item]:
        return (item for item in self.items if item.active is not None)

    def _goes_on(self, item: Item) -> bool:
        """Whether the training outlives this command: not one whose job is still to be submitted."""
        assert item.active is not None
        return self.launcher.detached and self.launcher.ongoing(item.active.folder.path) is not None

    def _poll(self, item: Item, active: Active) -> int | None:
        """The training's exit code, 1 where the launcher fails it: the log then says why, and a next attempt waits."""
        if item.deadline is not None and time.monotonic() > item.deadline:
            active.training.kill()
        try:
            return active.training.poll()
        except Failure as failure:
            with attempts.log_file(active.folder).open("a") as log:
                log.write(f"biasbed: {failure}\n")
            item.look_again = time.monotonic() + ELSEWHERE
            return 1

    def _fill(self) -> None:
        """Start what can be started; of a plan that grows no more is asked for than can be trained at a time."""
        self._start_waiting()
        while self.feed and len(self.queue) + sum(1 for _ in self._running()) < self.workers:
            item = self.feed.next()
            if item is None:
                return
            self.items.append(item)
            self.queue.append(item)
            self._start_waiting()

    def _start_waiting(self) -> None:
        """Each waiting run is looked at once."""
        slots = set(range(self.workers)) - {item.active.slot for item in self.items if item.active is not None}
        for _ in range(len(self.queue)):
            if not slots:
                return
            item = self.queue.popleft()
            if item.look_again > time.monotonic():
                self.queue.append(item)
            elif self._start(item, min(slots)):
                slots = slots - {min(slots)}

    def _start(self, item: Item, slot: int) -> bool:
        """Start this run unless it is done, or somebody else has it; whether it was started."""
        if item.stop:
            item.state = "stopped"
            return False
        item.standing = standing(item.run, {})
        is_open = item.standing.state in ("to do", "unfinished")
        if item.standing.state == "done" or (is_open and self.finished(item.run)):
            item.state = "done"
            return False
        folder = item.run.folder()
        claim = folder.claim()
        ongoing = self.launcher.ongoing(folder.path) if claim is not None else None
        if claim is None or (ongoing is None and not self._is_free(item, folder)):
            if claim is not None:
                claim.close()
            self._leave(item)
            return False
        item.active = self._begin(item, slot, folder, claim, ongoing)
        return True

    def _begin(
        self, item: Item, slot: int, folder: RunFolder, claim: TextIO, ongoing: StartedTraining | None
    ) -> Active:
        """Start a run's training, or watch the one that goes on there."""
        log = attempts.log_file(folder)
        item.state = "running"
        if ongoing is not None:
            self.report.say(f"{item.run.name} goes on; its lines are in {log}")
            return Active(ongoing, folder, claim, slot, 0)
        log_start = log.stat().st_size if log.exists() else 0
        attempts.begin(folder, item.run.processes)
        command = TrainCommand(
            name=item.run.name,
            words=item.run.words,
            environment={**self.environment, **item.run.environment},
            log=log,
            slot=slot,
            slots=self.workers,
            processes=item.run.processes,
            kind=item.run.kind,
        )
        item.starts += 1
        try:
            active = Active(self.launcher.start(command), folder, claim, slot, log_start)
        except Failure as failure:
            return Active(Refused(failure), folder, claim, slot, log_start)
        verb = "started" if not item.standing.reached else f"continued from {item.run.unit} {item.standing.reached}"
        self.report.say(f"{item.run.name} {verb}; its lines are in {log}")
        return active

    def _is_free(self, item: Item, folder: RunFolder) -> bool:
        """Whether the folder, now claimed, is still where this run is to be trained, and by nobody else."""
        item.standing = standing(item.run, {})
        same = item.run.folder().path == folder.path
        return same and item.standing.state not in ("done", "elsewhere")

    def _leave(self, item: Item) -> None:
        """To whoever has it, and look again later."""
        if item.state != "elsewhere":
            self.report.say(f"{item.run.name} is trained by {item.standing.note or 'another command'}")
        item.state, item.look_again = "elsewhere", time.monotonic() + ELSEWHERE
        self.queue.append(item)

    # --- ending ------------------------------------------------------------------------------------------------------

    def _ended(self, item: Item, active: Active, code: int) -> None:
        """What a training's end means for its run: done, somebody else's, once more, or failed."""
        self._release(item, code)
        reason = _reason(active, code)
        item.standing = standing(item.run, {})
        # Where it found somebody else in the folder, that was no failure. (A signal may leave a rank that still ends.)
        is_held = item.standing.state == "elsewhere" and code > 0
        seconds = time.monotonic() - active.began
        if item.deadline is not None:
            item.state = "stopped" if item.stop else "waiting"
        elif item.standing.state in ("done", "not sent"):
            item.state = "done"
            item.failure = "" if item.standing.state == "done" else f"done, but not sent: {reason}"
            best = (
                ""
                if item.standing.best is None
                else f", best {item.run.monitor} {measures.shown(item.standing.best, item.run.monitor_unit)}"
            )
            best += f"; there {item.standing.tests}" if item.standing.tests else ""
            self.report.say(f"{item.run.name} done in {seconds:.0f} s{best}{'; not sent' if item.failure else ''}")
        elif code == REFUSED or item.starts > self.retries + is_held:
            item.state, item.failure = "failed", reason
            self.report.say(f"{item.run.name} failed: {reason}")
        elif item.standing.state == "elsewhere":
            item.starts -= is_held
            self._leave(item)
        else:
            item.state = "waiting"
            self.queue.append(item)
            self.report.say(f"{item.run.name} failed ({reason}); attempt {item.starts + 1} follows")

    def _end(self, item: Item, active: Active) -> None:
        """Ask its training to end."""
        item.deadline = time.monotonic() + GRACE
        active.training.stop()

    def _release(self, item: Item, code: int) -> None:
        assert item.active is not None
        attempts.end(item.active.folder, code)
        item.active.claim.close()
        item.active = None

    def _look(self, item: Item) -> None:
        """At a running training's journal."""
        if item.look_again <= time.monotonic():
            item.standing, item.look_again = standing(item.run, {}), time.monotonic() + LOOK


def _reason(active: Active, code: int) -> str:
    """Why a training ended: its own last word, else the signal or the exit code."""
    path = attempts.log_file(active.folder)
    text = path.read_bytes()[active.log_start :].decode(errors="replace") if path.exists() else ""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    said = [line.removeprefix("biasbed: ") for line in lines if line.startswith("biasbed: ")]
    if said:
        return said[-1]
    if code < 0:
        return f"killed by {signal.Signals(-code).name}"
    return f"exit code {code}" + (f", after: {lines[-1][:200]}" if lines else "")
