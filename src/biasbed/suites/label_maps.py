"""Label maps: from a model's logits to scores over an evaluation set's classes. The decision is the best score.

A data set names its label map as an object: guessing one by the number of classes can't tell two sets of 200 apart.
Which of ImageNet's classes are in which category is in `datasets/classes.py`.

Answers: How do 1000 classes become the categories of a set?
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from biasbed.config import Aggregation
from biasbed.datasets.classes import _RANGES, expand_ranges, imagenet_classes
from biasbed.tasks import MULTI_CLASS, Task

USUAL: Aggregation = "prob_mean"


class LabelMap(Protocol):
    """Function from logits [N,K] to scores [N,C]; `name` is recorded with every result."""

    @property
    def name(self) -> str: ...

    @property
    def is_logits(self) -> bool:
        """True if the scores are logits, on which the task's loss is defined."""
        ...

    @property
    def restricts(self) -> bool:
        """True if the set has fewer classes than the model has outputs, so that ranks among all outputs differ."""
        ...

    def __call__(self, logits: Tensor) -> Tensor: ...

    def probabilities(self, scores: Tensor, task: Task) -> Tensor:
        """Return the confidence [N,C] in each of the set's classes; it sums to one if an image has one class."""
        ...

    def best_outputs(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Return for each image the output of its label with the largest logit [N], the first one of equals."""
        ...


@dataclass(frozen=True)
class Identity:
    """Label map of a set with the model's classes."""

    name: str = "identity"
    is_logits: bool = True
    restricts: bool = False

    def __call__(self, logits: Tensor) -> Tensor:
        return logits

    def probabilities(self, scores: Tensor, task: Task = MULTI_CLASS) -> Tensor:
        return task.probabilities(scores)

    def best_outputs(self, logits: Tensor, labels: Tensor) -> Tensor:
        return labels


IDENTITY = Identity()


@dataclass(frozen=True)
class Subset:
    """Label map of a set with some of the model's classes (ImageNet-A, ImageNet-R). columns: in the set's order."""

    columns: tuple[int, ...]
    name: str = "subset"
    is_logits: bool = True
    restricts: bool = True

    def __call__(self, logits: Tensor) -> Tensor:
        return logits[:, list(self.columns)]

    def probabilities(self, scores: Tensor, task: Task = MULTI_CLASS) -> Tensor:
        return task.probabilities(scores)

    def best_outputs(self, logits: Tensor, labels: Tensor) -> Tensor:
        return torch.tensor(self.columns, device=labels.device)[labels]


@dataclass(frozen=True)
class Grouped:
    """Label map of a set whose classes combine several of the model's (1000 ImageNet classes -> 16 categories).

    `members[c]` lists the model's classes of class c. `prob_mean` averages the softmax over all classes (Geirhos et al.
    2019), `logit_mean` the logits (BiasBed's code). Ties go to the first class. The map is for one class per image:
    with several labels, the outputs of one class have no common probability.

    Probabilities are the shares of the scores; for mean logits, their softmax. Under `prob_mean` they are the posterior
    for a set of equally frequent classes, of a model trained on equally frequent outputs: a class with many outputs has
    no advantage.
    """

    members: tuple[tuple[int, ...], ...]
    how: Aggregation = USUAL
    kind: str = "grouped"
    is_logits: bool = False
    restricts: bool = True

    @property
    def name(self) -> str:
        return f"{self.kind}-{self.how}"

    def __call__(self, logits: Tensor) -> Tensor:
        values = logits if self.how == "logit_mean" else logits.softmax(dim=1)
        return torch.stack([self._pool(values[:, list(columns)]) for columns in self.members], dim=1)

    def probabilities(self, scores: Tensor, task: Task = MULTI_CLASS) -> Tensor:
        if self.how == "logit_mean":
            return task.probabilities(scores)
        # If the softmax of all members underflows to zero, all classes are equally likely.
        total = scores.sum(dim=1, keepdim=True)
        return torch.where(total > 0, scores / total, 1 / scores.shape[1])

    def best_outputs(self, logits: Tensor, labels: Tensor) -> Tensor:
        candidates = self._table.to(labels.device)[labels]
        return candidates.gather(1, logits.gather(1, candidates).argmax(dim=1, keepdim=True)).squeeze(1)

    @functools.cached_property
    def _table(self) -> Tensor:
        """Sorted members of each class [C,M], filled up with the smallest one."""
        most = max(map(len, self.members))
        return torch.tensor([[*sorted(group), *[min(group)] * (most - len(group))] for group in self.members])

    def _pool(self, values: Tensor) -> Tensor:
        if self.how == "prob_sum":
            return values.sum(dim=1)
        return values.amax(dim=1) if self.how == "prob_max" else values.mean(dim=1)


def sixteen(how: Aggregation = USUAL) -> Grouped:
    """Return the map from ImageNet-1k's classes to the 16 categories."""
    return Grouped(tuple(expand_ranges(text) for text in _RANGES.values()), how)


def reordered(classes: Sequence[str], outputs: Sequence[str], name: str = "order") -> Subset | None:
    """Return the map from outputs to classes of the same names in another order; None if the names differ."""
    if set(classes) != set(outputs) or len(classes) != len(outputs):
        return None
    position = {output: column for column, output in enumerate(outputs)}
    return Subset(tuple(position[label] for label in classes), name, restricts=False)


def imagenet_subset(wnids: Sequence[str]) -> Subset | None:
    """Return the map from ImageNet-1k's classes to some of them; None if a WordNet id is not among them."""
    return wordnet_subset(wnids, imagenet_classes())


def wordnet_subset(wnids: Sequence[str], outputs: Sequence[str]) -> Subset | None:
    """Return the map from a model's outputs to some of them; None if a name is no WordNet id or no output."""
    position = {name: column for column, name in enumerate(outputs)}
    if not all(wnid in position and re.fullmatch(r"n\d{8}", wnid) for wnid in wnids):
        return None
    return Subset(tuple(position[wnid] for wnid in wnids), f"imagenet-{len(wnids)}")
