"""Trainings on a biased toy data set whose groups are known: what is read, and what they leave."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from biasbed import cli
from biasbed.compute.distributed import Group
from biasbed.data.streams import BatchPlan
from biasbed.training.job import plan
from biasbed.training.reading import Reader
from biasbed.training.resolve import resolve
from helpers import children, toy_suite
from helpers.runs import run_folders
from helpers.toy_suite import shades

SUITE = f"{toy_suite.__file__}:Shades"
CONFLICTING, SEED = 0.5, 6  # of 16 images of each class; each group has three or more
TRAIN = shades("train", 16, CONFLICTING, SEED, True)


def words(algorithm: str, *more: str) -> list[str]:
    return [
        *("train", "--suite", SUITE, "--data.conflicting", str(CONFLICTING), "--data.seed", str(SEED)),
        *("--data.labels", "true", "--backbone", "mlp", "--batch_size", "12"),
        *("--device", "cpu", "--tracking", "offline"),
        *("--algorithm", algorithm, *more),
    ]


def killed_and_resumed(command: list[str], kill: tuple[str, int, str], home: Path) -> Path:
    """Return the folder of a training that was killed where it is said, and then trained on by the same command."""
    killed = children.run(command, env={"BIASBED_HOME": str(home)}, kill=kill)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    done = children.run(command, env={"BIASBED_HOME": str(home)})
    assert done.returncode == 0, done.stderr
    (folder,) = run_folders(home)
    return folder


def trained_by_two(command: list[str], home: Path) -> Path:
    """Return the folder of a training in two processes."""
    done = children.run(command, env={"BIASBED_HOME": str(home)}, processes=2)
    assert done.returncode == 0, done.stderr
    (folder,) = run_folders(home)
    return folder


def reader(algorithm: str, **settings: Any) -> Reader:
    data = {"data.conflicting": CONFLICTING, "data.labels": True, "data.seed": SEED, "batch_size": 18}
    flags = {"suite": SUITE, "algorithm": algorithm, "device": "cpu", "nproc": 1, **data, **settings}
    return Reader(plan(resolve(flags)), Group(), 0)


def rows(read: BatchPlan, step: int) -> list[int]:
    """Return the rows of the training images at a step."""
    (part,) = read.streams["main"].parts
    return part.rows_at(np.array([key.row for key in read.keys(step)])).tolist()


def groups() -> np.ndarray:
    """Return the groups of the training images."""
    assert TRAIN.bias is not None
    return TRAIN.y * 3 + TRAIN.bias


def journal(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def trainer(factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Return a function that gives the folder of a training with these words, made once."""
    made: dict[tuple[str, ...], Path] = {}

    def train(*flags: str) -> Path:
        if flags not in made:
            home = factory.mktemp("trained")
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv("BIASBED_HOME", str(home))
                assert cli.main(words(*flags)) == 0
            (made[flags],) = run_folders(home)
        return made[flags]

    return train


# Trainings of two methods with a stage and passes before the one that is tested.
JTT = ("jtt", "--hparams.identification", "0.3", "--hparams.upweight", "4", "--optim.lr", "0.01")
DFR = ("dfr", "--hparams.held_out", "0.5", "--hparams.by", "bias", "--hparams.draws", "3", "--optim.lr", "0.01")
