"""From a photograph to what is corrupted, and from there to a file, as ImageNet-C was released.

Everything here is Pillow's: other decoders, resizers and encoders give other pixels.
"""

from __future__ import annotations

import io
from collections.abc import Iterable
from pathlib import PurePosixPath

import numpy as np
from PIL import Image

from biasbed.data.corruptions.corruption import SIDE
from biasbed.data.decoding import as_pillow_decodes
from biasbed.data.source import Picture
from biasbed.errors import UsageError

SHORT = 256  # what the short side is resized to before the crop
QUALITY = 85
FORMAT = "JPEG"  # also the end of every file's name


def clean(picture: Picture) -> np.ndarray:
    """uint8 [224,224,3]: all pixels decoded, the short side resized to 256 (bilinear), the centre cropped.

    CorruptImage for a file that can't be decoded.
    """
    image = Image.fromarray(np.ascontiguousarray(as_pillow_decodes(picture).permute(1, 2, 0).numpy()))
    least = min(image.size)
    if least != SHORT:
        width, height = (SHORT if side == least else SHORT * side // least for side in image.size)
        image = image.resize((width, height), Image.Resampling.BILINEAR)
    left, top = (round((side - SIDE) / 2) for side in image.size)
    return np.asarray(image.crop((left, top, left + SIDE, top + SIDE)))


def as_released(image: np.ndarray) -> bytes:
    """The file of a corrupted image uint8 [H,W,3]; its halved colours take much of coloured noise away."""
    return encoded(image, QUALITY, optimize=True)


def encoded(image: np.ndarray, quality: int, optimize: bool = False) -> bytes:
    """A JPEG file of uint8 [H,W,3]. optimize: makes it smaller, and changes no pixel."""
    held = io.BytesIO()
    Image.fromarray(image).save(held, FORMAT, quality=quality, optimize=optimize)
    return held.getvalue()


def decoded(content: bytes) -> np.ndarray:
    """uint8 [H,W,3] of a file as above."""
    return np.asarray(Image.open(io.BytesIO(content)))


def round_trip(image: np.ndarray) -> np.ndarray:
    """What is left of a corrupted image once it was a released file."""
    return decoded(encoded(image, QUALITY))


def released_name(image: str) -> str:
    """An image's path with the release's ending."""
    return str(PurePosixPath(image).with_suffix(f".{FORMAT}"))


def released_names(images: Iterable[str], source: str) -> list[str]:
    """Of all images of a source; UsageError for two that would become one file."""
    seen: dict[str, str] = {}
    for image in images:
        name = released_name(image)
        other = seen.setdefault(name, image)
        if other != image:
            raise UsageError(f"{other} and {image} of '{source}' would both be {name}: rename one")
    return list(seen)
