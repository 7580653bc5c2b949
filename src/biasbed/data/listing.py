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
def report_unreadable() -> Iterator[None]:
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


class FolderContent(NamedTuple):
    """Names of the sub-folders and of the image files in a folder, both sorted, and the number of its other files."""

    folders: list[str]
    images: list[str]
    unread: Counter[str]  # suffix in lower case (or `NO_SUFFIX`) -> number of files


def scan(folder: Path) -> FolderContent:
    """List a folder, but not the folders below it; without hidden files and folders that never hold data.

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
    return FolderContent(sorted(folders), sorted(images), unread)


def warn_of_unread(folder: Path, unread: Mapping[str, int]) -> None:
    """Warn about files that are not read as images, once per folder."""
    if unread and folder not in _warned:
        _warned.add(folder)
        log.warning("%s: %s", folder, _describe_unread(unread))


def _describe_unread(unread: Mapping[str, int]) -> str:
    """Describe the files that are not read as images: numbers by suffix, the most frequent first."""
    most_frequent = sorted(unread.items(), key=lambda item: (-item[1], item[0]))
    kinds = [f"{count} {suffix}" for suffix, count in most_frequent[:NAMED]]
    if len(most_frequent) > NAMED:
        kinds.append("...")
    total = sum(unread.values())
    verb = "file is" if total == 1 else "files are"
    return f"{total} {verb} not read as images ({', '.join(kinds)}); convert images among them, or remove them"


def images_in(folder: Path) -> list[str]:
    """Return the names of the images directly in a folder, sorted. Warns about other files."""
    content = scan(folder)
    warn_of_unread(folder, content.unread)
    return content.images


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
    stamps: dict[str, listing_cache.Stamp] = {}
    with ThreadPoolExecutor(THREADS) as pool:
        trees = list(pool.map(lambda name: _walk(folder / name, f"{name}/", (), stamps), names))
    images = [sorted(tree.images) for tree in trees]
    unread: Counter[str] = Counter()
    for tree in trees:
        unread += tree.unread
    warn_of_unread(folder, unread)
    listing_cache.write_listing(folder, names, images, stamps, unread)
    return images


def has_shards(folder: Path) -> bool:
    """Return True if a folder has Parquet files or numbered tar files alone, or in `data`, as data sets on hubs do."""
    folders, images, _ = scan(folder)
    if images or folders not in ([], ["data"]):
        return False
    shard_folder = folder / "data" if folders else folder
    return any(_SHARD.fullmatch(name) for name in os.listdir(shard_folder))


class LabelledImages(NamedTuple):
    """Images in class folders, class by class."""

    ids: list[str]  # paths relative to the folder of the class folders
    labels: np.ndarray  # [N] int64, positions in the classes
    empty: list[str]  # classes without images


def list_classes(folder: Path, classes: Sequence[str]) -> LabelledImages:
    """Return the images below the class folders `<folder>/<class>`, labelled in the order of `classes`."""
    per_class = images_below(folder, classes)
    labels = np.repeat(np.arange(len(classes), dtype=np.int64), [len(images) for images in per_class])
    empty = [name for name, images in zip(classes, per_class, strict=True) if not images]
    return LabelledImages(list(itertools.chain.from_iterable(per_class)), labels, empty)


def _walk(
    folder: Path, prefix: str, above: tuple[tuple[int, int], ...], stamps: dict[str, listing_cache.Stamp]
) -> FolderContent:
    """List a folder and all folders below it; `prefix` comes before the images' paths.

    above: device and inode of the parent folders. stamps: receives the stamp of each folder.
    """
    status = os.stat(folder)
    stamps[prefix] = listing_cache.stamp(status)
    identity = status.st_dev, status.st_ino
    if identity in above:
        raise UsageError(f"{folder} is a link to a folder above it; remove the link")
    content = scan(folder)
    images, unread = [prefix + name for name in content.images], content.unread
    for name in content.folders:
        below = _walk(folder / name, f"{prefix}{name}/", (*above, identity), stamps)
        images += below.images
        unread += below.unread
    return FolderContent(content.folders, images, unread)
