"""What `sync` sends, and what it leaves: results that are not whole, notes that can't be read."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch

from biasbed import cli
from helpers import children
from helpers.children import Command
from helpers.runs import all_runs, run_folders


def content(path: Path) -> Any:
    """What a file holds. The bytes of a checkpoint also depend on which equal words are one object."""
    if path.suffix == ".parquet":
        return pd.read_parquet(path).to_json()
    state = torch.load(path, weights_only=True)
    return {**state, "algorithm": {name: tensor.tolist() for name, tensor in state["algorithm"].items()}}


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


def spoilt(*slow: tuple[Callable[[Path], None], str]) -> list[Any]:
    """(how, what) of every loss; in `slow` those of which others hold by default either half."""
    names = ("best.ckpt", "predictions/ink/best.parquet", "predictions/ink/last.parquet")
    every = [(how, name) for how in (Path.unlink, cut) for name in names]
    marks = {True: [pytest.mark.slow], False: []}
    return [
        pytest.param(how, name, id=f"{how.__name__}-{name}", marks=marks[(how, name) in slow]) for how, name in every
    ]


@pytest.mark.parametrize(
    ("spoil", "lost"),
    spoilt((cut, "best.ckpt"), (cut, "predictions/ink/best.parquet"), (Path.unlink, "predictions/ink/last.parquet")),
)
@pytest.mark.slow
def test_results_that_were_lost_are_not_sent_until_the_same_command_has_mended_them(
    lost: str,
    spoil: Callable[[Path], None],
    offline: Path,
    train_flags: list[str],
    biasbed: Command,
    tracking: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    whole = content(offline / lost)
    spoil(offline / lost)
    assert cli.main(["sync"]) == 1
    assert f"{offline}: {lost} is lost or damaged: the command that made it mends that" in capsys.readouterr().err
    assert not all_runs(tracking)
    biasbed("train", *train_flags, "--epochs", "1", "--tracking", "offline")
    assert run_folders(offline.parents[1]) == [offline]  # it was mended, not trained anew
    assert content(offline / lost) == whole
    assert cli.main(["sync"]) == 0
    assert [run.info.status for run in all_runs(tracking)] == ["FINISHED"]


@pytest.mark.slow
def test_train_mends_what_it_would_send(offline: Path, train_flags: list[str], biasbed: Command, tracking: str) -> None:
    """Without `sync` in between: the folder is done, and the server now there."""
    whole = content(offline / "best.ckpt")
    cut(offline / "best.ckpt")
    done = biasbed("train", *train_flags, "--epochs", "1")
    assert "best.ckpt was lost or damaged; last.ckpt has its weights" in done.stderr
    assert content(offline / "best.ckpt") == whole
    assert [run.info.status for run in all_runs(tracking)] == ["FINISHED"]


def test_best_weights_that_were_given_up_hold_nothing_back(
    offline: Path, train_flags: list[str], biasbed: Command, tracking: str
) -> None:
    for name in ("last.ckpt", "best.ckpt"):  # of an evaluation that no checkpoint has the weights of
        state = torch.load(offline / name, weights_only=True)
        torch.save({**state, "best": {**state["best"], "number": 0}}, offline / name)
    (offline / "best.ckpt").unlink()
    assert cli.main(["sync"]) == 1
    words = ["train", *train_flags, "--epochs", "1", "--tracking", "offline"]
    assert biasbed(*words, check=False).returncode == 1
    assert not all_runs(tracking)
    biasbed(*words, "--resume", "without_best")
    shutil.rmtree(offline / "predictions" / "ink")
    assert cli.main(["sync"]) == 1  # what is there still has to be whole
    biasbed(*words, "--resume", "without_best")
    assert cli.main(["sync"]) == 0
    assert [run.info.status for run in all_runs(tracking)] == ["FINISHED"]
