"""C-DANN: features that hide their domain within each class (Li, Tian, Gong et al., ECCV 2018), as in DomainBed."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn

from biasbed.algorithms.base import TrainData
from biasbed.algorithms.dann import DANN


class CDANN(DANN):
    """DANN whose discriminator knows the class and whose loss weights all classes of a batch equally.

    The discriminator sees the features plus a learned vector for each class.
    """

    tasks: ClassVar[frozenset[str]] = frozenset({"multi_class"})
    coupled: ClassVar[bool] = True

    def on_train_data(self, data: TrainData) -> None:
        super().on_train_data(data)
        self.embedding = nn.Embedding(data.num_classes, self.network.num_features)

    def adversary(self) -> list[nn.Parameter]:
        return [*super().adversary(), *self.embedding.parameters()]

    def discriminator_input(self, features: Tensor, y: Tensor) -> Tensor:
        return features + self.embedding(y)

    def mean_loss(self, losses: Tensor, y: Tensor) -> Tensor:
        """Return the sum of the classes' means divided by the number of all classes, including absent ones."""
        classes = torch.arange(self.setup.num_classes, device=y.device)
        counts = self.group.sum((y[:, None] == classes).sum(0).to(losses.dtype))
        present = (counts > 0).sum()
        return self.mean_over(losses, 1 / counts[y]) * present / self.setup.num_classes
