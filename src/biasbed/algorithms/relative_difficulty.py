"""Relative difficulty of images, for one network against a biased one (Nam, Cha, Ahn, Lee and Shin, NeurIPS 2020)."""

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
    """Return the cross-entropy [N] of each image, in fp32 at least."""
    return functional.cross_entropy(at_least_fp32(logits), y, reduction="none")


def amplify(ce: Tensor, q: float) -> Tensor:
    """Return cross-entropies [N] weighted to amplify a bias: each times q p^q, a constant for the gradient.

    p = exp(-ce) is the probability of the label. The gradient is q times that of the generalised cross-entropy
    (1 - p^q) / q (Zhang and Sabuncu, NeurIPS 2018); the value differs from it.
    """
    return q * (-q * ce.detach()).exp() * ce


class RelativeDifficulty(nn.Module):
    """Moving averages of two networks' losses on each training image, and the resulting weights.

    Every process has the same tables, because each enters the losses of all processes. An image that occurs several
    times in a step enters with its mean loss, so their order does not matter.
    """

    losses: Tensor
    labels: Tensor
    seen: Tensor

    def __init__(self, num_examples: int, num_classes: int, alpha: float) -> None:
        """alpha: share of the old average in the new one."""
        super().__init__()
        self.alpha, self.num_classes = alpha, num_classes
        # Losses of the biased network and of the other one; 0 for unseen images, which is never a class's largest.
        self.register_buffer("losses", torch.zeros(2, num_examples, dtype=torch.float64))
        self.register_buffer("labels", torch.zeros(num_examples, dtype=torch.long))
        self.register_buffer("seen", torch.zeros(num_examples, dtype=torch.bool))

    def add_losses(self, index: Tensor, y: Tensor, biased_ce: Tensor, ce: Tensor, group: Group) -> None:
        """Update the averages with the losses [N] of a step's images, gathered from all processes."""
        rows, labels = group.gather(index), group.gather(y)
        values = group.gather(torch.stack([biased_ce, ce], 1).detach().double()).T
        same = rows[:, None] == rows
        means = torch.where(same, values[:, None], 0).sum(2) / same.sum(1)
        averaged = self.alpha * self.losses[:, rows] + (1 - self.alpha) * means
        self.losses[:, rows] = torch.where(self.seen[rows], averaged, means)
        self.labels[rows] = labels
        self.seen[rows] = True

    def weights(self, index: Tensor | None = None) -> Tensor:
        """Return W [N] in [0,1] of some images, or of all: near 1 if the biased network has the larger loss.

        Losses are relative to the largest one of the image's class among all training images seen so far.
        """
        losses, labels = self.losses, self.labels
        largest = losses.new_zeros(2, self.num_classes).scatter_reduce(1, labels.expand_as(losses), losses, "amax")
        if index is not None:
            losses, labels = losses[:, index], labels[index]
        biased, unbiased = losses / largest[:, labels].clamp(min=torch.finfo(losses.dtype).tiny)
        return biased / (biased + unbiased + 1e-8)


class Pair(nn.Module):
    """Classifier, and a second one that is to be biased."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the logits [N,K] of both, the classifier's first."""
        raise NotImplementedError

    def decide(self, x: Tensor) -> Tensor:
        """Return the classifier's logits [N,K]."""
        return self(x)[0]

    def draw(self, method: DifficultyWeighted, batch: Batch) -> Tensor | None:
        """Return what the pair draws for a step, as its `losses` takes it from the method; None for nothing."""
        return None

    def losses(self, method: DifficultyWeighted, batch: Batch) -> Terms:
        """Return the losses of a step, with the method's weights and its loss for the biased classifier."""
        raise NotImplementedError


class DifficultyWeighted(Algorithm):
    """Base of learning from failure (LfF) and its successors: a pair of classifiers with one optimizer.

    The first classifier learns each image in proportion to its relative difficulty W; the second one is taught the
    bias. No loss of one reaches the other.
    """

    @dataclass(frozen=True)
    class HParams:
        alpha: float = setting(0.7, "share of the old average of losses after a step (authors' code)", ge=0, lt=1)
        q: float = setting(0.7, "how far the bias is amplified (LfF, section 3.1)", gt=0, le=1)

    uses: ClassVar[frozenset[str]] = frozenset({"index"})
    tasks: ClassVar[frozenset[str]] = frozenset({"multi_class"})
    smooths_labels: ClassVar[bool] = False  # weights compare cross-entropies of hard labels
    coupled: ClassVar[bool] = True

    hparams: HParams
    pair: Pair

    def on_train_data(self, data: TrainData) -> None:
        self.tables = RelativeDifficulty(data.num_examples, data.num_classes, self.hparams.alpha)

    def draw(self, batch: Batch) -> Tensor | None:
        return self.pair.draw(self, batch)

    def losses(self, batch: Batch) -> Terms:
        return self.pair.losses(self, batch)

    def weigh(self, batch: Batch, ce: Tensor, biased_ce: Tensor) -> Tensor:
        """Return W [N] after entering the cross-entropies [N] of the classifier and of the biased one."""
        assert batch.index is not None
        self.tables.add_losses(batch.index, batch.y, biased_ce, ce, self.group)
        weights = self.tables.weights(batch.index).to(ce.dtype)
        self.note("weight", weights.mean())
        return weights

    def biased_mean(self, ce: Tensor, index: Tensor) -> Tensor:
        """Return the biased classifier's loss from its cross-entropies [N] of the training images `index`."""
        return amplify(ce, self.hparams.q).mean()

    def per_example(self) -> Mapping[str, Tensor]:
        return {"weight": self.tables.weights()}

    def predict(self, x: Tensor) -> Tensor:
        return self.pair.decide(x)

    def predictors(self) -> Mapping[str, Callable[[Tensor], Tensor]]:
        """Return the biased classifier, to show how biased it is."""
        return {"biased": lambda x: self.pair(x)[1]}
