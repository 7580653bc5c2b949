"""Tasks: how logits and labels become a loss, a decision and probabilities, and what is usually measured."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import numpy as np
from torch import Tensor
from torch.nn import functional

from biasbed.batch import at_least_fp32


class Task(Protocol):
    """The kind of label, as algorithms and evaluation see it."""

    @property
    def name(self) -> str:
        """Name in checkpoints and in declarations of methods."""
        ...

    @property
    def description(self) -> str:
        """The same in a sentence."""
        ...

    @property
    def several(self) -> bool:
        """True if an image has any number of labels, y [N,K] of 0 and 1; else it has one, y [N]."""
        ...

    @property
    def measures(self) -> tuple[str, ...]:
        """Usual measures of a set, the headline first, by which a training is monitored too."""
        ...

    def loss(self, logits: Tensor, y: Tensor, reduction: str = "mean") -> Tensor:
        """Loss of logits [N,K] against labels, in fp32 at least; `reduction` is `mean` or `none` ([N])."""
        ...

    def right(self, logits: Tensor, y: Tensor) -> Tensor:
        """Return True for each image whose decision is its label: bool [N]."""
        ...

    def decided(self, scores: Tensor) -> Tensor:
        """The decisions of scores [N,K], in the form of y."""
        ...

    def probabilities(self, logits: Tensor) -> Tensor:
        """Confidence [N,K] in each label."""
        ...

    def chance(self, measure: str, y: np.ndarray, classes: int) -> float:
        """The value of a measure that guessing gets on images of these labels; zero where that is not known."""
        ...


class MultiClass:
    """One class per image: cross-entropy; the decision is the largest logit's class."""

    name = "multi_class"
    description = "one class per image"
    several = False
    measures = ("accuracy", "loss", "ece")

    def loss(self, logits: Tensor, y: Tensor, reduction: str = "mean") -> Tensor:
        return functional.cross_entropy(at_least_fp32(logits), y, reduction=reduction)

    def right(self, logits: Tensor, y: Tensor) -> Tensor:
        return self.decided(logits) == y

    def decided(self, scores: Tensor) -> Tensor:
        return scores.argmax(dim=1)

    def probabilities(self, logits: Tensor) -> Tensor:
        return logits.softmax(dim=1)

    def chance(self, measure: str, y: np.ndarray, classes: int) -> float:
        """Return the chance level of accuracy, for any headline: classes are drawn alike."""
        return 1 / classes


class MultiLabel:
    """Any number of labels per image, y [N,K] of 0 and 1: binary cross-entropy, averaged over the labels.

    Decided are the labels of positive logits; a decision is right where all of them are.
    """

    name = "multi_label"
    description = "any number of labels per image"
    several = True
    measures = ("map", "accuracy", "loss")

    def loss(self, logits: Tensor, y: Tensor, reduction: str = "mean") -> Tensor:
        logits = at_least_fp32(logits)
        each = functional.binary_cross_entropy_with_logits(logits, y.to(logits.dtype), reduction="none").mean(dim=1)
        return each.mean() if reduction == "mean" else each

    def right(self, logits: Tensor, y: Tensor) -> Tensor:
        return (self.decided(logits) == (y > 0)).all(dim=1)

    def decided(self, scores: Tensor) -> Tensor:
        return scores > 0

    def probabilities(self, logits: Tensor) -> Tensor:
        return logits.sigmoid()

    def chance(self, measure: str, y: np.ndarray, classes: int) -> float:
        """Return the chance level of mean average precision: for a random order, a label's share of (many) images."""
        shares = (y > 0).mean(axis=0)
        return float(shares[shares > 0].mean()) if measure == "map" and shares.any() else 0.0


MULTI_CLASS = MultiClass()
# By the names that checkpoints have.
TASKS: Mapping[str, Task] = {task.name: task for task in (MULTI_CLASS, MultiLabel())}
