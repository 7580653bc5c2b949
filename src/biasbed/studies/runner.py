"""Runner of a plan: several trainings at a time, resumed, retried, and shared with other commands by folder locks.

A plan may grow: the runner asks its feed for more runs when it has room.

Nothing that a kill could lose is kept in memory: run folders say which runs are done and how far the others are. If
this process, a training or one of its ranks is killed, the same command continues the study.

Answers: Which run of a study is started next?
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
from biasbed.studies import ledger
from biasbed.studies.launchers import Launcher, Preempted, StartedTraining, TrainCommand
from biasbed.studies.plan import PlannedRun
from biasbed.studies.status import RunStatus, read_status
from biasbed.tracking.folder import RunFolder

LOOK = 1.0  # seconds between looks at the journal of a training
ELSEWHERE = 5.0  # seconds between looks at a run that another command has, or that the launcher refused
GRACE = 60.0  # seconds that trainings have to end in good order
REFUSED = 2  # exit code of a wrong command, which is not repeated


class Reporter(Protocol):
    """Shows the progress of the study."""

    def say(self, text: str) -> None:
        """Print a message that stays."""

    def update(self, items: list[Item]) -> None:
        """Show the present state; called several times a second."""


@dataclass
class Refused:
    """Handle of a training that the launcher would not start."""

    failure: Failure

    def poll(self) -> int | None:
        raise self.failure

    def stop(self) -> None:
        """Do nothing: no process was started."""

    def kill(self) -> None:
        """Do nothing: no process was started."""


@dataclass
class Active:
    """State of a training that runs now."""

    training: StartedTraining
    folder: RunFolder
    claim: TextIO
    slot: int
    log_start: int  # bytes that earlier attempts left in its log
    is_preempted: bool = False  # ended by the cluster
    began: float = field(default_factory=time.monotonic)


@dataclass
class Item:
    """State of a planned run in this command."""

    run: PlannedRun
    status: RunStatus
    state: Literal["waiting", "running", "elsewhere", "done", "failed", "stopped"] = "waiting"
    starts: int = 0
    failure: str = ""
    next_look: float = 0.0  # earliest time of the next look at its folder
    active: Active | None = None
    stop: bool = False  # set by its feed: end it in good order and do not retry it
    deadline: float | None = None  # when a training that was asked to end is killed

    @property
    def has_ended(self) -> bool:
        """True if this command will not start it again."""
        return self.state in ("done", "failed", "stopped")


class Feed(Protocol):
    """Source of further runs for a plan that grows."""

    is_open: bool  # more runs may come

    def next(self) -> Item | None:
        """Return another run if there is one now."""


class Runner:
    """Carries out a plan; `items` says how each run ended."""

    def __init__(
        self,
        statuses: Sequence[tuple[PlannedRun, RunStatus]],
        workers: int,
        launcher: Launcher,
        retries: int,
        report: Reporter,
        environment: Mapping[str, str] | None = None,
        is_finished: Callable[[PlannedRun], bool] = lambda run: False,
        feed: Feed | None = None,
        pause: float = 0.2,
    ) -> None:
        """workers: trainings at a time. is_finished: True if the server has the finished run, asked before each start.

        feed: source of runs besides the planned ones. pause: seconds between looks.
        """
        self.workers, self.launcher, self.retries, self.report = workers, launcher, retries, report
        self.environment, self.is_finished, self.feed, self.pause = dict(environment or {}), is_finished, feed, pause
        self.items = [Item(run, status) for run, status in statuses]
        for item in self.items:
            if item.status.state == "done":
                item.state = "done"
        waiting = [item for item in self.items if item.state == "waiting"]
        self.queue = deque(sorted(waiting, key=lambda item: item.status.state == "to do"))  # unfinished ones first

    def run(self) -> None:
        """Train until every run has ended, also those that other commands train, and the feed is closed."""
        while True:
            for item, active in self._running():
                code = self._poll(item, active)
                if code is not None:
                    self._handle_end(item, active, code)
                elif item.stop and item.deadline is None:
                    self._ask_to_end(item, active)
                else:
                    self._look(item)
            self._fill()
            self.report.update(self.items)
            if not self.queue and not any(self._running()) and not (self.feed and self.feed.is_open):
                return
            time.sleep(self.pause)

    def stop(self) -> None:
        """End what is running, in good order; detached trainings that their launcher finds again go on."""
        running = list(self._running())
        ending = [item for item, active in running if not self._outlives_us(active)]
        if len(ending) < len(running):
            self.report.say("the trainings go on; the same command watches them")
        for item in ending:
            assert item.active is not None
            self._ask_to_end(item, item.active)
        while any(item.active for item in ending):
            for item in ending:
                code = self._poll(item, item.active) if item.active is not None else None
                if item.active is not None and code is not None:
                    self._handle_end(item, item.active, code)
            time.sleep(min(self.pause, 0.1))

    # --- starting ----------------------------------------------------------------------------------------------------

    def _running(self) -> Iterator[tuple[Item, Active]]:
        """Yield the items that run now, with the states of their trainings."""
        for item in self.items:
            if item.active is not None:
                yield item, item.active

    def _outlives_us(self, active: Active) -> bool:
        """Return True if the training goes on after this command. A job that is not yet submitted does not."""
        return self.launcher.detached and self.launcher.ongoing(active.folder.path) is not None

    def _poll(self, item: Item, active: Active) -> int | None:
        """Return the training's exit code, None while it runs.

        Returns 1 if the launcher reports a failure, which is written to the log; the next attempt waits a little.
        """
        if item.deadline is not None and time.monotonic() > item.deadline:
            active.training.kill()
        try:
            return active.training.poll()
        except Failure as failure:
            with ledger.log_file(active.folder).open("a") as log:
                log.write(f"biasbed: {failure}\n")
            active.is_preempted = isinstance(failure, Preempted)
            item.next_look = time.monotonic() + ELSEWHERE
            return 1

    def _fill(self) -> None:
        """Start what can be started. The feed is asked for no more runs than can be trained at a time."""
        self._start_waiting()
        while self.feed and len(self.queue) + len(list(self._running())) < self.workers:
            item = self.feed.next()
            if item is None:
                return
            self.items.append(item)
            self.queue.append(item)
            self._start_waiting()

    def _start_waiting(self) -> None:
        """Look at each waiting run once, and start it if a slot is free."""
        slots = set(range(self.workers)) - {active.slot for _, active in self._running()}
        for _ in range(len(self.queue)):
            if not slots:
                return
            item = self.queue.popleft()
            if item.next_look > time.monotonic():
                self.queue.append(item)
            elif self._start(item, min(slots)):
                slots.remove(min(slots))

    def _start(self, item: Item, slot: int) -> bool:
        """Start this run unless it is done or another command has it; return True if it was started."""
        if item.stop:
            item.state = "stopped"
            return False
        item.status = read_status(item.run, {})
        is_open = item.status.state in ("to do", "unfinished")
        if item.status.state == "done" or (is_open and self.is_finished(item.run)):
            item.state = "done"
            return False
        folder = item.run.folder()
        claim = folder.claim()
        if claim is None:
            self._leave(item)
            return False
        ongoing = self.launcher.ongoing(folder.path)
        if ongoing is None and not self._is_free(item, folder):
            claim.close()
            self._leave(item)
            return False
        item.active = self._begin(item, slot, folder, claim, ongoing)
        return True

    def _begin(
        self, item: Item, slot: int, folder: RunFolder, claim: TextIO, ongoing: StartedTraining | None
    ) -> Active:
        """Start a run's training, or watch the one that is ongoing; return its state."""
        log = ledger.log_file(folder)
        item.state = "running"
        if ongoing is not None:
            self.report.say(f"{item.run.name} goes on; log: {log}")
            return Active(ongoing, folder, claim, slot, 0)
        log_start = log.stat().st_size if log.exists() else 0
        ledger.note_start(folder, item.run.processes)
        command = TrainCommand(
            name=item.run.name,
            overrides=item.run.overrides,
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
        verb = "started" if not item.status.reached else f"continued from {item.run.unit} {item.status.reached}"
        self.report.say(f"{item.run.name} {verb}; log: {log}")
        return active

    def _is_free(self, item: Item, folder: RunFolder) -> bool:
        """Return True if the folder, now claimed, is still the one for this run, and nobody else trains it."""
        item.status = read_status(item.run, {})
        is_same = item.run.folder().path == folder.path
        return is_same and item.status.state not in ("done", "elsewhere")

    def _leave(self, item: Item) -> None:
        """Leave the run to the command that has it, and look again later."""
        if item.state != "elsewhere":
            self.report.say(f"{item.run.name} is trained by {item.status.note or 'another command'}")
        item.state, item.next_look = "elsewhere", time.monotonic() + ELSEWHERE
        self.queue.append(item)

    # --- ending ------------------------------------------------------------------------------------------------------

    def _handle_end(self, item: Item, active: Active, code: int) -> None:
        """Decide what a training's end means for its run: done, stopped, left to another command, retried or failed."""
        self._release(item, code)
        reason = _reason(active, code)
        item.starts -= active.is_preempted
        item.status = read_status(item.run, {})
        # A training that met another command in its folder has not failed. (A signal may leave a rank that still ends.)
        is_held = item.status.state == "elsewhere" and code > 0
        if item.deadline is not None:
            item.state = "stopped" if item.stop else "waiting"
        elif item.status.state in ("done", "not sent"):
            item.state = "done"
            item.failure = "" if item.status.state == "done" else f"done, but not sent: {reason}"
            self.report.say(_format_done(item, time.monotonic() - active.began))
        elif code == REFUSED or item.starts > self.retries + is_held:
            item.state, item.failure = "failed", reason
            self.report.say(f"{item.run.name} failed: {reason}")
        elif item.status.state == "elsewhere":
            item.starts -= is_held
            self._leave(item)
        else:
            item.state = "waiting"
            self.queue.append(item)
            event = "was interrupted" if active.is_preempted else "failed"
            self.report.say(f"{item.run.name} {event} ({reason}); attempt {item.starts + 1} follows")

    def _ask_to_end(self, item: Item, active: Active) -> None:
        """Ask a training to end in good order. It is killed if it takes longer than `GRACE`."""
        item.deadline = time.monotonic() + GRACE
        active.training.stop()

    def _release(self, item: Item, code: int) -> None:
        """Note the end of an item's training and let go of its folder."""
        assert item.active is not None
        ledger.note_end(item.active.folder, code)
        item.active.claim.close()
        item.active = None

    def _look(self, item: Item) -> None:
        """Read a running training's journal, if it is time."""
        if item.next_look <= time.monotonic():
            item.status, item.next_look = read_status(item.run, {}), time.monotonic() + LOOK


def _format_done(item: Item, seconds: float) -> str:
    """Return the message on a run that is done: `erm-seed0 done in 12 s; best epoch: val/accuracy/val 81.20`."""
    run, status = item.run, item.status
    parts = [f"{run.name} done in {seconds:.0f} s"]
    if status.best is not None:
        parts.append(f"; best {run.unit}: {run.monitor} {measures.shown(status.best, run.monitor_unit)}")
    if item.failure:
        parts.append("; not sent")
    return "".join(parts)


def _reason(active: Active, code: int) -> str:
    """Return why a training ended: its own last message, else the signal or the exit code."""
    path = ledger.log_file(active.folder)
    text = path.read_bytes()[active.log_start :].decode(errors="replace") if path.exists() else ""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    messages = [line.removeprefix("biasbed: ") for line in lines if line.startswith("biasbed: ")]
    if messages:
        return messages[-1]
    if code < 0:
        return f"killed by {signal.Signals(-code).name}"
    last_line = f", after: {lines[-1][:200]}" if lines else ""
    return f"exit code {code}{last_line}"
