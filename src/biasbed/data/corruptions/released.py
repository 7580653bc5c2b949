"""File format of the ImageNet-C release: crop before the corruption, JPEG encoding after it.

Everything uses Pillow, because other decoders, resizers and encoders give other pixels.
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

SHORT = 256  # pixels of the short side before the crop
QUALITY = 85
FORMAT = "JPEG"  # also the suffix of all files


def crop_clean(picture: Picture) -> np.ndarray:
    """Decode all pixels, resize the short side to 256 (bilinear) and crop the centre: uint8 [224,224,3].

    Raises CorruptImage for a file that can't be decoded.
    """
    image = Image.fromarray(np.ascontiguousarray(as_pillow_decodes(picture).permute(1, 2, 0).numpy()))
    least = min(image.size)
    if least != SHORT:
        width, height = (SHORT if side == least else SHORT * side // least for side in image.size)
        image = image.resize((width, height), Image.Resampling.BILINEAR)
    left, top = (round((side - SIDE) / 2) for side in image.size)
    return np.asarray(image.crop((left, top, left + SIDE, top + SIDE)))


def encode_as_released(image: np.ndarray) -> bytes:
    """Encode a corrupted image uint8 [H,W,3] as in the release; chroma subsampling removes much of the colour noise."""
    return encode(image, QUALITY, optimize=True)


def encode(image: np.ndarray, quality: int, optimize: bool = False) -> bytes:
    """Encode uint8 [H,W,3] as JPEG. optimize: make the file smaller without changing pixels."""
    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, FORMAT, quality=quality, optimize=optimize)
    return buffer.getvalue()


def decode(content: bytes) -> np.ndarray:
    """Decode a JPEG file to uint8 [H,W,3]."""
    return np.asarray(Image.open(io.BytesIO(content)))


def round_trip(image: np.ndarray) -> np.ndarray:
    """Encode and decode a corrupted image, as if it had been a released file."""
    return decode(encode(image, QUALITY))


def released_name(image: str) -> str:
    """Return an image's path with the suffix of the release."""
    return str(PurePosixPath(image).with_suffix(f".{FORMAT}"))


def released_names(images: Iterable[str], source: str) -> list[str]:
    """Return the released names of all images of a source. Raises UsageError if two images would get one name."""
    seen: dict[str, str] = {}
    for image in images:
        name = released_name(image)
        first = seen.setdefault(name, image)
        if first != image:
            raise UsageError(f"{first} and {image} of '{source}' would both be {name}; rename one")
    return list(seen)
