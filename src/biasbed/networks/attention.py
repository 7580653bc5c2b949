"""Gates that weight feature maps: `resnet50+se`, `resnet50+cbam`. Parameters have the authors' names.

Both act on the output of a residual block's last norm, before the shortcut is added, so that the authors' checkpoints
fit our networks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import cast

import torch
from torch import Tensor, nn

from biasbed.networks import hooks, resnet_parts

REDUCTION = 16  # ratio of channels to hidden units, in both papers


def hidden_units(channels: int) -> int:
    """Return the number of hidden units of a gate, at least one."""
    return max(1, channels // REDUCTION)


class SE(nn.Module):
    """Each channel weighted by a sigmoid of two layers on all channels' means: x [N,C,H,W] -> [N,C,H,W].

    Hu, Shen and Sun, Squeeze-and-Excitation Networks, CVPR 2018, equations 2 to 4, without biases, as in the networks
    that The Many Faces of Robustness tests on DeepFashion Remixed.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        down, up = (nn.Linear(*sizes, bias=False) for sizes in _sizes(channels))
        self.fc = nn.Sequential(down, nn.ReLU(), up, nn.Sigmoid())

    def forward(self, x: Tensor) -> Tensor:
        return x * cast(Tensor, self.fc(x.mean((2, 3))))[:, :, None, None]


class ChannelGate(nn.Module):
    """Each channel weighted by a sigmoid of one network's summed outputs for the channels' means and maxima.

    Woo, Park, Lee and Kweon, CBAM, ECCV 2018, equation 2.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        down, up = (nn.Linear(*sizes) for sizes in _sizes(channels))
        self.mlp = nn.Sequential(nn.Flatten(), down, nn.ReLU(), up)

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.mlp(x.mean((2, 3))) + self.mlp(x.amax((2, 3)))
        return x * torch.sigmoid(scores)[:, :, None, None]


class SpatialGate(nn.Module):
    """Each position weighted by a sigmoid of a convolution over the channels' maximum and mean.

    CBAM, equation 3. In the authors' code a batch norm follows the convolution; its weight starts at 0, so that all
    positions start with a weight of one half.
    """

    def __init__(self) -> None:
        super().__init__()
        self.spatial = nn.Sequential()
        self.spatial.add_module("conv", nn.Conv2d(2, 1, 7, padding=3, bias=False))
        norm = nn.BatchNorm2d(1, eps=1e-5, momentum=0.01)
        nn.init.zeros_(norm.weight)
        self.spatial.add_module("bn", norm)

    def forward(self, x: Tensor) -> Tensor:
        pooled = torch.stack([x.amax(1), x.mean(1)], 1)
        return x * torch.sigmoid(self.spatial(pooled))


class CBAM(nn.Module):
    """Channels weighted, then positions: x [N,C,H,W] -> [N,C,H,W]. Woo et al., ECCV 2018, equation 1."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.ChannelGate, self.SpatialGate = ChannelGate(channels), SpatialGate()

    def forward(self, x: Tensor) -> Tensor:
        return cast(Tensor, self.SpatialGate(self.ChannelGate(x)))


def _sizes(channels: int) -> tuple[tuple[int, int], tuple[int, int]]:
    return (channels, hidden_units(channels)), (hidden_units(channels), channels)


CLASSES: Mapping[str, Callable[[int], nn.Module]] = {"se": SE, "cbam": CBAM}


def insert(resnet: nn.Module, kind: str) -> None:
    """Insert a gate of this kind into every residual block of a ResNet, as the block's child module `kind`.

    timm's blocks have a place for a gate called `se` themselves. Raises UsageError if the network is no ResNet.
    """
    for block in resnet_parts.residual_blocks(resnet):
        norm = block.get_submodule(f"bn{len(resnet_parts.block_convs(block))}")
        gate = CLASSES[kind](len(cast(Tensor, norm.weight)))
        if not hasattr(block, kind):
            hooks.insert_after(norm, gate)
        setattr(block, kind, gate)
