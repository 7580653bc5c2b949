"""Corruptions of images in 5 severities: the 15 of ImageNet-C, its 4 extra ones, and further ones.

Hendrycks & Dietterich, Benchmarking Neural Network Robustness to Common Corruptions and Perturbations, ICLR 2019.
A corruption is a pure function of an image and of random draws (`corruption.Corruption`). The draws of an image depend
only on (seed, image id, corruption, severity), whichever process makes it and when.
"""

from __future__ import annotations

from pathlib import Path
from pkgutil import resolve_name

import numpy as np

from biasbed.data.corruptions import blur, digital, noise, spatter, weather
from biasbed.data.corruptions.corruption import SEVERITIES, SIDE, Corruption
from biasbed.data.corruptions.frost import photographs
from biasbed.data.corruptions.keyed_draws import key_generator
from biasbed.settings import refuse_unknown

_OF_THE_BENCHMARK = (
    *(noise.GAUSSIAN, noise.SHOT, noise.IMPULSE),
    *(blur.DEFOCUS, blur.GLASS, blur.MOTION, blur.ZOOM),
    *(weather.SNOW, weather.FROST, weather.FOG, digital.BRIGHTNESS),
    *(digital.CONTRAST, digital.ELASTIC, digital.PIXELATE, digital.JPEG),
)
_EXTRA = (noise.SPECKLE, blur.GAUSSIAN, spatter.SPATTER, digital.SATURATE)  # released for validation; never part of mCE
_FURTHER: tuple[str, ...] = ()  # in no release: "biasbed.data.corruptions.<file>:<NAME>"

BENCHMARK = tuple(corruption.name for corruption in _OF_THE_BENCHMARK)
EXTRAS = tuple(corruption.name for corruption in _EXTRA)
_ALL: tuple[Corruption, ...] = (*_OF_THE_BENCHMARK, *_EXTRA, *map(resolve_name, _FURTHER))
CORRUPTIONS = {corruption.name: corruption for corruption in _ALL}
GROUPS = tuple(dict.fromkeys(corruption.group for corruption in _OF_THE_BENCHMARK))

__all__ = ["BENCHMARK", "CORRUPTIONS", "EXTRAS", "GROUPS", "SEVERITIES", "SIDE", "Corruption", "corrupt", "find"]


def find(name: str, frost: Path | None = None) -> Corruption:
    """Return the corruption of a name. Raises UsageError for an unknown name.

    frost: folder of the photographs that frost needs; also a UsageError if one is missing.
    """
    refuse_unknown(name, CORRUPTIONS, f"there is no corruption '{name}'")
    if name == weather.FROST.name and frost is not None:
        return weather.make_frost(photographs(frost))
    return CORRUPTIONS[name]


def corrupt(image: np.ndarray, corruption: Corruption, severity: int, seed: int, image_id: str) -> np.ndarray:
    """Corrupt an image uint8 [H,W,3] with draws that follow from seed, image, corruption and severity."""
    shape = (image.shape[0], image.shape[1])
    draws = corruption.draw(key_generator(seed, image_id, corruption.name, severity), severity, shape)
    return corruption.apply(image, draws, severity)
