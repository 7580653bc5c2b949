"""Stylized training images: content of one image, style of another (Geirhos et al. 2019, section 2.2)."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from biasbed.data.source import Source
from biasbed.data.transforms import shrink
from biasbed.errors import CorruptImage, Failure
from biasbed.networks import frozen
from biasbed.networks.style import StyleTransfer
from biasbed.prepare.copies import ImagesMaker, ImagesOptions
from biasbed.prepare.style import StyleOptions
from biasbed.settings import setting


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
        """Do nothing: the network stays as it is."""

    def __call__(self, image: Tensor, generator: torch.Generator) -> Tensor:
        """Return an image [3,H,W] in [0,1] in another style; style images that can't be read are skipped."""
        return self.restyle(image, self._style(generator))

    @torch.inference_mode()
    def restyle(self, image: Tensor, style_image: Tensor) -> Tensor:
        """Return an image [3,H,W] in [0,1] in the style of another one."""
        content, style = (shrink(picture, self.size)[None].to(self.device) for picture in (image, style_image))
        return self.network.transfer(content, style, self.alpha)[0].clamp(0, 1).cpu()

    def _style(self, generator: torch.Generator) -> Tensor:
        """Return a style image drawn at random, or the next that can be read. Raises Failure if none can."""
        first = int(torch.randint(len(self.styles), (), generator=generator))
        for row in (*range(first, len(self.styles)), *range(first)):
            with contextlib.suppress(CorruptImage):
                return self.styles.load(row).float() / 255
        raise Failure(f"none of the style images '{self.styles.name}' can be read")


@dataclass(frozen=True)
class StylizedOptions(StyleOptions, ImagesOptions):
    """Settings of the maker of stylized images, and of their network if it has to be made first."""

    alpha: float = setting(1.0, "strength of the style (AdaIN, eq. 14)", ge=0, le=1)


class StylizedImages(ImagesMaker[StylizedOptions]):
    """Maker of a copy of every image in the style of another one."""

    Settings = StylizedOptions
    network = "style"

    @classmethod
    def distortion(cls, options: StylizedOptions, network: Path | None, material: Source, device: str) -> Stylization:
        assert network is not None
        transfer: Any = frozen.load(network, "style").to(torch.device(device))
        size = transfer.size if options.size == "auto" else int(options.size)
        return Stylization(transfer, material, options.alpha, size, device)

    def material(self) -> Source:
        return self.options.style_images() or self.source

    def settings(self) -> dict[str, Any]:
        styles = {"styles": self.material().name, "styles_fingerprint": self.material().fingerprint()}
        return {"size": self.options.size, "alpha": self.options.alpha, **styles}
