"""Random Erasing (Zhong, Zheng, Kang, Li and Yang, AAAI 2020), with torchvision's ranges."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import torch
from torch import Tensor

from biasbed.algorithms.base import Setup
from biasbed.algorithms.draws import Drawn, normal, uniform, with_draws
from biasbed.algorithms.erm import ERM
from biasbed.batch import Batch
from biasbed.networks import hooks
from biasbed.settings import setting

TRIES = 10  # attempts to draw a rectangle that fits (torchvision)


def choose_rectangles(
    unit: Tensor, size: tuple[int, int], scale: tuple[float, float], ratio: tuple[float, float]
) -> Tensor:
    """Return (top, left, height, width) [N,4] of each image's first rectangle that fits; zeros if none fits.

    unit [N,T,4]: numbers in [0,1) for area, aspect, top and left of each attempt. size: (H, W) of the images. scale:
    range of areas, uniform, relative to the image. ratio: range of height / width, uniform in its logarithm.
    """
    area = math.prod(size) * (scale[0] + (scale[1] - scale[0]) * unit[..., 0])
    low, high = map(math.log, ratio)
    aspect = (low + (high - low) * unit[..., 1]).exp()
    height, width = (area * aspect).sqrt().round(), (area / aspect).sqrt().round()
    top = (unit[..., 2] * (size[0] - height + 1)).floor()
    left = (unit[..., 3] * (size[1] - width + 1)).floor()
    fits = (height < size[0]) & (width < size[1])
    first = fits.int().argmax(dim=1)[:, None, None].expand(-1, 1, 4)
    chosen = torch.stack([top, left, height, width], dim=-1).gather(1, first)[:, 0]
    return torch.where(fits.any(dim=1)[:, None], chosen, 0)


def mask_inside(boxes: Tensor, size: tuple[int, int]) -> Tensor:
    """Return a mask [N,1,H,W] that is True inside the rectangles (top, left, height, width) [N,4]."""
    top, left, height, width = boxes[:, :, None].unbind(1)
    rows, columns = (torch.arange(side, device=boxes.device)[None] for side in size)
    down = (rows >= top) & (rows < top + height)
    across = (columns >= left) & (columns < left + width)
    return (down[:, :, None] & across[:, None, :])[:, None]


class Rectangles(NamedTuple):
    """Rectangles to erase in images [N,C,H,W]: a mask [N,1,H,W], True inside, and the values to write there."""

    mask: Tensor
    values: Tensor  # of the images' shape, or one number


class Erasure(Drawn):
    """Replacement of a rectangle in each image by other values."""

    draw: Rectangles | None

    def __call__(self, x: Tensor) -> Tensor:
        return x if self.draw is None else torch.where(self.draw.mask, self.draw.values.to(x.dtype), x)


class RandomErasing(ERM):
    """ERM on images with a randomly erased rectangle, erased after normalisation."""

    @dataclass(frozen=True)
    class HParams:
        p: float = setting(0.5, "probability of a rectangle in an image (torchvision; paper)", ge=0, le=1)
        scale: tuple[float, float] = setting(
            (0.02, 0.33), "least and largest part of the image (torchvision; paper: 0.02 to 0.4)"
        )
        ratio: tuple[float, float] = setting(
            (0.3, 3.3), "least and largest height by width (torchvision; paper: 0.3 to 1 / 0.3)"
        )
        value: Literal["mean", "random"] = setting(
            "mean", "mean: the colour that is 0 once normalised (torchvision); random: a normal draw per value"
        )

        def __post_init__(self) -> None:
            if not 0 < self.scale[0] <= self.scale[1] <= 1:
                raise ValueError("hparams.scale: the least part, then the largest, above 0 and at most 1")
            if not 0 < self.ratio[0] <= self.ratio[1]:
                raise ValueError("hparams.ratio: the least, then the largest, above 0")

    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {}

    hparams: HParams

    def __init__(self, hparams: HParams, setup: Setup) -> None:
        super().__init__(hparams, setup)
        self.erasure = Erasure()
        hooks.insert_after(self.network.get_submodule("normalise"), self.erasure)

    def logits(self, x: Tensor) -> Tensor:
        with with_draws([self.erasure], [self.draws(Batch(x))]):
            return super().logits(x)

    def draw(self, batch: Batch) -> Rectangles | None:
        """Return a rectangle for each image, an empty one with probability 1 - p; None in evaluation."""
        if not self.training:
            return None
        x, generator = batch.x, self.group.generator
        height, width = x.shape[2:]
        is_erased = uniform((len(x),), 0, 1, generator, x.dtype) < self.hparams.p
        unit = uniform((len(x), TRIES, 4), 0, 1, generator, x.dtype)
        boxes = choose_rectangles(unit, (height, width), self.hparams.scale, self.hparams.ratio) * is_erased[:, None]
        if self.hparams.value == "mean":
            values = torch.zeros((), dtype=x.dtype, device=x.device)
        else:
            values = normal(x.shape, generator, x.dtype)
        return Rectangles(mask_inside(boxes, (height, width)), values)
