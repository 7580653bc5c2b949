"""Small networks for small images, as the papers of some suites have them. Every one calls its last layer `fc`.

All take images [N,C,H,W] and give logits [N,K]; `width` scales the channels of every hidden layer.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import cast

from torch import Tensor, nn

GROUPS = 8  # of channels, in each group norm of `MNISTConvNet`


def scaled(channels: int, width: float) -> int:
    """Channels of a layer in a network that is so much wider, at least one."""
    return max(1, round(channels * width))


class MLP(nn.Module):
    """Three hidden layers with ReLU on flat images, which are all of one size.

    100, 100 and 16 units are those of Lee, Kim, Lee, Lee and Choo, Learning Debiased Representation via Disentangled
    Feature Augmentation, NeurIPS 2021, for Colored MNIST.
    """

    def __init__(
        self, outputs: int, channels: int = 3, size: int = 28, hidden: Sequence[int] = (100, 100, 16), width: float = 1
    ) -> None:
        super().__init__()
        units = [channels * size**2, *(scaled(number, width) for number in hidden)]
        self.layers = nn.Sequential(*(layer for a, b in pairwise(units) for layer in (nn.Linear(a, b), nn.ReLU())))
        self.fc = nn.Linear(units[-1], outputs)

    def forward(self, x: Tensor) -> Tensor:
        return cast(Tensor, self.fc(self.layers(x.flatten(1))))


class SimpleConv(nn.Module):
    """Four convolutions without stride, each with batch norm and ReLU, and a mean over all positions.

    Bahng, Chun, Yun, Choo and Oh, Learning De-biased Representations with Biased Representations, ICML 2020; theirs has
    kernels of 7 pixels, and of 1 where it is to see nothing but colours.
    """

    def __init__(self, outputs: int, channels: int = 3, kernel: int = 7, width: float = 1) -> None:
        super().__init__()
        sizes = [channels, *(scaled(number, width) for number in (16, 32, 64, 128))]
        layers: list[nn.Module] = []
        for a, b in pairwise(sizes):
            conv = nn.Conv2d(a, b, kernel, padding=kernel // 2)
            nn.init.kaiming_normal_(conv.weight, mode="fan_out", nonlinearity="relu")
            layers += [conv, nn.BatchNorm2d(b), nn.ReLU(inplace=True)]
        self.layers = nn.Sequential(*layers)
        self.fc = nn.Linear(sizes[-1], outputs)

    def forward(self, x: Tensor) -> Tensor:
        return cast(Tensor, self.fc(self.layers(x).mean((2, 3))))


class MNISTConvNet(nn.Module):
    """Four convolutions, each with ReLU and then group norm, the second with stride 2, and a mean over all positions.

    Gulrajani and Lopez-Paz, In Search of Lost Domain Generalization, ICLR 2021, appendix D.1: their network for
    Colored and Rotated MNIST. 128 features.
    """

    def __init__(self, outputs: int, channels: int = 1, width: float = 1) -> None:
        super().__init__()
        sizes = [channels, *(GROUPS * scaled(number // GROUPS, width) for number in (64, 128, 128, 128))]
        layers: list[nn.Module] = []
        for (a, b), stride in zip(pairwise(sizes), (1, 2, 1, 1), strict=True):
            layers += [nn.Conv2d(a, b, 3, stride, padding=1), nn.ReLU(), nn.GroupNorm(GROUPS, b)]
        self.layers = nn.Sequential(*layers)
        self.fc = nn.Linear(sizes[-1], outputs)

    def forward(self, x: Tensor) -> Tensor:
        return cast(Tensor, self.fc(self.layers(x).mean((2, 3))))
