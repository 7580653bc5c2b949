"""Cache of prepared test images: decoded, resized and cropped once, and read by every later test.

`<home>/cache/tests/<key>` has the images of one set, uint8, at fixed positions. The key is a hash of the images' names,
sizes and labels (the source's fingerprint), of the transform, and of the code and the libraries that decode and resize.
Each image is kept with the modification time of its file, so one that was written anew is decoded again. Several
processes may read and fill a file at once: equal keys give equal bytes, and a checksum per image tells what is there.
Sets that are used least recently go when the cache is larger than `cache.gb`, unless a process is using them.

Answers: When are test images decoded, and where are they kept?
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import importlib.metadata
import json
import os
import shutil
import struct
import sys
import time
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from biasbed.config import Config
from biasbed.data import decoding, transforms
from biasbed.data.source import Source
from biasbed.data.transforms import CentreCrop, CropThenResize, SquareResize, Transform
from biasbed.errors import CorruptImage
from biasbed.suites.sets import EvaluationSet
from biasbed.system.places import own_home

LIBRARIES = ("torch", "torchvision", "simplejpeg", "pillow")
KNOWN = (CentreCrop, CropThenResize, SquareResize)  # transforms that yield the same for an image, in one shape
LAYOUT = "<Qq"  # flags and checksum, version
PRESENT, LAST_CHANNELS = 1 << 32, 1 << 33  # flags beside an image's CRC-32
STATE = 16  # bytes of flags, checksum and version of an image
SAMPLED = 8  # images of a set that are prepared to estimate the time
READ = 0.15e-3  # seconds that reading a prepared image takes, about
PAYS = 20.0  # for `auto`: seconds that all tests of a training must save
SHARE = 0.1  # for `auto`: share of the free disk space that may be used


@dataclass(eq=False)
class CachedSet:
    """Prepared images of one set, in a file."""

    path: Path
    count: int  # number of images
    shape: tuple[int, int, int]  # [C,H,W]
    is_written: bool  # True: images that the file lacks are added
    _descriptor: int | None = field(default=None, repr=False)
    _is_checked: bytearray = field(default_factory=bytearray, repr=False)

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_descriptor": None}

    @property
    def size(self) -> int:
        """Size of the full file in bytes."""
        return self.count * (STATE + self._image_bytes)

    @property
    def _image_bytes(self) -> int:
        return int(np.prod(self.shape))

    def open(self) -> bool:
        """Open the file and share a lock on it, so that nobody removes it. Return False if it can't be had."""
        try:
            while self._descriptor is None:
                descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
                fcntl.flock(descriptor, fcntl.LOCK_SH)
                if self.path.exists() and os.path.samestat(os.fstat(descriptor), self.path.stat()):
                    self._descriptor = descriptor
                else:  # it was removed between the two calls
                    os.close(descriptor)
            os.ftruncate(self._descriptor, self.size)  # unwritten parts are zeros, which no image is
            os.utime(self.path)
            self._is_checked = bytearray(self.count)
            return True
        except OSError:
            return False

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def read(self, row: int, version: int) -> Tensor | None:
        """Read an image [C,H,W] as its transform laid it out; None if the file lacks it or has it damaged.

        version: of the source's image (`Source.version`); one that was kept of another version is not read.
        """
        if self._descriptor is None and not self.open():
            return None
        assert self._descriptor is not None
        state, kept_version = struct.unpack(LAYOUT, os.pread(self._descriptor, STATE, row * STATE))
        if not state & PRESENT or kept_version != version:
            return None
        content = bytearray(self._image_bytes)
        length = os.preadv(self._descriptor, [content], self._offset(row))
        if not self._is_checked[row]:
            if length != len(content) or zlib.crc32(content) != state & (PRESENT - 1):
                return None
            self._is_checked[row] = 1
        image = torch.frombuffer(content, dtype=torch.uint8)
        channels, height, width = self.shape
        if state & LAST_CHANNELS:
            return image.view(height, width, channels).permute(2, 0, 1)
        return image.view(self.shape)

    def write(self, row: int, version: int, image: Tensor) -> None:
        """Keep an image of this version. A full disk ends the writing: all further images are prepared each time."""
        if not self.is_written or tuple(image.shape) != self.shape or self._descriptor is None:
            return
        is_last = image.stride(0) == 1
        content = (image.permute(1, 2, 0) if is_last else image).contiguous().numpy().tobytes()
        state = zlib.crc32(content) | PRESENT | (LAST_CHANNELS if is_last else 0)
        try:
            written = os.pwrite(self._descriptor, content, self._offset(row))
            if written == len(content):
                os.pwrite(self._descriptor, struct.pack(LAYOUT, state, version), row * STATE)
        except OSError as error:
            self.is_written = False
            print(f"warning: test images are not kept from now on: {error.strerror}: {self.path}", file=sys.stderr)

    def _offset(self, row: int) -> int:
        return self.count * STATE + row * self._image_bytes


