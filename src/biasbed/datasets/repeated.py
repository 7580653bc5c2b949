"""Images of any source shown again under each of several conditions, made on the fly.

Answers: How is an image made under a condition when it is asked for?
"""

from __future__ import annotations

import hashlib
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
import torch

from biasbed.data.image_store import ImageStore
from biasbed.data.source import Decoded, Picture, Source


@dataclass(frozen=True, eq=False, kw_only=True)
class RepeatedSource(Source):
    """Images of `originals` under each condition, condition by condition.

    row: row [N] int32 of each image's original.
    """

    most_held: ClassVar[int]  # prepared originals of 150 kB that a process keeps, because all come again

    originals: Source
    row: np.ndarray
    _held: dict[int, np.ndarray] = field(default_factory=dict, repr=False)

    @property
    @abstractmethod
    def description(self) -> tuple[Any, ...]:
        """Everything besides the originals that the pixels depend on, for the fingerprint."""

    @abstractmethod
    def prepare(self, picture: Picture) -> np.ndarray:
        """Return an original as the conditions take it: uint8 [S,S,3]. Raises CorruptImage if it can't be decoded."""

    @abstractmethod
    def show(self, image: np.ndarray, condition: int, image_id: str) -> np.ndarray:
        """Return a prepared original of this id under a condition."""

    def open(self, row: int) -> Picture:
        """Make an image. Raises CorruptImage if the original can't be decoded."""
        assert self.condition is not None
        original = int(self.row[row])
        image = self.show(self._prepared(original), int(self.condition[row]), self.originals.ids[original])
        return Decoded(torch.from_numpy(np.array(image)).permute(2, 0, 1))

    def version(self, row: int) -> int:
        return self.originals.version(int(self.row[row]))

    def fingerprint(self) -> str:
        """Hash the originals, and what is made of them."""
        return self._hash(self.originals.fingerprint(), self.row.tobytes(), np.asarray(self.condition).tobytes())

    def with_store(self, images: ImageStore) -> Source:
        return replace(self, originals=images.attach(self.originals), _held={})

    def with_origin(self) -> Source:
        """Return the source with the fingerprint of the seed's draws, if the originals are drawn by one."""
        return replace(self, origin=self._hash(self.originals.origin)) if self.originals.origin else self

    def _hash(self, *parts: str | bytes) -> str:
        """Hash the description and the parts: 16 hex digits."""
        sha = hashlib.sha256(repr(self.description).encode())
        for part in parts:
            sha.update(part.encode() if isinstance(part, str) else part)
        return sha.hexdigest()[:16]

    def _columns(self) -> tuple[str, ...]:
        return *super()._columns(), "row"

    def _prepared(self, row: int) -> np.ndarray:
        if row in self._held:
            return self._held[row]
        image = self.prepare(self.originals.open(row))
        if len(self._held) < self.most_held:
            self._held[row] = image
        return image


def repeated_columns(originals: Source, conditions: Sequence[str]) -> dict[str, Any]:
    """Return the fields that all images of a source have under each of the conditions, but for their names."""
    count, images = len(conditions), len(originals)
    columns: dict[str, Any] = {}
    for column in ("y", "domain", "bias", "group", "accepted"):
        values = getattr(originals, column)
        columns[column] = None if values is None else np.concatenate([values] * count)
    return dict(
        columns,
        classes=originals.classes,
        domains=originals.domains,
        roles=originals.roles,
        condition=np.repeat(np.arange(count, dtype=np.uint8), images),
        conditions=tuple(conditions),
        originals=originals,
        row=np.tile(np.arange(images, dtype=np.int32), count),
    )
