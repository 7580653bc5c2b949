"""CIFAR's files as they are released, with a few images by formula."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np

from biasbed.datasets.cifar import CLASSES
from biasbed.datasets.corruption_benchmarks import BENCHMARK

EACH = 10  # corrupted images of a severity
PER_PART = 20  # images of a batch
FOLDERS = {"cifar10": "cifar-10-batches-py", "cifar100": "cifar-100-python"}
PARTS = {"cifar10": [*(f"data_batch_{n}" for n in range(1, 6)), "test_batch"], "cifar100": ["train", "test"]}
KEYS = {"cifar10": "labels", "cifar100": "fine_labels"}


def pictures(count: int, first: int = 0) -> np.ndarray:
    """[count,32,32,3] uint8, each another."""
    number = np.arange(first, first + count)[:, None, None, None]
    at = np.arange(32)
    return ((number * 7 + at[:, None, None] * 3 + at[None, :, None] * 5 + np.arange(3) * 40) % 256).astype(np.uint8)


def make_batches(root: Path, name: str, each: int = PER_PART) -> tuple[np.ndarray, list[int]]:
    """The files of CIFAR-10 or CIFAR-100, of so many images; (all [n,32,32,3], their labels) in the files' order."""
    folder, parts = root / FOLDERS[name], PARTS[name]
    folder.mkdir(parents=True, exist_ok=True)
    images = pictures(each * len(parts))
    labels = [row % len(CLASSES[name]) for row in range(len(images))]
    for number, part in enumerate(parts):
        rows = slice(number * each, (number + 1) * each)
        data = images[rows].transpose(0, 3, 1, 2).reshape(each, -1)
        (folder / part).write_bytes(pickle.dumps({"data": data, KEYS[name]: labels[rows]}, protocol=2))
    return images, labels


def make_arrays(root: Path, name: str) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Return the files of CIFAR-10-C or CIFAR-100-C; (images by corruption, labels)."""
    folder = root / {"cifar10": "CIFAR-10-C", "cifar100": "CIFAR-100-C"}[name]
    folder.mkdir(parents=True, exist_ok=True)
    labels = np.tile(np.arange(EACH) % len(CLASSES[name]), 5)
    arrays = {corruption: pictures(5 * EACH, 11 * number) for number, corruption in enumerate(BENCHMARK)}
    for corruption, pixels in arrays.items():
        np.save(folder / f"{corruption}.npy", pixels)
    np.save(folder / "labels.npy", labels)
    return arrays, labels
