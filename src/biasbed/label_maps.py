"""From a model's logits to scores over an evaluation set's classes; the decision is the best score.

A data set names its label map as an object. Comparing class counts to guess one can't tell two sets of 200 classes
apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import torch
from torch import Tensor

Aggregation = Literal["prob_mean", "logit_mean", "prob_sum", "prob_max"]


class LabelMap(Protocol):
    """Turns logits [N,K] into scores [N,C]; `name` is recorded with every result."""

    @property
    def name(self) -> str: ...

    @property
    def is_logits(self) -> bool:
        """Whether the scores are logits, so that the task's loss is defined on them."""
        ...

    def __call__(self, logits: Tensor) -> Tensor: ...


@dataclass(frozen=True)
class Identity:
    """The model's classes are the set's."""

    name: str = "identity"
    is_logits: bool = True

    def __call__(self, logits: Tensor) -> Tensor:
        return logits


IDENTITY = Identity()


@dataclass(frozen=True)
class Subset:
    """The set has some of the model's classes: their columns, in the set's order (ImageNet-A, ImageNet-R)."""

    columns: tuple[int, ...]
    name: str = "subset"
    is_logits: bool = True

    def __call__(self, logits: Tensor) -> Tensor:
        return logits[:, list(self.columns)]


@dataclass(frozen=True)
class Grouped:
    """Each class of the set stands for several of the model's (1000 ImageNet classes -> 16 categories).

    `members[c]` lists the model's classes of class c. `prob_mean` averages the softmax over all classes (Geirhos et al.
    2019), `logit_mean` the logits (BiasBed's code). Ties go to the first class.
    """

    members: tuple[tuple[int, ...], ...]
    how: Aggregation = "prob_mean"
    is_logits: bool = False

    @property
    def name(self) -> str:
        return f"grouped-{self.how}"

    def __call__(self, logits: Tensor) -> Tensor:
        values = logits if self.how == "logit_mean" else logits.softmax(dim=1)
        return torch.stack([self._pool(values[:, list(columns)]) for columns in self.members], dim=1)

    def _pool(self, values: Tensor) -> Tensor:
        if self.how == "prob_sum":
            return values.sum(dim=1)
        return values.amax(dim=1) if self.how == "prob_max" else values.mean(dim=1)


# Geirhos et al. 2019: the ImageNet-1k classes (by sorted WordNet id) of each of 16 entry-level categories.
_RANGES: dict[str, str] = {
    "airplane": "404",
    "bear": "294-297",
    "bicycle": "444 671",
    "bird": "8 10-16 18-20 22-24 80-83 87-96 98-100 127-133 135-145",
    "boat": "472 554 625 814 914",
    "bottle": "440 720 737 898 899 901 907",
    "car": "436 511 817",
    "cat": "281-286",
    "chair": "423 559 765 857",
    "clock": "409 530 892",
    "dog": "152-191 193-203 205-226 228-241 243-250 252-257 259 261-263 265-268",
    "elephant": "385 386",
    "keyboard": "508 878",
    "knife": "499",
    "oven": "766",
    "truck": "555 569 656 675 717 734 864 867",
}
CATEGORIES_16 = tuple(_RANGES)


def sixteen(how: Aggregation = "prob_mean") -> Grouped:
    """ImageNet-1k logits to the 16 categories."""
    return Grouped(tuple(_expand(text) for text in _RANGES.values()), how)


def imagenet_subset(wnids: Sequence[str]) -> Subset | None:
    """The columns of these WordNet ids among ImageNet-1k's; None where one of them is not an ImageNet-1k class."""
    from timm.data.imagenet_info import ImageNetInfo

    position = {name: column for column, name in enumerate(ImageNetInfo().label_names())}
    if not all(wnid in position for wnid in wnids):
        return None
    return Subset(tuple(position[wnid] for wnid in wnids), f"imagenet-{len(wnids)}")


def _expand(text: str) -> tuple[int, ...]:
    found: list[int] = []
    for item in text.split():
        first, _, last = item.partition("-")
        found += range(int(first), int(last or first) + 1)
    return tuple(found)
