"""Packed images: the files of a source in a few large Parquet files, memory-mapped and read image by image.

`<prepared_dir>/packed/<source>-<fingerprint>-<form>/` has the shards `images-00000.parquet` and so on, and
`index` (`data.pack_index`), which is written last. The form `whole` has the files byte for byte; `256-jpeg90` and
`256-raw` have images that were resized once. A source reads from a pack whose fingerprint is its own.

A shard is an ordinary Parquet file with the columns of image data sets on the Hugging Face hub. Its images are
neither compressed nor encoded, so the index can say at which byte each one begins and reading one needs no Parquet
library. The checksum of an image is checked when a process first reads it.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import mmap
import os
import re
import zlib
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from biasbed import record
from biasbed.config import WHOLE
from biasbed.data import pack_index
from biasbed.data.decoding import open_content
from biasbed.data.names import relative_prefix
from biasbed.data.pack_index import AGAIN, name_key, shard_name
from biasbed.data.source import Picture, Source
from biasbed.errors import MissingData, UnfitImage, UsageError
from biasbed.system import commands

STORE = "packed"  # folder of all packs in `prepared_dir`
INDEX = "index"
log = logging.getLogger(__name__)
_current: ContextVar[Packs | None] = ContextVar("_current", default=None)


def current() -> Packs | None:
    """Return the packs that sources opened here read from; None if they read their own files only."""
    return _current.get()


@contextlib.contextmanager
def using(packs: Packs | None) -> Iterator[None]:
    """Let the sources that are opened within the block read from packs."""
    token = _current.set(packs)
    try:
        yield
    finally:
        _current.reset(token)


@dataclass(frozen=True, eq=False)
class PackedPixels:
    """Picture of raw pixels in a pack, [H,W,3] uint8."""

    path: Path
    content: np.ndarray

    @property
    def height(self) -> int:
        return int(self.content.shape[0])

    @property
    def width(self) -> int:
        return int(self.content.shape[1])

    def pixels(self, shrink: int = 1, rows: int | None = None) -> Tensor:
        # A copy, because a tensor must not write to the file; it is small beside what a transform does with it.
        return torch.from_numpy(np.array(self.content[:rows])).permute(2, 0, 1)


class Pack:
    """One pack, opened; its shards are mapped into memory when an image of theirs is first read."""

    def __init__(self, folder: Path) -> None:
        """Open the index. Raises UsageError if it is damaged or a shard does not have its size."""
        self.folder = folder
        self.about, self._index = pack_index.read(folder / INDEX)
        self._maps: dict[int, mmap.mmap] = {}
        self._is_checked = bytearray(len(self._index["key"]))
        for number, shard in enumerate(self.about.shards):
            path = folder / shard_name(number)
            size = path.stat().st_size if path.is_file() else None
            if size != shard.size:
                state = "is missing" if size is None else f"has {size:,} bytes instead of {shard.size:,}"
                raise UsageError(f"the packed images in {path} are damaged: the file {state}; {AGAIN}")

    def __reduce__(self) -> tuple[Any, ...]:
        return Pack, (self.folder,)

    def find(self, name: str) -> int | None:
        """Return an image's position in the index; None if the pack does not have it."""
        key = np.uint64(name_key(name))
        at = int(self._index["key"].searchsorted(key))
        return at if at < len(self._is_checked) and self._index["key"][at] == key else None

    def open(self, at: int, path: Path) -> Picture:
        """Open an image without decoding it. path: of the file that it was. Raises UnfitImage if it is damaged."""
        content = self.content(at, path)
        height, width = int(self._index["height"][at]), int(self._index["width"][at])
        if not height:
            return open_content(path, bytes(content))
        return PackedPixels(path, np.frombuffer(content, dtype=np.uint8).reshape(height, width, 3))

    def checksum(self, at: int) -> int:
        """Return an image's CRC-32, as the index has it."""
        return int(self._index["crc"][at])

    def content(self, at: int, path: Path) -> memoryview:
        """Return an image's bytes, and compare their checksum the first time. Raises UnfitImage if they differ."""
        index = self._index
        shard, start = int(index["shard"][at]), int(index["offset"][at])
        content = memoryview(self._map(shard))[start : start + int(index["length"][at])]
        if not self._is_checked[at]:
            if len(content) != index["length"][at] or zlib.crc32(content) != index["crc"][at]:
                shard_path = self.folder / shard_name(shard)
                raise UnfitImage(f"the packed images in {shard_path} are damaged (found at {path}); {AGAIN}")
            self._is_checked[at] = 1
        return content

    def _map(self, shard: int) -> mmap.mmap:
        if shard not in self._maps:
            with open(self.folder / shard_name(shard), "rb") as file:
                self._maps[shard] = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        return self._maps[shard]


def pack_folder(store: Path, source: str, fingerprint: str, form: str) -> Path:
    """Return the folder of a source's pack. store: folder of all packs."""
    return store / f"{record.slug(source)}-{fingerprint}-{form}"


