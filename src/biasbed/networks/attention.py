"""Gates that weigh feature maps: `resnet50+se`, `resnet50+cbam`. Parameters are called what the authors' are.

Both act on what a residual block's last norm gives, before the shortcut is added, so that a checkpoint of the authors'
networks is one of ours.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import cast

import torch
from torch import Tensor, nn

from biasbed.errors import UsageError
from biasbed.networks import anatomy, hooks

REDUCTION = 16  # channels to hidden units, in both papers


def hidden(channels: int) -> int:
    """Units between a gate's two layers, at least one."""
    return max(1, channels // REDUCTION)


class SE(nn.Module):
    """Each channel weighed by a sigmoid of two layers on all channels' means: x [N,C,H,W] -> [N,C,H,W].

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
    """Each channel weighed by a sigmoid of one network's outputs for its mean and for its maximum, summed.

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
    """Each position weighed by a sigmoid of a convolution over the channels' maximum and mean.

    CBAM, equation 3. A batch norm follows the convolution in the authors' program; its weight begins at 0, so that all
    positions begin with a weight of a half.
    """

    def __init__(self) -> None:
        super().__init__()
        self.spatial = nn.Sequential()
        self.spatial.add_module("conv", nn.Conv2d(2, 1, 7, padding=3, bias=False))
        norm = nn.BatchNorm2d(1, eps=1e-5, momentum=0.01)
        nn.init.zeros_(norm.weight)
        self.spatial.add_module("bn", norm)

    def forward(self, x: Tensor) -> Tensor:
        seen = torch.stack([x.amax(1), x.mean(1)], 1)
        return x * torch.sigmoid(self.spatial(seen))


class CBAM(nn.Module):
    """Channels weighed, then positions: x [N,C,H,W] -> [N,C,H,W]. Woo et al., ECCV 2018, equation 1."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.ChannelGate, self.SpatialGate = ChannelGate(channels), SpatialGate()

    def forward(self, x: Tensor) -> Tensor:
        return cast(Tensor, self.SpatialGate(self.ChannelGate(x)))


def _sizes(channels: int) -> tuple[tuple[int, int], tuple[int, int]]:
    return (channels, hidden(channels)), (hidden(channels), channels)


GATES: Mapping[str, Callable[[int], nn.Module]] = {"se": SE, "cbam": CBAM}


def insert(resnet: nn.Module, kind: str) -> None:
    """Give every residual block of a ResNet a gate of one of `GATES`, called so, which the block then owns.

    timm's blocks have a place for one called `se` themselves. UsageError for a ResNet that has such gates already, and
    for what is no ResNet.
    """
    for block in [block for layer in anatomy.stages(resnet) for block in layer]:
        if getattr(block, kind, None) is not None:
            raise UsageError(f"{type(resnet).__name__} has gates called '{kind}' already")
        norm = block.get_submodule(f"bn{len(anatomy.convs(block))}")
        gate = GATES[kind](len(cast(Tensor, norm.weight)))
        if not hasattr(block, kind):
            hooks.insert_after(norm, gate)
        setattr(block, kind, gate)


def is_gates(key: str) -> str:
    """The kind of gate that a key of a state dict belongs to; empty for all other keys."""
    return next((kind for kind in GATES if kind in key.split(".")), "")
