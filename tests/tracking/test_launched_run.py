"""The run that MLFLOW_RUN_ID names, taken if it was opened for this command, and `mlflow run` itself."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from biasbed import cli, record
from biasbed.errors import Failure, UsageError
from biasbed.tracking.launched_run import check_run_id, launched, take_run_id
from biasbed.tracking.notes import NOTE
from biasbed.tracking.server import resolve_uri, writer
from helpers import children
from helpers.commands import ROOT
from helpers.runs import all_runs, assert_equal, history, run_folders, stored, weights
from helpers.toy_runs import Recorder


@pytest.fixture(scope="module")
def trained(_empty_store: Path, train_flags: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a finished training and of the database that has its run."""
    here = tmp_path_factory.mktemp("trained")
    children.train_at(here, _empty_store, ["train", *train_flags, "--epochs", "1"])
    return here


@pytest.fixture
def finished(trained: Path, tracking: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The id of that training, as if it had been made here, left over in MLFLOW_RUN_ID."""
    shutil.copy(trained / "mlflow.db", tmp_path)
    shutil.copytree(trained / "home", tmp_path / "home", symlinks=True)
    (run,) = all_runs(tracking, kind="train")
    monkeypatch.setenv("MLFLOW_RUN_ID", run.info.run_id)
    return str(run.info.run_id)


def state(run_id: str) -> tuple[object, ...]:
    run = writer(resolve_uri()).get_run(run_id)
    return run.info.status, run.info.run_name, run.data.tags, run.data.params, run.data.metrics, run.info.end_time


@pytest.mark.parametrize("command", ["train", "analyze", "benchmark"])
def test_a_finished_run_is_left_as_it_is(
    command: str, finished: str, tracking: str, train_flags: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    before = state(finished)
    words = {
        "train": [*train_flags, "--seed", "7"],
        "benchmark": [*train_flags, "--algorithms", "erm", "--workers", "1"],
        "analyze": [],
    }
    assert cli.main([command, *words[command]]) == 2
    assert f"MLFLOW_RUN_ID={finished} names the run" in capsys.readouterr().err
    assert state(finished) == before
    assert len(all_runs(tracking)) == 1


def test_the_same_folder_goes_on_with_its_run(
    finished: str, tracking: str, train_flags: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cluster starts a command that was cut off again, with the variables that it had."""
    (done,) = Path(os.environ["BIASBED_HOME"]).rglob("done")
    done.unlink()
    assert cli.main(["train", *train_flags, "--epochs", "1"]) == 0
    assert len(all_runs(tracking, kind="train")) == 1


def test_which_runs_are_free(tracking: str, monkeypatch: pytest.MonkeyPatch) -> None:
    client = writer(resolve_uri())

    def named() -> str:
        run_id = str(client.create_run("0").info.run_id)
        monkeypatch.setenv("MLFLOW_RUN_ID", run_id)
        return run_id

    run_id = named()
    client.set_tag(run_id, "mlflow.project.entryPoint", "train")
    assert take_run_id() == run_id
    assert "MLFLOW_RUN_ID" not in os.environ
    run_id = named()  # of an attempt that ended before it began
    client.set_tag(run_id, record.ENDED_BY, "SIGTERM")
    client.set_terminated(run_id, "KILLED")
    assert take_run_id() == run_id
    spoil: list[Callable[[str], object]] = [
        lambda run: client.set_tag(run, record.KIND, "train"),
        lambda run: client.log_metric(run, "loss", 1.0),
        lambda run: client.set_terminated(run, "KILLED"),
        client.delete_run,
    ]
    for change in spoil:
        change(named())
        with pytest.raises(UsageError, match="unset MLFLOW_RUN_ID"):
            take_run_id()
    monkeypatch.setenv("MLFLOW_RUN_ID", "1" * 32)
    with pytest.raises(UsageError, match="no run of this tracking server"):
        check_run_id()
    assert take_run_id(offline=True) == "1" * 32


def test_a_refused_command_says_so_on_the_run_it_was_given(tracking: str, monkeypatch: pytest.MonkeyPatch) -> None:
    run_id = writer(resolve_uri()).create_run("0").info.run_id
    monkeypatch.setenv("MLFLOW_RUN_ID", run_id)
    assert cli.main(["train", "--suite", "demo", "--algorithm", "infodrob"]) == 2
    tags = writer(resolve_uri()).get_run(run_id).data.tags
    assert "did you mean 'infodrop'" in tags[record.USAGE_ERROR]
    assert "did you mean 'infodrop'" in tags[NOTE]
    assert tags["mlflow.runName"] == "refused: train demo infodrob"


def test_a_failure_is_not_written_into_the_run_of_another(recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    run_id = recorder.client.create_run(recorder.experiment, tags={record.KIND: "train"}, run_name="mine").info.run_id
    monkeypatch.setenv("MLFLOW_RUN_ID", run_id)
    with pytest.raises(Failure), launched("export"):
        raise Failure("the disk is full")
    run = recorder.client.get_run(run_id)
    assert (run.info.run_name, set(run.data.tags) - {"mlflow.runName"}) == ("mine", {record.KIND})


# --- mlflow run, in a second copy of the checkout ---------------------------------------------------------------------


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
