"""CIFAR's batches and the arrays of its corrupted images: what is read, and what is refused."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import numpy as np

from biasbed.datasets.cifar import CIFAR10, CIFAR10C, CIFAR100, CLASSES, CIFAR10Train
from biasbed.datasets.corruption_benchmarks import BENCHMARK, conditions
from helpers.cifar_files import EACH, make_arrays, make_batches
from helpers.data_trees import refusal


def test_batches_are_read_in_order_with_red_first(tmp_path: Path) -> None:
    images, labels = make_batches(tmp_path, "cifar10")
    train, test = CIFAR10Train().open(tmp_path), CIFAR10().open(tmp_path)
    assert np.array_equal(np.concatenate([train.images, test.images]), images.transpose(0, 3, 1, 2))
    assert [*train.y, *test.y] == labels
    assert train.ids[0] == "data_batch_1/00000"
    assert test.classes == CLASSES["cifar10"]
    make_batches(tmp_path, "cifar100")
    assert len(set(CIFAR100().open(tmp_path).classes)) == 100


def test_a_batch_runs_nothing(tmp_path: Path) -> None:
    """A pickle may call anything when it is read."""
    make_batches(tmp_path, "cifar10")

    class Evil:
        def __reduce__(self) -> object:
            return os.mkdir, (str(tmp_path / "evil"),)

    (tmp_path / "cifar-10-batches-py" / "test_batch").write_bytes(pickle.dumps({"data": Evil()}))
    assert "test_batch is no batch of CIFAR" in refusal(CIFAR10(), tmp_path)
    assert not (tmp_path / "evil").exists()


def test_arrays_are_75_conditions_ordered_by_severity(tmp_path: Path) -> None:
    arrays, labels = make_arrays(tmp_path, "cifar10")
    source = CIFAR10C().open(tmp_path)
    assert source.conditions == conditions(BENCHMARK)
    assert np.array_equal(source.y, np.tile(labels, len(BENCHMARK)))
    row = (BENCHMARK.index("fog") * 5 + 3) * EACH + 1  # the second image of fog in severity 4
    assert source.ids[row] == "fog/4/00001"
    assert source.condition is not None
    assert source.conditions[source.condition[row]] == "fog-4"
    wanted = arrays["fog"][3 * EACH + 1].transpose(2, 0, 1)
    assert np.array_equal(source.load(row).numpy(), wanted)
    own = source.subset([row, 0], "two")
    assert np.array_equal(own.load_all(np.array([1, 0]))[1].numpy(), wanted)


def test_damaged_arrays_are_refused_in_a_line(tmp_path: Path) -> None:
    make_arrays(tmp_path, "cifar10")
    folder = tmp_path / "CIFAR-10-C"
    before = CIFAR10C().open(tmp_path).fingerprint()
    np.save(folder / "fog.npy", np.load(folder / "fog.npy")[:-5])
    assert "by labels.npy it should be uint8" in refusal(CIFAR10C(), tmp_path)
    np.save(folder / "fog.npy", np.load(folder / "snow.npy"))
    assert CIFAR10C().open(tmp_path).fingerprint() != before
    labels = np.load(folder / "labels.npy")
    np.save(folder / "labels.npy", np.roll(labels, 1) * (np.arange(len(labels)) > 9))
    assert "not of the same images" in refusal(CIFAR10C(), tmp_path)
    (folder / "snow.npy").write_bytes((folder / "snow.npy").read_bytes()[:1000])
    np.save(folder / "labels.npy", labels)
    assert "snow.npy: it is no array, or is cut off" in refusal(CIFAR10C(), tmp_path)
    (folder / "snow.npy").unlink()
    assert "15 of 16 files are there, snow.npy missing" in refusal(CIFAR10C(), tmp_path)
