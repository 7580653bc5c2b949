"""A tracking server that goes away and comes back: nothing lost, nothing doubled."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from biasbed.tracking.folder import RunFolder
from biasbed.tracking.tracker import Tracker
from helpers.children import Command
from helpers.commands import command_environment
from helpers.runs import all_runs, history, run_folders, stored
from helpers.tracking_server import Server


@pytest.fixture
def server(tmp_path: Path, tracking: str) -> Iterator[Server]:
    server = Server(tmp_path, tracking)
    server.start()
    yield server
    server.stop()


@pytest.mark.slow
def test_server_away_in_the_middle_of_a_training(
    server: Server, train_flags: list[str], tracking: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["train", *train_flags, "--epochs", "40"]
    environment = {"MLFLOW_TRACKING_URI": server.uri, "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0"}
    training = subprocess.Popen(
        [sys.executable, "-m", "biasbed", *words],
        env=command_environment(environment),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    _wait_for_records(tmp_path / "home", 3)
    server.stop()
    seen = _wait_for_records(tmp_path / "home", 3)
    _wait_for_records(tmp_path / "home", seen + 5)  # training goes on without it
    assert training.poll() is None
    server.start()
    _, errors = training.communicate(timeout=600)
    assert training.returncode == 0, errors
    assert "training goes on" in errors
    (folder,) = run_folders(tmp_path / "home")
    (run,) = all_runs(tracking, kind="train")
    assert run.info.status == "FINISHED"
    assert stored(tracking, run.info.run_id) == history(folder)
    assert len(history(folder)) == 40


def _wait_for_records(home: Path, count: int) -> int:
    deadline = time.monotonic() + 600
    while time.monotonic() < deadline:
        for journal in home.glob("folders/*/metrics.jsonl"):
            lines = journal.read_text().count("\n")
            if lines >= count:
                return lines
        time.sleep(0.02)
    raise TimeoutError("no records")


def test_a_dead_server_is_one_line_before_anything_is_trained(
    biasbed: Command, train_flags: list[str], tracking: str, tmp_path: Path
) -> None:
    environment = {"MLFLOW_TRACKING_URI": "http://127.0.0.1:9", "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0"}
    done = biasbed("train", *train_flags, check=False, env=environment)
    assert done.returncode == 1
    assert done.stderr == "biasbed: the tracking server http://127.0.0.1:9 can't be used: it does not answer\n"
    assert "Traceback" not in done.stderr
    assert not list(tmp_path.glob("home/*/*/last.ckpt"))


def test_offline_runs_are_sent_once(biasbed: Command, train_flags: list[str], tracking: str, tmp_path: Path) -> None:
    biasbed("train", *train_flags, "--tracking", "offline", "--log_model", "true")
    assert not all_runs(tracking)
    assert "runs: 1," in biasbed("sync").stdout
    assert "nothing to send" in biasbed("sync").stdout
    (run,) = all_runs(tracking, kind="train")
    (folder,) = run_folders(tmp_path / "home")
    assert stored(tracking, run.info.run_id) == history(folder)
    assert run.outputs.model_outputs


def test_a_run_opened_just_before_a_kill_is_found_again(
    tracking: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server has the run, and the folder does not know of it."""
    folder = RunFolder(tmp_path / "run")
    folder.path.mkdir()
    note = RunFolder.write_state

    def killed(self: RunFolder, state: dict[str, object]) -> None:
        if "run_id" in state:
            raise KeyboardInterrupt
        note(self, state)

    with monkeypatch.context() as patch:
        patch.setattr(RunFolder, "write_state", killed)
        with pytest.raises(KeyboardInterrupt):
            Tracker(folder).start("erm-seed0", "auto", {"biasbed.kind": "train"}, {})
    (run,) = all_runs(tracking)
    again = Tracker(folder)
    again.start("erm-seed0", "auto", {"biasbed.kind": "train"}, {})
    assert [run.info.run_id for run in all_runs(tracking)] == [again.run_id] == [run.info.run_id]


