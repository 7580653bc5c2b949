"""A source of images: labels and other columns in memory, images opened one at a time."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, Self

import numpy as np
import torch
from torch import Tensor

from biasbed.data.names import Coded, Names


class Picture(Protocol):
    """One image that is decoded when asked for, at the size that is needed."""

    @property
    def height(self) -> int: ...

    @property
    def width(self) -> int: ...

    def pixels(self, shrink: int = 1, rows: int | None = None) -> Tensor:
        """The image as uint8 [C,h,w], RGB if it has three. `CorruptImage` names a file that can't be decoded.

        shrink: with 2, 4 or 8 the sides may come out that many times smaller, where that is cheaper than decoding all.
        rows: of the picture, from the top, that are needed; those below may be missing where that is cheaper.
        """
        ...


@dataclass(frozen=True, eq=False)
class Decoded:
    """A picture that is in memory: `image` is uint8 [C,H,W]."""

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
class Whole:
    """A picture that several parts are taken of, and of which all rows are therefore decoded at once."""

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
    """N labelled images; subclasses open them.

    `y` is [N] int64 class indices (or [N,K] multi-hot), `ids` names every image for good (a relative path). `domain`
    and `bias` are [N] int64 columns or None; `bias` holds the class that the shortcut (texture, background) suggests.
    `group` [N] holds the name of each image's reporting group, or is None; `roles` says of groups what they stand for
    (`record.SetRecord.roles`). `condition` [N] int64 is under which of `conditions` an image is shown (corrupted how,
    seen from where), or None. `accepted` [N,K] bool are the labels that are right, where an image of one class may be
    put into several; `y` is then one of them. `origin` is the fingerprint of what a seed draws these images from, or
    makes them of; empty where no seed does.
    """

    name: str
    classes: tuple[str, ...]
    y: np.ndarray
    ids: Sequence[str]
    domain: np.ndarray | None = None
    domains: tuple[str, ...] = ()
    bias: np.ndarray | None = None
    group: np.ndarray | None = None
    roles: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    condition: np.ndarray | None = None
    conditions: tuple[str, ...] = ()
    accepted: np.ndarray | None = None
    origin: str = ""

    def __post_init__(self) -> None:
        if not isinstance(self.ids, Names):
            object.__setattr__(self, "ids", Names(self.ids))

    def __len__(self) -> int:
        return len(self.y)

    @property
    def names(self) -> Names:
        """The ids, as they are held."""
        assert isinstance(self.ids, Names)
        return self.ids

    @property
    def num_labels(self) -> int:
        """How many of the classes some image has."""
        return len(np.unique(self.y)) if self.y.ndim == 1 else int((self.y > 0).any(axis=0).sum())

    @property
    def shown(self) -> Coded | None:
        """Of each image the condition that it is shown under, if any is."""
        return None if self.condition is None else Coded(self.condition, self.conditions)

    def open(self, row: int) -> Picture:
        """The image, not decoded yet; `CorruptImage` names a file that is not one."""
        raise NotImplementedError

    def load(self, row: int) -> Tensor:
        """The image as uint8 [C,H,W], RGB if it has three; `CorruptImage` names a file that can't be decoded."""
        return self.open(row).pixels()

    @property
    def shape(self) -> tuple[int, ...] | None:
        """[C,H,W] of images that are all of one size and can be had at a stroke (`load_all`); None of others."""
        return None

    def load_all(self, rows: np.ndarray) -> Tensor:
        """Several images at a stroke, uint8 [n,C,H,W]; of sources that have a `shape`."""
        raise NotImplementedError

    @property
    def channels(self) -> int:
        """Of every image."""
        return 3

    def fingerprint(self) -> str:
        """16 hex digits that change when the images or labels change; cheap enough for every run."""
        raise NotImplementedError

    def subset(self, rows: Sequence[int] | np.ndarray, name: str) -> Self:
        """The given rows under another name."""
        chosen = np.asarray(rows, dtype=np.int64)
        parts = {column: getattr(self, column) for column in self._columns()}
        taken: dict[str, Any] = {column: None if part is None else part[chosen] for column, part in parts.items()}
        return replace(self, name=name, ids=self.names.at(chosen), **taken)

    def _columns(self) -> tuple[str, ...]:
        """Names of what has a row for every image, besides the ids."""
        return "y", "domain", "bias", "group", "condition", "accepted"

    def _digest(self, *parts: bytes) -> str:
        """Hash of labels, ids and the given bytes."""
        assert isinstance(self.ids, Names)
        sha = hashlib.sha256("\n".join(self.classes).encode())
        if len(self.ids):
            sha.update(b"\n" * bool(self.classes) + self.ids.joined("\n"))
        several = [] if self.accepted is None else [np.packbits(self.accepted).tobytes()]
        for part in (self.y.tobytes(), *several, *parts):
            sha.update(part)
        return sha.hexdigest()[:16]


@dataclass(frozen=True, eq=False, kw_only=True)
class MemorySource(Source):
    """Images that are in memory: `images` is uint8 [N,C,H,W]."""

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
