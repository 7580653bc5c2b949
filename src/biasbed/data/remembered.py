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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from biasbed.data.names import Names
from biasbed.system.files import whole
from biasbed.system.places import own_home

LEAST = 1000  # images, below which a tree is listed faster than remembered
SETTLED = 2.0  # seconds since the last change of a folder: a later one within a clock's tick would not show
ASKED = 128  # sizes that are asked for at every opening: where 5 % of the files changed, it shows with 99.9 %
_END = "\0"  # no file's name has it
_STAMP = "stamp"  # of a table's folder

Stamp = tuple[int, int, int]  # of a folder; the last changes whenever its content does, whatever the second is set to


def stamp(status: os.stat_result) -> Stamp:
    return status.st_ino, status.st_mtime_ns, status.st_ctime_ns


@dataclass(frozen=True)
class Remembered:
    """What was below a folder."""

    names: tuple[str, ...]  # of the sub-folders that were asked for
    counts: tuple[int, ...]  # images below each
    folders: Mapping[str, Stamp]  # every folder that was listed, by its path relative to the folder
    images: bytes  # paths relative to the folder, in order, with _END between them
    sizes: np.ndarray  # [images] bytes, int64; empty where they were not asked for

    def below(self) -> list[list[str]]:
        """The images of each of the sub-folders."""
        images, ends = self.images.decode().split(_END), itertools.accumulate(self.counts)
        return [images[end - count : end] for end, count in zip(ends, self.counts, strict=True)]

    def is_now(self, root: Path) -> bool:
        """Whether every folder is as it was."""
        return all(stamp(os.stat(f"{root}/{name}")) == known for name, known in self.folders.items())


def listing(root: Path, names: Sequence[str]) -> list[list[str]] | None:
    """The images below each of these sub-folders; None where that is not known."""
    known = _read(root)
    return known.below() if known is not None and known.names == tuple(names) else None


def remember(root: Path, names: Sequence[str], found: Sequence[Sequence[str]], listed: dict[str, Stamp]) -> None:
    """Keep what was just listed. listed: of every folder, by its relative path, what it was before it was listed."""
    counts = tuple(map(len, found))
    latest = max((changed for _, *times in listed.values() for changed in times), default=0)
    if sum(counts) < LEAST or latest > (time.time() - SETTLED) * 1e9:
        return
    images = _END.join(name for own in found for name in own).encode()
    _write(root, Remembered(tuple(names), counts, listed, images, np.empty(0, dtype=np.int64)))


def sizes(root: Path, images: Names) -> np.ndarray | None:
    """Bytes of each of the images [N] int64, in order; None where some are not known, or have been changed."""
    known = _read(root) if len(images) >= LEAST else None
    if known is None or len(known.sizes) != len(images) or known.images != images.joined(_END):
        return None
    chosen = random.Random().sample(range(len(images)), min(ASKED, len(images)))
    with contextlib.suppress(OSError):
        if all(os.stat(f"{root}/{images[row]}").st_size == known.sizes[row] for row in chosen):
            return known.sizes
    return None


def remember_sizes(root: Path, images: Names, found: np.ndarray) -> None:
    """Keep sizes that were just asked for, if the listing is known."""
    known = _read(root) if len(images) >= LEAST else None
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


def _read(root: Path) -> Remembered | None:
    """What is kept of a folder, as long as it holds; None for anything else, whatever is in the file."""
    try:
        checksum, head, body = _place(root).read_bytes().split(b"\n", 2)
        if int(checksum, 16) != zlib.crc32(body, zlib.crc32(head)):
            return None
        told = json.loads(head)
        folders = {name: (inode, modified, changed) for name, (inode, modified, changed) in told["listed"].items()}
        images, sizes = body[: told["length"]], np.frombuffer(body[told["length"] :], dtype=np.int64)
        known = Remembered(tuple(told["names"]), tuple(told["counts"]), folders, images, sizes)
        return known if known.is_now(root) else None
    except Exception:  # of what is no such file, nearly anything is raised
        return None


def _write(root: Path, known: Remembered) -> None:
    told = {"names": known.names, "counts": known.counts, "listed": known.folders, "length": len(known.images)}
    head, body = json.dumps(told).encode(), known.images + known.sizes.tobytes()
    with contextlib.suppress(OSError, RuntimeError):  # a home that is full, read-only or not there
        path = _place(root)
        path.parent.mkdir(parents=True, exist_ok=True)
        with whole(path, durable=False) as temporary:
            temporary.write_bytes(b"\n".join([b"%08x" % zlib.crc32(body, zlib.crc32(head)), head, body]))
