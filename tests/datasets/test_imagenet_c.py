"""A tree of 75,000 class folders, tested by two processes that are killed, and by the same command once more."""

from __future__ import annotations

import dataclasses
import itertools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from biasbed.algorithms.base import TrainData
from biasbed.algorithms.make import make_algorithm
from biasbed.compute import checkpoint
from biasbed.compute.distributed import Group
from biasbed.compute.precision import Precision
from biasbed.config import plain
from biasbed.datasets.classes import imagenet_classes
from biasbed.datasets.imagenet_c import SIDE, ImageNetC
from biasbed.evaluation.recorded import read
from biasbed.tasks import MULTI_CLASS
from biasbed.tracking.folder import RunFolder
from biasbed.training.resolve import resolve
from helpers.commands import command_environment
from helpers.corrupted_tree import jpeg
from helpers.runs import run_folders, timeless

PICTURES = 40
CONDITIONS = [place for name in ImageNetC.corruptions for place in ImageNetC().severities(name)]


def make_tree(root: Path) -> None:
    """An image of each class under every condition, each a link to another picture than under the condition before."""
    for number in range(PICTURES):
        (root / f"{number}.jpg").write_bytes(jpeg(number))
    for (at, place), (label, wnid) in itertools.product(enumerate(CONDITIONS), enumerate(imagenet_classes())):
        folder = root / "ImageNet-C" / place / wnid
        folder.mkdir(parents=True)
        os.link(root / f"{(label + 7 * at) % PICTURES}.jpg", folder / f"ILSVRC2012_val_{label + 1:08}.JPEG")


def make_model(path: Path) -> Path:
    """A checkpoint of three small layers that knows ImageNet's classes and has learnt nothing."""
    config = resolve({"suite": "robustness", "backbone": "mlp", "image_size": SIDE, "init": "scratch"})
    data = TrainData(num_examples=1000, num_classes=1000, num_domains=1)
    algorithm = make_algorithm(config, MULTI_CLASS, Group(), Precision(), data)
    found = {"config": plain(config), "classes": list(imagenet_classes()), "train_data": dataclasses.asdict(data)}
    checkpoint.save_whole(path, {**found, "algorithm": algorithm.state_dict()})
    return path


def started(words: Sequence[str], home: Path) -> subprocess.Popen[str]:
    """The command as a user starts it, in a process group of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "biasbed", *words, f"--output_dir={home}"],
        env=command_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def pieces(home: Path) -> dict[int, int]:
    """Condition -> when its decisions were written, of those that are kept."""
    found = home.glob("*/*/predictions/imagenet_c/last-*.npz")
    return {int(path.stem.partition("-")[2]): path.stat().st_mtime_ns for path in found}


def wait_for(count: int, process: subprocess.Popen[str], home: Path) -> None:
    """Until so many conditions are kept."""
    while len(pieces(home)) < count:
        assert process.poll() is None, process.communicate()[0]
        time.sleep(0.02)


@pytest.mark.slow
def test_a_test_of_75_000_folders_is_killed_and_finished_by_the_same_command(tmp_path: Path) -> None:
    """Each condition is decided on once, and all numbers are those of a test that was not cut off."""
    make_tree(tmp_path)
    words = {"model": make_model(tmp_path / "net.ckpt"), "suite": "robustness", "sets": "imagenet_c", "workers": 0}
    words |= {"data_dir": tmp_path, "device": "cpu", "tracking": "offline", "nproc": 2, "eval_batch_size": 50}
    command = ["evaluate", *(f"--{name}={value}" for name, value in words.items())]
    moment = int(np.random.default_rng(20261123).integers(5, 70))
    print(f"killed at condition {moment}: {CONDITIONS[moment]}")

    home = tmp_path / "home"
    process = started(command, home)
    wait_for(moment, process, home)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    kept = pieces(home)
    assert kept.keys() == set(range(len(kept)))
    assert moment <= len(kept) < len(CONDITIONS)

    again = started(command, home)
    wait_for(min(len(kept) + 2, len(CONDITIONS) - 1), again, home)
    now = pieces(home)
    assert {number: now[number] for number in kept} == kept, "what was decided stands"
    said = again.communicate()[0]
    assert again.returncode == 0, said
    assert not pieces(home)

    straight = started(command, tmp_path / "straight")
    told = straight.communicate()[0].replace(str(tmp_path / "straight"), str(home))
    assert told.split("derived")[1] == said.split("derived")[1]
    (ours,), (theirs,) = run_folders(home), run_folders(tmp_path / "straight")
    (entry,), (other) = RunFolder(ours).read_journal(), RunFolder(theirs).read_journal()
    assert [timeless(entry["metrics"])] == [timeless(one["metrics"]) for one in other]
    by_condition = [name for name in entry["metrics"] if "_by_condition/imagenet_c:" in name]
    assert len(by_condition) == len(set(by_condition)) == len(CONDITIONS)
    file = "predictions/imagenet_c/last.parquet"
    assert (ours / file).read_bytes() == (theirs / file).read_bytes()
    (found,) = read([ours / file])
    assert len(found.images) == len(set(found.images)) == len(CONDITIONS) * 1000
    counts = dict.fromkeys(CONDITIONS, 0)
    for name in found.images:
        counts[name.rpartition("/")[0].rpartition("/")[0]] += 1
    assert set(counts.values()) == {1000}
