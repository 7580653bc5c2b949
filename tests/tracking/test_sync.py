"""Results that `sync` sends, and those that it leaves: results that are not whole, notes that can't be read."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from biasbed import cli
from biasbed.tracking.folder import RunFolder
from helpers import children
from helpers.children import Command
from helpers.runs import all_runs, history, run_folders, stored, timeless


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:300])


@pytest.fixture(scope="module")
def finished(train_flags: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The output folder of a finished training that no server has."""
    home = tmp_path_factory.mktemp("finished")
    words = ["train", *train_flags, "--epochs", "1", "--tracking", "offline"]
    done = children.run(words, env={"BIASBED_HOME": str(home)})
    assert done.returncode == 0, done.stderr
    return home


@pytest.fixture
def offline(finished: Path, tracking: str, tmp_path: Path) -> Path:
    """The folder of that training, in this test's own output folder."""
    shutil.copytree(finished, tmp_path / "home", symlinks=True)
    return run_folders(tmp_path / "home")[0]


# --- results ----------------------------------------------------------------------------------------------------------


def emptied(path: Path) -> None:
    path.write_bytes(b"")


def within_a_name(path: Path) -> None:
    """A byte that is no text, where JSON can be read all the same."""
    path.write_bytes(path.read_bytes().replace(b"accuracy", b"acc\xffracy", 1))


@pytest.mark.parametrize("spoil", [emptied, Path.unlink, within_a_name])
def test_a_journal_that_has_lost_records_is_sent_whole(
    spoil: Callable[[Path], None], offline: Path, tracking: str
) -> None:
    """The checkpoint has them."""
    spoil(offline / "metrics.jsonl")
    assert cli.main(["sync"]) == 0
    (run,) = all_runs(tracking)
    assert run.info.status == "FINISHED"
    assert stored(tracking, run.info.run_id) == history(offline)


def test_a_journal_whose_records_nothing_has_is_not_sent(
    offline: Path, tracking: str, capsys: pytest.CaptureFixture[str]
) -> None:
    emptied(offline / "metrics.jsonl")
    for name in ("last.ckpt", "previous.ckpt"):
        (offline / name).unlink(missing_ok=True)
    assert cli.main(["sync"]) == 1
    assert "metrics.jsonl is damaged, and no checkpoint has the records" in capsys.readouterr().err
    assert not all_runs(tracking)


def test_a_finished_training_that_goes_on_is_not_done_until_it_ends_again(
    offline: Path, train_flags: list[str], biasbed: Command
) -> None:
    """The notes are whole long before: a kill in between would leave half a training that counts as one."""
    for name in ("run.json", "last.ckpt", "previous.ckpt"):
        (offline / name).unlink(missing_ok=True)
    words = ("train", *train_flags, "--epochs", "1", "--tracking", "offline")
    assert biasbed(*words, check=False, kill=("step", 2, "SIGKILL")).returncode == -9
    assert not (offline / "done").exists()
    biasbed(*words)
    assert RunFolder(offline).is_done


def no_text(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-9] + b"\xff")


@pytest.mark.parametrize("spoil", [emptied, Path.unlink, cut, no_text])
def test_settings_that_are_lost_are_written_anew_before_a_run_is_sent(
    spoil: Callable[[Path], None], offline: Path, tracking: str
) -> None:
    before = (offline / "config.yaml").read_bytes()
    spoil(offline / "config.yaml")
    assert cli.main(["sync"]) == 0
    assert (offline / "config.yaml").read_bytes() == before
    assert [run.info.status for run in all_runs(tracking)] == ["FINISHED"]


@pytest.fixture
def testing(offline: Path, train_flags: list[str], tmp_path: Path) -> list[str]:
    """The command that tests the training's best weights on one set."""
    place = dict(zip(train_flags[::2], train_flags[1::2], strict=True))
    words = ["evaluate", "--model", str(offline / "best.ckpt"), "--suite", "folders", "--device", "cpu"]
    words += ["--data_dir", place["--data_dir"], "--sets", "ink", "--workers", "0"]
    return [*words, "--output_dir", str(tmp_path / "tested")]


def test_a_test_that_is_to_be_sent_makes_again_what_it_has_lost(
    testing: list[str], biasbed: Command, tracking: str, tmp_path: Path
) -> None:
    biasbed(*testing, "--tracking", "offline")
    (folder,) = run_folders(tmp_path / "tested")
    lost = [folder / "protocol.json", folder / "predictions" / "ink" / "last.parquet"]
    before, (entry,) = [path.read_bytes() for path in lost], RunFolder(folder).read_journal()
    for path in lost:
        emptied(path)
    biasbed(*testing)
    assert run_folders(tmp_path / "tested") == [folder]
    assert [path.read_bytes() for path in lost] == before
    (run,) = all_runs(tracking)
    assert run.info.status == "FINISHED"
    assert stored(tracking, run.info.run_id) == {0: timeless(entry["metrics"])}


def test_records_that_the_server_has_and_the_folder_lost_are_not_sent_twice(
    testing: list[str], biasbed: Command, tracking: str, tmp_path: Path
) -> None:
    """They come again, with another time: the run that has them is given up for a new one."""
    biasbed(*testing)
    (folder,) = run_folders(tmp_path / "tested")
    (first,) = all_runs(tracking)
    RunFolder(folder).write_state({**RunFolder(folder).read_state(), "sent": False})  # killed before it could say so
    emptied(folder / "metrics.jsonl")
    biasbed(*testing)
    (run,) = all_runs(tracking)
    assert run.info.run_id != first.info.run_id
    assert run.info.status == "FINISHED"
    (entry,) = RunFolder(folder).read_journal()
    assert stored(tracking, run.info.run_id) == {0: timeless(entry["metrics"])}
