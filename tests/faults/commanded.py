"""Commands that start others - a study, a sweep, torchrun - in Pythons of their own, killed at random times."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from biasbed import record
from faults import LEFT, LOST, SAID, STUCK, Fault, Life, law
from faults.fleet import EVERYWHERE, FOLDERS, SMALL, new_place
from faults.law import Result
from faults.moments import children_of
from faults.starts import gone
from helpers.commands import command_environment
from helpers.runs import all_runs, run_folders

KILLS = (2, 4)  # of one life
LONGEST = 800.0  # seconds of a start that nothing ends
ALONE = "torchrun"  # a training that no study starts again
LAUNCHER, TRAINING = "launcher", "training"
EVENTS = {
    f"kill -9 of a {LAUNCHER}": (LAUNCHER, signal.SIGKILL),
    f"SIGTERM to a {LAUNCHER}": (LAUNCHER, signal.SIGTERM),
    f"kill -9 of a started {TRAINING}": (TRAINING, signal.SIGKILL),
}


@dataclass(frozen=True)
class Commanded:
    """A command of several processes, as it is typed, and how many runs it makes."""

    name: str
    words: tuple[str, ...]
    runs: int
    is_repeatable: bool  # the numbers of two such commands are equal; those of trials depend on which ended first

    def typed(self, materials: Path) -> list[str]:
        return [word.replace("{m}", str(materials)) for word in self.words]


_OWN = ("--study", "mine", "--loader_workers", "0", "--workers", "2", "--retries", "9")
COMMANDED = {
    one.name: one
    for one in (
        Commanded(
            "study",
            (
                "benchmark",
                *FOLDERS,
                *SMALL,
                *EVERYWHERE,
                *_OWN,
                "--algorithms",
                "erm,random_erasing",
                "--seeds",
                "0..1",
            ),
            *(4, True),
        ),
        Commanded(
            "sweep",
            ("sweep", *FOLDERS[:-2], *SMALL, *EVERYWHERE, *_OWN[:-2], *("--algorithms", "erm", "--trials", "3")),
            *(3, False),
        ),
        Commanded(ALONE, ("train", *FOLDERS, *SMALL, *EVERYWHERE, "--workers", "0", "--nproc", "2"), 1, True),
    )
}


def descendants(pid: int) -> Iterator[int]:
    """All processes below one, also those that end while they are looked at."""
    with contextlib.suppress(OSError):
        for child in children_of(pid):
            yield child
            yield from descendants(child)


def _is_training(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return b"\0train\0" in Path(f"/proc/{pid}/cmdline").read_bytes()
    return False


class CommandedLife:
    """A life of such a command, with a store of its own."""

    def __init__(self, what: Commanded, folder: Path, materials: Path, life: Life) -> None:
        self.what, self.folder, self.life = what, folder, life
        self.words = what.typed(materials)
        environment = {**command_environment(), **new_place(folder, materials)}
        self.environment = {name: value for name, value in environment.items() if value is not None}
        self.log = folder / "log"
        self.store = folder / "mlflow.db"

    def start(self) -> subprocess.Popen[bytes]:
        with self.log.open("ab") as log:
            call = [sys.executable, "-m", "biasbed", *self.words]
            about = {"env": self.environment, "cwd": self.folder, "stdout": log, "stderr": log}
            return subprocess.Popen(call, start_new_session=True, **about)  # type: ignore[call-overload]

    def disturb(self, draw: random.Random, usual: float) -> None:
        """Start it, end something, start it again where that ended it, and at last let it finish."""
        process = self.start()
        for _ in range(draw.randint(*KILLS)):
            kind = draw.choice(list(EVENTS))
            time.sleep(draw.uniform(0.1, 0.7) * usual)
            if process.poll() is None and self._end(process, *EVENTS[kind], draw):
                self.life.faults.append(Fault(kind, self.what.name))
            if process.poll() == 0:
                return
            if process.poll() is not None:
                process = self.start()
        self.finish(process)

    def _end(self, process: subprocess.Popen[bytes], victim: str, number: signal.Signals, draw: random.Random) -> bool:
        """Return True if there was a process to signal."""
        if victim == LAUNCHER:
            process.send_signal(number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(600)
            return True
        found = [pid for pid in descendants(process.pid) if _is_training(pid)]
        with contextlib.suppress(OSError):
            if found:
                os.kill(draw.choice(found), number)
        if found and self.what.name == ALONE:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(600)
        return bool(found)

    def finish(self, process: subprocess.Popen[bytes]) -> None:
        """Wait for the command; where it ended by what was done to it, the same one again has to end well."""
        for _ in range(3):
            try:
                if process.wait(LONGEST) == 0:
                    return
            except subprocess.TimeoutExpired:
                process.kill()
                self.life.blame(STUCK, f"not ended after {LONGEST:.0f} s")
                return
            process = self.start()
        self.life.blame(SAID, f"it does not end well: {self.log.read_text()[-1500:]}")

    def hold(self, reference: Path | None) -> None:
        """Every run once and finished, with its rows; what can be repeated is as in the undisturbed command."""
        folders = run_folders(self.folder / "home")
        runs = [run for run in all_runs(f"sqlite:///{self.store}") if run.data.tags.get(record.KIND) != "study"]
        if len(folders) != self.what.runs or len(runs) != self.what.runs:
            self.life.blame(LEFT, f"{len(folders)} run folders and {len(runs)} runs, not {self.what.runs}")
            return
        for run in all_runs(f"sqlite:///{self.store}"):
            if run.info.status != "FINISHED":
                self.life.blame(LEFT, f"the run {run.info.run_name} is {run.info.status}")
        for folder in folders:
            own = Result(self.folder / "home", self.store, only=folder.name)
            if reference is None or not self.what.is_repeatable:
                law.hold_rows(self.life, own)
            elif not (reference / "home" / folder.parent.name / folder.name).exists():
                self.life.blame(LOST, f"{folder.name} is not in the undisturbed command")
            else:
                law.hold_one(self.life, own, Result(reference / "home", reference / "mlflow.db", only=folder.name))


def live(what: Commanded, seed: int, folder: Path, materials: Path, reference: Path, usual: float) -> Life:
    """A life of this seed, in a new folder, which is removed if all is well."""
    life = Life(seed, what.name, "commands")
    own, began = CommandedLife(what, folder, materials, life), time.monotonic()
    try:
        own.disturb(random.Random(seed), usual)
    finally:
        left = gone(set(), str(folder / "home"), 30.0)
    if left:
        life.blame(LEFT, f"{len(left)} processes")
    own.hold(reference)
    life.seconds = time.monotonic() - began
    if not life.problems:
        shutil.rmtree(folder)
    return life


def undisturbed(what: Commanded, folder: Path, materials: Path) -> float:
    """Run it without a fault; seconds. RuntimeError where even that fails."""
    life, began = Life(-1, what.name, "commands"), time.monotonic()
    own = CommandedLife(what, folder, materials, life)
    if own.start().wait(LONGEST):
        raise RuntimeError(f"{what.name} does not even end well undisturbed: {own.log.read_text()[-1500:]}")
    return time.monotonic() - began
