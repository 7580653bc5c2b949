"""One life of a training: started, disturbed, started again, until it has finished; then held to the law."""

from __future__ import annotations

import random
import re
import shutil
import signal
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from biasbed.tracking.folder import RunFolder
from faults import SAID, STUCK, Fault, Life, law
from faults.fleet import Training, new_place
from faults.law import Result
from faults.moments import POINTS, UNLOCKED, WRITES, Order
from faults.servers import REQUEST, Proxy, Tracking
from faults.starts import Start, gone
from helpers.runs import run_folders

MOST = 6  # starts that are disturbed; the next one may finish
PATIENCE = 600.0  # seconds that a start may take, besides eight times those of the undisturbed one
RESTS = 20.0  # seconds in which processes must be gone after a life
LOADER_GONE = re.compile("a loader process|another process of this training ended")
AWAY = re.compile("tracking server .* can't be used|does not answer; all is kept")
FROM_OUTSIDE = ("kill -9 at a random time", "server: kill -9")
PLACES: dict[str, tuple[str, ...]] = {
    **{"disk full": WRITES, "two at once": UNLOCKED, "SIGSTOP, then -9": UNLOCKED},
    "kill -9 of a loader": ("step", "evaluation"),
}
JUMPS = (-400 * 86400.0, -3600.0, -3.0, 2.0, 86400.0, 11 * 365 * 86400.0)
# How often a start is ended by what; the others only where there is something to do it to.
ENDINGS = {
    **{"kill -9": 10, "kill -9 of the group": 4, "kill -9 in a write": 2, "kill -9 at a random time": 4},
    **{"SIGTERM": 3, "SIGINT": 2, "SIGUSR2": 1, "SIGTERM, then -9": 2, "SIGSTOP, then -9": 2, "disk full": 3},
    **{"two at once": 1},
}
SIGNALLED = {"SIGTERM": (143, -15), "SIGUSR2": (140, -12), "SIGINT": (130,)}


@dataclass(frozen=True)
class Undisturbed:
    """Undisturbed training: its results, its calls, and its duration."""

    result: Result
    calls: dict[str, int]  # of each point
    seconds: float


def undisturbed(training: Training, folder: Path, materials: Path) -> Undisturbed:
    """Train it without a fault; RuntimeError where even that fails."""
    environment = new_place(folder, materials)
    trace = folder / "trace"
    words, began = training.typed(materials), time.monotonic()
    start = Start(words, environment, folder, folder / "start", training.processes, {}, str(trace)).begin()
    if not start.wait(600) or any(start.codes):
        raise RuntimeError(f"{training.name} does not even train undisturbed: {start.said(0)}")
    result = Result(folder / "home", folder / "mlflow.db")
    return Undisturbed(result, dict(Counter(trace.read_text().splitlines())), time.monotonic() - began)


