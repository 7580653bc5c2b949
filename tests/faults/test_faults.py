"""The fault harness in short: a few lives by default, and that it sees what it is there to see. All lives are slow."""

from __future__ import annotations

import random
import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from faults import DOUBLED, LEFT, LOST, UNEQUAL, WRONG, Life, law, pairs
from faults import __main__ as harness
from faults.law import Result

SHORT = {7: "plain", 11: "plain"}  # seeds whose lives have faults of several kinds


@pytest.fixture(scope="module")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[harness.Workshop]:
    workshop = harness.Workshop(tmp_path_factory.mktemp("faults"))
    yield workshop
    workshop.close()


@pytest.fixture
def copied(workshop: harness.Workshop, tmp_path: Path) -> tuple[Result, Result]:
    """Return an undisturbed training's results in a folder of this test's own, and those themselves."""
    reference = workshop.undisturbed("plain").result
    shutil.copytree(reference.home, tmp_path / "home")
    shutil.copy(reference.store, tmp_path / "mlflow.db")
    return Result(tmp_path / "home", tmp_path / "mlflow.db"), reference


def held(copied: tuple[Result, Result]) -> dict[str, list[str]]:
    life = Life(0, "plain")
    law.hold(life, *copied)
    assert life.rows > 20
    return life.problems


# --- the law sees what is wrong ---------------------------------------------------------------------------------------


def test_an_undisturbed_training_keeps_the_law(copied: tuple[Result, Result]) -> None:
    assert held(copied) == {}


@pytest.mark.parametrize(
    ("spoil", "problem"),
    [
        ("delete from metrics where rowid = (select min(rowid) from metrics)", LOST),
        (
            "insert into metrics (key, value, timestamp, run_uuid, step, is_nan) select key, value, timestamp + 1, "
            "run_uuid, step, is_nan from metrics limit 1",
            DOUBLED,
        ),
        ("update metrics set value = value + 1e-9 where key = 'train/loss' and step = 2", WRONG),
        ("update runs set status = 'RUNNING'", LEFT),
        ("insert into tags (key, value, run_uuid) select 'biasbed.error', 'x', run_uuid from runs", WRONG),
    ],
)
def test_a_doctored_store_is_seen(spoil: str, problem: str, copied: tuple[Result, Result]) -> None:
    with sqlite3.connect(copied[0].store) as connection:
        assert connection.execute(spoil).rowcount == 1
    assert list(held(copied)) == [problem]


@pytest.mark.parametrize("name", law.CHECKPOINTS)
def test_one_bit_of_a_checkpoint_is_seen(name: str, copied: tuple[Result, Result]) -> None:
    path = copied[0].folder / name
    state = torch.load(path, weights_only=True)
    first = next(tensor for tensor in state["algorithm"].values() if tensor.is_floating_point())
    first.view(-1).view(torch.int32)[0] ^= 1
    torch.save(state, path)
    problems = held(copied)
    assert UNEQUAL in problems
    assert name in problems[UNEQUAL][0]


def test_decisions_that_are_not_there_and_files_too_many_are_seen(copied: tuple[Result, Result]) -> None:
    folder = copied[0].folder
    (folder / "predictions" / "paint" / "best.parquet").unlink()
    (folder / "last.ckpt.123.tmp").touch()
    assert held(copied).keys() == {LOST, LEFT}


# --- lives ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("seed", "scenario"), SHORT.items())
def test_a_disturbed_training_ends_as_an_undisturbed_one(seed: int, scenario: str, workshop: harness.Workshop) -> None:
    life = workshop.live(seed, scenario)
    assert life.faults
    assert not life.problems, harness.describe(life, workshop.folder)
    assert not (workshop.folder / f"seed{seed}").exists()


SLOW = (
    pairs.NEW,
    pairs.IMPORTS,
    f"{pairs.COPIES}{pairs.SERVED}",
)


@pytest.mark.parametrize("scenario", [pairs.COPIES, *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW)])
def test_two_commands_at_once_end_as_if_each_were_alone(scenario: str, workshop: harness.Workshop) -> None:
    life = workshop.live(2, scenario)
    assert life.faults
    assert life.rows > 60
    assert not life.problems, harness.describe(life, workshop.folder)


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_a_hundred_and_fifty_faults_of_new_seeds(capfd: pytest.CaptureFixture[str]) -> None:
    first = random.SystemRandom().randrange(10**6, 10**8)
    assert harness.main(["--first", str(first), "--faults", "150"]) == 0, capfd.readouterr().out[-6000:]
