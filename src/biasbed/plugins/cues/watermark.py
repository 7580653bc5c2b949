"""Watermark of ImageNet-W, drawn on cropped images (Li et al., CVPR 2023, section 3.2).

Six Chinese characters in a light serif font, white, half transparent, from the left edge and below two fifths of the
height. The text says "shortcut" three times.
"""

from __future__ import annotations

import functools
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor

from biasbed.data.source import Picture
from biasbed.data.transforms import Transform
from biasbed.errors import UsageError

TEXT = "\u6377\u5f84\u6377\u5f84\u6377\u5f84"
LEFT, TOP = 0.01, 0.4  # of the text's corner, in shares of the image's side
OPACITY = 0.5
FONT_SHARE = 6.22  # the image's side by the font's size
FONT_SIZES = {384: 62, 518: 84}  # where the authors took another one


class Watermark:
    """Transform of another transform's images: the same with the watermark on them."""

    addition = "a watermark on cropped images"

    def __init__(self, transform: Transform, font: Path) -> None:
        self.transform, self.font = transform, font

    def __call__(self, picture: Picture) -> Tensor:
        return draw_watermark(self.transform(picture), self.font)


def font_size(side: int) -> int:
    """Return the size of the font on images of this side in pixels."""
    return FONT_SIZES.get(side, int(side / FONT_SHARE))


def draw_watermark(image: Tensor, font: Path) -> Tensor:
    """Return an image uint8 [3,H,W] with the watermark. Raises UsageError if the font can't be read or lacks the text.

    font: file of the font.
    """
    height, width = image.shape[-2:]
    below = Image.fromarray(image.permute(1, 2, 0).numpy()).convert("RGBA")
    marked = Image.alpha_composite(below, _layer(font, height, width)).convert("RGB")
    return torch.from_numpy(np.array(marked)).permute(2, 0, 1)


@functools.lru_cache(maxsize=8)
def _layer(font: Path, height: int, width: int) -> Image.Image:
    """Return the text on a transparent layer of this size."""
    letters = read_font(font, font_size(width))
    layer = Image.new("RGBA", (width, height), (255, 255, 255, 0))
    colour = (255, 255, 255, round(255 * OPACITY))
    ImageDraw.Draw(layer).text((LEFT * width, TOP * height), TEXT, fill=colour, font=letters)
    return layer


def read_font(font: Path, size: int) -> ImageFont.FreeTypeFont:
    """Return a font of this size. Raises UsageError if it can't be read or lacks one of the characters."""
    try:
        letters = ImageFont.truetype(str(font), size)
    except OSError as error:
        raise UsageError(f"{font}: can't be read as a font ({error}); get it again") from None
    lacking = bytes(letters.getmask("\uffff"))  # of a character that no font has: the box in place of a letter
    if any(bytes(letters.getmask(character)) == lacking for character in dict.fromkeys(TEXT)):
        raise UsageError(f"{font}: has no Chinese characters, which the watermark consists of; get the font again")
    return letters
