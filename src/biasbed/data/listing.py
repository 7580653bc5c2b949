"""What is in folders of images: files and sub-folders by name, listed in parallel, in an order of names alone."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from biasbed.data import remembered
from biasbed.data.decoding import EXTENSIONS
from biasbed.errors import UsageError
from biasbed.settings import is_text

THREADS = 16  # for waiting on a slow disk, not for computing


@contextlib.contextmanager
def reading() -> Iterator[None]:
    """A folder that can't be listed is a UsageError that names it."""
    try:
        yield
    except OSError as error:
        raise UsageError(f"can't read {error.filename}: {error.strerror}") from None


# Folders that file systems, desktops, network drives and MLflow put beside data.
NO_DATA = frozenset(
    {"lost+found", "__MACOSX", "__pycache__", "@eaDir", "#recycle", "#snapshot", "$RECYCLE.BIN"}
    | {"System Volume Information", "mlruns", "mlartifacts"}
)


def is_data(name: str) -> bool:
    """Return False for the name of a folder that holds no data of anybody's, or is hidden."""
    return not name.startswith((".", "__MACOSX")) and name not in NO_DATA


def scan(folder: Path) -> tuple[list[str], list[str]]:
    """Names of the folders and of the image files in a folder, sorted; without those that hold no data.

    A file that can't be read is listed, so that it is reported rather than missing. UsageError for a name that is no
    text: it could be neither recorded nor shown.
    """
    folders, images = [], []
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir():
                folders += [entry.name] if is_data(entry.name) else []
            elif os.path.splitext(entry.name)[1].lower() in EXTENSIONS and not entry.name.startswith("."):
                images.append(entry.name)
    wrong = next((name for name in (*folders, *images) if not is_text(name)), None)
    if wrong is not None:
        raise UsageError(f"{folder} has a name that is no UTF-8, {wrong!a}: rename it")
    return sorted(folders), sorted(images)


def images_below(folder: Path, names: Sequence[str]) -> list[list[str]]:
    """For each named sub-folder, its images at any depth: paths relative to `folder`, sorted.

    The folders are listed in parallel, without a stat per file: a training set is a million files on a slow disk; and
    not at all where none of them changed since they were last. UsageError for a link that leads back to a folder above
    it.
    """
    known = remembered.listing(folder, names)
    if known is not None:
        return known
    listed: dict[str, remembered.Stamp] = {}
    with ThreadPoolExecutor(THREADS) as pool:
        walks = pool.map(lambda name: _walk(folder / name, f"{name}/", (), listed), names)
        found = [sorted(images) for images in walks]
    remembered.remember(folder, names, found, listed)
    return found


def labelled(folder: Path, classes: Sequence[str]) -> tuple[list[str], np.ndarray, list[str]]:
    """Images of the class folders relative to `folder`, their labels [N] int64, and the classes that have no images."""
    per_class = images_below(folder, classes)
    labels = np.repeat(np.arange(len(classes), dtype=np.int64), [len(images) for images in per_class])
    empty = [name for name, images in zip(classes, per_class, strict=True) if not images]
    return [name for images in per_class for name in images], labels, empty


def _walk(
    folder: Path, prefix: str, above: tuple[tuple[int, int], ...], listed: dict[str, remembered.Stamp]
) -> list[str]:
    """`above`: device and inode of the folders that lead here. listed: takes the stamp of every folder."""
    status = os.stat(folder)
    listed[prefix] = remembered.stamp(status)
    own = status.st_dev, status.st_ino
    if own in above:
        raise UsageError(f"{folder} is a link to a folder that it is in: remove it")
    folders, images = scan(folder)
    return [prefix + name for name in images] + [
        name for sub in folders for name in _walk(folder / sub, f"{prefix}{sub}/", (*above, own), listed)
    ]
