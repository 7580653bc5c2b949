"""A backbone that takes images in [0,1], its features and its classifier apart."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import cast

import torch
from torch import Tensor, nn

from biasbed.errors import UsageError
from biasbed.networks import heads

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)


def as_input(images: Tensor) -> Tensor:
    """Images as floats in [0,1], uint8 ones divided by 255; [N,C,H,W] in the layout in which convolutions are fast."""
    x = images.float() / 255 if images.dtype == torch.uint8 else images
    return x.contiguous(memory_format=torch.channels_last) if x.ndim == 4 else x


class Normalise(nn.Module):
    """(x - mean) / std per channel, for x [N,C,H,W] in [0,1]; UsageError for images of another number of channels.

    The constants follow from the architecture and the settings, so they are no part of the state: a state dict of ours
    then has the library's own keys, each behind `backbone.`.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, mean: Sequence[float] = IMAGENET_MEAN, std: Sequence[float] = IMAGENET_STD) -> None:
        super().__init__()
        self.register_buffer("mean", torch.tensor(mean).view(1, -1, 1, 1), persistent=False)
        self.register_buffer("std", torch.tensor(std).view(1, -1, 1, 1), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        if x.shape[1] != self.mean.shape[1]:
            raise UsageError(f"network.channels={self.mean.shape[1]}: the images have {x.shape[1]}")
        return (x - self.mean) / self.std


class Network(nn.Module):
    """Normalisation and a library's classifier: images [N,C,H,W] in [0,1] -> logits [N,K].

    Its weights are laid out like `as_input`'s images.
    `backbone` is the library's own module, its names unchanged; `surgery` acts on it.
    """

    def __init__(
        self,
        backbone: nn.Module,
        mean: Sequence[float] = IMAGENET_MEAN,
        std: Sequence[float] = IMAGENET_STD,
        dropout: float = 0.0,
        head: bool = True,
        image_size: int | None = None,
    ) -> None:
        """dropout: odds of each feature to be dropped in training. head: False takes the last linear layer off.

        image_size: pixels per side, where the backbone takes images of one size only.
        """
        super().__init__()
        self.image_size = image_size
        self.normalise = Normalise(mean, std)
        self.backbone = backbone
        self._head = heads.part(backbone, dropout, keep=head)
        self.to(memory_format=torch.channels_last)

    def forward(self, x: Tensor) -> Tensor:
        """Logits; without a head, features."""
        return cast(Tensor, self.backbone(self._input(x)))

    def features(self, x: Tensor) -> Tensor:
        """What goes into the last linear layer, [N,num_features], in training with dropout.

        Hooks before that layer have run on them. Raises UsageError for a network that has no such layer.
        """
        head = self._parted()
        head.apart = True
        try:
            found: Tensor = self.backbone(self._input(x))
        finally:
            head.apart = False
        return found.flatten(1)

    def classify(self, features: Tensor) -> Tensor:
        """Logits of features: `classify(features(x))` is what `forward` gives, but for hooks after the last layer."""
        return self._parted().classify(features)

    @property
    def num_features(self) -> int:
        return self._parted().num_features

    @property
    def channels(self) -> int:
        """Of its images."""
        return self.normalise.mean.shape[1]

    @property
    def head(self) -> nn.Module | None:
        """The last linear layer, if there is one."""
        return None if self._head is None or isinstance(self._head.layer, nn.Identity) else self._head.layer

    def _input(self, x: Tensor) -> Tensor:
        if self.image_size is not None and x.shape[2:] != (self.image_size, self.image_size):
            given, size = "x".join(map(str, x.shape[2:])), self.image_size
            raise UsageError(f"{type(self.backbone).__name__} takes images of {size}x{size} pixels, and gets {given}")
        return cast(Tensor, self.normalise(x))

    def _parted(self) -> heads.Head:
        if self._head is None:
            raise heads.without_head(self.backbone)
        return self._head


class Classifier(nn.Linear):
    """The last linear layer of a method's own, where it classifies what several networks without one have found."""


def head_parameters(module: nn.Module) -> Iterator[nn.Parameter]:
    """The parameters of all classifiers in a module: a method's own, and the last linear layer of each network."""
    for part in module.modules():
        head = part.head if isinstance(part, Network) else part if isinstance(part, Classifier) else None
        if head is not None:
            yield from head.parameters()
