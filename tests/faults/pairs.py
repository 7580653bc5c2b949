"""Two commands at once that know nothing of each other: another HOME, TMPDIR and BIASBED_HOME, one store."""

from __future__ import annotations

import random
import shutil
import signal
import sqlite3
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from biasbed import record
from biasbed.tracking.folder import RunFolder
from faults import DOUBLED, LEFT, LOST, SAID, STUCK, Fault, Life, law
from faults.fleet import FLEET
from faults.law import Result
from faults.moments import Order
from faults.servers import Tracking
from faults.starts import Start, gone
from helpers.commands import command_environment
from helpers.runs import run_folders

LONGEST = 180.0  # seconds of a command
NEW, COPIES, IMPORTS = "two first commands", "two copies", "two imports"
SERVED = "-served"  # what the name of a scenario ends with that has a real `mlflow server`
PAIRS = (NEW, COPIES, IMPORTS, f"{COPIES}{SERVED}")
USER = ("left", "right")


@dataclass
class Pair:
    """A life of two commands."""

    kind: str
    folder: Path
    materials: Path
    life: Life
    draw: random.Random
    tracking: Tracking | None = None  # the server, if it has one
    sessions: set[int] = field(default_factory=set)
    number: int = 0

    def __post_init__(self) -> None:
        self.store = self.folder / "mlflow.db" if self.tracking is None else self.tracking.store
        self.uri = f"sqlite:///{self.store}" if self.tracking is None else self.tracking.server.uri
        for user in USER:
            for name in ("tmp", "own"):
                (self.folder / user / name).mkdir(parents=True)
        if self.kind != NEW and self.tracking is None:
            shutil.copy(self.materials / "store.db", self.store)

    def home(self, user: str) -> Path:
        return self.folder / user / "home"

    def begin(self, user: str, words: list[str], orders: list[Order] | None = None) -> Start:
        folder = self.folder / user
        environment = {
            **{"HOME": str(folder / "own"), "TMPDIR": str(folder / "tmp"), "BIASBED_HOME": str(folder / "home")},
            **{"MLFLOW_TRACKING_URI": self.uri, "OMP_NUM_THREADS": "1"},
            "PYTHONPATH": command_environment()["PYTHONPATH"],
        }
        self.number += 1
        start = Start(words, environment, folder, self.folder / f"start{self.number}", 1, {0: orders or []}).begin()
        self.sessions |= set(start.pids)
        return start

    def carry_out(self, user: str, words: list[str]) -> None:
        """Run a command to its end, which has to be a good one."""
        self.see_through(self.begin(user, words))

    def see_through(self, start: Start) -> None:
        if not start.wait(LONGEST):
            self.life.blame(STUCK, f"not ended after {LONGEST:.0f} s")
            start.kill()
        elif any(start.codes) or "Traceback" in start.said(0):
            self.life.blame(SAID, f"{start.words[0]}: {start.codes}: {start.said(0)[-1500:]}")

    def at_once(self, words: list[str]) -> None:
        """Begin it for both, one after the other or at the same time; perhaps kill one, which then begins it again."""
        kind = self.life.scenario.removesuffix(SERVED)
        starts = {}
        for user in self.draw.sample(USER, 2):
            starts[user] = self.begin(user, words)
            longest = 0.3 if self.kind == NEW else 1.5  # a database is made in less than a second
            time.sleep(self.draw.choice((0.0, 0.0, self.draw.uniform(0, longest))))
        self.life.faults.append(Fault(kind, words[0]))
        victim = self.draw.choice((*USER, "", "", ""))
        if victim and not starts[victim].wait(self.draw.uniform(0, 3)):
            starts[victim].signal(signal.SIGKILL)
            starts[victim].wait(LONGEST)
            self.life.faults.append(Fault("kill -9 of one of two", words[0]))
        for user, start in starts.items():
            if user != victim or not any(code == -signal.SIGKILL for code in start.codes):
                self.see_through(start)
        if victim and not self.has_sent(victim):  # the same command would train anew
            self.carry_out(victim, words)

    def has_sent(self, user: str) -> bool:
        """Return True if a training of the user has ended and is on the server."""
        folders = map(RunFolder, run_folders(self.home(user)))
        return any(folder.is_done and folder.read_state().get("sent") for folder in folders)

    # --- what is done ---

    def first_commands(self) -> None:
        self.at_once(FLEET["plain"].typed(self.materials))
        for user in USER:
            self.hold(user)

    def copies(self) -> None:
        """A training is killed, and its folder continued by both."""
        words = FLEET["plain"].typed(self.materials)
        order = Order("kill -9", "boundary", self.draw.randint(1, 3), self.draw.random() < 0.5)
        killed = self.begin("left", words, [order])
        killed.wait(LONGEST)
        self.life.faults += killed.fired()
        shutil.copytree(self.home("left"), self.home("right"))
        self.at_once(words)
        for user in USER:
            self.hold(user)

    def imports(self) -> None:
        """A file of runs is imported by both."""
        source = self.folder.parent / "archive"
        uri, self.uri = self.uri, f"sqlite:///{source / 'mlflow.db'}"
        if not source.exists():
            source.mkdir()
            shutil.copy(self.materials / "store.db", source / "mlflow.db")
            for seed in ("0", "1"):
                self.carry_out("left", [*FLEET["plain"].typed(self.materials), "--seed", seed, "--study", "s"])
            self.carry_out("left", ["export", "--file", str(source / "runs.zip"), "--study", "s"])
        self.uri = uri
        self.at_once(["import", "--source", str(source / "runs.zip")])
        self.carry_out("right", ["import", "--source", str(source / "runs.zip")])
        self._hold_imports(source / "mlflow.db")

    # --- what is held ---

    def hold(self, user: str) -> None:
        """One run of the folder, which has ended, with each row of its journal once."""
        folders = run_folders(self.home(user))
        if len(folders) != 1:
            self.life.blame(LEFT, f"{len(folders)} run folders of {user}")
            return
        runs = law.runs_of(self.store, self.folder_id(user))
        law.hold_rows(self.life, Result(self.home(user), self.store), runs)
        for run in runs:
            if run["status"] != "FINISHED":
                self.life.blame(LEFT, f"the run of {user} is {run['status']}")

    def folder_id(self, user: str) -> str:
        """Return the id of the folder whose run has the user's results: the other's if a copy sent the same first."""
        state = RunFolder(run_folders(self.home(user))[0]).read_state()
        with sqlite3.connect(f"file:{self.store}?mode=ro", uri=True) as connection:
            query = "select value from tags where run_uuid = ? and key = ?"
            (folder_id,) = connection.execute(query, (state["run_id"], record.FOLDER_ID)).fetchone()
        return str(folder_id)

    def _hold_imports(self, source: Path) -> None:
        with sqlite3.connect(f"file:{source}?mode=ro", uri=True) as connection:
            expected = connection.execute(f"{_ROWS} order by 1, 2, 3, 4, 5").fetchall()
        with sqlite3.connect(f"file:{self.store}?mode=ro", uri=True) as connection:
            runs = connection.execute(
                f"select status from runs where {_ACTIVE} and run_uuid in ({_IMPORTED})"
            ).fetchall()
            imported = connection.execute(f"{_IMPORTED_ROWS} order by 1, 2, 3, 4, 5").fetchall()
        self.life.rows += len(imported)
        if runs != [("FINISHED",)] * 2:
            self.life.blame(DOUBLED if len(runs) > 2 else LEFT, f"the imported runs are {runs}")
        if imported != expected:
            self.life.blame(
                LOST if len(imported) < len(expected) else DOUBLED, f"{len(imported)} rows, not {len(expected)}"
            )