_FOLDER = re.compile(r".*-(?P<fingerprint>[0-9a-f]{16})-(?P<form>whole|\d+-raw|\d+-jpeg\d+)")


class _Bound(NamedTuple):
    """Pack that has the files below a folder."""

    root: str
    pack: Pack


class Packs:
    """Packs of one form that sources read from: those whose fingerprint a source has had while it was opened."""

    def __init__(self, store: Path, form: str = WHOLE) -> None:
        """store: folder of all packs."""
        self.store, self.form = store, form
        self._bound: list[_Bound] = []
        self._prefixes: dict[Path, list[tuple[str, bool, Pack]]] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_prefixes": {}}

    @functools.cached_property
    def _folders(self) -> dict[str, Path]:
        """Folder of each pack of this form by its source's fingerprint."""
        folders = {}
        for path in sorted(self.store.iterdir()) if self.store.is_dir() else ():
            match = _FOLDER.fullmatch(path.name)
            if match and match["form"] == self.form and (path / INDEX).is_file():
                folders[match["fingerprint"]] = path
        return folders

    def bind(self, source: Source, folder: Path, fingerprint: str) -> str:
        """Let a source's files below a folder be read from the pack with its fingerprint.

        Returns the fingerprint of what is read. Warns about a pack of the same folder that has other images. Raises
        MissingData if the images were to be resized ones, and they are not packed.
        """
        root = os.path.abspath(folder)
        pack_folder = self._folders.get(fingerprint)
        if pack_folder is not None:
            if not any(bound.root == root and bound.pack.folder == pack_folder for bound in self._bound):
                pack = Pack(pack_folder)
                if (pack.about.fingerprint, pack.about.form) != (fingerprint, self.form):
                    raise UsageError(f"{pack_folder} is a pack of other images than its name says; {AGAIN}")
                self._bound.append(_Bound(root, pack))
                self._prefixes.clear()
        elif self.form != WHOLE:
            if not all(self.find(folder, name) for name in source.ids):
                flags = {"what": "packed", "packed.side": self.form.split("-")[0]}
                command = commands.typed("prepare", flags)
                raise MissingData(
                    f"data.packed={self.form}: the images of '{source.name}' in {root} are not packed so, or have "
                    f"changed since: {command}, with this command's suite and data_dir"
                )
        else:
            self._warn_of_other(source.name, root, fingerprint)
        return fingerprint if self.form == WHOLE else record.digest([fingerprint, self.form])

    def _warn_of_other(self, name: str, root: str, fingerprint: str) -> None:
        """Warn if there is a pack of the same name and folder, made when the images had another fingerprint."""
        for packed_fingerprint, folder in self._folders.items():
            is_bound = any(bound.pack.folder == folder for bound in self._bound)  # of which this is a part
            if is_bound or folder in _warned or not folder.name.startswith(f"{record.slug(name)}-"):
                continue
            _warned.add(folder)
            with contextlib.suppress(UsageError):
                if pack_index.read(folder / INDEX).about.root == root:
                    log.warning(
                        "the packed images %s are not read: '%s' in %s has changed since it was packed (fingerprint "
                        "%s, now %s); prepare what=packed again",
                        *(folder, name, root, packed_fingerprint, fingerprint),
                    )

    def find(self, root: Path, name: str) -> tuple[Pack, int] | None:
        """Return the pack that has a file, and the file's position there; None if no pack has it."""
        if root not in self._prefixes:
            self._prefixes[root] = self._related(os.path.abspath(root))
        for prefix, is_above, pack in self._prefixes[root]:
            if is_above:
                at = pack.find(prefix + name)
            else:
                at = pack.find(name[len(prefix) :]) if name.startswith(prefix) else None
            if at is not None:
                return pack, at
        return None

    def _related(self, root: str) -> list[tuple[str, bool, Pack]]:
        """Return (prefix, is_above, pack) of the packs of this folder, and of folders above or below it.

        A pack's name of a file is that below `root` with the prefix before it; without it if the pack is of a folder
        below.
        """
        related = []
        for bound in self._bound:
            relation = relative_prefix(bound.root, root)
            if relation is not None:
                related.append((*relation, bound.pack))
        return related

    def open(self, root: Path, name: str) -> Picture | None:
        """Open a packed image without decoding it; None if no pack has it."""
        if not self._bound:
            return None
        position = self.find(root, name)
        return None if position is None else position[0].open(position[1], root / name)

    def checksum(self, root: Path, name: str) -> int | None:
        """Return the CRC-32 of a packed image; None if no pack has it."""
        position = self.find(root, name) if self._bound else None
        return None if position is None else position[0].checksum(position[1])


_warned: set[Path] = set()  # packs of changed sources that were reported


class Collecting(Packs):
    """Packs of nothing, which note the sources that a suite opens: those that could be packed."""

    def __init__(self) -> None:
        super().__init__(Path(os.devnull))
        self.sources: dict[str, Source] = {}

    def bind(self, source: Source, folder: Path, fingerprint: str) -> str:
        self.sources.setdefault(fingerprint, source)
        return fingerprint
