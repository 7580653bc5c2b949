"""MNIST's four IDX files, of scikit-learn's digits: 8 x 8 pixels, enlarged."""

from __future__ import annotations

import functools
import gzip
import struct
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits


def idx(array: np.ndarray) -> bytes:
    """Return the content of an IDX file of bytes."""
    return struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape) + array.astype(np.uint8).tobytes()


@functools.cache
def _digits() -> tuple[np.ndarray, np.ndarray]:
    digits = load_digits()
    grey = np.kron(digits.images * 15.9, np.ones((3, 3))).astype(np.uint8)
    return np.pad(grey, ((0, 0), (2, 2), (2, 2))), digits.target


def digits(count: int) -> tuple[np.ndarray, np.ndarray]:
    """(grey images [n,28,28], labels [n])."""
    images, labels = _digits()
    return images[:count], labels[:count]


def make_mnist(folder: Path, train: int = 60, test: int = 30, packed: bool = False, dot: str = "-") -> Path:
    """Write them to a folder; the folder. dot: between the words of a file's name, as some copies have it."""
    folder.mkdir(parents=True, exist_ok=True)
    images, labels = digits(train + test)
    for part, rows in (("train", slice(train)), ("t10k", slice(train, None))):
        for kind, array in (("images", images[rows]), ("labels", labels[rows])):
            content = idx(array)
            name = f"{part}-{kind}{dot}idx{array.ndim}-ubyte{'.gz' * packed}"
            (folder / name).write_bytes(gzip.compress(content, mtime=0) if packed else content)
    return folder
