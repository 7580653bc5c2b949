"""Exact evaluation: every image once, decisions gathered over ranks, measures as sums and counts."""

from __future__ import annotations

import contextlib
import functools
import itertools
import math
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Sampler

from biasbed import record
from biasbed.batch import at_least_fp32, stacked
from biasbed.compute.distributed import Group
from biasbed.compute.precision import Precision
from biasbed.data.loader_queues import received
from biasbed.data.loading import as_it_is, loader_options
from biasbed.data.transforms import draws, keeps, keyed_randomness
from biasbed.errors import CorruptImage, Failure, NotFinite, UnfitImage
from biasbed.evaluation.decisions import (
    MEASURES,
    Decisions,
    accuracy_of_conditions,
    accuracy_of_groups,
    average_precisions,
)
from biasbed.evaluation.pieces import Columns, Piece, decisions_of, has_few, joined, pieces_of
from biasbed.networks.network import as_input
from biasbed.suites.label_maps import LabelMap
from biasbed.suites.sets import EvaluationSet

TOP = 5
_Batch = tuple[int, Tensor, Tensor, list[CorruptImage]]  # piece, rows, images, and files that can't be decoded


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
        done: Mapping[str, Collection[int]] = MappingProxyType({}),
    ) -> None:
        """done: by set, the pieces that are decided already."""
        assert len({entry.name for entry in sets}) == len(sets)
        self.sets, self.group, self.precision = sets, group, precision
        self.skip_corrupt = skip_corrupt
        known = (piece for number, entry in enumerate(sets) for piece in pieces_of(number, entry.source))
        self.coming = [piece for piece in known if piece.number not in done.get(sets[piece.set].name, ())]
        self.shard = _Shard(self.coming, batch_size, group.rank, group.world)
        self.loader = DataLoader(
            _Images(sets, self.coming),
            batch_sampler=self.shard,
            collate_fn=as_it_is,
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
        sets: Sequence[EvaluationSet] | None = None,
    ) -> dict[str, Decisions] | None:
        """Decisions by set, in the order of its images, on rank 0; None elsewhere.

        Raises CorruptImage unless such files are to be skipped. observer: what the model is called. sets: those of the
        sets that it decides on; None: all.
        """
        found = list(self.each(predict, tick, observer, sets))
        return None if None in found else {one.set: one for one in found if one is not None}

    def each(
        self,
        predict: Callable[[Tensor], Tensor],
        tick: Callable[[int], None] = lambda n: None,
        observer: str = "model",
        sets: Sequence[EvaluationSet] | None = None,
    ) -> Iterator[Decisions | None]:
        """The same set by set, each as soon as it is decided."""
        self.shard.sets = {number for number, entry in enumerate(self.sets) if sets is None or entry in sets}
        left, parts = Counter(piece.set for piece in self.coming), []
        for piece, part in self.pieces(predict, tick):
            left[piece.set] -= 1
            parts.append(part)
            if not left[piece.set]:
                known = [part for part in parts if part is not None]
                yield self.whole(self.sets[piece.set], known, observer) if len(known) == len(parts) else None
                parts = []

    def whole(self, entry: EvaluationSet, parts: Sequence[Columns], observer: str) -> Decisions:
        """The decisions on a set, of those on its pieces, which are used up; Failure where there are none."""
        known = [part for part in parts if part]
        if not known:
            raise Failure(f"no image of '{entry.name}' could be read, e.g. {min(self.skipped, default='none')}")
        return decisions_of(entry, joined(known), observer)

    @torch.inference_mode()
    def pieces(
        self, predict: Callable[[Tensor], Tensor], tick: Callable[[int], None] = lambda n: None
    ) -> Iterator[tuple[Piece, Columns | None]]:
        """Piece by piece what is decided, nothing where no image can be read; on rank 0, None elsewhere."""
        ahead = itertools.groupby(received(self.loader), key=lambda batch: batch[0])
        coming = next(ahead, None)
        refused: set[str] = set()
        failures: set[str] = set()
        for number, piece in self.shard.chosen():
            parts: list[Columns] = []
            if coming is not None and coming[0] == number:  # this rank may have no image of a small piece
                for _, rows, images, errors in coming[1]:
                    self.skipped |= set(map(str, errors))
                    refused |= {str(one) for one in errors if isinstance(one, UnfitImage) or not self.skip_corrupt}
                    try:
                        if len(rows) and not failures:
                            parts.append(self._decide(self.sets[piece.set], rows, images, predict))
                    except NotFinite as error:
                        failures.add(str(error))
                        if self.group.world == 1:
                            raise
                    tick(len(rows))
                coming = next(ahead, None)
            refuse_corrupt(self.group, refused)
            _raise_on_all(self.group, failures, NotFinite)
            gathered = self.group.gather_objects(joined(parts))
            yield piece, None if gathered is None else joined([part for part in gathered if part])

    def _decide(
        self, entry: EvaluationSet, rows: Tensor, images: Tensor, predict: Callable[[Tensor], Tensor]
    ) -> Columns:
        x = as_input(images.to(self.group.device, non_blocking=True))
        with self.precision.autocast():
            logits = predict(x)
        logits = at_least_fp32(logits)
        _refuse_not_finite(logits, entry, rows)
        label_map, task = entry.label_map, entry.task
        scores, y = label_map(logits), self._column(entry.source.y, rows)
        shown = label_map.probabilities(scores, task)
        outputs, classes = (np.min_scalar_type(of.shape[1]) for of in (logits, scores))
        decided, rank = task.decided(scores), functools.partial(_ranks, logits, label_map)
        if entry.source.accepted is not None:  # of several labels that are right, the one that it is decided for counts
            is_right = self._column(entry.source.accepted, rows).gather(1, decided.unsqueeze(1)).squeeze(1)
            y = torch.where(is_right, decided, y)
        found = {"row": rows.int(), "loss": torch.full((len(rows),), torch.nan)}
        if label_map.is_logits:
            found["loss"] = task.loss(scores, y, reduction="none")
        if task.several:
            return {**_arrays(found), "decision": decided.cpu().numpy(), **_arrays({"scores": shown})}
        found["confidence"] = shown.gather(1, decided.unsqueeze(1)).squeeze(1)
        numbers, ranks = {"decision": decided}, {"rank": rank(y)}
        if entry.source.accepted is not None:
            numbers["label"] = y
        if has_few(entry.source):
            # Not topk: its order among ties is undefined, and the first class must win.
            numbers["top"] = scores.argsort(dim=1, descending=True, stable=True)[:, : min(TOP, shown.shape[1])]
            found["top_score"] = shown.gather(1, numbers["top"])
        if entry.source.bias is not None:
            ranks["bias_rank"] = rank(self._column(entry.source.bias, rows))
        return _arrays(found) | _arrays(numbers, classes) | _arrays(ranks, outputs)

    def _column(self, column: np.ndarray, rows: Tensor) -> Tensor:
        return self.group.send(torch.as_tensor(column[rows.numpy()]))


