"""Listing cache: contents of image folders, so that commands do not list an unchanged tree again.

`<home>/cache/listings` has a file per data set: its images in order, inode and times of every folder that was listed,
and the sizes of the images once they were read. Cached names are valid as long as no folder has changed: adding,
removing or renaming a file changes the times of its folder. Overwriting a file in place does not, so each opening
compares the sizes of a random sample of files. docs/data.md says what that misses.

The cache raises no errors: a folder whose cache file cannot be read, written or trusted is listed again.
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
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from biasbed.data.decoding import EXTENSIONS
from biasbed.data.names import Names
from biasbed.system.files import atomic_file
from biasbed.system.places import own_home

LEAST = 1000  # images; listing a smaller tree is faster than reading its cache file
SETTLED = 2.0  # seconds since the last change of a folder: a further change within a clock tick would not show
SAMPLED = 128  # sizes compared at each opening: if 5 % of the files changed, this detects it with 99.9 %
THREADS = 16  # for waiting on a slow disk, not for computing
_PART = 1024  # folders per task: a task for each folder would cost more than its stat
_END = "\0"  # occurs in no file name
_MASK = 2**64 - 1  # an inode may use all bits, a time may be before 1970

Stamp = tuple[int, int, int]  # inode, mtime, ctime; ctime changes with the content even if mtime is set back


def stamp(status: os.stat_result) -> Stamp:
    """Return inode, mtime and ctime of a folder."""
    return status.st_ino, status.st_mtime_ns, status.st_ctime_ns


@dataclass(frozen=True)
class CachedListing:
    """Contents of a folder at the last listing."""

    names: tuple[str, ...]  # sub-folders that were listed
    counts: tuple[int, ...]  # number of images below each of them
    folders: tuple[str, ...]  # every folder that was visited, as paths relative to the root
    stamps: np.ndarray  # [folders, 3] uint64, their stamps
    images: bytes  # paths relative to the root, in order, with _END between them
    sizes: np.ndarray  # [images] bytes, int64; empty if the sizes were not read
    unread: Mapping[str, int]  # suffix -> number of files that are not read as images

    def images_by_name(self) -> list[list[str]]:
        """Return the images of each of `names`."""
        images, ends = self.images.decode().split(_END), itertools.accumulate(self.counts)
        return [images[end - count : end] for end, count in zip(ends, self.counts, strict=True)]

    def is_current(self, root: Path) -> bool:
        """Return True if every folder is unchanged. Raises OSError if a folder is missing."""
        starts = range(0, len(self.folders), _PART)
        with ThreadPoolExecutor(THREADS) as pool:
            return all(pool.map(lambda start: self._is_current(root, start, start + _PART), starts))

    def _is_current(self, root: Path, start: int, stop: int) -> bool:
        states = map(os.stat, [f"{root}/{name}" for name in self.folders[start:stop]])
        return np.array_equal(_stamp_array(map(stamp, states)), self.stamps[start:stop])


def _stamp_array(stamps: Iterable[Stamp]) -> np.ndarray:
    """Convert stamps to an array [n, 3] uint64."""
    numbers = [number & _MASK for number in itertools.chain.from_iterable(stamps)]
    return np.array(numbers, dtype=np.uint64).reshape(-1, 3)


def read_listing(root: Path, names: Sequence[str]) -> CachedListing | None:
    """Return the current listing of these sub-folders; None if the cache does not have it."""
    cached = _read(root)
    return cached if cached is not None and cached.names == tuple(names) else None


def write_listing(
    root: Path,
    names: Sequence[str],
    images: Sequence[Sequence[str]],
    listed: dict[str, Stamp],
    unread: Mapping[str, int],
) -> None:
    """Write a listing to the cache, unless the tree is small or changed a moment ago.

    images: paths of the images of each name. listed: relative path of each folder -> its stamp before it was listed.
    unread: suffix -> number of files that are not read as images.
    """
    counts = tuple(map(len, images))
    latest = max((max(times) for _, *times in listed.values()), default=0)
    if sum(counts) < LEAST or latest > (time.time() - SETTLED) * 1e9:
        return
    joined = _END.join(itertools.chain.from_iterable(images)).encode()
    stamps, no_sizes = _stamp_array(listed.values()), np.empty(0, dtype=np.int64)
    _write(root, CachedListing(tuple(names), counts, tuple(listed), stamps, joined, no_sizes, dict(unread)))


def read_sizes(root: Path, images: Names) -> np.ndarray | None:
    """Return the sizes of the images in bytes [N] int64; None if the cache lacks one, or a file has changed."""
    cached = _read(root) if len(images) >= LEAST else None
    if cached is None or len(cached.sizes) != len(images) or cached.images != images.joined(_END):
        return None
    sample = random.Random().sample(range(len(images)), min(SAMPLED, len(images)))
    with contextlib.suppress(OSError):
        if all(os.stat(f"{root}/{images[row]}").st_size == cached.sizes[row] for row in sample):
            return cached.sizes
    return None


def write_sizes(root: Path, images: Names, sizes: np.ndarray) -> None:
    """Add the sizes [N] of the images to the cache, if it has their listing."""
    cached = _read(root) if len(images) >= LEAST else None
    if cached is not None and cached.images == images.joined(_END):
        _write(root, replace(cached, sizes=sizes))


def forget(root: Path) -> None:
    """Remove a folder's cache files: its next opening lists it and reads all sizes and its table."""
    with contextlib.suppress(RuntimeError):
        path = cache_path(root)
        for file in (path, path.with_suffix(".npz")):
            with contextlib.suppress(OSError):
                file.unlink()


