"""Decoding of image files, no larger than needed.

A JPEG decoder can leave out the finest frequencies and return an image of half, a quarter or an eighth of its sides in
less time. simplejpeg (libjpeg-turbo) offers that and is faster than Pillow. It also stops after the last row that is
needed, because the header it gets states a smaller height. Pillow decodes all other files, and JPEG files that
simplejpeg refuses (CMYK, or damaged).

Pixels are as the file stores them, in every format: EXIF orientation and colour profiles are not applied, as in
torchvision's loaders.

Answers: Which files are images, and how is one decoded?
"""

from __future__ import annotations

import io
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import simplejpeg
import torch
from PIL import ExifTags, Image, UnidentifiedImageError
from torch import Tensor

from biasbed.data.source import Picture
from biasbed.errors import CorruptImage, UnreadableFile
from biasbed.system.strict import read_bytes

# Suffix of an image file -> the decoder that Pillow may use. Without this limit Pillow would accept PostScript under
# any suffix and let Ghostscript run it. An MPO file is a JPEG file with further pictures behind the first.
SUFFIXES: Mapping[str, str] = {
    **dict.fromkeys((".jpg", ".jpeg", ".jpe", ".jfif", ".jif", ".mpo"), "JPEG"),
    **dict.fromkeys((".png", ".apng"), "PNG"),
    **dict.fromkeys((".bmp", ".dib"), "BMP"),
    ".webp": "WEBP",
    **dict.fromkeys((".ppm", ".pgm", ".pbm", ".pnm"), "PPM"),
    **dict.fromkeys((".tif", ".tiff"), "TIFF"),
    ".gif": "GIF",
}
FORMATS = tuple(dict.fromkeys(SUFFIXES.values()))
EXTENSIONS = frozenset(SUFFIXES)
DEEP = ("I", "F")  # Pillow's modes of integers and floats, which it would clip to white
TOO_DEEP = "it has more than 8 bits per channel; convert it to 8 bits"
# Rows decoded below the last one that is needed: chroma is smoothed over neighbouring rows. 16 are enough at any chroma
# sampling and at an eighth of the size, and few compared with a photograph.
ROWS_BELOW = 16
FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}  # markers of a frame header
ALONE = frozenset((0x01, *range(0xD0, 0xD9)))  # markers without a segment: TEM, RST and SOI
MOST_PIXELS = 2 * (Image.MAX_IMAGE_PIXELS or 0)  # above it Pillow refuses an image: a small file could fill the memory
UPRIGHT = 1  # EXIF orientation of an image that is shown as it is stored
# EXIF orientation -> what undoes Pillow's transposition to the upright image.
UNDO: Mapping[int, Image.Transpose] = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_90,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_270,
}
MOST_BYTES = 2**29  # of an image's file
COLOURS = ("YCbCr", "RGB", "Gray")  # colour spaces that convert to RGB without a profile


def open_file(path: Path) -> Picture:
    """Open the image in a file without decoding it. Raises CorruptImage if it is missing or is no image."""
    try:
        content = read_bytes(path, MOST_BYTES)
    except UnreadableFile as error:
        raise CorruptImage(f"can't read the image {path}: {error.reason}") from None
    except OSError as error:
        raise CorruptImage(f"can't read the image {path}: {error.strerror or error}") from None
    return open_content(path, content)


def open_content(path: Path, content: bytes) -> Picture:
    """Open an image from the content of its file, without decoding it. Raises CorruptImage if it is no image.

    path: names the file in messages.
    """
    if content[:2] == b"\xff\xd8":
        try:
            height, width, colours, _ = simplejpeg.decode_jpeg_header(content)
        except ValueError:
            return _with_pillow(path, content)
        frame = _find_frame_header(content)
        if colours in COLOURS and height * width <= MOST_PIXELS and frame is not None:
            return JpegFile(path, content, height, width, frame)
    return _with_pillow(path, content)


def as_pillow_decodes(picture: Picture) -> Tensor:
    """Decode all pixels of a picture [C,H,W]; JPEG files by Pillow, which made the released sets."""
    if isinstance(picture, JpegFile):
        return _with_pillow(picture.path, picture.content).pixels()
    return picture.pixels()


