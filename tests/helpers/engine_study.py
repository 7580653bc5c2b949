"""A study on a real engine: tiny trainings that can be made to linger, disturbed by a test and compared afterwards."""

from __future__ import annotations

import multiprocessing.process
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from biasbed.studies import ledger
from biasbed.tracking.folder import RunFolder
from helpers import children, small_study
from helpers.fake_runs import wait_for
from helpers.runs import all_runs, assert_equal, history, run_folders, stored, weights

EPOCHS = 3  # of 6 steps
# A method with draws of its own. While the file `linger` is there (steps, seconds), every step after the first so many
# of a process takes so long, so that what a test does to a training comes in its middle on every machine.
METHOD = """
import time
from pathlib import Path
from biasbed.algorithms.infodrop import InfoDrop

LINGER, HEAVY = (Path(__file__).with_name(name) for name in ("linger", "heavy"))

class Lingering(InfoDrop):
    steps = 0

    def losses(self, batch):
        self.ballast = b"x" * int(HEAVY.read_text()) if HEAVY.exists() else b""
        if LINGER.exists():
            steps, seconds = LINGER.read_text().split()
            time.sleep(float(seconds) if self.steps >= int(steps) else 0)
        self.steps += 1
        return super().losses(batch)
"""


@dataclass
class Lingering:
    """The method's file in a folder, and whether its trainings linger."""

    folder: Path

    def __post_init__(self) -> None:
        (self.folder / "method.py").write_text(METHOD)

    @property
    def name(self) -> str:
        return f"{self.folder / 'method.py'}:Lingering"

    def linger(self, seconds: float = 0.5, after: int = 7) -> None:
        """From step `after` of each process on: by default from the second epoch."""
        (self.folder / "linger").write_text(f"{after} {seconds}")

    def weigh(self, size: int) -> None:
        (self.folder / "heavy").write_text(str(size))

    def lighten(self) -> None:
        (self.folder / "heavy").unlink(missing_ok=True)

    def hurry(self) -> None:
        (self.folder / "linger").unlink(missing_ok=True)


@dataclass
class EngineStudy:
    """A study by its name, in an output folder of its own; `launcher` are the flags that say where it trains."""

    name: str
    home: Path
    images: Path
    method: Lingering
    launcher: Sequence[str]
    environment: Mapping[str, str]
    seeds: str = "0..0"
    started: list[multiprocessing.process.BaseProcess] = field(default_factory=list)

    def words(self, *more: str) -> list[str]:
        own = ("--algorithms", self.method.name, "--seeds", self.seeds, "--study", self.name, "--epochs", str(EPOCHS))
        return small_study.words(self.images, *own, *self.launcher, *more)

    def start(self, *more: str, words: Sequence[str] = ()) -> Any:
        """The command in a process of its own; what it prints is in <home>.<number>.err."""
        self.home.mkdir(parents=True, exist_ok=True)
        children.start_server()
        environment = {**children.command_environment(), **self.environment, "BIASBED_HOME": str(self.home)}
        arguments = (list(words or self.words(*more)), environment, str(self.home), str(self._output))
        self.started.append(children._CONTEXT.Process(target=_command, args=arguments))
        self.started[-1].start()
        return self.started[-1]

    def run(self, *more: str, words: Sequence[str] = ()) -> str:
        """The command to its end, which must be a good one; what it printed."""
        self.start(*more, words=words)
        return self.end()

    def end(self, seconds: float = 600) -> str:
        """Until the last command has ended well; what it printed."""
        self.started[-1].join(seconds)
        text = self.printed()
        assert self.started[-1].exitcode == 0, f"exit code {self.started[-1].exitcode}: {text}{self.logs()}"
        return text

    def kill(self) -> None:
        """The last command, with -9."""
        self.started[-1].kill()
        self.started[-1].join()

    def printed(self) -> str:
        output = Path(f"{self.home}.{len(self.started)}")
        paths = [Path(f"{output}.{stream}") for stream in ("out", "err")]
        return "".join(path.read_text() for path in paths if path.exists())

    def folders(self) -> list[Path]:
        return run_folders(self.home)

    def logs(self) -> str:
        return "".join(f"\n{path}:\n{path.read_text()}" for path in self.home.glob("*/*/train.log"))

    def wait_for_epoch(self, runs: int = 1, seconds: float = 600) -> None:
        """Until so many trainings have ended their first epoch; each command's first ones linger in their second."""
        wait_for(lambda: sum(path.stat().st_size > 0 for path in self.home.glob("*/*/metrics.jsonl")) >= runs, seconds)

    def starts(self) -> list[int]:
        """Return how often launchers started each run."""
        return [len(ledger.read_attempts(RunFolder(folder))) for folder in self.folders()]

    def check(self, store: str, reference: Path, count: int = 1, kind: str = "train") -> None:
        """So many runs, each FINISHED and there once, with the rows and weights of the undisturbed ones."""
        runs = all_runs(store, study=self.name, kind=kind)
        assert [run.info.status for run in runs] == ["FINISHED"] * count
        folders = {RunFolder(folder).read_state()["run_id"]: folder for folder in self.folders()}
        assert sorted(folders) == sorted(run.info.run_id for run in runs)
        for run_id, folder in folders.items():
            alone = reference / folder.parent.name / folder.name
            assert (folder / "done").exists()
            assert history(folder) == history(alone) == stored(store, run_id)
            assert_equal(weights(folder), weights(alone))

    def close(self) -> None:
        """End the commands that a failed test left."""
        self.method.hurry()
        for process in self.started:
            if process.is_alive():
                process.kill()
            process.join()

    @property
    def _output(self) -> str:
        return f"{self.home}.{len(self.started) + 1}"


def _command(words: list[str], environment: dict[str, str], cwd: str, output: str) -> None:
    """`biasbed <words>`, which asks Slurm more often than a cluster of others' should be asked."""
    from biasbed.plugins.slurm import launcher as slurm

    slurm.ASK, slurm.GONE = 0.5, 3.0
    signal.signal(signal.SIGINT, signal.default_int_handler)
    children._child(words, environment, cwd, output, None)


Studies = Callable[..., EngineStudy]  # what the fixture `study` is
