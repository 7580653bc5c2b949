"""Packed images: the files of a source in a few large Parquet files, memory-mapped and read image by image.

`<prepared_dir>/packed/<source>-<fingerprint>-<form>/` has the shards `images-00000.parquet` and so on, and
`index` (`index`), which is written last. The form `whole` has the files byte for byte; `256-jpeg90` and
`256-raw` have images that were resized once. A source reads from a pack whose fingerprint is its own.

A shard is an ordinary Parquet file with the columns of image data sets on the Hugging Face hub. Its images are
neither compressed nor encoded, so the index can say at which byte each one begins and reading one needs no Parquet
library. The checksum of an image is checked when a process first reads it.
"""

from __future__ import annotations

import mmap
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from biasbed import record
from biasbed.data.decoding import open_content
from biasbed.data.source import Picture
from biasbed.errors import UnfitImage, UsageError
from biasbed.plugins.packed import index as pack_index
from biasbed.plugins.packed.index import AGAIN, name_key, shard_name

STORE = "packed"  # folder of all packs in `prepared_dir`
INDEX = "index"
WHOLE = "whole"  # form of packed images that are byte for byte the files


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