@dataclass
class Living:
    """A life while it is lived."""

    training: Training
    folder: Path
    materials: Path
    reference: Undisturbed
    life: Life
    draw: random.Random
    sessions: set[int] = field(default_factory=set)
    number: int = 0  # of starts
    tracking: Tracking | None = None  # the server, if it has one
    proxy: Proxy | None = None

    def live(self) -> None:
        self.environment = new_place(self.folder, self.materials)
        result = Result(self.folder / "home", self.folder / "mlflow.db")
        if self.tracking is not None:
            self.proxy = self.tracking.proxy()
            self.environment |= {"MLFLOW_TRACKING_URI": self.proxy.uri, **REQUEST}
            result = Result(result.home, self.tracking.store, self.tracking.artifacts)
        for attempt in range(MOST + 4):
            if self.life.problems.get(STUCK):
                return
            if self._attempt(disturbed=attempt < MOST):
                break
            if self._is_over():  # killed when all was done
                break
        else:
            self.life.blame(STUCK, "it never finishes")
            return
        law.hold(self.life, result, self.reference.result)

    def _is_over(self) -> bool:
        """Return True if all is done and sent, however the last start ended."""
        folders = [RunFolder(path) for path in run_folders(self.folder / "home")]
        return bool(folders) and all(folder.is_done and folder.read_state().get("sent") for folder in folders)

    # --- one start ---

    def _attempt(self, disturbed: bool) -> bool:
        """Return True if the start finished."""
        ending = self._ending() if disturbed else ""
        if self.proxy is not None:
            self.proxy.draw, self.proxy.given = (self.draw if disturbed else None), []
        start = self._start(self._orders(ending))
        self._see_through(start, ending)
        fired = [*start.fired(), *(self.proxy.given if self.proxy is not None else ())]
        self.life.faults += fired
        self.life.trail.append(f"start {self.number}: {ending or 'undisturbed'}: {fired} -> {start.codes}")
        return self._judge(start, {fault.kind for fault in fired} | self._timed)

    def _start(self, orders: dict[int, list[Order]]) -> Start:
        self.number += 1
        output = self.folder / f"start{self.number}"
        words = self.training.typed(self.materials)
        about = (words, self.environment, self.folder, output, self.training.processes, orders)
        start = Start(*about, hurry=self.tracking is not None).begin()
        self.sessions |= set(start.pids)
        return start

    def _ending(self) -> str:
        """Return the end of this start; None for most of those whose server is at fault."""
        if self.tracking is not None:
            return self.draw.choices(["", "kill -9", "SIGTERM", "server: kill -9"], weights=[6, 3, 1, 1])[0]
        odds = dict(ENDINGS)
        if "checkpoint.write" not in self.reference.calls:
            del odds["kill -9 in a write"]
        if self.training.loaders:
            odds["kill -9 of a loader"] = 4
        if self.training.processes > 1:
            odds["kill -9 of a rank"] = 8
            del odds["two at once"]
        return self.draw.choices(list(odds), weights=list(odds.values()))[0]

    def _orders(self, ending: str) -> dict[int, list[Order]]:
        """For each rank; the victim of what ends a single one is drawn."""
        ranks: dict[int, list[Order]] = {rank: [] for rank in range(self.training.processes)}
        if self.draw.random() < 0.4:
            moment = self._moment(("step", "boundary", "note", "write_state"))
            jump = Order("clock jumps", *moment, amount=self.draw.choice(JUMPS))
            for orders in ranks.values():
                orders.append(jump)
        if ending in ("", *FROM_OUTSIDE):
            return ranks
        victim = self.draw.randrange(self.training.processes)
        if ending == "kill -9 of a rank":
            ranks[victim].append(Order(ending, *self._moment()))
        elif ending == "kill -9 in a write":
            ranks[0].append(Order(ending, *self._moment(("checkpoint.write",))[:2], before=False))
        else:
            ranks[0].append(Order(ending, *self._moment(PLACES.get(ending))))
        return ranks

    def _moment(self, among: tuple[str, ...] | None = None) -> tuple[str, int, bool]:
        """A call that the undisturbed training makes, by point, so that rare ones come as often as common ones."""
        points = [point for point in among or POINTS if point in self.reference.calls]
        point = self.draw.choice(points or sorted(self.reference.calls))
        count = self.reference.calls.get(point, 1)
        return point, 1 + int(count * self.draw.random() ** 1.5), self.draw.random() < 0.5

    def _see_through(self, start: Start, ending: str) -> None:
        """Wait for its end, and do from outside what can't be done from within."""
        limit = PATIENCE + 8 * self.reference.seconds
        self._timed: set[str] = set()
        if ending == "kill -9 at a random time":
            if not start.wait(self.draw.uniform(0, 1.2) * self.reference.seconds):
                start.signal(signal.SIGKILL)
                self._timed.add(ending)
                self.life.faults.append(Fault(ending, f"in start {self.number}"))
        elif ending == "server: kill -9" and self.tracking is not None:
            if not start.wait(self.draw.uniform(0, 1.2) * self.reference.seconds):
                self.tracking.killed()
                self._timed.add(ending)
                self.life.faults.append(Fault(ending, f"in start {self.number}"))
        elif ending in ("SIGSTOP, then -9", "two at once"):
            if start.wait_until_stopped(limit):
                if ending == "two at once":
                    self._second()
                    start.signal(signal.SIGCONT)
                else:
                    start.signal(signal.SIGKILL)
        elif ending == "SIGTERM, then -9":
            while start.is_alive and all(fault.kind != ending for fault in start.fired()):
                time.sleep(0.005)
            if not start.wait(self.draw.choice((0.0, 0.02, 0.2))):
                start.signal(signal.SIGKILL)
        if not start.wait(limit):
            self.life.blame(STUCK, f"start {self.number} had not ended after {limit:.0f} s")
            start.kill()

    def _second(self) -> None:
        """The same command beside one that is in the middle of it: it is refused in one line, and changes nothing."""
        second = self._start({})
        if not second.wait(PATIENCE):
            self.life.blame(STUCK, "a second command had not ended")
            second.kill()
        if set(second.codes) != {1} or "is being" not in second.said(0):
            self.life.blame(SAID, f"a second command: {second.codes} {second.said(0)[-300:]}")

    # --- what it said ---

    def _judge(self, start: Start, kinds: set[str]) -> bool:
        """Return True if the start finished; blames wrong messages."""
        if self.life.problems.get(STUCK):
            return False
        for rank, code in enumerate(start.codes):
            text = start.said(rank)
            ours = [line for line in text.splitlines() if line.startswith("biasbed: ")]
            if "Traceback" in text or len(ours) > 1 or (code > 0 and len(ours) != 1 and rank == 0):
                self.life.blame(SAID, f"start {self.number}, rank {rank}, code {code}: {text[-1500:]}")
        if not any(start.codes):
            return True
        if not self._is_due(start, kinds):
            self.life.blame(SAID, f"start {self.number}: {start.codes} after {sorted(kinds)}: {start.said(0)[-600:]}")
        return False

    def _is_due(self, start: Start, kinds: set[str]) -> bool:
        """Return True if the fault explains the end."""
        said = "".join(start.said(rank) for rank in range(len(start.codes)))
        if any(kind.startswith("server: ") for kind in kinds) and AWAY.search(said):
            return True
        codes = {code for code in start.codes if code}
        if self.training.processes > 1 and kinds - {"clock jumps"}:
            return True  # the others of its ranks end in their own ways, each with a line or none
        if any("-9" in kind for kind in kinds) and -signal.SIGKILL in codes:
            return True
        if any(codes & set(SIGNALLED[kind]) for kind in kinds & SIGNALLED.keys()):
            return True
        if "SIGTERM, then -9" in kinds:
            return bool(codes & {143, -15, -9})
        if "disk full" in kinds and "No space left" in said:
            return True
        return "kill -9 of a loader" in kinds and LOADER_GONE.search(said) is not None


def live(
    training: Training, seed: int, folder: Path, materials: Path, reference: Undisturbed, tracking: Tracking | None
) -> Life:
    """Return a life of this seed, in a new folder, which is removed if all is well. tracking: its server, at fault."""
    name = training.name if tracking is None else f"server-{training.name}"
    life = Life(seed, name)
    living = Living(training, folder, materials, reference, life, random.Random(seed), tracking=tracking)
    began = time.monotonic()
    try:
        living.live()
    finally:
        if living.proxy is not None:
            living.proxy.close()
        left = gone(living.sessions, str(folder / "home"), RESTS)
    if left:
        life.blame("left over", f"{len(left)} processes")
    life.seconds = time.monotonic() - began
    if not life.problems:
        shutil.rmtree(folder)
    return life