def _arrays(columns: Mapping[str, Tensor], kind: Any = None) -> Columns:
    """Copy columns to the CPU, as numbers of this kind or as they are. Waits for the device once for each."""
    arrays = {name: column.cpu().numpy() for name, column in columns.items()}
    return arrays if kind is None else {name: array.astype(kind) for name, array in arrays.items()}


def _ranks(logits: Tensor, label_map: LabelMap, labels: Tensor) -> Tensor:
    """[N] int32: place among all of an image's logits, 1 for the largest, of the best one that belongs to its label.

    Equal logits are in the order of the outputs, as argmax takes them; what can't be compared (NaN) comes first.
    """
    best = label_map.best_outputs(logits, labels).unsqueeze(1)
    own = logits.gather(1, best)
    before = (logits == own) & (torch.arange(logits.shape[1], device=logits.device) < best)
    return (logits.shape[1] + 1 - (logits <= own).sum(dim=1) + before.sum(dim=1)).int()


def _refuse_not_finite(logits: Tensor, entry: EvaluationSet, rows: Tensor) -> None:
    """Raise NotFinite for the first image whose outputs have a NaN or an infinity: they decide nothing."""
    is_finite = logits.isfinite()
    if is_finite.all():
        return
    place = int((~is_finite.all(dim=1)).nonzero()[0])
    value = float(logits[place][~is_finite[place]][0])
    raise NotFinite(
        f"the model's outputs for the image {entry.source.ids[int(rows[place])]} of '{entry.name}' are not finite "
        f"({value}), so they have no accuracy: the weights have diverged or are damaged, or overflow in this precision "
        "(try precision=fp32)"
    )


