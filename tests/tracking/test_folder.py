"""A run's folder: whose it is, what damage, full disks and strangers' links do to it, and what is written through."""

from __future__ import annotations

import contextlib
import errno
import json
import multiprocessing
import os
import resource
import shutil
import signal
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from biasbed import cli, record
from biasbed.compute import checkpoint
from biasbed.errors import Failure
from biasbed.studies import ledger
from biasbed.system import files
from biasbed.tracking import folder as run_folder
from biasbed.tracking.folder import RunFolder
from biasbed.training import engine
from helpers import children
from helpers.children import one_line
from helpers.runs import all_runs, history, run_folders, stored


def made(path: Path, study: str) -> RunFolder:
    """A finished training's folder."""
    path.mkdir()
    folder = RunFolder(path)
    folder.write_state({"tags": {record.STUDY: study}, "sent": True})
    folder.mark_done()
    return folder


def found(base: Path, study: str) -> str:
    return run_folder.folder_for(base, "auto", True, study).path.name


def test_a_study_gets_its_own_newest_folder_or_the_next_free_one(tmp_path: Path) -> None:
    made(tmp_path / "run", "a")
    unsent = made(tmp_path / "run-2", "a")
    unsent.write_state({**unsent.read_state(), "sent": False})
    assert found(tmp_path / "run", "a") == "run-2"
    assert found(tmp_path / "run", "b") == "run-3"