@dataclass(frozen=True, eq=False)
class JpegFile:
    """JPEG file whose header has been read."""

    path: Path
    content: bytes
    height: int
    width: int
    frame: int  # offset of the frame header
    _decoded: dict[int, Tensor] = field(default_factory=dict, repr=False)  # several views need one decoding

    @property
    def is_complete(self) -> bool:
        """True if the file has its end marker after its frame header; a thumbnail's end marker comes before."""
        return self.content.rfind(b"\xff\xd9") > self.frame

    def pixels(self, shrink: int = 1, rows: int | None = None) -> Tensor:
        if shrink in self._decoded:
            return self._decoded[shrink]
        height = self.height if rows is None else math.ceil((rows + ROWS_BELOW) / ROWS_BELOW) * ROWS_BELOW
        if height < self.height and self.is_complete:  # Pillow decides about truncated files
            return self._decode(shrink, height)
        self._decoded[shrink] = self._decode(shrink, self.height)
        return self._decoded[shrink]

    def _decode(self, shrink: int, height: int) -> Tensor:
        """Decode the upper `height` rows of the file, with sides `shrink` times smaller: uint8 [3,h,w]."""
        least = {} if shrink == 1 else {"min_height": -(-height // shrink), "min_width": -(-self.width // shrink)}
        is_part = height < self.height
        content = self._with_height(height) if is_part else self.content
        try:  # strict decoding would report the rows that are left over
            decoded = simplejpeg.decode_jpeg(content, "RGB", min_factor=float(shrink), **least, strict=not is_part)
        except ValueError:  # damaged: Pillow, as in torchvision's loaders, decides whether it can be decoded
            return _with_pillow(self.path, self.content).pixels()
        return torch.from_numpy(decoded).permute(2, 0, 1)

    def _with_height(self, height: int) -> bytes:
        """Return the content with another height in the frame header."""
        offset = self.frame + 5
        return b"".join((self.content[:offset], height.to_bytes(2, "big"), self.content[offset + 2 :]))


def _find_frame_header(content: bytes) -> int | None:
    """Return the offset of a JPEG file's frame header (ITU T.81, B.2.2); None if its segments do not lead to one."""
    offset = 2
    while content[offset : offset + 1] == b"\xff" and offset + 9 <= len(content):
        marker = content[offset + 1]
        if marker in FRAMES:
            return offset
        length = int.from_bytes(content[offset + 2 : offset + 4], "big")
        if marker == 0xFF:  # any number of fill bytes may precede a marker
            offset += 1
        elif marker in ALONE:
            offset += 2
        elif length < 2:
            return None
        else:
            offset += 2 + length
    return None


@dataclass(frozen=True, eq=False)
class PillowFile:
    """Image file that Pillow has opened."""

    path: Path
    image: Image.Image

    @property
    def height(self) -> int:
        return self.image.height

    @property
    def width(self) -> int:
        return self.image.width

    def pixels(self, shrink: int = 1, rows: int | None = None) -> Tensor:
        try:
            decoded = np.array(self.image.convert("RGB"))
        except PROBLEMS as error:
            raise CorruptImage(f"can't read the image {self.path}: {error}") from None
        return torch.from_numpy(decoded).permute(2, 0, 1)


PROBLEMS = (OSError, SyntaxError, ValueError, Image.DecompressionBombError)


def _with_pillow(path: Path, content: bytes) -> PillowFile:
    """Open an image by Pillow. Raises CorruptImage if it is no image, or if it has more than 8 bits per channel."""
    image: Image.Image
    try:
        image = Image.open(io.BytesIO(content), formats=FORMATS)
    except UnidentifiedImageError:  # its own message names the buffer, not the file
        raise CorruptImage(f"can't read the image {path}: {'it is no image' if content else 'it is empty'}") from None
    except PROBLEMS as error:
        raise CorruptImage(f"can't read the image {path}: {error}") from None
    if image.mode.startswith(DEEP):
        raise CorruptImage(f"can't read the image {path}: {TOO_DEEP}")
    orientation = read_orientation(image)
    if image.format == "TIFF" and orientation in UNDO:  # the only format that Pillow turns by itself
        try:
            image = image.transpose(UNDO[orientation])
        except PROBLEMS as error:
            raise CorruptImage(f"can't read the image {path}: {error}") from None
    return PillowFile(path, image)


def read_orientation(image: Image.Image) -> int:
    """Return the EXIF orientation in the header of an image that Pillow has opened, 1 to 8. Decodes nothing."""
    if image.format != "TIFF" and "exif" not in image.info:  # a PNG file would be decoded in search of it
        return UPRIGHT
    try:
        orientation = image.getexif().get(ExifTags.Base.Orientation, UPRIGHT)
    except Exception:  # Pillow raises nearly anything on malformed EXIF data
        return UPRIGHT
    return orientation if orientation in UNDO else UPRIGHT