def refuse_corrupt(group: Group, messages: Collection[str]) -> None:
    """Raise CorruptImage on every rank if any has met one, so that none is left waiting for the others."""
    _raise_on_all(group, messages, CorruptImage)


def _raise_on_all(group: Group, messages: Collection[str], kind: type[Failure]) -> None:
    """Raise the first rank's first message on every rank if any has one."""
    gathered = group.gather_objects(sorted(messages))
    first = group.share_object(next((own[0] for own in gathered if own), None) if gathered is not None else None)
    if first is not None:
        raise kind(first)


class _Images(Dataset[Any]):
    """(piece, row) -> the transformed image, or the message of a file that can't be decoded."""

    def __init__(self, sets: Sequence[EvaluationSet], pieces: Sequence[Piece]) -> None:
        self.sets = [sets[piece.set] for piece in pieces]

    def __getitems__(self, keys: Sequence[tuple[int, int]]) -> _Batch:
        """A batch of one piece: at a stroke where the images are in memory as they are needed."""
        piece, source = keys[0][0], self.sets[keys[0][0]].source
        if source.shape is not None and keeps(self.sets[piece].transform, *source.shape[-2:]):
            rows = torch.tensor([row for _, row in keys])
            return piece, rows, source.load_all(rows.numpy()), []
        return _together([self._one(key) for key in keys])

    def _one(self, key: tuple[int, int]) -> tuple[int, int, Tensor | CorruptImage]:
        entry = self.sets[key[0]]
        # By its place, so that one that is changed at random is the same in every evaluation.
        drawn = keyed_randomness(key[1]) if draws(entry.transform) else contextlib.nullcontext()
        try:
            with drawn:
                return *key, entry.transform(entry.source.open(key[1]))
        except CorruptImage as error:
            return *key, error


class _Shard(Sampler[list[tuple[int, int]]]):
    """Batches of one rank's rows of every piece in turn; a batch mixes no sets, whose images may differ in size."""

    def __init__(self, pieces: Sequence[Piece], batch_size: int, rank: int, world: int) -> None:
        self.pieces, self.batch_size, self.rank, self.world = pieces, batch_size, rank, world
        self.sets = {piece.set for piece in pieces}  # those that are asked for

    def chosen(self) -> Iterator[tuple[int, Piece]]:
        """The pieces of the sets that are asked for, with their numbers."""
        return ((number, piece) for number, piece in enumerate(self.pieces) if piece.set in self.sets)

    def __iter__(self) -> Iterator[list[tuple[int, int]]]:
        for number, piece in self.chosen():
            for start in self._starts(piece):
                yield [(number, row) for row in piece.shard(start, self.batch_size, self.world)]

    def __len__(self) -> int:
        return sum(len(self._starts(piece)) for _, piece in self.chosen())

    def _starts(self, piece: Piece) -> range:
        return range(self.rank, len(piece.rows), self.batch_size * self.world)


def _together(items: Sequence[tuple[int, int, Tensor | CorruptImage]]) -> _Batch:
    good = [(row, image) for _, row, image in items if isinstance(image, Tensor)]
    errors = [image for _, _, image in items if isinstance(image, CorruptImage)]
    images = stacked([image for _, image in good]) if good else torch.empty(0)
    return items[0][0], torch.tensor([row for row, _ in good], dtype=torch.long), images, errors
