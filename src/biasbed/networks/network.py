"""Network of a backbone and its normalisation, with features and classifier apart, and frozen statistics."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import cast

import torch
from torch import Tensor, nn

from biasbed.errors import UsageError
from biasbed.networks import heads
from biasbed.networks.form import IMAGENET

IMAGENET_MEAN, IMAGENET_STD = IMAGENET


def as_input(images: Tensor) -> Tensor:
    """Return images as floats in [0,1] (uint8 ones divided by 255); [N,C,H,W] as channels_last, for convolutions."""
    x = images.float() / 255 if images.dtype == torch.uint8 else images
    return x.contiguous(memory_format=torch.channels_last) if x.ndim == 4 else x


def content_hash(tensors: Mapping[str, Tensor]) -> str:
    """Return the SHA-256 in hexadecimal of names, dtypes, shapes and values, whatever their order and file format.

    Leaves out batch norm's counters of batches: many files lack them, and no network with a momentum uses them.
    """
    sha = hashlib.sha256()
    for name in sorted(name for name in tensors if not name.endswith("num_batches_tracked")):
        tensor = tensors[name].detach().cpu().contiguous()
        sha.update(f"{name} {tensor.dtype} {list(tensor.shape)}\n".encode())
        sha.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return sha.hexdigest()


class Normalise(nn.Module):
    """(x - mean) / std per channel, for x [N,C,H,W] in [0,1]. Raises UsageError for another number of channels.

    The constants follow from the architecture and the settings and are not saved, so that a state dict of ours has the
    library's own keys, each with the prefix `backbone.`.
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

    `backbone` is the library's own module with its names unchanged; `surgery` acts on it. Weights are in the same
    memory format as the images of `as_input`.
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
        """dropout: probability to drop each feature in training. head: False removes the last linear layer.

        image_size: pixels per side, if the backbone takes images of one size only.
        """
        super().__init__()
        self.image_size = image_size
        self.normalise = Normalise(mean, std)
        self.backbone = backbone
        self._head = heads.split(backbone, dropout, keep=head)
        self.to(memory_format=torch.channels_last)

    def forward(self, x: Tensor) -> Tensor:
        """Return logits, or features if the head was removed."""
        return cast(Tensor, self.backbone(self.normalise(x)))

    def features(self, x: Tensor) -> Tensor:
        """Return the input of the last linear layer [N,num_features], in training with dropout.

        Hooks before that layer have run. Raises UsageError if the network has no such layer.
        """
        head = self._require_head()
        head.is_skipped = True
        try:
            features: Tensor = self.backbone(self.normalise(x))
        finally:
            head.is_skipped = False
        return features.flatten(1)

    def classify(self, features: Tensor) -> Tensor:
        """Return the logits of features. `classify(features(x))` is `forward(x)` without hooks after the last layer."""
        return self._require_head().classify(features)

    @property
    def num_features(self) -> int:
        """Number of features of an image."""
        return self._require_head().num_features

    @property
    def channels(self) -> int:
        """Number of channels of the images."""
        return self.normalise.mean.shape[1]

    @property
    def head(self) -> nn.Module | None:
        """Last linear layer; None if there is none."""
        return None if self._head is None or isinstance(self._head.layer, nn.Identity) else self._head.layer

    @property
    def removed_head(self) -> str | None:
        """Name of the last linear layer if it was removed."""
        if self._head is None or self.head is not None:
            return None
        return next(name for name, module in self.backbone.named_modules() if module is self._head.layer)

    def _require_head(self) -> heads.Head:
        """Return the head. Raises UsageError if there is none."""
        if self._head is None:
            raise heads.no_head_error(self.backbone)
        return self._head


class Classifier(nn.Linear):
    """Last linear layer that a method owns, to classify the joined features of several networks without heads."""


def head_parameters(module: nn.Module) -> Iterator[nn.Parameter]:
    """Yield the parameters of every classifier in a module: `Classifier`s and the last linear layer of each network."""
    for part in module.modules():
        head: nn.Module | None = part if isinstance(part, Classifier) else None
        if isinstance(part, Network):
            head = part.head
        if head is not None:
            yield from head.parameters()


class FrozenStatistics:
    """Replacement for the `train` method of a batch norm that always normalises by its running statistics."""

    def __init__(self, norm: nn.Module) -> None:
        self.norm = norm

    def __call__(self, mode: bool = True) -> nn.Module:
        return type(self.norm).train(self.norm, False)


def freeze_statistics(module: nn.Module) -> None:
    """Freeze the running statistics of every batch norm. Weights and biases remain trainable.

    Replaces each norm's own `train` method, so that copies and submodules stay frozen too; an override of the whole
    network's `train` would be lost there.
    """
    for norm in module.modules():
        if isinstance(norm, nn.modules.batchnorm._BatchNorm) and norm.running_mean is not None:
            norm.train = FrozenStatistics(norm)  # type: ignore[assignment, method-assign]
            norm.eval()
