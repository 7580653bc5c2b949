"""Folders of strangers: nothing is read, written or sent through a link in them."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from biasbed import cli
from biasbed.errors import Failure
from biasbed.studies import ledger
from biasbed.system import files
from biasbed.tracking.folder import RunFolder
from helpers import children
from helpers.runs import all_runs, run_folders

Capture = pytest.CaptureFixture[str]
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
    "name",
    [
        *("config.yaml", "lock", "claim", "id", "environment.txt", "protocol.json", "metrics.jsonl", "best.ckpt"),
        *("pictures/extra.png", "predictions/ink/best.parquet", "figure.png", "data", "run.json.1.tmp"),
    ],
)
def test_a_folder_with_a_link_is_refused_and_what_it_leads_to_stays(
    name: str, theirs: Path, mine: Path, tracking: str, capsys: Capture
) -> None:
    (theirs / name).parent.mkdir(exist_ok=True, parents=True)
    link(theirs / name, mine)
    assert cli.main(["sync", "--output_dir", str(theirs.parents[1])]) == 1
    assert f"{theirs / name} is a symbolic link, which biasbed neither follows nor sends" in capsys.readouterr().err
    assert mine.read_text() == SECRET
    assert all_runs(tracking) == []


def test_a_pipe_is_refused_and_not_waited_for(theirs: Path, tracking: str, capsys: Capture) -> None:
    (theirs / "environment.txt").unlink()
    os.mkfifo(theirs / "environment.txt")
    assert cli.main(["sync", "--output_dir", str(theirs.parents[1])]) == 1
    assert "environment.txt is no plain file" in capsys.readouterr().err


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


def test_the_other_folders_are_sent(theirs: Path, mine: Path, tracking: str) -> None:
    shutil.copytree(theirs, theirs.with_name("linked"))
    link(theirs.with_name("linked") / "environment.txt", mine)
    assert cli.main(["sync", "--output_dir", str(theirs.parents[1])]) == 1
    assert len(all_runs(tracking)) == 1


def test_what_a_study_keeps_is_not_sent_through_a_link(
    mine: Path, tracking: str, tmp_path: Path, capsys: Capture
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


def test_a_link_in_the_temporary_folder_makes_no_file_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It belongs to whoever planted it, whatever it leads to."""
    target, shared = tmp_path / "mine", tmp_path / "tmp"
    target.mkdir()
    shared.mkdir()
    os.utime(target, (1, 1))
    (shared / f"{files.SCRATCH}x").symlink_to(target)
    os.lchown(shared / f"{files.SCRATCH}x", 12345, 12345) if os.getuid() == 0 else pytest.skip("needs root")
    monkeypatch.setattr(files.tempfile, "gettempdir", lambda: str(shared))
    with files.scratch_folder():
        time.sleep(0)
    assert list(target.iterdir()) == []
