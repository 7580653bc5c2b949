"""Real sweeps whose trainings and commands are killed with -9: no trial is lost or doubled. Slow."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from biasbed import record
from biasbed.studies import ledger
from biasbed.studies.search import storage as storages
from biasbed.studies.search import trials
from biasbed.tracking.folder import LOCK, RunFolder
from helpers.commands import command_environment
from helpers.fake_runs import wait_for
from helpers.runs import all_runs, history, run_folders, stored

pytestmark = pytest.mark.slow

PLACES = 4


class Running:
    """The command in a process of its own, and what the storage says of it."""

    def __init__(self, image_root: Path, tmp_path: Path) -> None:
        space = tmp_path / "space.yaml"
        space.write_text("optim.lr: {distribution: loguniform, low: 0.005, high: 0.1}\n")
        flags = {
            **{"suite": "folders", "data_dir": str(image_root), "train": "photo", "image_size": "16"},
            **{"batch_size": "8", "backbone": "resnet10", "optim.lr_batch": "none", "epochs": "12"},
            **{"device": "cpu", "log_model": "false", "loader_workers": "0", "trials": str(PLACES), "workers": "2"},
            **{"algorithms": "erm", "study": "mine", "pruner": "none"},
            "space": str(space),
        }
        self.words = ["sweep", *(word for name, value in flags.items() for word in (f"--{name}", value))]
        self.home, self.log = tmp_path / "home", tmp_path / "log"
        self.file = self.home / "studies" / "mine" / storages.FILE

    def start(self) -> subprocess.Popen[bytes]:
        environment = {**command_environment(), "BIASBED_HOME": str(self.home)}
        with self.log.open("ab") as log:
            call = [sys.executable, "-m", "biasbed", *self.words]
            return subprocess.Popen(call, env=environment, stdout=log, stderr=log)

    def trials(self) -> list[Any]:
        from optuna import load_study

        if not self.file.exists():
            return []
        try:
            return load_study(study_name="mine/erm", storage=storages.open_storage(self.file)).get_trials(
                deepcopy=False
            )
        except Exception:  # its tables are being made
            return []

    def running(self) -> list[Any]:
        """Trials that have had an epoch."""
        return [t for t in self.trials() if t.state.name == "RUNNING" and t.intermediate_values]

    def training_of(self, trial: Any) -> int:
        """Return the process of a trial's training, as the folder's lock names it."""
        return int((folder_of(trial).path / LOCK).read_text().split()[1])

    def check(self, tracking: str) -> None:
        """Every place once, each in one folder and one run, whatever was killed; nothing left running."""
        assert [t.state.name for t in self.trials()] == ["COMPLETE"] * PLACES
        runs = all_runs(tracking, kind="trial", study="mine")
        assert len(run_folders(self.home)) == len(runs) == PLACES
        assert {run.info.status for run in runs} == {"FINISHED"}
        (parent,) = all_runs(tracking, kind="study")
        assert parent.info.status == "FINISHED"
        by_id = {run.info.run_id: run for run in runs}
        for trial in self.trials():
            folder = folder_of(trial).path
            run = by_id[trial.user_attrs[trials.RUN_ID]]
            assert history(folder) == stored(tracking, run.info.run_id)
            assert len(history(folder)) == 12
            assert trial.value == max(metrics["val/accuracy/val"] for metrics in history(folder).values())
            assert run.data.tags["mlflow.parentRunId"] == parent.info.run_id
            assert run.data.tags[record.TRIAL_STATE] == "complete"


def folder_of(trial: Any) -> RunFolder:
    return RunFolder(Path(trial.user_attrs[trials.FOLDER]))


@pytest.fixture
def running(image_root: Path, tmp_path: Path, tracking: str) -> Running:
    return Running(image_root, tmp_path)


def test_killed_trainings_and_commands_lose_no_trial(running: Running, tracking: str) -> None:
    process = running.start()
    _wait(running, process, running.running)
    folder = folder_of(running.running()[0])
    os.kill(running.training_of(running.running()[0]), signal.SIGKILL)
    _wait(running, process, lambda: len(ledger.read_attempts(folder)) == 2)

    # The command: its trainings end in good order, and the next one goes on with their trials.
    _wait(running, process, running.running)
    victim = running.running()[0]
    process.kill()
    process.wait()
    wait_for(lambda: not any(folder_of(trial).holder() for trial in running.running()), 600)
    process = running.start()
    assert process.wait(600) == 0, running.log.read_text()
    running.check(tracking)
    again = running.trials()[victim.number]
    assert again.user_attrs[trials.ATTEMPTS] == 2
    assert folder_of(again).path == folder_of(victim).path
    assert running.start().wait(600) == 0
    assert "nothing is left to train" in running.log.read_text()


def _wait(running: Running, process: subprocess.Popen[bytes], condition: Callable[[], object]) -> None:
    def met() -> bool:
        assert process.poll() is None, running.log.read_text()
        return bool(condition())

    wait_for(met, 600)
