"""The run that MLFLOW_RUN_ID names: taken if it was opened for this command, never if it has records of another."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from biasbed import cli, record
from biasbed.errors import Failure, UsageError
from biasbed.tracking.launched_run import check_run_id, launched, take_run_id
from biasbed.tracking.notes import NOTE
from biasbed.tracking.server import resolve_uri, writer
from helpers.children import train_at
from helpers.runs import all_runs
from helpers.toy_runs import Recorder


@pytest.fixture(scope="module")
def trained(_empty_store: Path, train_flags: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a finished training and of the database that has its run."""
    here = tmp_path_factory.mktemp("trained")
    train_at(here, _empty_store, ["train", *train_flags, "--epochs", "1"])
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
