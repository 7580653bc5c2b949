"""What is in folders of images: files and sub-folders by name, listed in parallel, in an order of names alone."""

from __future__ import annotations

import contextlib
import logging
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from pathlib import Path
from typing import NamedTuple

import numpy as np

from biasbed.data import listing_cache
from biasbed.data.decoding import EXTENSIONS
from biasbed.errors import UsageError
from biasbed.settings import is_text

THREADS = 16  # for waiting on a slow disk, not for computing
NO_SUFFIX = "without a suffix"
LEFT_BEHIND = frozenset({"thumbs.db", "desktop.ini"})  # by Windows, in any folder of images
NAMED = 6  # suffixes in a message
log = logging.getLogger(__name__)
_counted: ContextVar[Counter[str] | None] = ContextVar("_counted", default=None)
_warned: set[Path] = set()


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


class Scanned(NamedTuple):
    """The folders and the image files in a folder, by name, and how many other files it has."""

    folders: list[str]
    images: list[str]
    unread: Counter[str]  # suffix in small letters, `NO_SUFFIX` for none -> number of files


def scan(folder: Path) -> tuple[list[str], list[str]]:
    """Return the names of the folders and of the image files in a folder, as `scan_all`."""
    found = scan_all(folder)
    return found.folders, found.images


def scan_all(folder: Path) -> Scanned:
    """List a folder, sorted; without hidden files and those that hold no data.

    A file that can't be read is listed, so that it is reported rather than missing. UsageError for a name that is no
    text: it could be neither recorded nor shown.
    """
    folders: list[str] = []
    images: list[str] = []
    unread: Counter[str] = Counter()
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.startswith("."):
                continue
            suffix = os.path.splitext(entry.name)[1].lower()
            if entry.is_dir():
                if is_data(entry.name):
                    folders.append(entry.name)
            elif suffix in EXTENSIONS:
                images.append(entry.name)
            elif entry.name.lower() not in LEFT_BEHIND:
                unread[suffix or NO_SUFFIX] += 1
    wrong = next((name for name in (*folders, *images) if not is_text(name)), None)
    if wrong is not None:
        raise UsageError(f"{folder} has a name that is no UTF-8, {wrong!a}: rename it")
    return Scanned(sorted(folders), sorted(images), unread)


@contextlib.contextmanager
def counting_unread() -> Iterator[Counter[str]]:
    """Count by suffix, within the block, the files below listed folders that are not read; no warning is given."""
    token = _counted.set(Counter())
    try:
        counts = _counted.get()
        assert counts is not None
        yield counts
    finally:
        _counted.reset(token)


def note_unread(folder: Path, unread: Mapping[str, int]) -> None:
    """Count files that are not read for who asked (`counting_unread`), or warn of them, once per folder."""
    counts = _counted.get()
    if counts is not None:
        counts.update(unread)
    elif unread and folder not in _warned:
        _warned.add(folder)
        log.warning("%s: %s", folder, unread_words(unread))


def unread_words(unread: Mapping[str, int]) -> str:
    """Say how many files of which suffixes are not read, the most frequent first."""
    total, often = sum(unread.values()), sorted(unread.items(), key=lambda item: (-item[1], item[0]))
    kinds = ", ".join(f"{count} {suffix}" for suffix, count in often[:NAMED]) + ", ..." * (len(often) > NAMED)
    verb = "file is" if total == 1 else "files are"
    return f"{total} {verb} not read as images ({kinds}); convert images among them, or remove them"


def images_in(folder: Path) -> list[str]:
    """Return the names of the images right in a folder, sorted; other files are noted."""
    found = scan_all(folder)
    note_unread(folder, found.unread)
    return found.images


def images_below(folder: Path, names: Sequence[str]) -> list[list[str]]:
    """For each named sub-folder, its images at any depth: paths relative to `folder`, sorted.

    The folders are listed in parallel, without a stat per file: a training set is a million files on a slow disk; and
    not at all where none of them changed since they were last. UsageError for a link that leads back to a folder above
    it.
    """
    known = listing_cache.listing(folder, names)
    if known is not None:
        note_unread(folder, known.unread)
        return known.below()
    listed: dict[str, listing_cache.Stamp] = {}
    unread: Counter[str] = Counter()
    with ThreadPoolExecutor(THREADS) as pool:
        walks = list(pool.map(lambda name: _walk(folder / name, f"{name}/", (), listed), names))
    found = [sorted(walk.images) for walk in walks]
    for walk in walks:
        unread += walk.unread
    note_unread(folder, unread)
    listing_cache.remember(folder, names, found, listed, unread)
    return found


def labelled(folder: Path, classes: Sequence[str]) -> tuple[list[str], np.ndarray, list[str]]:
    """Images of the class folders relative to `folder`, their labels [N] int64, and the classes that have no images."""
    per_class = images_below(folder, classes)
    labels = np.repeat(np.arange(len(classes), dtype=np.int64), [len(images) for images in per_class])
    empty = [name for name, images in zip(classes, per_class, strict=True) if not images]
    return [name for images in per_class for name in images], labels, empty


def _walk(
    folder: Path, prefix: str, above: tuple[tuple[int, int], ...], listed: dict[str, listing_cache.Stamp]
) -> Scanned:
    """List a folder and all below it; images with their paths behind `prefix`.

    above: device and inode of the folders that lead here. listed: takes the stamp of every folder.
    """
    status = os.stat(folder)
    listed[prefix] = listing_cache.stamp(status)
    own = status.st_dev, status.st_ino
    if own in above:
        raise UsageError(f"{folder} is a link to a folder that it is in: remove it")
    here = scan_all(folder)
    images, unread = [prefix + name for name in here.images], here.unread
    for sub in here.folders:
        below = _walk(folder / sub, f"{prefix}{sub}/", (*above, own), listed)
        images += below.images
        unread += below.unread
    return Scanned(here.folders, images, unread)
