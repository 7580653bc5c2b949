"""A backbone that takes images in [0,1]."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import cast

import torch
from torch import Tensor, nn

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)


def as_input(images: Tensor) -> Tensor:
    """Images as floats in [0,1], uint8 ones divided by 255; [N,3,H,W] in the layout in which convolutions are fast."""
    x = images.float() / 255 if images.dtype == torch.uint8 else images
    return x.contiguous(memory_format=torch.channels_last) if x.ndim == 4 else x


class Normalise(nn.Module):
    """(x - mean) / std per channel, for x [N,3,H,W] in [0,1].

    The constants follow from the architecture's name, so they are no part of the state: a state dict of ours then has
    the library's own keys, each behind `backbone.`.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, mean: Sequence[float] = IMAGENET_MEAN, std: Sequence[float] = IMAGENET_STD) -> None:
        super().__init__()
        self.register_buffer("mean", torch.tensor(mean).view(1, -1, 1, 1), persistent=False)
        self.register_buffer("std", torch.tensor(std).view(1, -1, 1, 1), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        return (x - self.mean) / self.std


class Network(nn.Module):
    """Normalisation and a library's classifier: images [N,3,H,W] in [0,1] -> logits [N,K].

    Its weights are laid out like `as_input`'s images.
    `backbone` is the library's own module, unchanged; `surgery` acts on it.
    """

    def __init__(
        self, backbone: nn.Module, mean: Sequence[float] = IMAGENET_MEAN, std: Sequence[float] = IMAGENET_STD
    ) -> None:
        super().__init__()
        self.normalise = Normalise(mean, std)
        self.backbone = backbone
        self.to(memory_format=torch.channels_last)

    def forward(self, x: Tensor) -> Tensor:
        return cast(Tensor, self.backbone(self.normalise(x)))


def head_parameters(module: nn.Module) -> Iterator[nn.Parameter]:
    """The parameters of the classifiers of all networks in a module: of the last linear layer that each has."""
    for network in module.modules():
        if isinstance(network, Network):
            linear = [layer for layer in network.modules() if isinstance(layer, nn.Linear)]
            yield from linear[-1].parameters() if linear else ()
