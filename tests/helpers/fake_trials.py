"""Sweeps without training: trainings that write an epoch per look."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from biasbed import record
from biasbed.config import Config
from biasbed.options import SweepOptions
from biasbed.studies.display import Display
from biasbed.studies.launchers import Launcher, TrainCommand
from biasbed.studies.runner import Runner
from biasbed.studies.search import storage as storages
from biasbed.studies.search import sweep
from biasbed.studies.search.feed import TrialFeed
from biasbed.studies.search.search import Sweep, make_sweep
from biasbed.system.processes import Interrupted
from biasbed.tracking.folder import RunFolder
from biasbed.tracking.tracker import Tracker

MONITOR = "val/accuracy/val"


def score(words: Mapping[str, str]) -> float:
    """Best at a rate of 0.2."""
    return 0.9 - 0.2 * abs(math.log10(float(words.get("optim.lr", "0.1")) / 0.2))


@dataclass
class FakeTraining:
    """Writes an epoch at every look; `outcome`: done, unsent (done with the server away), fail or signal after one."""

    command: TrainCommand
    value: float
    outcome: str
    stopped: bool = False

    def poll(self) -> int | None:
        folder = RunFolder(self.command.log.parent)
        if self.stopped:
            return 143
        reached, total = len(folder.read_journal()), int(self.command.overrides["epochs"])
        if not reached:
            tags = {record.STUDY: self.command.overrides["study"], record.KIND: "trial"}
            Tracker(folder, offline=True).start(self.command.name, "trials", tags, {})
        if reached < total and (self.outcome in ("done", "unsent") or not reached):
            value = self.value * (1 - 0.5 ** (reached + 1))
            line = {"step": reached + 1, "timestamp": reached, "metrics": {MONITOR: value, "time/epoch_seconds": 1.0}}
            folder.append_journal(line)
            return None
        if self.outcome == "fail":
            with self.command.log.open("a") as log:
                log.write("biasbed: the loss is not finite\n")
            return 1
        if self.outcome == "signal":  # our worker is asked to end
            raise Interrupted(15)
        folder.mark_done()
        protocol = record.Protocol(self.command.overrides["suite"], (), (), (), MONITOR)
        (folder.path / record.PROTOCOL_FILE).write_text(protocol.to_json())
        folder.write_state({**folder.read_state(), "sent": self.outcome == "done"})
        return 0

    def stop(self) -> None:
        self.stopped = True

    def kill(self) -> None:
        self.stopped = True


@dataclass
class FakeTrials(Launcher):
    """`outcomes`: of each trial by name, how its starts go."""

    outcomes: dict[str, list[str]] = field(default_factory=dict)
    commands: list[TrainCommand] = field(default_factory=list)
    value: Callable[[Mapping[str, str]], float] = score

    def resolve_device(self, config: Config) -> Config:
        return dataclasses.replace(config, device="cpu", nproc=1)

    def capacity(self, config: Config) -> int:
        return 2

    def start(self, command: TrainCommand) -> FakeTraining:
        self.commands.append(command)
        outcomes = self.outcomes.get(command.name, [])
        return FakeTraining(command, self.value(command.overrides), outcomes.pop(0) if outcomes else "done")

    @property
    def started(self) -> list[str]:
        return [command.name for command in self.commands]


@dataclass
class Bed:
    """A sweep on tiny image folders whose trainings only pretend."""

    image_root: Path
    home: Path
    space: Path

    def settings(self, **more: str) -> dict[str, str]:
        flags = {"data_dir": str(self.image_root), "train": "photo", "image_size": "16", "batch_size": "8"}
        flags |= {"backbone": "resnet10", "optim.lr_batch": "none", "epochs": "4", "output_dir": str(self.home)}
        return {**flags, "tracking": "offline", **more}

    def options(self, **more: Any) -> SweepOptions:
        chosen = {"suite": "folders", "trials": 6, "pruner": "none", "space": str(self.space), "workers": 1}
        return SweepOptions(**{**chosen, **more})

    def plan(self, launcher: FakeTrials, settings: Mapping[str, str] | None = None, **more: Any) -> Sweep:
        return make_sweep(self.options(**more), {**self.settings(), **(settings or {})}, launcher)

    def begin(self, launcher: FakeTrials, settings: Mapping[str, str] | None = None, **more: Any) -> Runner:
        """Return a command's runner, that nothing has been asked of yet."""
        self.home.mkdir(exist_ok=True)
        plan, options = self.plan(launcher, settings, **more), self.options(**more)
        storage = storages.open_storage(self.home / storages.FILE)
        plan.folder.mkdir(parents=True, exist_ok=True)
        feed = TrialFeed(plan, storage, launcher, Display(plan.study, plan.workers))
        return Runner([], plan.workers, launcher, options.retries, feed, feed=feed, pause=0.001)

    def work(self, launcher: FakeTrials, **more: Any) -> TrialFeed:
        """Everything, by one command in this thread."""
        return finish(self.begin(launcher, **more))

    def run(self, launcher: FakeTrials, monkeypatch: Any, *words: str, **changed: str) -> int:
        """Run the whole command."""
        from biasbed import cli

        monkeypatch.setattr(sweep, "open_launcher", lambda options: launcher)
        monkeypatch.setattr(sweep, "Runner", functools.partial(Runner, pause=0.001))
        flags = {"suite": "folders", "space": str(self.space), "pruner": "none", "workers": "1"}
        settings = {**self.settings(), **flags, **changed}
        return cli.main(["sweep", *(w for n, v in settings.items() for w in (f"--{n}", v)), *words])


def feed_of(runner: Runner) -> TrialFeed:
    return cast("TrialFeed", runner.feed)


def finish(runner: Runner) -> TrialFeed:
    """Carry it out, and its feed as it stands in the end; in any case nothing goes on."""
    feed = feed_of(runner)
    try:
        runner.run()
    finally:
        runner.stop()
        feed.close()
    return feed
