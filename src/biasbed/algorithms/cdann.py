"""C-DANN: features that don't tell their domain within a class (Li, Tian, Gong et al., ECCV 2018), as in DomainBed."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn

from biasbed.algorithms.base import TrainData
from biasbed.algorithms.dann import DANN


class CDANN(DANN):
    """DANN whose discriminator is told the class, and in whose loss all classes of a batch count alike.

    It sees the features plus a vector that it learns for each class.
    """

    tasks: ClassVar[frozenset[str]] = frozenset({"multi_class"})
    coupled: ClassVar[bool] = True

    def on_train_data(self, data: TrainData) -> None:
        super().on_train_data(data)
        self.embedding = nn.Embedding(data.num_classes, self.network.num_features)

    def adversary(self) -> list[nn.Parameter]:
        return [*super().adversary(), *self.embedding.parameters()]

    def seen(self, features: Tensor, y: Tensor) -> Tensor:
        return features + self.embedding(y)

    def mean(self, each: Tensor, y: Tensor) -> Tensor:
        """The sum of each class's mean by the number of all classes, also of those that the batch does not have."""
        classes = torch.arange(self.setup.num_classes, device=y.device)
        counts = self.group.sum((y[:, None] == classes).sum(0).to(each.dtype))
        present = (counts > 0).sum()
        return self.mean_over(each, 1 / counts[y]) * present / self.setup.num_classes
