"""AugMix: mixtures of an image and chains of random operations on it (Hendrycks et al., ICLR 2020, section 3).

`MixedChains.draw` draws the random numbers of a mixture, `mix` computes the image from them. The operations are
Pillow's and work on uint8; the mixture is computed in floats and is not rounded to uint8.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from PIL import Image, ImageEnhance, ImageOps
from torch import Tensor

from biasbed.data.views import ViewTransform
from biasbed.settings import setting

LEAST = 0.1  # smallest level of an operation
TOP = 10  # level at which an operation is as strong as its range allows
DEPTHS = (1, 2, 3)  # depths to draw from if no depth is set
Operation = Callable[[Image.Image, float], Image.Image]


def _posterize(image: Image.Image, level: float) -> Image.Image:
    return ImageOps.posterize(image, 4 - int(level * 4 / TOP))


def _solarize(image: Image.Image, level: float) -> Image.Image:
    return ImageOps.solarize(image, 256 - int(level * 256 / TOP))


def _rotate(image: Image.Image, level: float) -> Image.Image:
    return image.rotate(int(level * 30 / TOP), resample=Image.Resampling.BILINEAR)


def _affine(image: Image.Image, *matrix: float, resample: Image.Resampling) -> Image.Image:
    """Fill each pixel (column, row) from the position to which the matrix [2,3] maps it; black outside the image."""
    return image.transform(image.size, Image.Transform.AFFINE, matrix, resample=resample)


def _sheared(image: Image.Image, *matrix: float) -> Image.Image:
    return _affine(image, *matrix, resample=Image.Resampling.BILINEAR)


def _moved(image: Image.Image, columns: int, rows: int) -> Image.Image:
    """Shift by whole pixels, so that nothing is interpolated."""
    return _affine(image, 1, 0, columns, 0, 1, rows, resample=Image.Resampling.NEAREST)


def _shear_x(image: Image.Image, level: float) -> Image.Image:
    return _sheared(image, 1, level * 0.3 / TOP, 0, 0, 1, 0)


def _shear_y(image: Image.Image, level: float) -> Image.Image:
    return _sheared(image, 1, 0, 0, level * 0.3 / TOP, 1, 0)


def _translate_x(image: Image.Image, level: float) -> Image.Image:
    return _moved(image, int(level * (image.width / 3) / TOP), 0)


def _translate_y(image: Image.Image, level: float) -> Image.Image:
    return _moved(image, 0, int(level * (image.height / 3) / TOP))


def _enhanced(kind: Callable[[Image.Image], ImageEnhance._Enhance]) -> Operation:
    return lambda image, level: kind(image).enhance(level * 1.8 / TOP + 0.1)


# Functions of (image, level) by name. The level of those in `SIGNED` has a random sign; `UNLEVELLED` ones ignore it.
OPERATIONS: Mapping[str, Operation] = {
    "autocontrast": lambda image, level: ImageOps.autocontrast(image),
    "equalize": lambda image, level: ImageOps.equalize(image),
    "posterize": _posterize,
    "rotate": _rotate,
    "solarize": _solarize,
    "shear_x": _shear_x,
    "shear_y": _shear_y,
    "translate_x": _translate_x,
    "translate_y": _translate_y,
}
# Operations that resemble conditions of ImageNet-C.
OVERLAPPING: Mapping[str, Operation] = {
    "color": _enhanced(ImageEnhance.Color),
    "contrast": _enhanced(ImageEnhance.Contrast),
    "brightness": _enhanced(ImageEnhance.Brightness),
    "sharpness": _enhanced(ImageEnhance.Sharpness),
}
ALL: Mapping[str, Operation] = {**OPERATIONS, **OVERLAPPING}
UNLEVELLED = ("autocontrast", "equalize")
SIGNED = ("rotate", "shear_x", "shear_y", "translate_x", "translate_y")


@dataclass(frozen=True)
class Mixture:
    """Random numbers of a mixture: weights of the chains, their share, and (operation, signed level) for each step."""

    weights: Sequence[float]
    share: float
    chains: Sequence[Sequence[tuple[str, float]]]


def mix(image: np.ndarray, mixture: Mixture) -> np.ndarray:
    """Compute (1 - m) x + m sum_i w_i chain_i(x) of an image uint8 [H,W,C]: fp32 in [0,1]."""
    picture = Image.fromarray(image[..., 0] if image.shape[-1] == 1 else image)
    mixed = image * np.float32((1 - mixture.share) / 255)
    for weight, chain in zip(mixture.weights, mixture.chains, strict=True):
        changed = picture
        for name, level in chain:
            changed = ALL[name](changed, level)
        mixed += np.asarray(changed).reshape(image.shape) * np.float32(mixture.share * weight / 255)
    return mixed


class MixedChains(ViewTransform):
    """Mixture of the image and chains of random operations on it, as floats in [0,1]."""

    channels = (1, 3)

    @dataclass(frozen=True)
    class Settings(ViewTransform.Settings):
        """Settings of AugMix."""

        severity: float = setting(
            1.0, "largest level of an operation: levels are uniform from 0.1 to this, at most 10", ge=LEAST, le=TOP
        )
        width: int = setting(3, "number of chains", ge=1)
        depth: int = setting(0, "operations in each chain (0: draw 1 to 3 for each chain)", ge=0)
        alpha: float = setting(1.0, "parameter of the Dirichlet and Beta distributions of the weights", ge=0.05)
        all_ops: bool = setting(False, "also use color, contrast, brightness and sharpness, which resemble ImageNet-C")

    settings: Settings

    def __call__(self, image: Tensor) -> Tensor:
        pixels = np.ascontiguousarray(image.permute(1, 2, 0).numpy())
        return torch.from_numpy(mix(pixels, self.draw())).permute(2, 0, 1)

    def draw(self) -> Mixture:
        """Draw a mixture from Python's global generator."""
        s = self.settings
        parts = [random.gammavariate(s.alpha, 1) for _ in range(s.width)]
        share = random.betavariate(s.alpha, s.alpha)
        chains = [self._chain() for _ in range(s.width)]
        return Mixture([part / sum(parts) for part in parts], share, chains)

    def _chain(self) -> list[tuple[str, float]]:
        names = list(ALL if self.settings.all_ops else OPERATIONS)
        return [self._level(random.choice(names)) for _ in range(self.settings.depth or random.choice(DEPTHS))]

    def _level(self, name: str) -> tuple[str, float]:
        """Draw the level of an operation; return (operation, level)."""
        if name in UNLEVELLED:
            return name, 0.0
        level = random.uniform(LEAST, self.settings.severity)
        return name, -level if name in SIGNED and random.random() < 0.5 else level