_ACTIVE = "lifecycle_stage = 'active'"
_IMPORTED = f"select run_uuid from tags where key = '{record.ORIGIN_RUN}'"
_ROWS = "select m.run_uuid, m.key, m.step, m.timestamp, m.value from metrics m"
_IMPORTED_ROWS = (
    "select t.value, m.key, m.step, m.timestamp, m.value from metrics m join runs r on r.run_uuid = m.run_uuid "
    f"join tags t on t.run_uuid = m.run_uuid and t.key = '{record.ORIGIN_RUN}' where r.{_ACTIVE}"
)


def live(scenario: str, seed: int, folder: Path, materials: Path, tracking: Tracking | None) -> Life:
    """Return a life of this seed, in a new folder, which is removed if all is well. tracking: its server."""
    life = Life(seed, scenario)
    kind = scenario.removesuffix(SERVED)
    folder.mkdir(parents=True)
    pair, began = Pair(kind, folder, materials, life, random.Random(seed), tracking), time.monotonic()
    acts: dict[str, Callable[[], None]] = {
        NEW: pair.first_commands,
        COPIES: pair.copies,
        IMPORTS: pair.imports,
    }
    try:
        acts[kind]()
    finally:
        left = [pid for user in USER for pid in gone(pair.sessions, str(pair.home(user)), 20.0)]
    if left:
        life.blame(LEFT, f"{len(left)} processes")
    life.seconds = time.monotonic() - began
    if not life.problems:
        shutil.rmtree(folder)
    return life