# --- on disk ----------------------------------------------------------------------------------------------------------


def cache_path(root: Path) -> Path:
    """Return the path of a folder's cache file. Raises RuntimeError if there is no home."""
    name = hashlib.sha256(os.fsencode(os.path.abspath(root))).hexdigest()[:16]
    return own_home() / "cache" / "listings" / name


def _read(root: Path) -> CachedListing | None:
    """Return the cached listing of a folder if it is current; None if it is not, or if the file is damaged."""
    try:
        cached = _parse(cache_path(root).read_bytes())
        return cached if cached.is_current(root) else None
    except Exception:  # a damaged file may raise nearly anything
        return None


def _parse(content: bytes) -> CachedListing:
    """Parse a cache file. Raises ValueError, or nearly anything else, if it is damaged."""
    checksum, head, body = content.split(b"\n", 2)
    if int(checksum, 16) != zlib.crc32(body, zlib.crc32(head)):
        raise ValueError
    header = json.loads(head)
    if header["suffixes"] != sorted(EXTENSIONS):  # written by a version that reads other suffixes
        raise ValueError
    images, folders, stamps, sizes = (body[start:end] for start, end in itertools.pairwise((*header["parts"], None)))
    return CachedListing(
        tuple(header["names"]),
        tuple(header["counts"]),
        tuple(folders.decode().split(_END)),
        np.frombuffer(stamps, dtype=np.uint64).reshape(-1, 3),
        images,
        np.frombuffer(sizes, dtype=np.int64),
        dict(header["unread"]),
    )


def _write(root: Path, listing: CachedListing) -> None:
    parts = (listing.images, _END.join(listing.folders).encode(), listing.stamps.tobytes(), listing.sizes.tobytes())
    starts = list(itertools.accumulate(map(len, parts[:-1]), initial=0))
    header: dict[str, object] = {"names": listing.names, "counts": listing.counts, "parts": starts}
    header |= {"unread": listing.unread, "suffixes": sorted(EXTENSIONS)}
    head, body = json.dumps(header).encode(), b"".join(parts)
    with contextlib.suppress(OSError, RuntimeError):  # the home is full, read-only or missing
        path = cache_path(root)
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_file(path, durable=False) as temporary:
            temporary.write_bytes(b"\n".join([b"%08x" % zlib.crc32(body, zlib.crc32(head)), head, body]))
