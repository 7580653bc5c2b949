"""A finished training that goes on, offline: nothing of it is sent before it ends again."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from biasbed.tracking.folder import RunFolder
from helpers import children
from helpers.children import Command
from helpers.runs import run_folders


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
