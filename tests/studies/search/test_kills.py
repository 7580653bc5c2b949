"""Real sweeps whose workers and launcher are killed with -9: no trial is lost or doubled. Slow."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from biasbed import record
from biasbed.studies.search import storage as storages
from biasbed.studies.search import trials
from biasbed.studies.search.liveness import is_gone
from helpers.commands import command_environment
from helpers.fake_runs import wait_for
from helpers.postgres import PASSWORD, Cluster
from helpers.runs import all_runs, history, run_folders, stored

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

PLACES = 4


class Running:
    """The command in a process of its own, and what the storage says of it."""

    def __init__(self, image_root: Path, tmp_path: Path, storage: str) -> None:
        space = tmp_path / "space.yaml"
        space.write_text("optim.lr: {distribution: loguniform, low: 0.005, high: 0.1}\n")
        flags = {
            **{"suite": "folders", "data_dir": str(image_root), "train": "photo", "image_size": "16"},
            **{"batch_size": "8", "backbone": "resnet10", "optim.lr_batch": "none", "epochs": "12"},
            **{"device": "cpu", "log_model": "false", "loader_workers": "0", "trials": str(PLACES), "workers": "2"},
            **{"algorithms": "erm", "study": "mine", "pruner": "none", "heartbeat": "20", "space": str(space)},
        }
        self.words = ["sweep", *(word for name, value in flags.items() for word in (f"--{name}", value))]
        self.home, self.log, self.storage = tmp_path / "home", tmp_path / "log", storage
        self.url = storages.storage_url(storage, self.home / "studies" / "mine")

    def start(self) -> subprocess.Popen[bytes]:
        environment = {**command_environment(), storages.VARIABLE: self.storage}
        with self.log.open("ab") as log:
            call = [sys.executable, "-m", "biasbed", *self.words]
            return subprocess.Popen(call, env=environment, stdout=log, stderr=log)

    def trials(self) -> list[Any]:
        from optuna import load_study
        from optuna.storages import RDBStorage

        if not storages.exists(self.url):
            return []
        try:
            return load_study(study_name="mine/erm", storage=RDBStorage(self.url)).get_trials(deepcopy=False)
        except Exception:  # its tables are being made
            return []

    def running(self) -> list[Any]:
        """Trials that have had an epoch."""
        return [t for t in self.trials() if t.state.name == "RUNNING" and t.intermediate_values]

    def worker_of(self, trial: Any) -> int:
        return int(trial.user_attrs[trials.WORKER].split()[2])

    def check(self, tracking: str) -> None:
        """Every place once, each in one folder and one run, whatever was killed; nothing left running."""
        outcomes = trials.outcomes(self.trials())
        assert {where: t.state.name for where, t in outcomes.items()} == dict.fromkeys(range(PLACES), "COMPLETE")
        assert not [t for t in self.trials() if t.state.name in ("RUNNING", "WAITING")]
        runs = all_runs(tracking, kind="trial", study="mine")
        assert len(run_folders(self.home)) == len(runs) == PLACES
        assert {run.info.status for run in runs} == {"FINISHED"}
        (parent,) = all_runs(tracking, kind="study")
        assert parent.info.status == "FINISHED"
        by_id = {run.info.run_id: run for run in runs}
        for trial in outcomes.values():
            folder = Path(trial.user_attrs[trials.FOLDER])
            run = by_id[trial.user_attrs[trials.RUN_ID]]
            assert history(folder) == stored(tracking, run.info.run_id)
            assert len(history(folder)) == 12
            assert trial.value == max(metrics["val/accuracy/val"] for metrics in history(folder).values())
            assert run.data.tags["mlflow.parentRunId"] == parent.info.run_id
            assert run.data.tags[record.TRIAL_STATE] == "complete"
        values = {where: trial.value for where, trial in outcomes.items()}
        assert max(values.values()) >= values[0]


@pytest.fixture(params=["sqlite", "postgresql"])
def running(request: pytest.FixtureRequest, image_root: Path, tmp_path: Path, tracking: str) -> Running:
    if request.param == "sqlite":
        return Running(image_root, tmp_path, "auto")
    cluster: Cluster = request.getfixturevalue("postgres")
    return Running(image_root, tmp_path, cluster.new_database("sweep").replace("+psycopg", ""))


def test_killed_workers_and_launchers_lose_no_trial(running: Running, tracking: str) -> None:
    process = running.start()
    _wait(running, process, running.running)
    victim = running.running()[0]
    os.kill(running.worker_of(victim), signal.SIGKILL)
    _wait(running, process, lambda: any(t.user_attrs.get(trials.AGAIN) == victim.number for t in running.trials()))

    # The launcher: its workers end in good order, and queue again what they have.
    _wait(running, process, running.running)
    workers = [trial.user_attrs[trials.WORKER] for trial in running.running()]
    process.kill()
    process.wait()
    wait_for(lambda: all(map(is_gone, workers)), 60)
    process = running.start()
    assert process.wait(400) == 0, running.log.read_text()
    running.check(tracking)
    place = trials.place(victim, running.trials())
    assert trials.attempts(running.trials(), place) >= 2
    again = [t for t in running.trials() if trials.place(t, running.trials()) == place]
    assert {t.user_attrs.get(trials.FOLDER, again[0].user_attrs[trials.FOLDER]) for t in again} == {
        again[0].user_attrs[trials.FOLDER]
    }
    assert running.start().wait(120) == 0
    assert "nothing is left to train" in running.log.read_text()
    for path in (*running.home.rglob("*"), running.log, Path(tracking.removeprefix("sqlite:///"))):
        if path.is_file():
            assert PASSWORD.encode() not in path.read_bytes(), path


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
    assert process.wait(300) == 0, running.log.read_text()
    assert "the storage is back" in running.log.read_text()
    running.check(tracking)


def _wait(running: Running, process: subprocess.Popen[bytes], condition: Callable[[], object]) -> None:
    def met() -> bool:
        assert process.poll() is None, running.log.read_text()
        return bool(condition())

    wait_for(met, 150)