class TestCache:
    """Cache of the test images of one training or evaluation."""

    __test__ = False  # no test of pytest's

    def __init__(self, config: Config, times: int, workers: int) -> None:
        """times: number of tests of this command. workers: loader processes."""
        self.times, self.workers = times, max(1, workers)
        self.is_automatic = config.cache.gb == "auto"
        self.gigabytes = config.cache.gb
        self._estimate = 0.0  # seconds that one test saves
        self._opened: list[CachedSet] = []

    @property
    def folder(self) -> Path:
        return own_home() / "cache" / "tests"

    def open(self, sets: Sequence[EvaluationSet]) -> Mapping[str, CachedSet]:
        """Return the cached sets, keyed by name: those whose images can be kept, fit on the disk, and save time.

        A command that tests once reads what earlier ones kept and adds nothing, unless `cache.gb` is a number.
        """
        if self.gigabytes == 0:
            return {}
        cached = {}
        for evaluation_set in sets:
            cached_set = self._plan_cached_set(evaluation_set)
            if cached_set is not None and (cached_set.path.exists() or self._pays(evaluation_set)):
                cached_set.is_written = self.times > 1 or not self.is_automatic
                if self._make_room(cached_set) and cached_set.open():
                    cached[evaluation_set.name] = cached_set
        return cached

    def describe(self, cached: Mapping[str, CachedSet]) -> str:
        """Describe in a line what is kept, and what that saves; empty if nothing is kept."""
        if not cached or not self._estimate:
            return ""
        images = sum(cached_set.count for cached_set in cached.values())
        size = sum(cached_set.size for cached_set in cached.values())
        return (
            f"{images:,} test images are decoded once and kept in {self.folder} ({size / 1e9:.1f} GB): each later test "
            f"takes about {self._estimate:,.0f} s less (cache.gb=0 keeps none)"
        )

    def _plan_cached_set(self, evaluation_set: EvaluationSet) -> CachedSet | None:
        """Return the file of a set; None if its images are in memory already or are not always the same."""
        source, transform = evaluation_set.source, evaluation_set.transform
        if source.shape is not None or not len(source) or not isinstance(transform, KNOWN):
            return None
        try:
            path = self.folder / _hash_inputs(source, transform)
        except RuntimeError:  # there is no home
            return None
        return CachedSet(path, len(source), (source.channels, transform.size, transform.size), False)

    def _pays(self, evaluation_set: EvaluationSet) -> bool:
        """Return True if keeping a set's images saves more than it costs, as estimated from a few of them."""
        if self.times < 2 and self.is_automatic:
            return False
        saved = self._estimate_saving(evaluation_set)
        if self.is_automatic and saved * (self.times - 1) < PAYS:
            return False
        self._estimate += saved
        return True

    def _estimate_saving(self, evaluation_set: EvaluationSet) -> float:
        """Estimate the seconds that a test of a set saves if its images are kept."""
        per_image = max(0.0, _seconds_per_image(evaluation_set) - READ)
        return per_image * len(evaluation_set.source) / self.workers

    def _make_room(self, cached: CachedSet) -> bool:
        """Remove the sets used least recently until one more fits. Return False if it does not."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            existing = sorted(self.folder.iterdir(), key=lambda path: path.stat().st_mtime)
            sizes = {path: path.stat().st_size for path in existing if path != cached.path}
            free = shutil.disk_usage(self.folder).free
        except OSError:
            return False
        limit = SHARE * free + sum(sizes.values()) if self.is_automatic else float(self.gigabytes) * 1e9
        for path in list(sizes):
            if sum(sizes.values()) + cached.size <= limit:
                break
            if _remove_unused(path):
                del sizes[path]
        return sum(sizes.values()) + cached.size <= limit


def _remove_unused(path: Path) -> bool:
    """Remove a set's file unless a process has it open. Return True if it is gone."""
    with contextlib.suppress(OSError), path.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        path.unlink()
        return True
    return not path.exists()


def _seconds_per_image(evaluation_set: EvaluationSet) -> float:
    """Measure how long a set's images take to decode and transform, by a few of them."""
    source = evaluation_set.source
    began = time.perf_counter()
    rows = range(0, len(source), -(-len(source) // SAMPLED))
    for row in rows:
        with contextlib.suppress(CorruptImage):  # reported when it is tested
            evaluation_set.transform(source.open(row))
    return (time.perf_counter() - began) / len(rows)


def _hash_inputs(source: Source, transform: Transform) -> str:
    """Return a hash of everything that a set's prepared images depend on."""
    versions = [importlib.metadata.version(name) for name in LIBRARIES]
    code = [Path(str(module.__file__)).read_bytes() for module in (decoding, transforms, sys.modules[__name__])]
    digests = [hashlib.sha256(content).hexdigest() for content in code]
    inputs = [source.fingerprint(), type(transform).__name__, vars(transform), versions, digests]
    return hashlib.sha256(json.dumps(inputs, sort_keys=True).encode()).hexdigest()[:32]
