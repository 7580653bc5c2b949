"""ImageNet-C's corruptions: the 15 of the benchmark and the 4 extra, each in 5 severities.

Hendrycks & Dietterich, Benchmarking Neural Network Robustness to Common Corruptions and Perturbations, ICLR 2019.
Every corruption is a pure function of an image and of draws (`corruption.Corruption`). What is drawn for an image is a
function of (seed, image id, corruption, severity) alone, whoever makes it, when, and after which others.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np

from biasbed.data.corruptions import blur, digital, extras, noise, weather
from biasbed.data.corruptions.corruption import SEVERITIES, SIDE, Corruption
from biasbed.data.corruptions.frost import photographs
from biasbed.errors import UsageError

_OF_THE_BENCHMARK = (
    *(noise.GAUSSIAN, noise.SHOT, noise.IMPULSE),
    *(blur.DEFOCUS, blur.GLASS, blur.MOTION, blur.ZOOM),
    *(weather.SNOW, weather.FROST, weather.FOG, digital.BRIGHTNESS),
    *(digital.CONTRAST, digital.ELASTIC, digital.PIXELATE, digital.JPEG),
)
_EXTRA = (noise.SPECKLE, blur.GAUSSIAN, extras.SPATTER, digital.SATURATE)  # never part of mCE

BENCHMARK = tuple(corruption.name for corruption in _OF_THE_BENCHMARK)
EXTRAS = tuple(corruption.name for corruption in _EXTRA)
CORRUPTIONS = {corruption.name: corruption for corruption in (*_OF_THE_BENCHMARK, *_EXTRA)}
GROUPS = tuple(dict.fromkeys(corruption.group for corruption in _OF_THE_BENCHMARK))

__all__ = ["BENCHMARK", "CORRUPTIONS", "EXTRAS", "GROUPS", "SEVERITIES", "SIDE", "Corruption", "corrupt", "find", "key"]


def find(name: str, frost: Path | None = None) -> Corruption:
    """The corruption of a name. frost: the folder of frost's photographs. UsageError for an unknown name or folder."""
    if name not in CORRUPTIONS:
        raise UsageError(f"there is no corruption '{name}': {', '.join(CORRUPTIONS)}")
    if name == weather.FROST.name and frost is not None:
        return weather.frosted(photographs(frost))
    return CORRUPTIONS[name]


def corrupt(image: np.ndarray, corruption: Corruption, severity: int, seed: int, image_id: str) -> np.ndarray:
    """uint8 [H,W,3] corrupted, by draws that follow from seed, image, corruption and severity."""
    shape = (image.shape[0], image.shape[1])
    draws = corruption.draw(key(seed, image_id, corruption.name, severity), severity, shape)
    return corruption.apply(image, draws, severity)


def key(seed: int, image_id: str, corruption: str, severity: int) -> np.random.Generator:
    """A generator that counts from a key: no draw depends on another image, corruption, worker or rank."""
    words = repr((seed, image_id, corruption, severity)).encode()
    number = int.from_bytes(hashlib.blake2b(words, digest_size=16).digest(), "little")
    return np.random.Generator(np.random.Philox(key=number))
