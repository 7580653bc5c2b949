"""From a photograph to what is corrupted, and from there to a file, as ImageNet-C was released.

Everything here is Pillow's: other decoders, resizers and encoders give other pixels.
"""

from __future__ import annotations

import io

import numpy as np
from PIL import Image

from biasbed.data.corruptions.corruption import SIDE
from biasbed.data.decoding import as_pillow_decodes
from biasbed.data.source import Picture

SHORT = 256  # what the short side is resized to before the crop
QUALITY = 85


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
    Image.fromarray(image).save(held, "JPEG", quality=quality, optimize=optimize)
    return held.getvalue()


def decoded(content: bytes) -> np.ndarray:
    """uint8 [H,W,3] of a file as above."""
    return np.asarray(Image.open(io.BytesIO(content)))


def round_trip(image: np.ndarray) -> np.ndarray:
    """What is left of a corrupted image once it was a released file."""
    return decoded(encoded(image, QUALITY))
