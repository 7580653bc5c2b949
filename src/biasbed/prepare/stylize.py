"""Stylized training images: content of one image, style of another (Geirhos et al. 2019, section 2.2)."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass

import torch
from torch import Tensor

from biasbed.data.source import Source
from biasbed.data.transforms import shrunk
from biasbed.errors import CorruptImage, Failure
from biasbed.networks.style import StyleTransfer


@dataclass
class Stylization:
    """AdaIN style transfer with a style image drawn per content image (Huang and Belongie 2017).

    Images whose short side is larger than `size` are resized to it; the result has the size of the resized content.
    """

    network: StyleTransfer
    styles: Source
    alpha: float
    size: int
    device: str = "cpu"

    def redraw(self, generator: torch.Generator) -> None:
        """Nothing: the network stays as it is."""

    @torch.inference_mode()
    def __call__(self, image: Tensor, generator: torch.Generator) -> Tensor:
        """[3,H,W] in [0,1] -> the same in another style; passes over style images that can't be read."""
        pictures = (image, self._style(generator))
        content, style = (shrunk(picture, self.size)[None].to(self.device) for picture in pictures)
        return self.network.transfer(content, style, self.alpha)[0].clamp(0, 1).cpu()

    def _style(self, generator: torch.Generator) -> Tensor:
        """A style image drawn at random, else the next that can be read; Failure where none can."""
        first = int(torch.randint(len(self.styles), (), generator=generator))
        for row in (*range(first, len(self.styles)), *range(first)):
            with contextlib.suppress(CorruptImage):
                return self.styles.load(row).float() / 255
        raise Failure(f"none of the style images '{self.styles.name}' can be read")
