"""The entry points through `mlflow run`, as the README has them, in a second copy of the checkout."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from helpers import children
from helpers.commands import ROOT
from helpers.runs import all_runs, assert_equal, history, run_folders, stored, weights


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of the checkout with one line edited: commands must run the copy's code, not an installed one's."""
    copy = tmp_path_factory.mktemp("clone") / "biasbed"
    ignored = shutil.ignore_patterns(".git", "__pycache__", ".*_cache", "mlruns", "mlflow.db", "tests", "docs")
    shutil.copytree(ROOT, copy, symlinks=True, ignore=ignored)
    file = copy / "src" / "biasbed" / "__init__.py"
    file.write_text(file.read_text() + '\nprint("edited copy")\n')
    return copy


def mlflow_run(clone: Path, command: str, *parameters: str) -> list[str]:
    words = [sys.executable, "-m", "mlflow", "run", str(clone), "-e", command, "--env-manager", "local"]
    return words + [word for parameter in parameters for word in ("-P", parameter)]


def environment() -> dict[str, str]:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    return {**os.environ, "PATH": path}


def parameters(image_root: Path, epochs: int) -> list[str]:
    return [
        *("suite=folders", f"data_dir={image_root}", "train=photo", f"epochs={epochs}", "batch_size=8"),
        *("backbone=resnet10", "image_size=32", "log_model=false", "workers=0", "device=cpu", "optim.lr=0.1"),
    ]


@pytest.mark.slow
def test_killed_under_mlflow_run_and_run_again(clone: Path, image_root: Path, tracking: str, tmp_path: Path) -> None:
    """The fresh run of the second `mlflow run` becomes the training's; the interrupted one is deleted."""
    words = mlflow_run(clone, "train", "algorithm=infodrop", *parameters(image_root, 8))
    home = tmp_path / "home"
    launcher = subprocess.Popen(words, env=environment(), stderr=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 600
    while not any(path.stat().st_size for path in home.glob("folders/*/metrics.jsonl")):
        assert launcher.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.01)
    (folder,) = run_folders(home)
    pid = int((folder / "lock").read_text().split()[1])
    os.kill(pid, signal.SIGKILL)
    output, _ = launcher.communicate(timeout=600)
    assert "edited copy" in output
    (killed,) = all_runs(tracking, kind="train")
    assert killed.info.status == "FAILED"
    assert len(history(folder)) < 8

    again = subprocess.run(words, env=environment(), capture_output=True, text=True, check=False, timeout=600)
    assert again.returncode == 0, again.stderr
    (run,) = all_runs(tracking, kind="train")
    assert run.info.run_id != killed.info.run_id
    assert run.info.status == "FINISHED"

    flags = [word for p in parameters(image_root, 8) for word in (f"--{p.partition('=')[0]}", p.partition("=")[2])]
    alone = {**environment(), "BIASBED_HOME": str(tmp_path / "straight")}
    straight = children.run(["train", "--algorithm", "infodrop", *flags, "--tracking", "offline"], env=alone)
    assert straight.returncode == 0, straight.stderr
    (reference,) = run_folders(tmp_path / "straight")
    assert_equal(weights(folder), weights(reference))
    assert stored(tracking, run.info.run_id) == history(folder) == history(reference)


@pytest.mark.slow
def test_training_ends_with_its_launcher(clone: Path, image_root: Path, tracking: str, tmp_path: Path) -> None:
    """`mlflow run` killed without a word must not leave an orphan that trains on."""
    words = mlflow_run(clone, "train", *parameters(image_root, 2000))
    launcher = subprocess.Popen(words, env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 600
    while not any(path.stat().st_size for path in tmp_path.glob("home/folders/*/metrics.jsonl")):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    (folder,) = run_folders(tmp_path / "home")
    pid = int((folder / "lock").read_text().split()[1])
    launcher.kill()
    launcher.wait()
    deadline = time.monotonic() + 600
    while Path(f"/proc/{pid}").exists() and Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z":
        assert time.monotonic() < deadline, "the training outlived its launcher"
        time.sleep(0.2)
    (run,) = all_runs(tracking, kind="train")
    assert (run.info.status, run.data.tags["biasbed.ended_by"]) == ("KILLED", "SIGTERM")
