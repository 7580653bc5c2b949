"""Contract of corruptions, pure functions of an image and of random draws in five severities, and their arithmetic.

Hendrycks & Dietterich, Benchmarking Neural Network Robustness to Common Corruptions and Perturbations, ICLR 2019. The
constants and the order of the draws are those of the code that made the released ImageNet-C; images of 32 x 32 pixels
have constants of their own, those of the code that made CIFAR-10-C.

Answers: How is an image corrupted?
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from biasbed.errors import UsageError

SIDE = 224  # pixels of ImageNet's images, for which `parameters` are meant
SMALL_SIDE = 32  # pixels of CIFAR's images, for which `at_32` are meant
SEVERITIES = (1, 2, 3, 4, 5)
Rng = np.random.Generator | np.random.RandomState  # reference outputs need RandomState's stable stream
Sides = tuple[int, int]  # height, width
Constants = tuple[Any, ...]  # of one severity


def nothing(rng: Rng, shape: Sides, parameters: Constants) -> None:
    """Draw nothing, for a corruption without randomness."""


@dataclass(frozen=True)
class Corruption:
    """One corruption in its five severities.

    parameters: constants of each severity; at_32: the same for images of 32 x 32 pixels. function: returns the
    corrupted image from (image uint8 [H,W,3], draws, parameters) and changes none of them. draws: returns the random
    numbers from (generator, (height, width), parameters). is_sized: True if only images of 224 x 224 and of 32 x 32 can
    be corrupted.
    """

    name: str
    group: str
    parameters: tuple[Constants, ...]
    at_32: tuple[Constants, ...]
    function: Callable[[np.ndarray, Any, Constants], np.ndarray]
    draws: Callable[[Rng, Sides, Constants], Any] = nothing
    is_sized: bool = False

    @property
    def is_random(self) -> bool:
        return self.draws is not nothing

    def draw(self, rng: Rng, severity: int, shape: Sides = (SIDE, SIDE)) -> Any:
        """Draw the random numbers for one image of this height and width."""
        self._refuse_size(shape)
        return self.draws(rng, shape, self._constants(severity, shape))

    def apply(self, image: np.ndarray, draws: Any, severity: int) -> np.ndarray:
        """Corrupt an image uint8 [H,W,3].

        Raises UsageError for another type, an unknown severity or an unsupported size.
        """
        refuse_other_arrays(image, self.name)
        self._refuse_size(image.shape[:2])
        return self.function(image, draws, self._constants(severity, image.shape[:2]))

    def _constants(self, severity: int, shape: tuple[int, ...]) -> Constants:
        if severity not in SEVERITIES:
            raise UsageError(f"severity={severity}: corruptions have the severities 1 to 5")
        return (self.at_32 if shape == (SMALL_SIDE, SMALL_SIDE) else self.parameters)[severity - 1]

    def _refuse_size(self, shape: tuple[int, ...]) -> None:
        if self.is_sized and shape not in ((SIDE, SIDE), (SMALL_SIDE, SMALL_SIDE)):
            size = " x ".join(map(str, reversed(shape)))
            defined = " and ".join(f"{side} x {side}" for side in (SIDE, SMALL_SIDE))
            raise UsageError(
                f"{self.name} is defined for images of {defined} pixels, not of {size}: put Resize and "
                f"CenterCrop({SIDE}) before it"
            )


def refuse_other_arrays(image: np.ndarray, user: str) -> None:
    """Raise UsageError unless the array is an image uint8 [H,W,3]. user: what takes it, for the message."""
    if image.dtype != np.uint8 or image.ndim != 3 or image.shape[2] != 3:
        raise UsageError(f"{user} takes images uint8 [H,W,3], not {image.dtype} {list(image.shape)}")


def import_opencv(user: str) -> Any:
    """Import OpenCV, an optional dependency. Raises UsageError where it is not installed: the user needs it."""
    try:
        return importlib.import_module("cv2")
    except ImportError:
        raise UsageError(f"{user} needs OpenCV: pip install opencv-python-headless") from None


def unit(image: np.ndarray, dtype: type[np.floating[Any]] = np.float64) -> np.ndarray:
    """Convert uint8 to floats in [0,1]. The precision has to be the reference's, as its truncation depends on it."""
    return image.astype(dtype) / dtype(255)


def fused(values: np.ndarray, weight: np.float32, added: np.ndarray) -> np.ndarray:
    """Return values * weight + added of float32, rounded once, as a processor's fused multiply-add does.

    The product is exact in float64. The sum is rounded there and once more to float32, which differs from one rounding
    only where the sum lies within 2^-29 of the middle between two float32 numbers.
    """
    exact = values.astype(np.float64) * np.float64(weight)
    return (exact + added).astype(np.float32)


def levels(values: np.ndarray) -> np.ndarray:
    """Clip floats to [0,1] and convert to uint8 by truncation, as in the program that made the released images."""
    kept = np.clip(values, 0, 1)
    kept *= 255
    return whole_levels(kept)


def whole_levels(values: np.ndarray) -> np.ndarray:
    """Convert floats in [0,255] to uint8 by truncation."""
    return values.astype(np.uint8)


def integers(rng: Rng, low: int, high: int, size: tuple[int, ...] | None = None) -> Any:
    """Draw integers uniformly from low .. high - 1 with either kind of generator."""
    return rng.randint(low, high, size) if isinstance(rng, np.random.RandomState) else rng.integers(low, high, size)
