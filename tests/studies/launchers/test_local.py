"""Studies that are killed at random or shared by two commands: they lose and double nothing. Slow."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
import yaml

from biasbed import record
from biasbed.tracking.folder import RunFolder
from helpers import children
from helpers.commands import command_environment
from helpers.domain_tree import make_domains
from helpers.fake_runs import wait_for
from helpers.runs import all_runs, history, run_folders, stored, timeless
from helpers.small_study import settings, words

pytestmark = pytest.mark.slow


class Killed:
    """A study in a process of its own, started again after every kill, whose trainings can be found."""

    def __init__(self, command: list[str], home: Path, log: Path) -> None:
        self.command, self.home, self.log = command, home, log

    def start(self) -> None:
        with self.log.open("ab") as log:
            call = [sys.executable, "-m", "biasbed", *self.command]
            self.process = subprocess.Popen(call, env=command_environment(), stdout=log, stderr=log)

    def trainings(self) -> list[int]:
        """Processes that hold a run folder: rank 0 of what is being trained."""
        found = []
        for path in self.home.glob("*/*/lock"):
            holder = path.read_text().split()
            if len(holder) > 1 and not (path.parent / "done").exists() and _is_alive(int(holder[1])):
                found.append(int(holder[1]))
        return found

    def kill(self, victim: str, draw: random.Random) -> None:
        """kill -9; a launcher is started again."""
        if victim == "launcher":
            self.process.kill()
            self.process.wait()
            return self.start()
        while True:
            wait_for(self.trainings, 600)
            with contextlib.suppress(OSError, IndexError):  # it has just ended by itself
                rank = draw.choice(self.trainings())
                parent = int(Path(f"/proc/{rank}/stat").read_text().rpartition(")")[2].split()[1])
                own = victim == "rank" or parent in (1, self.process.pid)
                return os.kill(rank if own else parent, signal.SIGKILL)

    def has_begun(self) -> bool:
        assert self.process.poll() is None, self.log.read_text()
        return any(path.stat().st_size for path in self.home.glob("*/*/metrics.jsonl")) and bool(self.trainings())


def _is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_two_commands_at_once_share_the_work(image_root: Path, tracking: str, tmp_path: Path) -> None:
    command = words(image_root, "--algorithms", "erm,infodrop", "--seeds", "0..2", "--workers", "1", "--study", "mine")
    studies = [Killed(command, tmp_path / "home", tmp_path / f"log{number}") for number in range(2)]
    for study in studies:
        study.start()
    assert [study.process.wait(600) for study in studies] == [0, 0], studies[0].log.read_text()
    _check(tracking, tmp_path / "home", image_root, tmp_path / "straight", {"erm": 1, "infodrop": 1}, 3, epochs=2)
    started = [study.log.read_text().count(" started; ") for study in studies]
    assert sum(started) == 6
    assert min(started) > 0


def test_a_killed_launcher_leaves_no_orphan_and_the_same_command_goes_on(
    image_root: Path, tracking: str, tmp_path: Path
) -> None:
    command = words(image_root, "--algorithms", "erm", "--seeds", "0..0", epochs="6")
    study = Killed(command, tmp_path / "home", tmp_path / "log")
    study.start()
    wait_for(study.has_begun, 600)
    orphans = study.trainings()
    study.process.kill()
    study.process.wait()
    wait_for(lambda: not any(map(_is_alive, orphans)), 600)
    study.start()
    assert study.process.wait(600) == 0, study.log.read_text()
    _check(tracking, study.home, image_root, tmp_path / "straight", {"erm": 1}, seeds=1, epochs=6)


def test_ctrl_c_twice_ends_a_study_in_one_line_and_the_same_command_goes_on(
    image_root: Path, tracking: str, tmp_path: Path
) -> None:
    command = words(image_root, "--algorithms", "erm", "--seeds", "0..0", "--study", "mine", epochs="200")
    study = Killed(command, tmp_path / "home", tmp_path / "log")
    study.start()
    wait_for(study.has_begun, 600)
    for _ in range(2):
        study.process.send_signal(signal.SIGINT)
    assert study.process.wait(600) == 130
    assert children.one_line(study.log.read_text()).startswith("biasbed: interrupted; to go on: MLFLOW_TRACKING_URI=")
    statuses = {run.info.status for kind in ("study", "train") for run in all_runs(tracking, kind=kind)}
    assert statuses == {"KILLED"}
    (folder,) = run_folders(tmp_path / "home")
    epochs = len(RunFolder(folder).read_journal())
    study.start()
    wait_for(lambda: f"continued from epoch {epochs}" in study.log.read_text(), 600)
    study.process.send_signal(signal.SIGINT)
    assert study.process.wait(600) == 130


def test_a_study_of_24_runs_killed_five_times_equals_an_undisturbed_one(
    image_root: Path, tracking: str, tmp_path: Path
) -> None:
    """kill -9 of launcher, training (torchrun's agent where there are two processes) and rank, at random moments."""
    path = tmp_path / "table.yaml"
    names = "{erm: {nproc: 1}, infodrop: {nproc: 1}, padain: {nproc: 2}}"
    path.write_text(f"suite: folders\nstudy: mine\nalgorithms: {names}\nseeds: 0..7\n")
    command = [*words(image_root)[3:], "--table", str(path), "--workers", "2", "--retries", "5"]
    study = Killed(["benchmark", *command], tmp_path / "home", tmp_path / "log")
    draw = random.Random(20261120)
    study.start()
    for victim in ("launcher", "rank", "training", "launcher", "rank"):
        time.sleep(draw.uniform(5, 20))
        study.kill(victim, draw)
    assert study.process.wait(900) == 0, study.log.read_text()
    algorithms = {"erm": 1, "infodrop": 1, "padain": 2}
    _check(tracking, study.home, image_root, tmp_path / "straight", algorithms, seeds=8, epochs=2)
    study.start()
    assert study.process.wait(600) == 0
    assert len(all_runs(tracking, kind="train")) == 24


def test_rows_and_cells_that_are_killed_are_those_of_an_undisturbed_study(tracking: str, tmp_path: Path) -> None:
    """Two rows of one method, a model that is only tested, three cells: cut while they train and while they test."""
    import torchvision

    make_domains(tmp_path / "data" / "Toy", images=30)
    torch.manual_seed(0)
    torch.save(torchvision.models.resnet18(num_classes=2).state_dict(), tmp_path / "net.pth")
    (tmp_path / "outputs.yaml").write_text("outputs: [cat, dog]\n")
    ours = {"algorithm": "erm", "backbone": "resnet10", "epochs": 3}
    net = {"model": "torchvision:resnet18", "weights": "net.pth", "label_map": "outputs.yaml", "eval_batch_size": 1}
    places = {"data_dir": str(tmp_path / "data"), "train": "Toy"}
    how = {"batch_size": 8, "image_size": 24, "device": "cpu", "workers": 0, "log_model": "no"}
    content = {
        **{"suite": "domains", "study": "mine", "seeds": 1, "cells": {"toy": {"test_domains": "each"}}},
        "rows": {"fast": {**ours, "optim.lr": 0.5}, "slow": {**ours, "optim.lr": 0.01}, "net": net},
        "settings": {**places, **how},
    }
    (tmp_path / "table.yaml").write_text(yaml.safe_dump(content))
    command = ["benchmark", "--table", str(tmp_path / "table.yaml"), "--workers", "2", "--retries", "9"]
    study, draw = Killed(command, tmp_path / "home", tmp_path / "log"), random.Random(14)
    study.start()
    for victim in ("launcher", "training", "launcher", "training", "training", "training"):
        time.sleep(draw.uniform(3, 12))
        study.kill(victim, draw)
    assert study.process.wait(600) == 0, study.log.read_text()
    straight = Killed([*command, "--tracking", "offline", "--output_dir", "straight"], tmp_path / "straight", study.log)
    straight.start()
    assert straight.process.wait(600) == 0, study.log.read_text()
    runs = {run.info.run_name: run for run in all_runs(tracking, study="mine") if run.data.tags[record.KIND] != "study"}
    assert len(runs) == len(run_folders(study.home)) == 9
    for folder in run_folders(study.home):
        state, reference = RunFolder(folder).read_state(), tmp_path / "straight" / "domains" / folder.name
        run = runs[state["tags"]["mlflow.runName"]]
        assert run.info.status == "FINISHED"
        killed, undisturbed = (
            {line["step"]: timeless(line["metrics"]) for line in RunFolder(path).read_journal()}
            for path in (folder, reference)
        )
        assert killed == undisturbed == stored(tracking, run.info.run_id)


def _check(
    tracking: str, home: Path, image_root: Path, straight: Path, algorithms: dict[str, int], seeds: int, epochs: int
) -> None:
    """Every run is there once, finished, with the metrics of a training that was never cut, each stored once."""
    runs = {
        (run.data.tags["biasbed.algorithm"], run.data.tags["biasbed.seed"]): run
        for run in all_runs(tracking, kind="train")
    }
    assert len(all_runs(tracking, kind="train")) == len(runs) == len(algorithms) * seeds == len(run_folders(home))
    (parent,) = all_runs(tracking, kind="study")
    assert parent.info.status == "FINISHED"
    for algorithm, processes in algorithms.items():
        for seed in range(seeds):
            flags = {**settings(image_root, epochs=str(epochs)), "algorithm": algorithm, "seed": str(seed)}
            command = ["train", "--suite", "folders", "--workers", "0", "--tracking", "offline"]
            command += [word for name, value in flags.items() for word in (f"--{name}", value)]
            done = children.run(command, env={"BIASBED_HOME": str(straight)}, processes=processes)
            assert done.returncode == 0, done.stderr
            (reference,) = straight.glob(f"folders/{algorithm}-s{seed}-*")
            (folder,) = home.glob(f"folders/{algorithm}-s{seed}-*")
            run = runs[algorithm, str(seed)]
            assert run.info.status == "FINISHED"
            assert run.data.tags["mlflow.parentRunId"] == parent.info.run_id
            assert reference.name == folder.name
            assert history(folder) == history(reference) == stored(tracking, run.info.run_id)
            assert len(history(folder)) == epochs
