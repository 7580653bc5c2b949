"""ResNets with one block per stage, made of torchvision's classes, at any width."""

from __future__ import annotations

from typing import Any

from torch import nn
from torchvision.models import resnet

from biasbed.networks.small import scaled


class ResNet(resnet.ResNet):
    """torchvision's ResNet with one block in each of its four stages. `width` scales the stages' channels.

    The stem keeps its 64 channels.
    """

    fc: nn.Linear

    def __init__(self, block: Any, outputs: int, width: float = 1.0) -> None:
        self.width = width
        super().__init__(block, [1, 1, 1, 1], outputs)
        if self.fc.in_features != self.inplanes:
            self.fc = nn.Linear(self.inplanes, outputs)

    def _make_layer(self, block: Any, planes: int, *args: Any, **named: Any) -> nn.Sequential:
        return super()._make_layer(block, scaled(planes, self.width), *args, **named)
