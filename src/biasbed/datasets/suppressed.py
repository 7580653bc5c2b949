"""Images of any source with a cue suppressed, made on the fly from what the network would get.

Burgert, Stoll, Rota & Demir, ImageNet-trained CNNs are not biased towards texture, NeurIPS 2025. An image is resized
and cropped by its set's own transform first, and then shown without suppression and under each one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import torch

from biasbed.data.corruptions.corruption import Constants
from biasbed.data.corruptions.suppression import SUPPRESSIONS, suppress
from biasbed.data.image_store import ImageStore
from biasbed.data.source import Decoded, Picture, Source
from biasbed.data.transforms import Transform
from biasbed.datasets.imagenet_c import below_each

HELD = 1024  # transformed images of 150 kB that a process keeps, because all images come again under each condition
CLEAN = "none"  # condition without suppression


class Condition(NamedTuple):
    """A suppression in one strength, or none."""

    name: str  # in metrics
    suppression: str = ""  # of `SUPPRESSIONS`; empty: none
    constants: Constants = ()


@dataclass(frozen=True, eq=False, kw_only=True)
class SuppressedSource(Source):
    """Images of `originals` under each condition, condition by condition, as `transform` makes them.

    row: row [N] int32 of each image's original. preprocessing: description of the transform, for the fingerprint.
    """

    originals: Source
    transform: Transform
    preprocessing: str
    shown_as: tuple[Condition, ...]
    seed: int
    row: np.ndarray
    _ready: dict[int, np.ndarray] = field(default_factory=dict, repr=False)

    def open(self, row: int) -> Picture:
        """Make an image. Raises CorruptImage if the original can't be decoded."""
        assert self.condition is not None
        original = int(self.row[row])
        image = self._transformed(original)
        condition = self.shown_as[int(self.condition[row])]
        if condition.suppression:
            suppression = SUPPRESSIONS[condition.suppression]
            image = suppress(image, suppression, condition.constants, self.seed, self.originals.ids[original])
        return Decoded(torch.from_numpy(np.array(image)).permute(2, 0, 1))

    def version(self, row: int) -> int:
        return self.originals.version(int(self.row[row]))

    def fingerprint(self) -> str:
        """Hash the originals, their transform and the conditions."""
        return self._hash(self.originals.fingerprint().encode(), self.row.tobytes())

    def reading_from(self, images: ImageStore) -> Source:
        return replace(self, originals=images.attach(self.originals), _ready={})

    def _hash(self, *parts: bytes) -> str:
        sha = hashlib.sha256(repr((self.preprocessing, self.shown_as, self.seed)).encode())
        for part in parts:
            sha.update(part)
        return sha.hexdigest()[:16]

    def _columns(self) -> tuple[str, ...]:
        return *super()._columns(), "row"

    def _transformed(self, row: int) -> np.ndarray:
        """Return an original as the network would get it: uint8 [S,S,3]."""
        if row in self._ready:
            return self._ready[row]
        image = np.ascontiguousarray(self.transform(self.originals.open(row)).permute(1, 2, 0).numpy())
        if len(self._ready) < HELD:
            self._ready[row] = image
        return image


def suppressed(
    originals: Source, name: str, transform: Transform, preprocessing: str, conditions: Sequence[Condition], seed: int
) -> SuppressedSource:
    """Make the source of the images of `originals` under each of the conditions.

    Raises UsageError if OpenCV is missing.
    """
    for condition in conditions:  # reports the missing package at once
        if condition.suppression:
            suppress(np.zeros((32, 32, 3), np.uint8), SUPPRESSIONS[condition.suppression], condition.constants, 0, "")
    count, images = len(conditions), len(originals)
    names = tuple(condition.name for condition in conditions)
    columns: dict[str, Any] = {}
    for column in ("y", "domain", "bias", "group", "accepted"):
        values = getattr(originals, column)
        columns[column] = None if values is None else np.concatenate([values] * count)
    source = SuppressedSource(
        name=name,
        classes=originals.classes,
        ids=below_each(names, list(originals.ids)),
        domains=originals.domains,
        roles=originals.roles,
        condition=np.repeat(np.arange(count, dtype=np.uint8), images),
        conditions=names,
        originals=originals,
        transform=transform,
        preprocessing=preprocessing,
        shown_as=tuple(conditions),
        seed=seed,
        row=np.tile(np.arange(images, dtype=np.int32), count),
        **columns,
    )
    return replace(source, origin=source._hash(originals.origin.encode())) if originals.origin else source
