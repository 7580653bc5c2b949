"""What folders held when they were last looked at, so that an unchanged tree is not listed again by every command.

A file per data set under `<home>/cache/listings`: its images in order, of every folder that was listed inode and times,
and the images' sizes once they were asked for. Names are taken from there as long as no folder was changed: adding,
removing and renaming change the times of the folder that they happen in. So are sizes, which a file that is overwritten
in place does not tell: some of them, others at every opening, are asked for and must be what they were. docs/data.md
says what that misses.

Nothing here is an error: what can't be read, written or believed is looked at again.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import os
import random
import time
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from biasbed.data.decoding import EXTENSIONS
from biasbed.data.names import Names
from biasbed.system.files import whole
from biasbed.system.places import own_home

LEAST = 1000  # images, below which a tree is listed faster than remembered
SETTLED = 2.0  # seconds since the last change of a folder: a later one within a clock's tick would not show
ASKED = 128  # sizes that are asked for at every opening: where 5 % of the files changed, it shows with 99.9 %
CHECKED = 30.0  # seconds that a tree that was just opened stands for itself when its sizes are asked for
THREADS = 16  # for waiting on a slow disk, not for computing
_PART = 1024  # folders that a thread looks at: a task for each would cost more than its stat
_END = "\0"  # no file's name has it
_WORD = 2**64 - 1  # an inode may have all bits, a time may be before 1970
_STAMP = "stamp"  # of a table's folder

Stamp = tuple[int, int, int]  # of a folder; the last changes whenever its content does, whatever the second is set to


def stamp(status: os.stat_result) -> Stamp:
    return status.st_ino, status.st_mtime_ns, status.st_ctime_ns


@dataclass(frozen=True)
class Remembered:
    """What was below a folder."""

    names: tuple[str, ...]  # of the sub-folders that were asked for
    counts: tuple[int, ...]  # images below each
    folders: tuple[str, ...]  # every folder that was listed: paths relative to the folder
    stamps: np.ndarray  # [folders, 3] uint64, of each its `Stamp`
    images: bytes  # paths relative to the folder, in order, with _END between them
    sizes: np.ndarray  # [images] bytes, int64; empty where they were not asked for
    unread: Mapping[str, int]  # suffix -> number of the files that are no images

    def below(self) -> list[list[str]]:
        """The images of each of the sub-folders."""
        images, ends = self.images.decode().split(_END), itertools.accumulate(self.counts)
        return [images[end - count : end] for end, count in zip(ends, self.counts, strict=True)]

    def is_now(self, root: Path) -> bool:
        """Whether every folder is as it was; OSError where one is gone."""
        starts = range(0, len(self.folders), _PART)
        with ThreadPoolExecutor(THREADS) as pool:
            return all(pool.map(lambda start: self._is_now(root, start, start + _PART), starts))

    def _is_now(self, root: Path, start: int, stop: int) -> bool:
        found = map(os.stat, [f"{root}/{name}" for name in self.folders[start:stop]])
        return np.array_equal(_words(map(stamp, found)), self.stamps[start:stop])


def _words(stamps: Iterable[Stamp]) -> np.ndarray:
    """[n, 3] uint64."""
    return np.array([number & _WORD for found in stamps for number in found], dtype=np.uint64).reshape(-1, 3)


# Listings that were just found to hold, or written: file -> (stamp of that file, when).
_held: dict[Path, tuple[Stamp, float]] = {}


def listing(root: Path, names: Sequence[str]) -> Remembered | None:
    """Return what was below these sub-folders; None where that is not known."""
    known = _read(root)
    return known if known is not None and known.names == tuple(names) else None


def remember(
    root: Path,
    names: Sequence[str],
    found: Sequence[Sequence[str]],
    listed: dict[str, Stamp],
    unread: Mapping[str, int],
) -> None:
    """Keep what was just listed.

    listed: of every folder, by its relative path, what it was before it was listed. unread: suffix -> number of the
    files that are no images.
    """
    counts = tuple(map(len, found))
    latest = max((changed for _, *times in listed.values() for changed in times), default=0)
    if sum(counts) < LEAST or latest > (time.time() - SETTLED) * 1e9:
        return
    images = _END.join(name for own in found for name in own).encode()
    stamps, no_sizes = _words(listed.values()), np.empty(0, dtype=np.int64)
    _write(root, Remembered(tuple(names), counts, tuple(listed), stamps, images, no_sizes, dict(unread)))


def sizes(root: Path, images: Names) -> np.ndarray | None:
    """Bytes of each of the images [N] int64, in order; None where some are not known, or have been changed.

    Of a tree that was opened a moment ago folders are not looked at once more.
    """
    known = _read(root, CHECKED) if len(images) >= LEAST else None
    if known is None or len(known.sizes) != len(images) or known.images != images.joined(_END):
        return None
    chosen = random.Random().sample(range(len(images)), min(ASKED, len(images)))
    with contextlib.suppress(OSError):
        if all(os.stat(f"{root}/{images[row]}").st_size == known.sizes[row] for row in chosen):
            return known.sizes
    return None


def remember_sizes(root: Path, images: Names, found: np.ndarray) -> None:
    """Keep sizes that were just asked for, if the listing is known."""
    known = _read(root, CHECKED) if len(images) >= LEAST else None
    if known is not None and known.images == images.joined(_END):
        _write(root, replace(known, sizes=found))


def table(folder: Path, read: Callable[[], Mapping[str, np.ndarray]]) -> Mapping[str, np.ndarray]:
    """What is read of all files in a folder, kept as long as none of them is added, removed or renamed.

    For files by the hundred thousand that say how images are labelled. A file that is overwritten in place does not
    show.
    """
    try:
        now, place = stamp(os.stat(folder)), _place(folder).with_suffix(".npz")
    except RuntimeError:  # there is no home
        return read()
    with contextlib.suppress(Exception), np.load(place) as kept:  # of what is no such file, nearly anything is raised
        if kept[_STAMP].tolist() == list(now):
            return {name: kept[name] for name in kept.files if name != _STAMP}
    found = read()
    if now[2] < (time.time() - SETTLED) * 1e9:
        with contextlib.suppress(OSError):
            place.parent.mkdir(parents=True, exist_ok=True)
            with whole(place, durable=False) as temporary, temporary.open("wb") as file:
                np.savez(file, allow_pickle=False, **{_STAMP: np.array(now), **found})
    return found


def forget(root: Path) -> None:
    """Have a folder listed, all its files asked for their sizes, and its table read, when it is opened next."""
    with contextlib.suppress(RuntimeError):
        for path in (_place(root), _place(root).with_suffix(".npz")):
            with contextlib.suppress(OSError):
                path.unlink()


# --- on disk ----------------------------------------------------------------------------------------------------------


def _place(root: Path) -> Path:
    """RuntimeError where there is no home."""
    name = hashlib.sha256(os.fsencode(os.path.abspath(root))).hexdigest()[:16]
    return own_home() / "cache" / "listings" / name


def _read(root: Path, trusted: float = 0.0) -> Remembered | None:
    """What is kept of a folder, as long as it holds; None for anything else, whatever is in the file.

    trusted: seconds for which folders that were found to be as they were need no second look. A change within them
    shows at the next opening, which always looks.
    """
    try:
        path = _place(root)
        file, now = stamp(os.stat(path)), time.monotonic()
        known = _parsed(path.read_bytes())
        held, when = _held.get(path, (None, 0.0))
        if held == file and now - when < trusted:
            return known
        if not known.is_now(root):
            return None
        _held[path] = file, now
        return known
    except Exception:  # of what is no such file, nearly anything is raised
        return None


def _parsed(content: bytes) -> Remembered:
    """What a file holds; ValueError, and nearly anything else, where it is no such file."""
    checksum, head, body = content.split(b"\n", 2)
    if int(checksum, 16) != zlib.crc32(body, zlib.crc32(head)):
        raise ValueError
    told = json.loads(head)
    if told["suffixes"] != sorted(EXTENSIONS):  # listed by a version that reads other files
        raise ValueError
    images, folders, stamps, sizes = (body[start:end] for start, end in itertools.pairwise((*told["parts"], None)))
    return Remembered(
        tuple(told["names"]),
        tuple(told["counts"]),
        tuple(folders.decode().split(_END)),
        np.frombuffer(stamps, dtype=np.uint64).reshape(-1, 3),
        images,
        np.frombuffer(sizes, dtype=np.int64),
        dict(told["unread"]),
    )


def _write(root: Path, known: Remembered) -> None:
    parts = (known.images, _END.join(known.folders).encode(), known.stamps.tobytes(), known.sizes.tobytes())
    starts = list(itertools.accumulate(map(len, parts[:-1]), initial=0))
    told: dict[str, object] = {"names": known.names, "counts": known.counts, "parts": starts}
    told |= {"unread": known.unread, "suffixes": sorted(EXTENSIONS)}
    head, body = json.dumps(told).encode(), b"".join(parts)
    with contextlib.suppress(OSError, RuntimeError):  # a home that is full, read-only or not there
        path = _place(root)
        path.parent.mkdir(parents=True, exist_ok=True)
        with whole(path, durable=False) as temporary:
            temporary.write_bytes(b"\n".join([b"%08x" % zlib.crc32(body, zlib.crc32(head)), head, body]))
        _held[path] = stamp(os.stat(path)), time.monotonic()
