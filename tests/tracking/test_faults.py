"""A full disk, a lost answer, a damaged file: one line, and the same command goes on."""

from __future__ import annotations

import contextlib
import errno
import multiprocessing
import os
import resource
import signal
import socket
import sqlite3
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest
import torch

from biasbed import cli, record
from biasbed.compute import checkpoint
from biasbed.errors import Failure
from biasbed.evaluation import tracked_job
from biasbed.system import files
from biasbed.tracking import folder as run_folder
from biasbed.tracking import server
from biasbed.tracking.folder import RunFolder
from biasbed.tracking.tracker import Tracker
from biasbed.training import engine, train
from helpers.children import Command, one_line
from helpers.runs import all_runs, history, run_folders, stored


def words(flags: list[str], *more: str) -> list[str]:
    return ["train", *flags, *more]


# --- a full disk ------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def filling_up(count: int) -> Iterator[None]:
    """From the count-th checkpoint on nothing can be written where runs are kept."""
    write, calls = checkpoint.write, []

    def refused(path: Path, *_: Any) -> Any:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    with pytest.MonkeyPatch.context() as patch:

        def counted(path: Path, state: dict[str, Any]) -> Path:
            calls.append(path)
            if len(calls) < count:
                return write(path, state)
            for owner, name in ((run_folder, "write_whole"), (engine, "write_predictions"), (checkpoint, "write")):
                patch.setattr(owner, name, refused)
            return refused(path)

        patch.setattr(checkpoint, "write", counted)
        yield


