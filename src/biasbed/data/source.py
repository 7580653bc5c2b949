"""A source of images: labels and other columns in memory, images loaded one at a time."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True, eq=False, kw_only=True)
class Source:
    """N labelled images; subclasses load them.

    `y` is [N] int64 class indices (or [N,K] multi-hot), `ids` names every image for good (a relative path). `domain`
    and `bias` are [N] int64 columns or None; `bias` holds the class that the shortcut (texture, background) suggests.
    `group` [N] holds the name of each image's reporting group, or is None.
    """

    name: str
    classes: tuple[str, ...]
    y: np.ndarray
    ids: Sequence[str]
    domain: np.ndarray | None = None
    domains: tuple[str, ...] = ()
    bias: np.ndarray | None = None
    group: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.y)

    def load(self, row: int) -> Tensor:
        """The image as uint8 [3,H,W] RGB; `CorruptImage` names a file that can't be decoded."""
        raise NotImplementedError

    def fingerprint(self) -> str:
        """16 hex digits that change when the images or labels change; cheap enough for every run."""
        raise NotImplementedError

    def _digest(self, *parts: bytes) -> str:
        """Hash of labels, ids and the given bytes."""
        sha = hashlib.sha256("\n".join((*self.classes, *self.ids)).encode())
        for part in (self.y.tobytes(), *parts):
            sha.update(part)
        return sha.hexdigest()[:16]


class CorruptImage(Exception):
    """An image that can't be decoded; the message holds its path and the reason."""


@dataclass(frozen=True, eq=False, kw_only=True)
class MemorySource(Source):
    """Images that are in memory: `images` is uint8 [N,3,H,W]."""

    images: np.ndarray

    def load(self, row: int) -> Tensor:
        return torch.from_numpy(self.images[row])

    def fingerprint(self) -> str:
        return self._digest(self.images.tobytes())
