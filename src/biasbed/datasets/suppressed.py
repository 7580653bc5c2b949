"""Images of any source with a cue suppressed, made on the fly from what the network would get.

Burgert, Stoll, Rota & Demir, ImageNet-trained CNNs are not biased towards texture, NeurIPS 2025. An image is resized
and cropped by its set's own transform first, and then shown without suppression and under each one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from biasbed.data.corruptions.corruption import Constants
from biasbed.data.corruptions.suppression import SUPPRESSIONS, suppress
from biasbed.data.source import Picture, Source
from biasbed.data.transforms import Transform
from biasbed.datasets.imagenet_c import join_each
from biasbed.datasets.repeated import RepeatedSource, repeated_columns

CLEAN = "none"  # condition without suppression


class Condition(NamedTuple):
    """A suppression in one strength, or none."""

    name: str  # in metrics
    suppression: str = ""  # of `SUPPRESSIONS`; empty: none
    constants: Constants = ()


@dataclass(frozen=True, eq=False, kw_only=True)
class SuppressedSource(RepeatedSource):
    """Images of `originals` under each condition, condition by condition, as `transform` makes them.

    preprocessing: description of the transform.
    """

    most_held: ClassVar[int] = 1024

    transform: Transform
    preprocessing: str
    shown_as: tuple[Condition, ...]
    seed: int

    @property
    def description(self) -> tuple[Any, ...]:
        return self.preprocessing, self.shown_as, self.seed

    def prepare(self, picture: Picture) -> np.ndarray:
        """Return an original as the network would get it: uint8 [S,S,3]."""
        return np.ascontiguousarray(self.transform(picture).permute(1, 2, 0).numpy())

    def show(self, image: np.ndarray, condition: int, image_id: str) -> np.ndarray:
        """Return the image without a cue, or as it is."""
        shown = self.shown_as[condition]
        if not shown.suppression:
            return image
        return suppress(image, SUPPRESSIONS[shown.suppression], shown.constants, self.seed, image_id)


def suppressed(
    originals: Source, name: str, transform: Transform, preprocessing: str, conditions: Sequence[Condition], seed: int
) -> Source:
    """Make the source of the images of `originals` under each of the conditions.

    Raises UsageError if OpenCV is missing.
    """
    for condition in conditions:  # reports the missing package at once
        if condition.suppression:
            suppress(np.zeros((32, 32, 3), np.uint8), SUPPRESSIONS[condition.suppression], condition.constants, 0, "")
    names = [condition.name for condition in conditions]
    return SuppressedSource(
        name=name,
        ids=join_each(names, list(originals.ids)),
        transform=transform,
        preprocessing=preprocessing,
        shown_as=tuple(conditions),
        seed=seed,
        **repeated_columns(originals, names),
    ).with_origin()
