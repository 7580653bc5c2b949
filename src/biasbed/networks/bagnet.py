"""A ResNet-18 whose features see a few pixels each."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import cast

from torch import Tensor, nn

from biasbed.networks.small import scaled


class SmallBlock(nn.Module):
    """Two convolutions without padding, the second of 1 pixel, beside a shortcut that is cut to their size."""

    def __init__(self, channels: int, outputs: int, kernel: int = 1, stride: int = 1) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, outputs, kernel, stride, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(outputs, outputs, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.downsample = nn.Sequential()
        if stride != 1 or channels != outputs:
            self.downsample.extend([nn.Conv2d(channels, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)])

    def forward(self, x: Tensor) -> Tensor:
        out = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        shortcut = self.downsample(x)[:, :, : out.shape[2], : out.shape[3]]
        return cast(Tensor, self.relu(out + shortcut))


class BagNet18(nn.Module):
    """Eight basic blocks of ResNet-18's channels, in which a feature sees 5x5 pixels: images of 8 pixels or more.

    A BagNet (Brendel and Bethge, ICLR 2019), as Bahng, Chun, Yun, Choo and Oh, Learning De-biased Representations with
    Biased Representations, ICML 2020, have it for ImageNet: one convolution of 3 pixels in the stem and one in the
    first block, all others of 1; strides 2, 2, 2 and 1.
    """

    def __init__(self, outputs: int, channels: int = 3, width: float = 1) -> None:
        super().__init__()
        stem, *sizes = (scaled(number, width) for number in (64, 64, 128, 256, 512))
        self.conv1 = nn.Conv2d(channels, stem, 1, bias=False)
        self.conv2 = nn.Conv2d(stem, stem, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(stem)
        self.relu = nn.ReLU(inplace=True)
        self.layers = nn.Sequential(*_blocks((stem, *sizes)))
        self.fc = nn.Linear(sizes[-1], outputs)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: Tensor) -> Tensor:
        maps = self.layers(self.relu(self.bn1(self.conv2(self.conv1(x)))))
        return cast(Tensor, self.fc(maps.mean((2, 3))))


def _blocks(sizes: Sequence[int]) -> list[SmallBlock]:
    """Two for each pair of sizes, the first of which changes them."""
    made = []
    for (channels, outputs), kernel, stride in zip(pairwise(sizes), (3, 1, 1, 1), (2, 2, 2, 1), strict=True):
        made += [SmallBlock(channels, outputs, kernel, stride), SmallBlock(outputs, outputs)]
    return made
