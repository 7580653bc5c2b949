"""Real sweeps whose trainings and commands are killed with -9 or sleep: no trial is lost or doubled. Slow."""

from __future__ import annotations

import contextlib
import os
import signal
import sqlite3
import subprocess
import sys
import time
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
from helpers.postgres import PASSWORD, Cluster
from helpers.runs import all_runs, history, run_folders, stored

pytestmark = pytest.mark.slow

PLACES = 4


class Running:
    """The command in a process of its own, and what the storage says of it."""

    def __init__(self, image_root: Path, tmp_path: Path, storage: str, heartbeat: int = 20) -> None:
        tmp_path.mkdir(exist_ok=True)
        space = tmp_path / "space.yaml"
        space.write_text("optim.lr: {distribution: loguniform, low: 0.005, high: 0.1}\n")
        flags = {
            **{"suite": "folders", "data_dir": str(image_root), "train": "photo", "image_size": "16"},
            **{"batch_size": "8", "backbone": "resnet10", "optim.lr_batch": "none", "epochs": "12"},
            **{"device": "cpu", "log_model": "false", "loader_workers": "0", "trials": str(PLACES), "workers": "2"},
            **{"algorithms": "erm", "study": "mine", "pruner": "none", "heartbeat": str(heartbeat)},
            "space": str(space),
        }
        self.words = ["sweep", *(word for name, value in flags.items() for word in (f"--{name}", value))]
        self.home, self.log, self.storage = tmp_path / "home", tmp_path / "log", storage
        self.url = storages.storage_url(storage, self.home / "studies" / "mine")

    def start(self) -> subprocess.Popen[bytes]:
        environment = {**command_environment(), storages.VARIABLE: self.storage, "BIASBED_HOME": str(self.home)}
        with self.log.open("ab") as log:
            call = [sys.executable, "-m", "biasbed", *self.words]
            return subprocess.Popen(call, env=environment, stdout=log, stderr=log)

    def trials(self) -> list[Any]:
        from optuna import load_study
        from optuna.storages import RDBStorage

        if not storages.has_tables(self.url):
            return []
        try:
            return load_study(study_name="mine/erm", storage=RDBStorage(self.url)).get_trials(deepcopy=False)
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
        outcomes = trials.select_outcomes(self.trials())
        assert {where: t.state.name for where, t in outcomes.items()} == dict.fromkeys(range(PLACES), "COMPLETE")
        assert not [t for t in self.trials() if t.state.name in ("RUNNING", "WAITING")]
        runs = all_runs(tracking, kind="trial", study="mine")
        assert len(run_folders(self.home)) == len(runs) == PLACES
        assert {run.info.status for run in runs} == {"FINISHED"}
        (parent,) = all_runs(tracking, kind="study")
        assert parent.info.status == "FINISHED"
        by_id = {run.info.run_id: run for run in runs}
        for trial in outcomes.values():
            folder = folder_of(trial).path
            run = by_id[trial.user_attrs[trials.RUN_ID]]
            assert history(folder) == stored(tracking, run.info.run_id)
            assert len(history(folder)) == 12
            assert trial.value == max(metrics["val/accuracy/val"] for metrics in history(folder).values())
            assert run.data.tags["mlflow.parentRunId"] == parent.info.run_id
            assert run.data.tags[record.TRIAL_STATE] == "complete"
        values = {where: trial.value for where, trial in outcomes.items()}
        assert max(values.values()) >= values[0]


def folder_of(trial: Any) -> RunFolder:
    return RunFolder(Path(trial.user_attrs[trials.FOLDER]))


@pytest.fixture(params=["sqlite", "postgresql"])
def running(request: pytest.FixtureRequest, image_root: Path, tmp_path: Path, tracking: str) -> Running:
    if request.param == "sqlite":
        return Running(image_root, tmp_path, "auto")
    cluster: Cluster = request.getfixturevalue("postgres")
    return Running(image_root, tmp_path, cluster.new_database("sweep").replace("+psycopg", ""))