def test_a_disk_that_fills_up_ends_the_run_in_one_line_and_the_same_command_goes_on(
    train_flags: list[str], biasbed: Command, tracking: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with filling_up(4):
        assert cli.main(words(train_flags, "--nproc", "1")) == 1
    assert "No space left on device" in one_line(capsys.readouterr().err)
    (run,) = all_runs(tracking, kind="train")
    assert run.info.status == "FAILED"
    assert "No space left" in run.data.tags[record.ERROR]
    biasbed(*words(train_flags, "--nproc", "1"))
    (folder,) = run_folders(tmp_path / "home")
    (again,) = all_runs(tracking, kind="train")
    assert (again.info.run_id, again.info.status) == (run.info.run_id, "FINISHED")
    assert stored(tracking, again.info.run_id) == history(folder)
    assert not list(folder.rglob("*.tmp"))


def test_a_disk_that_is_full_before_the_run_exists(
    train_flags: list[str], tracking: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refused(path: Path, *_: Any, **__: Any) -> Any:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    monkeypatch.setattr(train, "save_examples", refused)
    assert cli.main(words(train_flags)) == 1
    assert "No space left on device" in one_line(capsys.readouterr().err)
    assert not all_runs(tracking)


def test_a_folder_of_somebody_else_s(
    train_flags: list[str], tracking: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refused(*_: Any) -> Any:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), "/somebody/else")

    monkeypatch.setattr(tracked_job, "folder_for", refused)
    assert cli.main(words(train_flags)) == 1
    assert one_line(capsys.readouterr().err) == "biasbed: Permission denied: /somebody/else"


def _write_little(path: Path, most: int, state: dict[str, Any], said: Any) -> None:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
    try:
        checkpoint.write(path, state)
    except OSError as error:
        said.put(error.errno)


@pytest.mark.parametrize("most", [1000, 300_000, 400_500])
def test_torch_s_own_words_for_a_full_disk_are_not_the_last(tmp_path: Path, most: int) -> None:
    context = multiprocessing.get_context("fork")
    said = context.Queue()
    state = {"a": torch.zeros(100_000), "b": torch.zeros(10)}  # here: in a fork, torch waits for threads it hasn't got
    child = context.Process(target=_write_little, args=(tmp_path / "x.ckpt", most, state, said))
    child.start()
    assert said.get(timeout=600) == errno.EFBIG
    child.join()


def test_a_store_that_can_t_be_written_is_one_line(
    train_flags: list[str], biasbed: Command, tracking: str, tmp_path: Path
) -> None:
    """In a process of its own: MLflow logs a traceback besides."""
    with sqlite3.connect(tmp_path / "mlflow.db") as connection:
        connection.execute("create trigger full before insert on experiments begin select raise(fail, 'full'); end")
    done = biasbed(*words(train_flags), check=False)
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert "can't be used" in one_line(done.stderr)


# --- the server -------------------------------------------------------------------------------------------------------


@pytest.fixture
def doubled(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first answer of every creation is lost: the client asks again, and the server makes a second run."""
    from mlflow import MlflowClient

    create = MlflowClient.create_run

    def twice(self: MlflowClient, *arguments: Any, **keywords: Any) -> Any:
        create(self, *arguments, **keywords)
        return create(self, *arguments, **keywords)

    monkeypatch.setattr(MlflowClient, "create_run", twice)


def start(folder: RunFolder, **options: Any) -> Tracker:
    tracker = Tracker(folder, **options)
    tracker.start("name", "experiment", {"biasbed.kind": "train"}, {"epochs": 1})
    return tracker


def test_a_run_whose_creation_was_not_answered_is_removed(tracking: str, tmp_path: Path, doubled: None) -> None:
    folder = RunFolder(tmp_path / "run")
    run_folder.make_folder(folder.path)
    tracker = start(folder)
    (run,) = all_runs(tracking)
    assert run.info.run_id == tracker.run_id


def test_a_twin_of_an_earlier_start_is_removed_and_nothing_else(tracking: str, tmp_path: Path) -> None:
    """An import of the folder's run has its tags, too."""
    from mlflow import MlflowClient

    client, folder = MlflowClient(tracking), RunFolder(tmp_path / "run")
    run_folder.make_folder(folder.path)
    tracker = start(folder)
    same = {record.FOLDER_ID: folder.identify()}
    others = ({record.FOLDER_ID: "0123456789abcdef"}, {**same, record.ORIGIN_RUN: "x"})
    twin, *kept = (client.create_run("0", tags=tags).info.run_id for tags in (same, *others))
    again = start(folder)
    assert again.run_id == tracker.run_id
    assert {run.info.run_id for run in all_runs(tracking)} == {tracker.run_id, *kept}
    assert client.get_run(twin).info.lifecycle_stage == "deleted"


def test_a_kill_before_the_answer_leaves_one_run(
    tracking: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The request was sent twice, and no answer came before the training was killed."""
    from mlflow import MlflowClient

    folder, create = RunFolder(tmp_path / "run"), MlflowClient.create_run

    def unanswered(self: MlflowClient, *arguments: Any, **keywords: Any) -> Any:
        for _ in range(2):
            create(self, *arguments, **keywords)
        raise KeyboardInterrupt

    run_folder.make_folder(folder.path)
    with monkeypatch.context() as killed:
        killed.setattr(MlflowClient, "create_run", unanswered)
        with pytest.raises(KeyboardInterrupt):
            start(folder)
    assert len(all_runs(tracking)) == 2
    tracker = start(folder)
    (run,) = all_runs(tracking)
    assert run.info.run_id == tracker.run_id


def test_a_password_stays_out_of_the_folder(tracking: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server is told apart by its address; a new password is the same server."""
    folder = RunFolder(tmp_path / "run")
    run_folder.make_folder(folder.path)
    for uri in ("http://alice:s3cret@127.0.0.1:1/x", "http://alice:other@127.0.0.1:1/x"):
        tracker = start(folder, offline=True)
        tracker.uri, tracker.offline = uri, False
        monkeypatch.setattr(tracker, "_send_everything", lambda state: None)
        monkeypatch.setattr(tracker, "_own_runs", lambda state: [])
        monkeypatch.setattr(type(tracker), "_client", MagicMock())
        monkeypatch.setattr(tracker, "_created", lambda state: "a" * 32)
        monkeypatch.setattr(tracker, "_revived", lambda known: known)
        tracker._open(folder.read_state())
        assert tracker.run_id == "a" * 32
    assert "s3cret" not in "".join(path.read_text() for path in folder.path.iterdir())
    assert folder.read_state()["tracking_uri"] == "http://127.0.0.1:1/x"


@pytest.fixture
def hanging() -> Iterator[str]:
    """A server that takes every request and never answers."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(50)
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


def test_the_end_waits_no_longer_than_it_says(
    tracking: str,
    hanging: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    serve_at: Callable[[str], None],
) -> None:
    monkeypatch.setattr("biasbed.tracking.tracker.PATIENCE", 3.0)
    monkeypatch.setattr("biasbed.tracking.tracker.RETRY_AFTER", 1.5)
    folder = RunFolder(tmp_path / "run")
    run_folder.make_folder(folder.path)
    tracker = start(folder)
    serve_at(hanging)
    tracker.uri = hanging
    folder.write_state({**folder.read_state(), "tags": {**folder.read_state()["tags"], record.ERROR: "once"}})
    allowed: list[float] = []  # seconds that requests were given, one after the other
    within = server.impatient
    monkeypatch.setattr(
        "biasbed.tracking.tracker.impatient", lambda seconds: allowed.append(seconds) or within(seconds)
    )
    with pytest.raises(Failure, match="does not answer; all is kept in"):
        tracker.finish()
    assert 0 < sum(max(1.0, seconds) for seconds in allowed) < 3 * 3.0
    assert os.environ["MLFLOW_HTTP_REQUEST_MAX_RETRIES"] == "3"
    with server.impatient(1000):
        assert os.environ["MLFLOW_HTTP_REQUEST_TIMEOUT"] == "30"  # as configured


# --- damaged files ----------------------------------------------------------------------------------------------------

DAMAGED = (b"", b"{", b"[]", b"3", b'{"tags": 5}', b"\xff\xfe", b'{"run_id": "x", "params": []}')


@pytest.fixture
def interrupted(train_flags: list[str], biasbed: Command, tmp_path: Path) -> Path:
    done = biasbed(*words(train_flags), kill=("saved", 2, "SIGKILL"), check=False)
    assert done.returncode == -9
    return run_folders(tmp_path / "home")[0]


def test_a_training_goes_on_whatever_has_become_of_its_notes(
    interrupted: Path, train_flags: list[str], biasbed: Command, tracking: str, tmp_path: Path
) -> None:
    """Its run on the server, too, is found again."""
    (run,) = all_runs(tracking, kind="train")
    (interrupted / "run.json").write_bytes(b"")
    (interrupted / "metrics.jsonl").write_bytes(b'\xff\n{"step": 1}\n5\n')
    (interrupted / "metrics.jsonl.99.tmp").touch()
    (interrupted / "predictions" / "ink" / "best.tmp").touch()
    biasbed(*words(train_flags))
    (folder,) = run_folders(tmp_path / "home")
    (again,) = all_runs(tracking, kind="train")
    assert again.info.run_id == run.info.run_id
    assert stored(tracking, again.info.run_id) == history(folder)
    assert not list(folder.rglob("*.tmp"))
    (folder / "run.json").write_text("{")  # after it is done: the same command mends that, too
    biasbed(*words(train_flags))
    assert run_folders(tmp_path / "home") == [folder]
    (mended,) = all_runs(tracking, kind="train")
    assert (mended.info.run_id, mended.info.status) == (run.info.run_id, "FINISHED")


@pytest.mark.parametrize("content", DAMAGED)
def test_damaged_notes_are_as_good_as_none(tmp_path: Path, content: bytes) -> None:
    folder = RunFolder(tmp_path)
    first = folder.identify()
    (tmp_path / "run.json").write_bytes(content)
    (tmp_path / "done").touch()
    (tmp_path / "metrics.jsonl").write_bytes(content + b"\n")
    assert folder.read_state() == {}
    assert folder.is_damaged
    assert not folder.is_done
    assert folder.study is None
    assert folder.read_journal() == []
    assert not folder.has_whole_journal
    assert folder.identify() == first


@pytest.mark.slow
def test_sync_goes_on_with_the_others(
    train_flags: list[str], biasbed: Command, tracking: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    offline = words(train_flags, "--epochs", "1", "--tracking", "offline")
    for seed in ("1", "2", "3"):
        biasbed(*offline, "--seed", seed)
    first, second, _ = run_folders(tmp_path / "home")
    (first / "run.json").write_bytes(b"")
    whole = (second / "metrics.jsonl").read_bytes()
    (second / "metrics.jsonl").write_bytes(whole[:-20] + b"\xff\n")
    (tmp_path / "home" / "studies" / "x").mkdir(parents=True)
    (tmp_path / "home" / "studies" / "x" / "study.json").write_bytes(b"")
    assert cli.main(["sync"]) == 1
    told = capsys.readouterr().err
    assert f"{first}: its run.json is damaged; the command that made it mends that" in told
    assert "study.json is damaged" in told
    assert "Traceback" not in told
    assert {run.data.tags["biasbed.seed"] for run in all_runs(tracking)} == {"2", "3"}
    assert all(run.data.metrics for run in all_runs(tracking))
    assert (second / "metrics.jsonl").read_bytes() == whole
    biasbed(*words(train_flags, "--epochs", "1"), "--seed", "1")
    assert {run.data.tags["biasbed.seed"] for run in all_runs(tracking)} == {"1", "2", "3"}


def test_files_are_written_through(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The text before the rename, and the folder after it."""
    seen: list[bool] = []
    fsync = os.fsync

    def noted(descriptor: int) -> None:
        seen.append(stat.S_ISDIR(os.fstat(descriptor).st_mode))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", noted)
    files.write_whole(tmp_path / "x", "text")
    assert seen == [False, True]
