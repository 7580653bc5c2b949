"""Runs without training: planned by hand, and a launcher whose trainings end as a test says."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from biasbed import record
from biasbed.config import Config
from biasbed.studies.launchers import Launcher, TrainCommand
from biasbed.studies.plan import PlannedRun
from biasbed.studies.runner import Item, Runner
from biasbed.studies.status import read_status
from biasbed.tracking.folder import RunFolder

MONITOR = "val/accuracy/val"


def planned(home: Path, algorithm: str = "erm", seed: int = 0, total: int = 4, study: str = "s") -> PlannedRun:
    key = f"{algorithm}{seed}"
    return PlannedRun(
        algorithm=algorithm,
        row=algorithm,
        seed=seed,
        overrides={"algorithm": algorithm, "seed": str(seed)},
        study=study,
        config_hash=algorithm,
        run_key=key,
        base=home / "suite" / key,
        monitor=MONITOR,
        unit="epoch",
        total=total,
        cadence=1,
        processes=1,
        tracked=False,
    )


def begin(folder: RunFolder, study: str = "s") -> RunFolder:
    """Write the first files of a training."""
    folder.path.mkdir(parents=True, exist_ok=True)
    folder.write_state({"tags": {record.STUDY: study}})
    return folder


def train(folder: RunFolder, epochs: int, score: float = 0.5, study: str = "s") -> RunFolder:
    """Write the files of a training after so many epochs of 10 s and 2 s."""
    begin(folder, study)
    times = {"time/epoch_seconds": 10.0, "time/evaluation_seconds": 2.0}
    folder.write_journal(
        [{"step": step, "timestamp": step, "metrics": {MONITOR: score, **times}} for step in range(1, epochs + 1)]
    )
    return folder


@dataclass
class Fake:
    """A training that does at its first look what it is told, and then ends with this code; None: it never ends."""

    command: TrainCommand
    code: int | None
    act: Callable[[], object]
    stopped: bool = False
    polls: int = 0

    def poll(self) -> int | None:
        self.polls += 1
        if self.polls == 1:
            self.act()
        if self.stopped:
            return 143
        return self.code if self.polls > 2 else None

    def stop(self) -> None:
        self.stopped = True

    def kill(self) -> None:
        self.stopped = True


@dataclass
class FakeLauncher(Launcher):
    """`outcomes`: of each run by name, how its starts go: done, fail, refuse, hang, killed, held (by another)."""

    home: Path
    outcomes: dict[str, list[str]] = field(default_factory=dict)
    started: list[str] = field(default_factory=list)
    commands: list[TrainCommand] = field(default_factory=list)
    study: str = "s"

    def resolve_device(self, config: Config) -> Config:
        return config

    def capacity(self, config: Config) -> int:
        return 2

    def start(self, command: TrainCommand) -> Fake:
        self.started.append(command.name)
        self.commands.append(command)
        outcomes = self.outcomes.get(command.name, [])
        outcome = outcomes.pop(0) if outcomes else "done"
        folder = RunFolder(command.log.parent)

        def act() -> None:
            if outcome == "held":
                lock = begin(folder, self.study).locked()
                lock.__enter__()
                threading.Timer(0.2, lock.__exit__, (None, None, None)).start()
            elif outcome == "done":
                train(folder, 4, study=self.study).mark_done()
            elif outcome in ("fail", "hang"):
                train(folder, 2, study=self.study)
                with command.log.open("a") as log:
                    log.write("some line\nbiasbed: the loss is not finite\nanother line\n")

        return Fake(command, {"done": 0, "fail": 1, "refuse": 2, "hang": None, "killed": -9, "held": 1}[outcome], act)


class Notes:
    """A reporter that keeps what it is told."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.most_running = 0

    def say(self, text: str) -> None:
        self.said.append(text)

    def update(self, items: list[Item]) -> None:
        self.most_running = max(self.most_running, sum(item.state == "running" for item in items))


def runner(runs: list[PlannedRun], launcher: Launcher, retries: int = 1, **options: object) -> Runner:
    standings = [(run, read_status(run, {})) for run in runs]
    return Runner(standings, 2, launcher, retries, Notes(), pause=0.001, **options)  # type: ignore[arg-type]


def wait_for(condition: Callable[[], object], seconds: float = 600) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.01)


def lines_of(path: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in path.read_text().splitlines()]
