"""What is learnt: how logits and labels become a loss and a decision."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor
from torch.nn import functional


class Task(Protocol):
    """The kind of label, as algorithms and evaluation see it."""

    def loss(self, logits: Tensor, y: Tensor, reduction: str = "mean") -> Tensor:
        """Loss of logits [N,K] against labels, in fp32; `reduction` is `mean` or `none` ([N])."""
        ...


class MultiClass:
    """One class per image: cross-entropy."""

    def loss(self, logits: Tensor, y: Tensor, reduction: str = "mean") -> Tensor:
        return functional.cross_entropy(logits.float(), y, reduction=reduction)
