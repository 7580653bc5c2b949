"""Results that `sync` sends, and those that it leaves: results that are not whole, notes that can't be read."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from biasbed.tracking.folder import RunFolder
from helpers import children
from helpers.children import Command
from helpers.runs import run_folders


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


def test_a_finished_training_that_goes_on_is_not_done_until_it_ends_again(
    offline: Path, train_flags: list[str], biasbed: Command
) -> None:
    """The notes are whole long before: a kill in between would leave half a training that counts as one."""
    for name in ("run.json", "last.ckpt"):
        (offline / name).unlink(missing_ok=True)
    words = ("train", *train_flags, "--epochs", "1", "--tracking", "offline")
    assert biasbed(*words, check=False, kill=("step", 2, "SIGKILL")).returncode == -9
    assert not (offline / "done").exists()
    biasbed(*words)
    assert RunFolder(offline).is_done
