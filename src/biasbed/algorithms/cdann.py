"""C-DANN: features that don't tell their domain, given the class (Li, Tian, Gong et al., ECCV 2018), as in DomainBed."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn

from biasbed.algorithms.base import Setup
from biasbed.algorithms.dann import DANN


class CDANN(DANN):
    """DANN whose discriminator is told the class, and in whose loss all classes of a batch count alike.

    It sees the features plus a vector that it learns for each class.
    """

    tasks: ClassVar[frozenset[str]] = frozenset({"multi_class"})
    coupled: ClassVar[bool] = True

    hparams: DANN.HParams

    def __init__(self, hparams: DANN.HParams, setup: Setup) -> None:
        super().__init__(hparams, setup)
        self.embedding = nn.Embedding(setup.num_classes, self.network.num_features)

    def adversary(self) -> list[nn.Parameter]:
        return [*super().adversary(), *self.embedding.parameters()]

    def seen(self, features: Tensor, y: Tensor) -> Tensor:
        return features + self.embedding(y)

    def mean(self, each: Tensor, y: Tensor) -> Tensor:
        """The sum over classes of their images' mean, by the number of all classes, whether the batch has them or not."""
        classes = torch.arange(self.setup.num_classes, device=y.device)
        counts = self.group.sum((y[:, None] == classes).sum(0).to(each.dtype))
        present = (counts > 0).sum()
        return self.mean_over(each, 1 / counts[y]) * present / self.setup.num_classes