def test_sync_names_every_folder_that_it_can_t_read(
    tracking: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("a", "b", "c"):
        (tmp_path / "home" / "folders" / name).mkdir(parents=True)
    (tmp_path / "home" / "folders" / "a" / "run.json").mkdir()
    (tmp_path / "home" / "folders" / "b" / "run.json").write_text('{"tags": {}, "sent": false}')
    (tmp_path / "home" / "folders" / "c" / "run.json").write_text('{"tags": 3}')
    assert cli.main(["sync"]) == 1
    told = capsys.readouterr().err
    assert "folders/a: Is a directory" in told
    assert all(f"folders/{name}: its run.json is damaged" in told for name in "bc")
    assert "runs that could not be sent: 3" in told


@pytest.mark.parametrize("value", ['"x"', "[]", "null", "true", "1" + "0" * 400])
def test_a_line_with_a_value_that_is_no_number_is_damaged(value: str, tmp_path: Path) -> None:
    """It would be sent, refused in the middle of the others, and the server blamed."""
    folder = RunFolder(tmp_path)
    good = '{"step": 1, "timestamp": 1, "metrics": {"a": 0.5, "b": NaN}, "late": true}'
    (tmp_path / "metrics.jsonl").write_text(f'{good}\n{{"step": 2, "timestamp": 1, "metrics": {{"a": {value}}}}}\n')
    assert [line["step"] for line in folder.read_journal()] == [1]


def words(flags: list[str], *more: str) -> list[str]:
    return ["train", *flags, "--backbone", "mlp", *more]


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
    train_flags: list[str], tracking: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = words(train_flags, "--nproc", "1", "--epochs", "2")
    with filling_up(3):
        assert cli.main(command) == 1
    assert "No space left on device" in one_line(capsys.readouterr().err)
    (run,) = all_runs(tracking, kind="train")
    assert run.info.status == "FAILED"
    assert "No space left" in run.data.tags[record.ERROR]
    assert cli.main(command) == 0
    (folder,) = run_folders(tmp_path / "home")
    (again,) = all_runs(tracking, kind="train")
    assert (again.info.run_id, again.info.status) == (run.info.run_id, "FINISHED")
    assert stored(tracking, again.info.run_id) == history(folder)
    assert not list(folder.rglob("*.tmp"))


def _write_little(path: Path, most: int, state: dict[str, Any], said: Any) -> None:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
    try:
        checkpoint.write(path, state)
    except OSError as error:
        said.put(error.errno)


@pytest.mark.parametrize("most", [1000, 400_500])
def test_torch_s_own_words_for_a_full_disk_are_not_the_last(tmp_path: Path, most: int) -> None:
    context = multiprocessing.get_context("fork")
    said = context.Queue()
    state = {"a": torch.zeros(100_000), "b": torch.zeros(10)}  # here: in a fork, torch waits for threads it hasn't got
    child = context.Process(target=_write_little, args=(tmp_path / "x.ckpt", most, state, said))
    child.start()
    assert said.get(timeout=600) == errno.EFBIG
    child.join()


# --- damaged files ----------------------------------------------------------------------------------------------------

DAMAGED = (
    *(b"", b"{", b"[]", b"3", b'{"tags": 5}', b"\xff\xfe", b'{"run_id": "x", "params": []}', b'{"tags": {"a": 3}}'),
    *(b'{"params": {"a": null}}', b'{"location": 5}', b'{"inputs": [["a"]]}', b'{"tracking_uri": 3}'),
    *(b'{"attempts": "x"}', b'{"run_id": []}', b'{"a":' * 50_000),
)


@pytest.mark.parametrize("content", DAMAGED)
def test_damaged_notes_are_as_good_as_none(tmp_path: Path, content: bytes) -> None:
    folder = RunFolder(tmp_path)
    (tmp_path / "run.json").write_bytes(content)
    (tmp_path / "done").touch()
    (tmp_path / "metrics.jsonl").write_bytes(content + b"\n")
    assert folder.read_state() == {}
    assert not folder.is_done
    assert folder.study is None
    assert folder.read_journal() == []


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


SECRET = "a secret of mine\n"


@pytest.fixture(scope="module")
def finished(train_flags: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The output folder of a finished training that no server has."""
    home = tmp_path_factory.mktemp("finished")
    done = children.run(
        ["train", *train_flags, "--epochs", "1", "--tracking", "offline"], env={"BIASBED_HOME": str(home)}
    )
    assert done.returncode == 0, done.stderr
    return home


@pytest.fixture
def theirs(finished: Path, tracking: str, tmp_path: Path) -> Path:
    """Somebody else's copy of it."""
    return run_folders(Path(shutil.copytree(finished, tmp_path / "theirs")))[0]


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    path = tmp_path / "mine.txt"
    path.write_text(SECRET)
    return path


def link(path: Path, target: Path) -> None:
    path.unlink(missing_ok=True)
    path.symlink_to(target)


@pytest.mark.parametrize(
    "name", ["config.yaml", "lock", "metrics.jsonl", "predictions/ink/best.parquet", "data", "run.json.1.tmp"]
)
def test_a_folder_with_a_link_is_refused_and_what_it_leads_to_stays(
    name: str, theirs: Path, mine: Path, tracking: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (theirs / name).parent.mkdir(exist_ok=True, parents=True)
    link(theirs / name, mine)
    assert cli.main(["sync", "--output_dir", str(theirs.parents[1])]) == 1
    assert f"{theirs / name} is a symbolic link, which biasbed neither follows nor sends" in capsys.readouterr().err
    assert mine.read_text() == SECRET
    assert all_runs(tracking) == []


@pytest.mark.parametrize("depth", [0, 1])
def test_a_linked_folder_is_not_entered(depth: int, theirs: Path, tracking: str, tmp_path: Path) -> None:
    root = tmp_path / "sent"
    target = (theirs, theirs.parent)[depth]
    place = (root / "folders" / "erm", root / "folders")[depth]
    place.parent.mkdir(parents=True)
    place.symlink_to(target)
    assert cli.main(["sync", "--output_dir", str(root)]) == 1
    assert all_runs(tracking) == []


def test_a_hard_link_is_not_written_through(theirs: Path, mine: Path, tracking: str) -> None:
    (theirs / "lock").unlink()
    os.link(mine, theirs / "lock")
    assert cli.main(["sync", "--output_dir", str(theirs.parents[1])]) == 0
    assert mine.read_text() == SECRET
    assert len(all_runs(tracking)) == 1


def test_what_a_study_keeps_is_not_sent_through_a_link(
    mine: Path, tracking: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "sent" / "studies" / "s"
    place.mkdir(parents=True)
    note = {"study": "s", "suite": "folders", "experiment": "auto", "tags": {}, "status": "FINISHED", "sent": False}
    (place / "study.json").write_text(json.dumps(note))
    (place / "ledger.csv").symlink_to(mine)
    assert cli.main(["sync", "--output_dir", str(tmp_path / "sent")]) == 1
    assert "ledger.csv is a symbolic link" in capsys.readouterr().err


WRITERS: dict[str, Callable[[RunFolder], object]] = {
    "lock": lambda folder: folder.holder(),
    "claim": lambda folder: folder.claim(),
    "metrics.jsonl": lambda folder: folder.append_journal({"step": 1}),
    "attempts.jsonl": lambda folder: ledger.note_start(folder, 1),
}


@pytest.mark.parametrize("name", WRITERS)
def test_each_file_that_is_written_in_place_is_opened_without_links(name: str, mine: Path, tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    folder.path.mkdir()
    link(folder.path / name, mine)
    with pytest.raises(Failure, match="is a symbolic link"):
        WRITERS[name](folder)
    assert mine.read_text() == SECRET


def test_a_half_written_file_s_name_may_be_a_link(mine: Path, tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    link(path.with_name(f"{path.name}.{os.getpid()}.tmp"), mine)
    files.write_whole(path, "text")
    assert (path.read_text(), mine.read_text()) == ("text", SECRET)


def test_a_pipe_is_refused_and_not_waited_for(theirs: Path, tracking: str, capsys: pytest.CaptureFixture[str]) -> None:
    (theirs / "environment.txt").unlink()
    os.mkfifo(theirs / "environment.txt")
    assert cli.main(["sync", "--output_dir", str(theirs.parents[1])]) == 1
    assert "environment.txt is no plain file" in capsys.readouterr().err
