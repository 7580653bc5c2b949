"""From a model's logits to scores over an evaluation set's classes; the decision is the best score.

A data set names its label map as an object. Comparing class counts to guess one can't tell two sets of 200 classes
apart.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, get_args

import torch
from torch import Tensor

from biasbed.config import Aggregation
from biasbed.datasets.classes import _RANGES, imagenet_classes
from biasbed.errors import UsageError
from biasbed.settings import nearest
from biasbed.system import strict_yaml
from biasbed.tasks import MULTI_CLASS, Task

USUAL: Aggregation = "prob_mean"


class LabelMap(Protocol):
    """Turns logits [N,K] into scores [N,C]; `name` is recorded with every result."""

    @property
    def name(self) -> str: ...

    @property
    def is_logits(self) -> bool:
        """Whether the scores are logits, so that the task's loss is defined on them."""
        ...

    @property
    def restricts(self) -> bool:
        """Whether the set's classes are fewer than the model's outputs, so that ranks among all outputs tell more."""
        ...

    def __call__(self, logits: Tensor) -> Tensor: ...

    def probabilities(self, scores: Tensor, task: Task) -> Tensor:
        """Confidence [N,C] in each of the set's classes, which add up to one where an image has one of them."""
        ...

    def best_outputs(self, logits: Tensor, labels: Tensor) -> Tensor:
        """[N]: of the outputs that belong to each image's label, the one with the largest logit, the first of equal."""
        ...


@dataclass(frozen=True)
class Identity:
    """The model's classes are the set's."""

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
    """The set has some of the model's classes: their columns, in the set's order (ImageNet-A, ImageNet-R)."""

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
    """Each class of the set stands for several of the model's (1000 ImageNet classes -> 16 categories).

    `members[c]` lists the model's classes of class c. `prob_mean` averages the softmax over all classes (Geirhos et al.
    2019), `logit_mean` the logits (BiasBed's code). Ties go to the first class.
    It is for one class per image: of several labels, outputs that stand for one have no common probability.

    Probabilities are the scores' shares, for mean logits their softmax. Under `prob_mean` they are the posterior for a
    set whose classes are equally frequent, of a model that was trained on equally frequent outputs: a class with many
    of them loses the advantage of its size.
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
        # The members' softmax may underflow to zero altogether; then no class is more likely than another.
        total = scores.sum(dim=1, keepdim=True)
        return torch.where(total > 0, scores / total, 1 / scores.shape[1])

    def best_outputs(self, logits: Tensor, labels: Tensor) -> Tensor:
        candidates = self._table.to(labels.device)[labels]
        return candidates.gather(1, logits.gather(1, candidates).argmax(dim=1, keepdim=True)).squeeze(1)

    @functools.cached_property
    def _table(self) -> Tensor:
        """[C,M] rising members of each class; the first one again where a class has fewer than M."""
        most = max(map(len, self.members))
        return torch.tensor([[*sorted(group), *[min(group)] * (most - len(group))] for group in self.members])

    def _pool(self, values: Tensor) -> Tensor:
        if self.how == "prob_sum":
            return values.sum(dim=1)
        return values.amax(dim=1) if self.how == "prob_max" else values.mean(dim=1)


def sixteen(how: Aggregation = USUAL) -> Grouped:
    """ImageNet-1k logits to the 16 categories."""
    return Grouped(tuple(_expand(text) for text in _RANGES.values()), how)


def imagenet_subset(wnids: Sequence[str]) -> Subset | None:
    """The columns of these WordNet ids among ImageNet-1k's; None where one of them is not an ImageNet-1k class."""
    return wordnet_subset(wnids, imagenet_classes())


def wordnet_subset(wnids: Sequence[str], outputs: Sequence[str]) -> Subset | None:
    """The columns of these WordNet ids among a model's outputs; None where a name is no WordNet id or is not there."""
    position = {name: column for column, name in enumerate(outputs)}
    if not all(wnid in position and re.fullmatch(r"n\d{8}", wnid) for wnid in wnids):
        return None
    return Subset(tuple(position[wnid] for wnid in wnids), f"imagenet-{len(wnids)}")


def _expand(text: str) -> tuple[int, ...]:
    found: list[int] = []
    for item in text.split():
        first, _, last = item.partition("-")
        found += range(int(first), int(last or first) + 1)
    return tuple(found)