def test_a_relative_database_is_refused(biasbed: Command, tracking: str) -> None:
    done = biasbed("sync", check=False, env={"MLFLOW_TRACKING_URI": "sqlite:///mlflow.db"})
    assert done.returncode == 2
    assert "is relative" in done.stderr


def test_a_database_without_its_server_is_refused_and_its_password_kept(biasbed: Command, tracking: str) -> None:
    environment = {"MLFLOW_TRACKING_URI": "postgresql+psycopg://ann:sesame@db.lab:5432/mlflow"}
    done = biasbed("sync", check=False, env=environment)
    assert done.returncode == 2
    assert "start `mlflow server` on it" in done.stderr
    assert "sesame" not in done.stderr


def test_runs_that_name_a_new_data_set_at_the_same_time(
    tracking: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store refuses one of the two; it asks again and finds what the other one wrote."""
    from mlflow import MlflowClient
    from sqlalchemy.exc import IntegrityError

    from biasbed.tracking.folder import RunFolder
    from biasbed.tracking.tracker import Tracker

    log_inputs, refused = MlflowClient.log_inputs, []

    def refuse_once(client: MlflowClient, run_id: str, *words: object) -> None:
        log_inputs(client, other, *words)  # type: ignore[arg-type]
        if not refused:
            refused.append(run_id)
            raise IntegrityError("INSERT INTO datasets", None, Exception("UNIQUE constraint failed"))
        log_inputs(client, run_id, *words)  # type: ignore[arg-type]

    client = MlflowClient(tracking)
    other = client.create_run("0").info.run_id
    monkeypatch.setattr(MlflowClient, "log_inputs", refuse_once)
    (tmp_path / "run").mkdir()
    tracker = Tracker(RunFolder(tmp_path / "run"))
    tracker.start("name", "experiment", {}, {}, [("training", "train", "0123456789abcdef")])
    (entry,) = client.get_run(tracker.run_id).inputs.dataset_inputs
    assert refused == [tracker.run_id]
    assert entry.dataset.name == "train"


@pytest.mark.slow
@pytest.mark.parametrize("is_there", [False, True], ids=["missing", "empty"])
def test_two_commands_at_once_make_one_new_database(
    is_there: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from multiprocessing import get_context

    if is_there:
        (tmp_path / "new.db").touch()
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path / 'new.db'}")
    processes = [get_context("forkserver").Process(target=_count_experiments, args=(dict(os.environ),)) for _ in "ab"]
    for process in processes:
        process.start()
    for process in processes:
        process.join(600)
    assert [process.exitcode for process in processes] == [0, 0]


@pytest.mark.parametrize("is_there", [False, True], ids=["missing", "empty"])
def test_a_database_that_is_made_meanwhile_is_not_replaced(
    is_there: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two first commands, with other folders for temporary files: the second is in the middle of making it."""
    from mlflow import MlflowClient

    from biasbed.tracking.server import writer

    search, uri, runs = MlflowClient.search_experiments, f"sqlite:///{tmp_path / 'new.db'}", []
    if is_there:
        (tmp_path / "new.db").touch()

    def meanwhile(client: MlflowClient, *arguments: Any, **keywords: Any) -> Any:
        monkeypatch.setattr(MlflowClient, "search_experiments", search)
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
        runs.append(writer(uri).create_run("0").info.run_id)
        return search(client, *arguments, **keywords)

    monkeypatch.setattr(MlflowClient, "search_experiments", meanwhile)
    writer(uri)
    assert [run.info.run_id for run in all_runs(uri)] == runs
    assert len(runs) == 1
    assert sorted(path.suffix for path in tmp_path.glob("new*")) == [".db"]


def _count_experiments(environment: dict[str, str]) -> None:
    os.environ.update(environment)
    from biasbed.tracking.server import resolve_uri, writer

    assert len(writer(resolve_uri()).search_experiments()) == 1
