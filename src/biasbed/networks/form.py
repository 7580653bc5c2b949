"""Form of a backbone that is made (outputs, channels, size), its mean and std, and what its library returns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from torch import nn

USUAL_SIZE = 224  # pixels per side


@dataclass(frozen=True)
class Form:
    """Outputs, channels, image size, width and stochastic depth of a backbone."""

    outputs: int
    channels: int = 3
    image_size: int | None = None  # pixels per side; None: the library's default
    width: float = 1.0  # factor of the hidden channels
    drop_path: float | None = None  # odds of the last block to be skipped; None: the library's default


class MeanStd(NamedTuple):
    """Mean and standard deviation by channel, of images in [0,1]."""

    mean: tuple[float, ...]
    std: tuple[float, ...]

    def repeat(self, channels: int) -> MeanStd:
        """Return values for this number of channels: 1, 2, 3, 1, 2 from the values 1, 2, 3 for five channels."""
        mean = tuple(self.mean[channel % len(self.mean)] for channel in range(channels))
        return MeanStd(mean, tuple(self.std[channel % len(self.std)] for channel in range(channels)))


IMAGENET = MeanStd((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))


class Backbone(NamedTuple):
    """Backbone, mean and std of the images it expects, and their size if it takes no other."""

    module: nn.Module
    mean_std: MeanStd
    image_size: int | None = None
