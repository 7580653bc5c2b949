"""EDSR, a super-resolution network: Lim, Son, Kim, Nah and Lee, Enhanced Deep Residual Networks for Single Image
Super-Resolution, 2017, section 3; the baseline with 16 blocks, which enlarges four times.

Parameters have the names of the authors' checkpoints.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Self, cast

import torch
from torch import Tensor, nn

from biasbed.errors import UsageError
from biasbed.networks.frozen import PreparedNetwork
from biasbed.networks.weights import load_weights

BLOCKS = 16
SCALE = 4
RANGE = 255.0  # largest value of a pixel
MEAN = (0.4488, 0.4371, 0.4040)  # RGB of the DIV2K training images in [0,1], as in the authors' checkpoints


class EDSR(PreparedNetwork):
    """Images [N,3,H,W] in [0,255] -> images [N,3,4H,4W], not clamped.

    size: short side in pixels of the enlarged images; the inputs have a quarter of it. width: channels (the authors'
    baseline: 64). There is no batch norm, and residuals are not scaled.
    """

    published: ClassVar[tuple[str, ...]] = ("weights",)
    mean: Tensor

    def __init__(self, size: int = 512, width: int = 64) -> None:
        super().__init__(size=size, width=width)
        # Not saved: the constants are the same whoever trained the network.
        self.register_buffer("mean", RANGE * torch.tensor(MEAN).view(1, 3, 1, 1), persistent=False)
        self.head = nn.Sequential(_conv(3, width))
        self.body = nn.Sequential(*(ResidualBlock(width) for _ in range(BLOCKS)), _conv(width, width))
        doubling: list[nn.Module] = []
        for _ in range(2):
            doubling += [_conv(width, 4 * width), nn.PixelShuffle(2)]
        self.tail = nn.Sequential(nn.Sequential(*doubling), _conv(width, 3))

    @property
    def width(self) -> int:
        """Number of channels."""
        return int(self.settings["width"])

    def shallow(self, x: Tensor) -> Tensor:
        """Return the features [N,width,H,W] after the first convolution."""
        return cast(Tensor, self.head(x - self.mean))

    def enlarge(self, features: Tensor) -> Tensor:
        """Return the image of features [N,width,H,W], to which the shallow features have been added."""
        return cast(Tensor, self.tail(features)) + self.mean

    def forward(self, x: Tensor) -> Tensor:
        shallow = self.shallow(x)
        return self.enlarge(self.body(shallow) + shallow)

    @classmethod
    def from_published(cls, tensors: Mapping[str, Mapping[str, Tensor]]) -> Self:
        network = cls()
        state = dict(tensors["weights"])
        for key, sign in (("sub_mean", -1), ("add_mean", 1)):
            _check_shift(key, state.pop(f"{key}.weight", None), state.pop(f"{key}.bias", None), sign * network.mean)
        load_weights(network, state, "weights", "EDSR's baseline x4 (16 blocks of 64 channels)")
        return network


class ResidualBlock(nn.Module):
    """x + conv(relu(conv(x)))."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.body = nn.Sequential(_conv(width, width), nn.ReLU(), _conv(width, width))

    def forward(self, x: Tensor) -> Tensor:
        return x + cast(Tensor, self.body(x))


def _conv(channels: int, filters: int) -> nn.Conv2d:
    return nn.Conv2d(channels, filters, 3, padding=1)


def _check_shift(key: str, weight: Tensor | None, bias: Tensor | None, expected: Tensor) -> None:
    """Raise UsageError unless a fixed shift, stored as a 1x1 convolution, is the mean of DIV2K for pixels to 255."""
    same = bias is None or (bias.numel() == 3 and torch.allclose(bias.flatten(), expected.flatten(), atol=0.1))
    identity = weight is None or (weight.numel() == 9 and torch.allclose(weight.view(3, 3), torch.eye(3), atol=1e-3))
    if not (same and identity):
        raise UsageError(
            f"weights: '{key}' is not the mean of DIV2K at a range of 255: not the weights of EDSR's baseline"
        )
