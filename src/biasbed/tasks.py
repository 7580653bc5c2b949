"""What is learnt: how logits and labels become a loss and a decision."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor
from torch.nn import functional

from biasbed.batch import at_least_fp32


class Task(Protocol):
    """The kind of label, as algorithms and evaluation see it."""

    def loss(self, logits: Tensor, y: Tensor, reduction: str = "mean") -> Tensor:
        """Loss of logits [N,K] against labels, in fp32 at least; `reduction` is `mean` or `none` ([N])."""
        ...

    def right(self, logits: Tensor, y: Tensor) -> Tensor:
        """Whether each image's decision is its label: bool [N]."""
        ...


class MultiClass:
    """One class per image: cross-entropy."""

    def loss(self, logits: Tensor, y: Tensor, reduction: str = "mean") -> Tensor:
        return functional.cross_entropy(at_least_fp32(logits), y, reduction=reduction)

    def right(self, logits: Tensor, y: Tensor) -> Tensor:
        return logits.argmax(dim=1) == y


class MultiLabel:
    """Any number of classes per image, y [N,K] of 0 and 1: binary cross-entropy, averaged over the classes."""

    def loss(self, logits: Tensor, y: Tensor, reduction: str = "mean") -> Tensor:
        logits = at_least_fp32(logits)
        each = functional.binary_cross_entropy_with_logits(logits, y.to(logits.dtype), reduction="none").mean(dim=1)
        return each.mean() if reduction == "mean" else each

    def right(self, logits: Tensor, y: Tensor) -> Tensor:
        return ((logits > 0) == (y > 0)).all(dim=1)
