"""Tasks (one label or several per image): loss, decision, probabilities and usual measures of logits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from torch import Tensor
from torch.nn import functional

from biasbed.batch import at_least_fp32

RANK_MEASURES = ("accuracy_full", "mrr")  # of a label's rank among all the model's outputs


@dataclass(frozen=True)
class MultiClass:
    """One class per image: cross-entropy; the decision is the largest logit's class.

    smoothing: part of each label that is spread evenly over all K classes (Szegedy et al. 2016, section 7).
    """

    smoothing: float = 0.0

    name: ClassVar[str] = "multi_class"  # in checkpoints and in declarations of methods
    description: ClassVar[str] = "one class per image"
    several: ClassVar[bool] = False  # True: any number of labels per image, y [N,K] of 0 and 1; else one label, y [N]
    # Usual measures of a set. The first is the headline, which is also the usual monitor of a training.
    measures: ClassVar[tuple[str, ...]] = ("accuracy", "loss", "ece")

    def loss(self, logits: Tensor, y: Tensor, reduction: str = "mean") -> Tensor:
        """Return the loss of logits [N,K] against labels, in fp32 at least; `reduction` is `mean` or `none` ([N])."""
        logits = at_least_fp32(logits)
        return functional.cross_entropy(logits, y, reduction=reduction, label_smoothing=self.smoothing)

    def right(self, logits: Tensor, y: Tensor) -> Tensor:
        """Return True for each image whose decision is its label: bool [N]."""
        return self.decided(logits) == y

    def decided(self, scores: Tensor) -> Tensor:
        """Return the decisions of scores [N,K], in the form of y."""
        return scores.argmax(dim=1)

    def probabilities(self, logits: Tensor) -> Tensor:
        """Return the confidence [N,K] in each label."""
        return logits.softmax(dim=1)

    def chance(self, measure: str, y: np.ndarray, classes: int) -> float:
        """Return the score of a uniformly random decision among the set's classes.

        It is 0 for measures of ranks, which depend on the number of all the model's outputs.
        """
        return 0.0 if measure in RANK_MEASURES else 1 / classes

    def smoothed(self, part: float) -> MultiClass:
        """Return the task with this label smoothing, for the losses of a training."""
        return MultiClass(part)


@dataclass(frozen=True)
class MultiLabel:
    """Any number of labels per image, y [N,K] of 0 and 1: binary cross-entropy, averaged over the labels.

    The decision is every label with a positive logit; it is right if all labels are.
    smoothing: part of each label that is spread evenly over its two values, 0 and 1.
    """

    smoothing: float = 0.0

    name: ClassVar[str] = "multi_label"
    description: ClassVar[str] = "any number of labels per image"
    several: ClassVar[bool] = True
    measures: ClassVar[tuple[str, ...]] = ("map", "accuracy", "loss")

    def loss(self, logits: Tensor, y: Tensor, reduction: str = "mean") -> Tensor:
        logits = at_least_fp32(logits)
        targets = y.to(logits.dtype)
        if self.smoothing:
            targets = targets * (1 - self.smoothing) + self.smoothing / 2
        each = functional.binary_cross_entropy_with_logits(logits, targets, reduction="none").mean(dim=1)
        return each.mean() if reduction == "mean" else each

    def right(self, logits: Tensor, y: Tensor) -> Tensor:
        return (self.decided(logits) == (y > 0)).all(dim=1)

    def decided(self, scores: Tensor) -> Tensor:
        return scores > 0

    def probabilities(self, logits: Tensor) -> Tensor:
        return logits.sigmoid()

    def chance(self, measure: str, y: np.ndarray, classes: int) -> float:
        """Return the mean average precision of a random order, the mean share of images that have a label; else 0."""
        shares = (y > 0).mean(axis=0)
        return float(shares[shares > 0].mean()) if measure == "map" and shares.any() else 0.0

    def smoothed(self, part: float) -> MultiLabel:
        return MultiLabel(part)


Task = MultiClass | MultiLabel  # both have the same methods
MULTI_CLASS = MultiClass()
# By name, as in checkpoints.
TASKS: Mapping[str, Task] = {task.name: task for task in (MULTI_CLASS, MultiLabel())}
