"""Exact evaluation: every image once, decisions gathered over ranks, measures as sums and counts."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Sampler

from biasbed import record
from biasbed.batch import stacked
from biasbed.compute.distributed import Group
from biasbed.compute.precision import Precision
from biasbed.data.streams import loader_options
from biasbed.errors import CorruptImage, Failure
from biasbed.evaluation.decisions import (
    MEASURES,
    Decisions,
    accuracy_of_conditions,
    accuracy_of_groups,
    average_precisions,
)
from biasbed.networks.network import as_input
from biasbed.suites.label_maps import LabelMap
from biasbed.suites.sets import EvaluationSet

TOP = 5


# What a model decided on some images of a set, by the numbers of images and classes: columns of `Decisions`, and `row`
# [N], the images' places in the source.
Columns = dict[str, np.ndarray]


def measure(evaluation_set: EvaluationSet, decisions: Decisions, phase: str) -> Iterator[tuple[str, float]]:
    """(metric name, value) of a set: its measures, accuracy per group and per condition, precision per label."""
    for name in evaluation_set.measured:
        yield str(record.MetricName(phase, name, evaluation_set.name)), MEASURES[name](decisions)
    for group, value in accuracy_of_groups(decisions).items():
        yield str(record.MetricName(phase, "accuracy", evaluation_set.name, group)), value
    for condition, value in accuracy_of_conditions(decisions).items():
        yield str(record.MetricName(phase, record.BY_CONDITION, evaluation_set.name, condition)), value
    for label, value in zip(evaluation_set.labels, average_precisions(decisions), strict=True):
        if not math.isnan(value):
            yield str(record.MetricName(phase, record.BY_LABEL, evaluation_set.name, label)), value


# --- deciding ---------------------------------------------------------------------------------------------------------


class Evaluator:
    """Decides all images of all sets from one loader, sharded over ranks without padding or repetition."""

    def __init__(
        self,
        sets: Sequence[EvaluationSet],
        group: Group,
        precision: Precision,
        batch_size: int,
        workers: int,
        skip_corrupt: bool,
    ) -> None:
        assert len({entry.name for entry in sets}) == len(sets)
        self.sets, self.group, self.precision = sets, group, precision
        self.skip_corrupt = skip_corrupt
        self.loader = DataLoader(
            _Images(sets),
            batch_sampler=_Shard(sets, batch_size, group.rank, group.world),
            collate_fn=_collate,
            **loader_options(workers, group.device.type == "cuda"),
        )
        self.skipped: set[str] = set()

    def __len__(self) -> int:
        return len(self.loader)

    def close(self) -> None:
        """End the loader's workers, in order."""
        del self.loader

    def decide(
        self,
        predict: Callable[[Tensor], Tensor],
        tick: Callable[[int], None] = lambda n: None,
        observer: str = "model",
    ) -> dict[str, Decisions] | None:
        """Decisions by set, in the order of its images, on rank 0; None elsewhere.

        Raises CorruptImage unless such files are to be skipped. observer: what the model is called.
        """
        found = list(self.each(predict, tick, observer))
        return None if None in found else {one.set: one for one in found if one is not None}

    @torch.inference_mode()
    def each(
        self,
        predict: Callable[[Tensor], Tensor],
        tick: Callable[[int], None] = lambda n: None,
        observer: str = "model",
    ) -> Iterator[Decisions | None]:
        """The same set by set, each as soon as it is decided."""
        ahead = itertools.groupby(self.loader, key=lambda batch: batch[0])
        coming = next(ahead, None)
        for number, entry in enumerate(self.sets):
            parts: list[Columns] = []
            if coming is not None and coming[0] == number:  # this rank may have no image of a small set
                for _, rows, images, errors in coming[1]:
                    self.skipped |= set(errors)
                    if len(rows):
                        parts.append(self._decide(entry, rows, images, predict))
                    tick(len(rows))
                coming = next(ahead, None)
            if not self.skip_corrupt:
                refuse_corrupt(self.group, self.skipped)
            gathered = self.group.gather_objects({number: _join(parts)} if parts else {})
            yield None if gathered is None else self._gathered(entry, gathered, observer)

    def _gathered(self, entry: EvaluationSet, gathered: Sequence[Mapping[int, Columns]], observer: str) -> Decisions:
        ranked = [part for of_rank in gathered for part in of_rank.values()]
        if not ranked:
            raise Failure(f"no image of '{entry.name}' could be read, e.g. {min(self.skipped, default='none')}")
        return _named(entry, _join(ranked), observer)

    def _decide(
        self, entry: EvaluationSet, rows: Tensor, images: Tensor, predict: Callable[[Tensor], Tensor]
    ) -> Columns:
        x = as_input(images.to(self.group.device, non_blocking=True))
        with self.precision.autocast():
            logits = predict(x)
        logits = logits.float()
        label_map, task = entry.label_map, entry.task
        scores, y = label_map(logits), self._column(entry.source.y, rows)
        shown = label_map.probabilities(scores, task)
        found = {"row": rows, "decision": task.decided(scores), "loss": torch.full((len(rows),), torch.nan)}
        if label_map.is_logits:
            found["loss"] = task.loss(scores, y, reduction="none").float()
        if task.several:
            found["scores"] = shown
        else:
            # Not topk: its order among ties is undefined, and the first class must win.
            order = scores.argsort(dim=1, descending=True, stable=True)[:, : min(TOP, shown.shape[1])]
            found |= {"top": order.int(), "top_score": shown.gather(1, order), "rank": _ranks(logits, label_map, y)}
            if entry.source.bias is not None:
                found["bias_rank"] = _ranks(logits, label_map, self._column(entry.source.bias, rows))
        return {name: column.cpu().numpy() for name, column in found.items()}

    def _column(self, column: np.ndarray, rows: Tensor) -> Tensor:
        return torch.as_tensor(column[rows.numpy()], device=self.group.device)


