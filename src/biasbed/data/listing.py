"""Listings of image folders: files and sub-folders, listed in parallel and sorted by name."""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import numpy as np

from biasbed.data import listing_cache
from biasbed.data.decoding import EXTENSIONS
from biasbed.errors import UsageError
from biasbed.settings import is_text

THREADS = 16  # for waiting on a slow disk, not for computing
NO_SUFFIX = "without a suffix"
LEFT_BEHIND = frozenset({"thumbs.db", "desktop.ini"})  # files that Windows leaves in folders of images
NAMED = 6  # suffixes in a message
UNPACK = "unpack its Parquet or WebDataset files: biasbed prepare --what unpacked"
_SHARD = re.compile(r".*\.parquet|(?:.*[-_.])?\d+\.tar", re.I)
log = logging.getLogger(__name__)
_warned: set[Path] = set()


@contextlib.contextmanager
def reading() -> Iterator[None]:
    """Raise UsageError, which names the folder, if a folder can't be listed within the block."""
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
    """Return True unless the name is that of a hidden folder or of one that never holds data."""
    return not name.startswith((".", "__MACOSX")) and name not in NO_DATA


class Scanned(NamedTuple):
    """Names of the sub-folders and of the image files in a folder, and the number of its other files."""

    folders: list[str]
    images: list[str]
    unread: Counter[str]  # suffix in lower case (or `NO_SUFFIX`) -> number of files


def scan(folder: Path) -> tuple[list[str], list[str]]:
    """Return the names of the sub-folders and of the image files in a folder, as `scan_all` does."""
    scanned = scan_all(folder)
    return scanned.folders, scanned.images


def scan_all(folder: Path) -> Scanned:
    """List a folder, sorted; without hidden files and folders that never hold data.

    Unreadable files are listed too, so that opening them reports the problem. Raises UsageError for a name that is not
    valid UTF-8, because it could neither be recorded nor shown.
    """
    folders: list[str] = []
    images: list[str] = []
    unread: Counter[str] = Counter()
    with os.scandir(folder) as items:
        for item in items:
            if item.name.startswith("."):
                continue
            suffix = os.path.splitext(item.name)[1].lower()
            if item.is_dir():
                if is_data(item.name):
                    folders.append(item.name)
            elif suffix in EXTENSIONS:
                images.append(item.name)
            elif item.name.lower() not in LEFT_BEHIND:
                unread[suffix or NO_SUFFIX] += 1
    wrong = next((name for name in (*folders, *images) if not is_text(name)), None)
    if wrong is not None:
        raise UsageError(f"{folder} has a name that is not valid UTF-8: {wrong!a}; rename it")
    return Scanned(sorted(folders), sorted(images), unread)


def warn_of_unread(folder: Path, unread: Mapping[str, int]) -> None:
    """Warn about files that are not read as images, once per folder."""
    if unread and folder not in _warned:
        _warned.add(folder)
        log.warning("%s: %s", folder, _unread_words(unread))


def _unread_words(unread: Mapping[str, int]) -> str:
    """Describe the files that are not read as images: numbers by suffix, the most frequent first."""
    total, often = sum(unread.values()), sorted(unread.items(), key=lambda item: (-item[1], item[0]))
    kinds = ", ".join(f"{count} {suffix}" for suffix, count in often[:NAMED]) + ", ..." * (len(often) > NAMED)
    verb = "file is" if total == 1 else "files are"
    return f"{total} {verb} not read as images ({kinds}); convert images among them, or remove them"


def images_in(folder: Path) -> list[str]:
    """Return the names of the images directly in a folder, sorted. Warns about other files."""
    scanned = scan_all(folder)
    warn_of_unread(folder, scanned.unread)
    return scanned.images


def images_below(folder: Path, names: Sequence[str]) -> list[list[str]]:
    """Return the images of each sub-folder at any depth: paths relative to `folder`, sorted.

    Folders are listed in parallel and without a stat per file, because a training set is a million files on a slow
    disk. If no folder changed since the last listing, the cached one is returned. Raises UsageError for a link that
    leads back to a folder above it.
    """
    cached = listing_cache.read_listing(folder, names)
    if cached is not None:
        warn_of_unread(folder, cached.unread)
        return cached.images_by_name()
    listed: dict[str, listing_cache.Stamp] = {}
    unread: Counter[str] = Counter()
    with ThreadPoolExecutor(THREADS) as pool:
        walks = list(pool.map(lambda name: _walk(folder / name, f"{name}/", (), listed), names))
    images = [sorted(walk.images) for walk in walks]
    for walk in walks:
        unread += walk.unread
    warn_of_unread(folder, unread)
    listing_cache.write_listing(folder, names, images, listed, unread)
    return images


def has_shards(folder: Path) -> bool:
    """Return True if a folder has Parquet files or numbered tar files alone, or in `data`, as data sets on hubs do."""
    folders, images = scan(folder)
    part = folder / "data" if folders == ["data"] else folder
    return not images and folders in ([], ["data"]) and any(map(_SHARD.fullmatch, os.listdir(part)))


def labelled(folder: Path, classes: Sequence[str]) -> tuple[list[str], np.ndarray, list[str]]:
    """Return the images in class folders, relative to `folder`, their labels [N] int64, and the empty classes."""
    per_class = images_below(folder, classes)
    labels = np.repeat(np.arange(len(classes), dtype=np.int64), [len(images) for images in per_class])
    empty = [name for name, images in zip(classes, per_class, strict=True) if not images]
    return list(itertools.chain.from_iterable(per_class)), labels, empty


def _walk(
    folder: Path, prefix: str, above: tuple[tuple[int, int], ...], listed: dict[str, listing_cache.Stamp]
) -> Scanned:
    """List a folder and all folders below it; `prefix` comes before the images' paths.

    above: device and inode of the parent folders. listed: receives the stamp of each folder.
    """
    status = os.stat(folder)
    listed[prefix] = listing_cache.stamp(status)
    identity = status.st_dev, status.st_ino
    if identity in above:
        raise UsageError(f"{folder} is a link to a folder above it; remove the link")
    here = scan_all(folder)
    images, unread = [prefix + name for name in here.images], here.unread
    for sub in here.folders:
        below = _walk(folder / sub, f"{prefix}{sub}/", (*above, identity), listed)
        images += below.images
        unread += below.unread
    return Scanned(here.folders, images, unread)
