"""How much harder an image is for one network than for a biased one (Nam, Cha, Ahn, Lee and Shin, NeurIPS 2020)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from biasbed.algorithms.base import Algorithm, Terms, TrainData
from biasbed.batch import Batch, at_least_fp32
from biasbed.compute.distributed import Group
from biasbed.settings import setting


def cross_entropy(logits: Tensor, y: Tensor) -> Tensor:
    """Of each image [N], in fp32 at least."""
    return functional.cross_entropy(at_least_fp32(logits), y, reduction="none")


def amplified(ce: Tensor, q: float) -> Tensor:
    """What amplifies a bias: cross-entropies [N], each weighted by q p^q, which is a constant for the gradient.

    p = exp(-ce) is the probability of the label. Its gradient is q times that of the generalised cross-entropy
    (1 - p^q) / q (Zhang and Sabuncu, NeurIPS 2018); its value is that of neither.
    """
    return q * (-q * ce.detach()).exp() * ce


class RelativeDifficulty(nn.Module):
    """Moving averages of two networks' losses on each training image, and the weight that follows from them.

    Every process has the same tables, as each enters the losses of all. An image that a step has several times enters
    with the mean of its losses: in which order they come is of no matter.
    """

    losses: Tensor
    labels: Tensor
    seen: Tensor

    def __init__(self, num_examples: int, num_classes: int, alpha: float) -> None:
        """alpha: share of the average so far that stays."""
        super().__init__()
        self.alpha, self.num_classes = alpha, num_classes
        # Of the biased network and the other one; of an image that was never seen 0, which is no class's largest.
        self.register_buffer("losses", torch.zeros(2, num_examples, dtype=torch.float64))
        self.register_buffer("labels", torch.zeros(num_examples, dtype=torch.long))
        self.register_buffer("seen", torch.zeros(num_examples, dtype=torch.bool))

    def enter(self, index: Tensor, y: Tensor, biased: Tensor, other: Tensor, group: Group) -> None:
        """Update the averages by the losses [N] of a step's images, those of all processes."""
        rows, labels = group.gather(index), group.gather(y)
        values = group.gather(torch.stack([biased, other], 1).detach().double()).T
        same = rows[:, None] == rows
        means = torch.where(same, values[:, None], 0).sum(2) / same.sum(1)
        averaged = self.alpha * self.losses[:, rows] + (1 - self.alpha) * means
        self.losses[:, rows] = torch.where(self.seen[rows], averaged, means)
        self.labels[rows] = labels
        self.seen[rows] = True

    def weights(self, index: Tensor | None = None) -> Tensor:
        """W [N] in [0,1] of images, or of all: near 1 where the biased network has the larger loss.

        Losses are taken in proportion to the largest one of the image's class, among all training images seen so far.
        """
        found, labels = self.losses, self.labels
        largest = found.new_zeros(2, self.num_classes).scatter_reduce(1, labels.expand_as(found), found, "amax")
        if index is not None:
            found, labels = found[:, index], labels[index]
        biased, other = found / largest[:, labels].clamp(min=torch.finfo(found.dtype).tiny)
        return biased / (biased + other + 1e-8)


class Pair(nn.Module):
    """A classifier, and one beside it that is to be biased."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Logits [N,K] of both, the classifier's first."""
        raise NotImplementedError

    def decide(self, x: Tensor) -> Tensor:
        """The classifier's logits [N,K]."""
        return self(x)[0]

    def draw(self, method: DifficultyWeighted, batch: Batch) -> Tensor | None:
        """Make the draws of a step; None if there are none."""
        return None

    def losses(self, method: DifficultyWeighted, batch: Batch) -> Terms:
        """What a step minimises, by means of the method's weights and its way of teaching the biased one."""
        raise NotImplementedError


class DifficultyWeighted(Algorithm):
    """What learning from failure and its successors share: a pair of classifiers, of which the first learns each image
    in proportion to its relative difficulty W, while the other one is taught what is biased. One optimizer has both, as
    no loss of the one reaches the other.
    """

    @dataclass(frozen=True)
    class HParams:
        alpha: float = setting(0.7, "share of the averaged losses that a step leaves (authors' code)", ge=0, lt=1)
        q: float = setting(0.7, "how far the bias is amplified (LfF, section 3.1)", gt=0, le=1)

    uses: ClassVar[frozenset[str]] = frozenset({"index"})
    tasks: ClassVar[frozenset[str]] = frozenset({"multi_class"})
    coupled: ClassVar[bool] = True

    hparams: HParams
    pair: Pair

    def on_train_data(self, data: TrainData) -> None:
        self.tables = RelativeDifficulty(data.num_examples, data.num_classes, self.hparams.alpha)

    def draw(self, batch: Batch) -> Tensor | None:
        return self.pair.draw(self, batch)

    def losses(self, batch: Batch) -> Terms:
        return self.pair.losses(self, batch)

    def weigh(self, batch: Batch, own: Tensor, biased: Tensor) -> Tensor:
        """W [N], once the cross-entropies [N] of the classifier and of the biased one are in the tables."""
        assert batch.index is not None
        self.tables.enter(batch.index, batch.y, biased, own, self.group)
        weights = self.tables.weights(batch.index).to(own.dtype)
        self.note("weight", weights.mean())
        return weights

    def biased_mean(self, ce: Tensor, index: Tensor) -> Tensor:
        """What the biased one minimises, of its cross-entropies [N] of training images `index`."""
        return amplified(ce, self.hparams.q).mean()

    def per_example(self) -> Mapping[str, Tensor]:
        return {"weight": self.tables.weights()}

    def predict(self, x: Tensor) -> Tensor:
        return self.pair.decide(x)

    def predictors(self) -> Mapping[str, Callable[[Tensor], Tensor]]:
        """How biased the biased one is."""
        return {"biased": lambda x: self.pair(x)[1]}
