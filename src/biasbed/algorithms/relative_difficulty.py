"""How much harder an image is for one network than for a biased one (Nam, Cha, Ahn, Lee and Shin, NeurIPS 2020)."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from biasbed.batch import at_least_fp32
from biasbed.compute.distributed import Group


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
