"""Corruptions as transforms in the manner of torchvision's v2, for PIL images and uint8 tensors.

Hendrycks & Dietterich, Benchmarking Neural Network Robustness to Common Corruptions and Perturbations, ICLR 2019. The
pixels are those of biasbed's corruption sets: `data/corruptions` computes them. Suppressions of a cue (Burgert et al.,
NeurIPS 2025) are such transforms, too.
"""

from __future__ import annotations

import hashlib
import os
from abc import abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torchvision.transforms import v2
from torchvision.tv_tensors import Image as ImageTensor

from biasbed.api.unknown_names import make_error
from biasbed.data.corruptions import SEVERITIES, corrupt, find
from biasbed.data.corruptions.released import round_trip
from biasbed.data.corruptions.suppression import (
    BILATERAL_FILTER,
    CHANNEL_SHUFFLE,
    GAUSSIAN_SMOOTHING,
    GREY_BLEND,
    NON_LOCAL_MEANS,
    PATCH_ROTATION,
    PATCH_SHUFFLE,
    Suppression,
    suppress,
)
from biasbed.errors import UsageError

COLOURS = 3  # channels


def _is_plain(value: Any) -> bool:
    """Return True for a tensor that is no box, mask or other annotation."""
    return isinstance(value, ImageTensor) or type(value) is Tensor


def _is_image_array(value: Any) -> bool:
    """Return True for an array of the shape of an image in colour; arrays of other shapes may be annotations."""
    return isinstance(value, np.ndarray) and value.ndim == 3 and value.shape[-1] == COLOURS


class Keyed(v2.Transform):
    """Change of PIL images, arrays uint8 [H,W,3] and tensors uint8 [...,3,H,W]; anything else passes through.

    seed: None draws anew in each call, from torch's global generator; with a number an image gets the same draws in
    each call, which depend on the seed and on the image alone.
    """

    _transformed_types = (_is_plain, _is_image_array, Image.Image)

    def __init__(self, seed: int | None) -> None:
        super().__init__()
        self.seed = seed

    @abstractmethod
    def change_pixels(self, pixels: np.ndarray, seed: int, image_id: str) -> np.ndarray:
        """Change an image uint8 [H,W,3] with the draws of this seed and image."""

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        """Change an image. Raises UsageError for another type, or a size for which the change is not defined."""
        if isinstance(inpt, Image.Image):
            return Image.fromarray(self._change(np.asarray(inpt.convert("RGB")), None))
        if inpt.dtype not in (torch.uint8, np.uint8):
            raise self._refuse(
                inpt, "put it before the step that makes floats, as v2.ToDtype(torch.float32, scale=True)"
            )
        if isinstance(inpt, np.ndarray):
            return self._change(np.ascontiguousarray(inpt), None)
        if inpt.ndim < 3 or inpt.shape[-3] != COLOURS:
            raise self._refuse(inpt, "put v2.RGB() before it, which makes three channels of a grey one")
        images = inpt.reshape(-1, *inpt.shape[-3:])
        changed = [self._change_tensor(image.as_subclass(Tensor)) for image in images]
        result = torch.stack(changed).reshape(inpt.shape).to(inpt.device)
        return ImageTensor(result) if isinstance(inpt, ImageTensor) else result

    def of_image(self, image: Image.Image, image_id: str) -> Image.Image:
        """Return the changed image with the draws that the image of this id has in biasbed's own sets.

        image_id: path of the image in its data set. Needs a seed, that of the sets (by default 0).
        """
        if self.seed is None:
            raise UsageError(
                f"{type(self).__name__} has no seed, by which an image's draws follow from its id: give seed=0"
            )
        return Image.fromarray(self._change(np.asarray(image.convert("RGB")), image_id))

    def _change_tensor(self, image: Tensor) -> Tensor:
        pixels = np.ascontiguousarray(image.permute(1, 2, 0).cpu().numpy())
        return torch.from_numpy(self._change(pixels, None)).permute(2, 0, 1)

    def _change(self, pixels: np.ndarray, image_id: str | None) -> np.ndarray:
        seed = int(torch.randint(2**31, ())) if self.seed is None else self.seed
        if image_id is None:
            image_id = hashlib.blake2b(pixels.tobytes(), digest_size=16).hexdigest()
        return self.change_pixels(pixels, seed, image_id)

    def _refuse(self, inpt: Any, advice: str) -> UsageError:
        """Return the UsageError for an image of another type or shape."""
        return UsageError(
            f"{type(self).__name__} takes PIL images, arrays uint8 [H,W,3] and tensors uint8 [...,3,H,W], "
            f"not {inpt.dtype} {list(inpt.shape)}: {advice}"
        )


class Corrupt(Keyed):
    """Corruption. severity: 1 to 5. jpeg: encode and decode the result as the released sets are (quality 85)."""

    name: ClassVar[str]

    def __init__(self, severity: int, seed: int | None = None, jpeg: bool = False) -> None:
        super().__init__(seed)
        if not isinstance(severity, int) or severity not in SEVERITIES:
            raise UsageError(f"severity={severity}: corruptions have the severities 1 to 5")
        self.severity, self.jpeg = severity, jpeg
        self._corruption = self._find()

    def _find(self) -> Any:
        return find(self.name)

    def change_pixels(self, pixels: np.ndarray, seed: int, image_id: str) -> np.ndarray:
        """Corrupt an image uint8 [H,W,3]."""
        corrupted = corrupt(pixels, self._corruption, self.severity, seed, image_id)
        return np.array(round_trip(corrupted)) if self.jpeg else corrupted

    def extra_repr(self) -> str:
        return f"severity={self.severity}, seed={self.seed}, jpeg={self.jpeg}"


