"""Sources of images: labels and other columns in memory, images opened one at a time."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, Self

import numpy as np
import torch
from torch import Tensor

from biasbed.data.names import Names


class Picture(Protocol):
    """Image that is decoded on demand, at the size that is needed."""

    @property
    def height(self) -> int: ...

    @property
    def width(self) -> int: ...

    def pixels(self, shrink: int = 1, rows: int | None = None) -> Tensor:
        """Decode the image: uint8 [C,h,w], RGB if it has three channels.

        shrink: 1, 2, 4 or 8; the decoder may return sides that many times smaller if that is cheaper. rows: number of
        rows, from the top, that are needed; the decoder may leave out those below. Raises CorruptImage, which names the
        file, if it cannot be decoded.
        """
        ...


@dataclass(frozen=True, eq=False)
class Decoded:
    """Picture in memory: `image` is uint8 [C,H,W]."""

    image: Tensor

    @property
    def height(self) -> int:
        return int(self.image.shape[-2])

    @property
    def width(self) -> int:
        return int(self.image.shape[-1])

    def pixels(self, shrink: int = 1, rows: int | None = None) -> Tensor:
        return self.image


@dataclass(frozen=True, eq=False)
class AllRows:
    """Picture that decodes all its rows, whichever are asked for: several crops of it then take one decoding."""

    picture: Picture

    @property
    def path(self) -> object:
        return getattr(self.picture, "path", "an image")

    @property
    def height(self) -> int:
        return self.picture.height

    @property
    def width(self) -> int:
        return self.picture.width

    def pixels(self, shrink: int = 1, rows: int | None = None) -> Tensor:
        return self.picture.pixels(shrink)


@dataclass(frozen=True, eq=False, kw_only=True)
class Source:
    """N labelled images, which subclasses open. Columns that the images lack are None.

    origin: fingerprint of the images that a seed draws these from, or makes them of; empty if no seed is involved.
    """

    name: str
    classes: tuple[str, ...]
    y: np.ndarray  # class indices [N] int64, or multi-hot labels [N,K]
    ids: Sequence[str]  # permanent names of the images (relative paths)
    domain: np.ndarray | None = None  # index [N] int64 into `domains`
    domains: tuple[str, ...] = ()
    bias: np.ndarray | None = None  # class that each image's shortcut (texture, background) suggests, [N] int64
    group: np.ndarray | None = None  # name of each image's reporting group [N]
    roles: Mapping[str, Mapping[str, str]] = field(default_factory=dict)  # of the groups (`record.SetRecord.roles`)
    condition: np.ndarray | None = None  # index [N] into `conditions` (corruption, viewpoint)
    conditions: tuple[str, ...] = ()
    accepted: np.ndarray | None = None  # all labels that count as correct [N,K] bool; `y` is then one of them
    origin: str = ""

    def __post_init__(self) -> None:
        if not isinstance(self.ids, Names):
            object.__setattr__(self, "ids", Names(self.ids))

    def __len__(self) -> int:
        return len(self.y)

    @property
    def names(self) -> Names:
        """The ids as `Names`."""
        assert isinstance(self.ids, Names)
        return self.ids

    @property
    def num_labels(self) -> int:
        """Number of classes that occur."""
        return len(np.unique(self.y)) if self.y.ndim == 1 else int((self.y > 0).any(axis=0).sum())

    def open(self, row: int) -> Picture:
        """Open an image without decoding it. Raises CorruptImage, which names the file, if it is no image."""
        raise NotImplementedError

    def version(self, row: int) -> int:
        """Return a number that changes when an image's file is written anew; 0 for images that are in no file."""
        return 0

    def load(self, row: int) -> Tensor:
        """Decode an image: uint8 [C,H,W], RGB if it has three channels. Raises CorruptImage if it cannot be decoded."""
        return self.open(row).pixels()

    @property
    def shape(self) -> tuple[int, ...] | None:
        """Shape [C,H,W] if all images have the same one and `load_all` can load several at once; else None."""
        return None

    def load_all(self, rows: np.ndarray) -> Tensor:
        """Load several images at once, uint8 [n,C,H,W]. Only sources with a `shape` can."""
        raise NotImplementedError

    @property
    def channels(self) -> int:
        """Number of channels of every image."""
        return 3

    def fingerprint(self) -> str:
        """Compute 16 hex digits that change when images or labels change. Cheap enough for every run."""
        raise NotImplementedError

    def with_store(self, images: Any) -> Source:
        """Return this source with its pictures opened through an `ImageStore`. Images in memory stay as they are."""
        return self

    def subset(self, rows: Sequence[int] | np.ndarray, name: str) -> Self:
        """Return the rows as a source with another name."""
        chosen = np.asarray(rows, dtype=np.int64)
        columns: dict[str, Any] = {}
        for column in self._columns():
            values = getattr(self, column)
            columns[column] = None if values is None else values[chosen]
        return replace(self, name=name, ids=self.names.at(chosen), **columns)

    def _columns(self) -> tuple[str, ...]:
        """Return the names of the fields that have a row for each image, besides the ids."""
        return "y", "domain", "bias", "group", "condition", "accepted"

    def _digest(self, *parts: bytes) -> str:
        """Hash labels, ids and the bytes: 16 hex digits."""
        sha = hashlib.sha256("\n".join(self.classes).encode())
        if self.classes and len(self.ids):
            sha.update(b"\n")
        sha.update(self.names.joined("\n"))
        sha.update(self.y.tobytes())
        if self.accepted is not None:
            sha.update(np.packbits(self.accepted).tobytes())
        for part in parts:
            sha.update(part)
        return sha.hexdigest()[:16]


@dataclass(frozen=True, eq=False, kw_only=True)
class MemorySource(Source):
    """Images in memory: `images` is uint8 [N,C,H,W]."""

    images: np.ndarray

    @property
    def shape(self) -> tuple[int, ...]:
        return self.images.shape[1:]

    @property
    def channels(self) -> int:
        return int(self.images.shape[1])

    def load_all(self, rows: np.ndarray) -> Tensor:
        return torch.from_numpy(self.images[rows])

    def open(self, row: int) -> Picture:
        return Decoded(torch.from_numpy(self.images[row]))

    def fingerprint(self) -> str:
        return self._digest(self.images.tobytes())

    def _columns(self) -> tuple[str, ...]:
        return *super()._columns(), "images"