# --- a user's own -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class OwnMaps:
    """A model's outputs as its user describes them."""

    path: Path
    outputs: int
    names: tuple[str, ...] | None  # of the outputs, in order
    maps: tuple[tuple[Mapping[str, tuple[int, ...]], Aggregation], ...]  # class -> its outputs

    def fitting(self, classes: Sequence[str]) -> LabelMap | None:
        """The map whose classes are exactly these, in whatever order, or the outputs' names if these are; else None."""
        for members, how in self.maps:
            if members.keys() == set(classes):
                chosen = tuple(members[name] for name in classes)
                if all(len(group) == 1 for group in chosen):
                    return Subset(tuple(column for (column,) in chosen), f"{self.path.stem}-subset")
                return Grouped(chosen, how, self.path.stem)
        if self.names is None or set(self.names) != set(classes):
            return None
        if self.names == tuple(classes):
            return IDENTITY
        return Subset(tuple(self.names.index(name) for name in classes), f"{self.path.stem}-order")


def read_own(path: Path) -> OwnMaps:
    """The label maps of a YAML file; UsageError says what is wrong with it.

    `outputs` is the number of the model's outputs, or their names in order; `maps` a list of `{classes: {<class>:
    <output or list of outputs>}, how: <aggregation>}`, which a file that names the outputs may leave out.
    """
    content = strict_yaml.read(path, "label_map")
    try:
        if not isinstance(content, dict):
            raise ValueError("expected the keys 'outputs' and 'maps'")
        _refuse_unknown(content, ("outputs", "maps"))
        names = _output_names(content.get("outputs"))
        count = content["outputs"] if names is None else len(names)
        entries = content.get("maps", [] if names else None)
        if not isinstance(entries, list) or not (entries or names):
            raise ValueError("'maps' should be a list of {classes: {...}, how: prob_mean}")
        maps = tuple(_own_map(entry, count, names) for entry in entries)
        if len({frozenset(members) for members, _ in maps}) < len(maps):
            raise ValueError("two maps have the same classes")
    except ValueError as error:
        raise UsageError(f"label_map={path}: {error}") from None
    return OwnMaps(path, count, names, maps)


def _refuse_unknown(found: Mapping[Any, Any], known: Sequence[str]) -> None:
    for key in found:
        if key not in known:
            raise ValueError(f"unknown key '{key}'{nearest(str(key), known)}")


def _output_names(value: Any) -> tuple[str, ...] | None:
    if isinstance(value, int) and not isinstance(value, bool) and value >= 2:
        return None
    unquoted = [name for name in value if not isinstance(name, str | list | dict)] if isinstance(value, list) else []
    if unquoted:
        raise ValueError(f"the output {unquoted[0]!r} {strict_yaml.as_read(unquoted[0])}")
    if not isinstance(value, list) or len(value) < 2 or not all(isinstance(name, str) for name in value):
        raise ValueError("'outputs' should be the number of the model's outputs or a list of their names")
    for name in value:
        if value.count(name) > 1:
            raise ValueError(f"two outputs are called '{name}'")
    return tuple(value)


def _own_map(
    entry: Any, outputs: int, names: Sequence[str] | None
) -> tuple[Mapping[str, tuple[int, ...]], Aggregation]:
    if not isinstance(entry, dict) or not isinstance(entry.get("classes"), dict) or not entry["classes"]:
        raise ValueError("every map needs 'classes': {<class>: <output or list of outputs>}")
    _refuse_unknown(entry, ("classes", "how"))
    how = entry.get("how", "prob_mean")
    if how not in get_args(Aggregation):
        raise ValueError(f"how: {how}{nearest(str(how), get_args(Aggregation))}")
    members: dict[str, tuple[int, ...]] = {}
    owner: dict[int, str] = {}
    for name, value in entry["classes"].items():
        if not isinstance(name, str):
            raise ValueError(f"the class {name!r} {strict_yaml.as_read(name)}")
        members[name] = tuple(_column(one, name, outputs, names) for one in _listed(value))
        if not members[name]:
            raise ValueError(f"the class '{name}' has no outputs")
        for column in members[name]:
            if column in owner:
                raise ValueError(f"output {column} is given to '{owner[column]}' and to '{name}'")
            owner[column] = name
    return members, how


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [] if value is None else [value]


def _column(value: Any, name: str, outputs: int, names: Sequence[str] | None) -> int:
    """An output's position, given by itself or by the output's name."""
    if names is not None and value in names:
        return names.index(value)
    if isinstance(value, bool) or value is None:
        raise ValueError(f"the class '{name}' has the output {value!r}, which {strict_yaml.as_read(value)}")
    if not isinstance(value, int):
        hint = nearest(str(value), names) if names is not None else f": give numbers from 0 to {outputs - 1}"
        raise ValueError(f"the class '{name}' has the output '{value}', which there is not{hint}")
    if not 0 <= value < outputs:
        raise ValueError(f"the class '{name}' has output {value}, but outputs are 0 to {outputs - 1}")
    return value