class Suppress(Keyed):
    """Suppression of a cue in one strength (`data/corruptions/suppression.py`), whose constants are for 224 pixels."""

    suppression: ClassVar[Suppression]

    def __init__(self, *constants: float, seed: int | None) -> None:
        super().__init__(seed)
        for name, value in zip(self.suppression.parameters, constants, strict=True):
            if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
                raise UsageError(f"{type(self).__name__}: {name}={value!r} should be a number above 0")
        self.constants = constants

    def change_pixels(self, pixels: np.ndarray, seed: int, image_id: str) -> np.ndarray:
        """Suppress the cue in an image uint8 [H,W,3]."""
        return suppress(pixels, self.suppression, self.constants, seed, image_id)

    def extra_repr(self) -> str:
        arguments = [f"{name}={value}" for name, value in zip(self.suppression.parameters, self.constants, strict=True)]
        return ", ".join([*arguments, f"seed={self.seed}"])


class GaussianNoise(Corrupt):
    """Gaussian noise."""

    name = "gaussian_noise"


class ShotNoise(Corrupt):
    """Poisson noise of few photons."""

    name = "shot_noise"


class ImpulseNoise(Corrupt):
    """Black and white pixels."""

    name = "impulse_noise"


class DefocusBlur(Corrupt):
    """Blur of a lens out of focus."""

    name = "defocus_blur"


class GlassBlur(Corrupt):
    """View through frosted glass, for 224 and 32 pixels."""

    name = "glass_blur"


class MotionBlur(Corrupt):
    """Blur of a moving camera."""

    name = "motion_blur"


class ZoomBlur(Corrupt):
    """Blur of a camera that zooms."""

    name = "zoom_blur"


class Snow(Corrupt):
    """Falling snow, for 224 and 32 pixels."""

    name = "snow"


class Frost(Corrupt):
    """Frost on the window, for 224 and 32 pixels. folder: the five published photographs of frost (docs/data.md)."""

    name = "frost"

    def __init__(
        self, severity: int, folder: str | os.PathLike[str], seed: int | None = None, jpeg: bool = False
    ) -> None:
        self.folder = Path(folder).expanduser()
        super().__init__(severity, seed, jpeg)

    def _find(self) -> Any:
        return find(self.name, self.folder)


class Fog(Corrupt):
    """Fog, for 224 and 32 pixels."""

    name = "fog"


class Brightness(Corrupt):
    """Brighter images."""

    name = "brightness"


class Contrast(Corrupt):
    """Less contrast."""

    name = "contrast"


class ElasticTransform(Corrupt):
    """Elastic distortion."""

    name = "elastic_transform"


class Pixelate(Corrupt):
    """Coarse pixels, for 224 and 32 pixels."""

    name = "pixelate"


class JpegCompression(Corrupt):
    """Artefacts of JPEG."""

    name = "jpeg_compression"


class SpeckleNoise(Corrupt):
    """Noise in proportion to brightness."""

    name = "speckle_noise"


class GaussianBlur(Corrupt):
    """Gaussian blur."""

    name = "gaussian_blur"


class Spatter(Corrupt):
    """Water or mud on the lens."""

    name = "spatter"


class Saturate(Corrupt):
    """More or less colour."""

    name = "saturate"


class PatchShuffle(Suppress):
    """Image cut into grid x grid cells, which are put into a random order: without global shape."""

    suppression = PATCH_SHUFFLE

    def __init__(self, grid: int = 4, seed: int | None = None) -> None:
        super().__init__(grid, seed=seed)


class PatchRotation(Suppress):
    """Image cut into grid x grid cells, each turned by 0 to 3 quarter turns: without global shape."""

    suppression = PATCH_ROTATION

    def __init__(self, grid: int = 4, seed: int | None = None) -> None:
        super().__init__(grid, seed=seed)


class BilateralFilter(Suppress):
    """Smooth areas and sharp edges: without texture. diameter: pixels. sigma_colour: levels."""

    suppression = BILATERAL_FILTER

    def __init__(self, diameter: int = 12, sigma_colour: float = 170, seed: int | None = None) -> None:
        super().__init__(diameter, sigma_colour, seed=seed)


class GaussianSmoothing(Suppress):
    """Blur in a window of kernel x kernel pixels: without texture and fine shape."""

    suppression = GAUSSIAN_SMOOTHING

    def __init__(self, kernel: int = 9, sigma: float = 1.33, seed: int | None = None) -> None:
        super().__init__(kernel, sigma, seed=seed)


class NonLocalMeans(Suppress):
    """Averages of pixels in like surroundings: without texture. strength: levels."""

    suppression = NON_LOCAL_MEANS

    def __init__(self, strength: float = 15, seed: int | None = None) -> None:
        super().__init__(strength, seed=seed)


class GreyBlend(Suppress):
    """Less colour, or none. share: of grey in the mixture."""

    suppression = GREY_BLEND

    def __init__(self, share: float = 1.0, seed: int | None = None) -> None:
        super().__init__(share, seed=seed)


class ChannelShuffle(Suppress):
    """Other colours: the channels in another order."""

    suppression = CHANNEL_SHUFFLE

    def __init__(self, seed: int | None = None) -> None:
        super().__init__(seed=seed)


if not TYPE_CHECKING:  # or every name would be one

    def __getattr__(name: str) -> object:
        raise make_error("biasbed.corruptions", name, __dir__())


def __dir__() -> list[str]:
    return sorted(name for name, value in globals().items() if isinstance(value, type) and issubclass(value, Keyed))