def test_killed_trainings_and_commands_lose_no_trial(running: Running, tracking: str) -> None:
    process = running.start()
    _wait(running, process, running.running)
    folder = folder_of(running.running()[0])
    os.kill(running.training_of(running.running()[0]), signal.SIGKILL)
    _wait(running, process, lambda: len(ledger.read_attempts(folder)) == 2)

    # The command: its trainings end in good order, and the next one takes their trials at once.
    _wait(running, process, running.running)
    victim = running.running()[0]
    process.kill()
    process.wait()
    wait_for(lambda: not any(folder_of(trial).holder() for trial in running.running()), 600)
    process = running.start()
    assert process.wait(600) == 0, running.log.read_text()
    running.check(tracking)
    position = trials.get_position(victim, running.trials())
    assert trials.count_attempts(running.trials(), position) >= 2
    again = [t for t in running.trials() if trials.get_position(t, running.trials()) == position]
    assert {folder_of(trial).path for trial in again} == {folder_of(victim).path}
    assert running.start().wait(600) == 0
    assert "nothing is left to train" in running.log.read_text()
    for path in (*running.home.rglob("*"), running.log, Path(tracking.removeprefix("sqlite:///"))):
        if path.is_file():
            assert PASSWORD.encode() not in path.read_bytes(), path


def test_a_machine_that_sleeps_is_taken_over_and_gives_way(image_root: Path, tmp_path: Path, tracking: str) -> None:
    """Another machine, with a folder of its own, trains its trials; what it had begun is no trial any more."""
    storage = f"sqlite:///{tmp_path}/shared.db"
    asleep, awake = (Running(image_root, tmp_path / name, storage, heartbeat=2) for name in ("asleep", "other"))
    first = asleep.start()
    _wait(asleep, first, asleep.running)
    begun = [trial.number for trial in asleep.trials() if trial.state.name == "RUNNING"]
    processes = [*(asleep.training_of(trial) for trial in asleep.running()), first.pid]
    _put_to_sleep(processes, [storage, tracking])
    second = awake.start()
    _wait(awake, second, lambda: set(begun) <= {t.user_attrs.get(trials.AGAIN) for t in awake.running()})
    for process in processes:
        os.kill(process, signal.SIGCONT)
    assert (first.wait(600), second.wait(600)) == (0, 0), asleep.log.read_text() + awake.log.read_text()
    outcomes = trials.select_outcomes(awake.trials())
    assert {where: t.state.name for where, t in outcomes.items()} == dict.fromkeys(range(PLACES), "COMPLETE")
    runs = {run.info.run_id: run.info.status for run in all_runs(tracking, kind="trial", study="mine")}
    finished = {trial.user_attrs[trials.RUN_ID] for trial in outcomes.values()}
    assert {run_id for run_id, status in runs.items() if status == "FINISHED"} == finished
    assert set(runs.values()) == {"FINISHED", "KILLED"}
    assert "was given to another command" in (asleep.home / "studies" / "mine" / "runner.log").read_text()


def test_a_storage_that_is_away_for_a_while_costs_no_trial(
    image_root: Path,
    tmp_path: Path,
    tracking: str,
    postgres: Cluster,
) -> None:
    running = Running(image_root, tmp_path, postgres.new_database("away").replace("+psycopg", ""))
    process = running.start()
    _wait(running, process, running.running)
    postgres.stop()
    _wait(running, process, lambda: "trainings go on" in running.log.read_text())
    time.sleep(5)
    postgres.start()
    assert process.wait(600) == 0, running.log.read_text()
    assert "the storage is back" in running.log.read_text()
    running.check(tracking)


def _put_to_sleep(processes: list[int], databases: list[str]) -> None:
    """Stop them while none has a database locked, which a machine that sleeps does not share."""
    for attempt in range(100):
        for process in processes:
            os.kill(process, signal.SIGSTOP)
        try:
            for url in databases:
                with contextlib.closing(sqlite3.connect(url.removeprefix("sqlite:///"), timeout=0)) as connection:
                    connection.execute("BEGIN IMMEDIATE")
            return
        except sqlite3.OperationalError:
            for process in processes:
                os.kill(process, signal.SIGCONT)
            time.sleep(0.01 * attempt)
    raise AssertionError("a database is always locked")


def _wait(running: Running, process: subprocess.Popen[bytes], condition: Callable[[], object]) -> None:
    def met() -> bool:
        assert process.poll() is None, running.log.read_text()
        return bool(condition())

    wait_for(met, 600)