def _ranks(logits: Tensor, label_map: LabelMap, labels: Tensor) -> Tensor:
    """[N] int32: place among all of an image's logits, 1 for the largest, of the best one that belongs to its label.

    Equal logits are in the order of the outputs, as argmax takes them; what can't be compared (NaN) comes first.
    """
    best = label_map.best_outputs(logits, labels).unsqueeze(1)
    own = logits.gather(1, best)
    before = (logits == own) & (torch.arange(logits.shape[1], device=logits.device) < best)
    return (logits.shape[1] + 1 - (logits <= own).sum(dim=1) + before.sum(dim=1)).int()


def refuse_corrupt(group: Group, messages: Collection[str]) -> None:
    """Raise CorruptImage on every rank if any has met one, so that none is left waiting for the others."""
    gathered = group.gather_objects(sorted(messages))
    first = group.share_object(next((own[0] for own in gathered if own), None) if gathered is not None else None)
    if first is not None:
        raise CorruptImage(first)


def _join(parts: Sequence[Columns]) -> Columns:
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _named(entry: EvaluationSet, part: Columns, observer: str) -> Decisions:
    """Decisions on all images, in the set's order, by the names of images and classes."""
    order = np.argsort(part["row"])
    found = {name: column[order] for name, column in part.items()}
    rows, top, top_score = found["row"], found.get("top"), found.get("top_score")
    source, names = entry.source, np.asarray(entry.source.classes, dtype=object)
    shown = source.shown
    return Decisions(
        observer=observer,
        set=entry.name,
        images=[source.ids[row] for row in rows],
        label=named(entry, source.y[rows]),
        decision=named(entry, found["decision"]),
        classes=source.classes,
        bias=None if source.bias is None else names[source.bias[rows]],
        group=None if source.group is None else source.group[rows],
        condition=None if shown is None else [shown[row] for row in rows],
        confidence=None if top_score is None else top_score[:, 0],
        top=None if top is None else names[top],
        top_score=top_score,
        targets=source.y[rows] > 0 if entry.task.several else None,
        loss=found["loss"],
        rank=found.get("rank"),
        bias_rank=found.get("bias_rank"),
        scores=found.get("scores"),
        label_map=entry.label_map.name,
        preprocessing=entry.preprocessing,
    )


def named(entry: EvaluationSet, y: np.ndarray) -> np.ndarray:
    """[N] names of labels or decisions in the form of the set's y; of several labels their identifiers, by +."""
    if not entry.task.several:
        return np.asarray(entry.source.classes, dtype=object)[y]
    kinds, number = np.unique(y > 0, axis=0, return_inverse=True)
    names = ["+".join(itertools.compress(entry.labels, kind)) for kind in kinds]
    return np.asarray(names, dtype=object)[number.reshape(-1)]


class _Images(Dataset[Any]):
    """(set, row) -> the transformed image, or the message of a file that can't be decoded."""

    def __init__(self, sets: Sequence[EvaluationSet]) -> None:
        self.sets = sets

    def __getitem__(self, key: tuple[int, int]) -> tuple[int, int, Tensor | str]:
        entry = self.sets[key[0]]
        try:
            return *key, entry.transform(entry.source.open(key[1]))
        except CorruptImage as error:
            return *key, str(error)


class _Shard(Sampler[list[tuple[int, int]]]):
    """Batches of one rank's rows of every set in turn; a batch never mixes sets, whose images may differ in size."""

    def __init__(self, sets: Sequence[EvaluationSet], batch_size: int, rank: int, world: int) -> None:
        self.batches = [
            [(number, row) for row in range(start, min(start + batch_size * world, size), world)]
            for number, size in ((number, len(entry.source)) for number, entry in enumerate(sets))
            for start in range(rank, size, batch_size * world)
        ]

    def __iter__(self) -> Iterator[list[tuple[int, int]]]:
        return iter(self.batches)

    def __len__(self) -> int:
        return len(self.batches)


def _collate(items: Sequence[tuple[int, int, Tensor | str]]) -> tuple[int, Tensor, Tensor, list[str]]:
    good = [(row, image) for _, row, image in items if isinstance(image, Tensor)]
    errors = [image for _, _, image in items if isinstance(image, str)]
    images = stacked([image for _, image in good]) if good else torch.empty(0)
    return items[0][0], torch.tensor([row for row, _ in good], dtype=torch.long), images, errors
