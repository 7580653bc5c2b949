"""Exact evaluation: every image once, decisions gathered over ranks, measures as sums and counts.

Answers: Where are test images decoded, and where does a model decide on them?
"""

from __future__ import annotations

import contextlib
import itertools
import math
import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Sampler

from biasbed import record
from biasbed.batch import at_least_fp32, stacked
from biasbed.compute.distributed import Group
from biasbed.compute.precision import Precision
from biasbed.config import NO_SCORES, Config, ScoreSettings
from biasbed.data.loader_queues import receive
from biasbed.data.loading import loader_options, number_of_workers, unchanged
from biasbed.data.transforms import is_identity, is_random, keyed_randomness
from biasbed.errors import CorruptImage, Failure, NotFinite, UnfitImage
from biasbed.evaluation.decisions import (
    MEASURES,
    Decisions,
    accuracy_of_conditions,
    accuracy_of_groups,
    average_precisions,
    map_of_conditions,
)
from biasbed.evaluation.pieces import (
    Columns,
    Piece,
    cut_pieces,
    join_pieces,
    keeps_scores,
    keeps_top,
    make_decisions,
    without_top_and_scores,
)
from biasbed.networks.network import as_input
from biasbed.plugin_loader import Offered
from biasbed.suites.label_maps import LabelMap
from biasbed.suites.sets import EvaluationSet

TOP = 5
_Batch = tuple[int, Tensor, Tensor, list[CorruptImage]]  # piece, rows, images, and files that can't be decoded


def measure(evaluation_set: EvaluationSet, decisions: Decisions, phase: str) -> Iterator[tuple[str, float]]:
    """Yield (metric name, value): measures of the set, by group and condition, and precision per label."""
    for name in evaluation_set.measured:
        yield str(record.MetricName(phase, name, evaluation_set.name)), MEASURES[name](decisions)
    for group, value in accuracy_of_groups(decisions).items():
        yield str(record.MetricName(phase, "accuracy", evaluation_set.name, group)), value
    for condition, value in accuracy_of_conditions(decisions).items():
        yield str(record.MetricName(phase, record.BY_CONDITION, evaluation_set.name, condition)), value
    for condition, value in map_of_conditions(decisions).items():
        yield str(record.MetricName(phase, record.MAP_BY_CONDITION, evaluation_set.name, condition)), value
    for label, value in zip(evaluation_set.labels, average_precisions(decisions), strict=True):
        if not math.isnan(value):
            yield str(record.MetricName(phase, record.BY_LABEL, evaluation_set.name, label)), value


# --- deciding ---------------------------------------------------------------------------------------------------------


class CachedImages(Protocol):
    """Prepared images of one set that an earlier test has kept."""

    def read(self, row: int, version: int) -> Tensor | None:
        """Return an image [C,H,W]; None if it is not kept in this version (`Source.version`)."""

    def write(self, row: int, version: int, image: Tensor) -> None:
        """Keep an image of this version."""

    def close(self) -> None:
        """Let go of the images."""


class ImageCache(Protocol):
    """Cache of the test images of one training or evaluation."""

    def open(self, sets: Sequence[EvaluationSet]) -> Mapping[str, CachedImages]:
        """Return the images of the sets that are kept, by name."""

    def describe(self, cached: Mapping[str, CachedImages]) -> str:
        """Describe in a line what is kept; empty if there is nothing to say."""


# Functions of (config, number of tests, loader processes) to a cache, of which the first counts.
_CACHES: Offered[Callable[[Config, int, int], ImageCache]] = Offered("image_cache")


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
        cache: ImageCache | None = None,
        scores: ScoreSettings = NO_SCORES,
    ) -> None:
        """done: the pieces of each set, by its name, that are decided already. cache: of test images, if any.

        scores: which scores are kept with the decisions.
        """
        assert len({evaluation_set.name for evaluation_set in sets}) == len(sets)
        self.sets, self.group, self.precision = sets, group, precision
        self.batch_size, self.workers, self.skip_corrupt = batch_size, workers, skip_corrupt
        self.cache, self.scores = cache, scores
        self.cached: Mapping[str, CachedImages] = {} if cache is None else cache.open(sets)
        self.todo: list[Piece] = []
        for number, evaluation_set in enumerate(sets):
            done_pieces = done.get(evaluation_set.name, ())
            pieces = cut_pieces(number, evaluation_set.source)
            self.todo += [piece for piece in pieces if piece.number not in done_pieces]
        self.shard = _Shard(self.todo, batch_size, group.rank, group.world, _find_repeated_pieces(sets, self.todo))
        self.loader = DataLoader(
            _TestImages(sets, self.todo, self.cached),
            batch_sampler=self.shard,
            collate_fn=unchanged,
            **loader_options(workers, group.device.type == "cuda"),
        )
        self.skipped: set[str] = set()

    @classmethod
    def from_config(cls, sets: Sequence[EvaluationSet], config: Config, group: Group, times: int = 1) -> Evaluator:
        """Return the evaluator that a run's settings ask for. times: how often it will test."""
        precision, workers = Precision(config.precision, group.device), number_of_workers(config.workers, group.world)
        make_cache = next(iter(_CACHES.values()), None)
        cache = None if make_cache is None else make_cache(config, times, workers * group.world)
        settings = group, precision, config.eval_batch_size, workers, config.corrupt == "skip"
        evaluator = cls(sets, *settings, cache=cache, scores=config.scores)
        line = "" if cache is None else cache.describe(evaluator.cached)
        if line and not group.rank:
            print(line, file=sys.stderr)
        return evaluator

    def __len__(self) -> int:
        return len(self.loader)

    def close(self) -> None:
        """End the loader's workers, in order, and let go of the cached images."""
        del self.loader
        for cached in self.cached.values():
            cached.close()

    def for_sets(self, sets: Sequence[EvaluationSet], done: Mapping[str, Collection[int]]) -> Evaluator:
        """Return an evaluator of other sets that works as this one."""
        settings = self.group, self.precision, self.batch_size, self.workers, self.skip_corrupt
        return Evaluator(sets, *settings, done, self.cache, self.scores)

    def decide(
        self,
        predict: Callable[[Tensor], Tensor],
        tick: Callable[[int], None] = lambda n: None,
        observer: str = "model",
        sets: Sequence[EvaluationSet] | None = None,
    ) -> dict[str, Decisions] | None:
        """Return the decisions keyed by set, in the order of its images, on rank 0; None on other ranks.

        observer: name of the model. sets: the sets to decide on; None: all. Raises CorruptImage unless such files are
        to be skipped.
        """
        every = list(self.decide_each(predict, tick, observer, sets))  # all ranks must reach the end
        decisions = {decided.set: decided for decided in every if decided is not None}
        return decisions if len(decisions) == len(every) else None

    def decide_each(
        self,
        predict: Callable[[Tensor], Tensor],
        tick: Callable[[int], None] = lambda n: None,
        observer: str = "model",
        sets: Sequence[EvaluationSet] | None = None,
    ) -> Iterator[Decisions | None]:
        """Yield the decisions on each set as soon as it is decided, None on other ranks than 0."""
        self.shard.sets = {number for number, member in enumerate(self.sets) if sets is None or member in sets}
        left = Counter(piece.set for piece in self.todo)
        parts: list[Columns | None] = []
        for piece, part in self.decide_pieces(predict, tick):
            left[piece.set] -= 1
            parts.append(part)
            if left[piece.set]:
                continue
            gathered = [part for part in parts if part is not None]
            is_whole = len(gathered) == len(parts)
            yield self.join_decisions(self.sets[piece.set], gathered, observer) if is_whole else None
            parts = []

    def join_decisions(self, evaluation_set: EvaluationSet, parts: Sequence[Columns], observer: str) -> Decisions:
        """Join the decisions on a set's pieces, which are used up. Raises Failure if no image could be read."""
        parts = [part for part in parts if part]
        if not parts:
            example = min(self.skipped, default="none")
            raise Failure(f"no image of '{evaluation_set.name}' could be read, e.g. {example}")
        return make_decisions(evaluation_set, join_pieces(parts), observer)

    @torch.inference_mode()
    def decide_pieces(
        self, predict: Callable[[Tensor], Tensor], tick: Callable[[int], None] = lambda n: None
    ) -> Iterator[tuple[Piece, Columns | None]]:
        """Yield each piece with the decisions on it: None on other ranks than 0, empty if no image can be read.

        Images that an earlier set has shown are not decided twice.
        """
        batches = itertools.groupby(receive(self.loader), key=lambda batch: batch[0])
        coming = next(batches, None)
        refused: set[str] = set()
        failures: set[str] = set()
        decided: dict[int, Columns] = {}  # of this rank, by the piece's number: what is needed again
        for number, piece in self.shard.chosen_pieces():
            earlier = self.shard.shown_before(number)
            if earlier is not None:
                tick(len(piece.rows) // self.group.world)
                yield piece, decided.get(earlier)
                continue
            parts: list[Columns] = []
            if coming is not None and coming[0] == number:  # this rank may have no image of a small piece
                for _, rows, images, errors in coming[1]:
                    self.skipped |= set(map(str, errors))
                    for error in errors:
                        if isinstance(error, UnfitImage) or not self.skip_corrupt:
                            refused.add(str(error))
                    try:
                        if len(rows) and not failures:
                            parts.append(self._decide(self.sets[piece.set], rows, images, predict))
                    except NotFinite as failure:
                        failures.add(str(failure))
                        if self.group.world == 1:
                            raise
                    tick(len(rows))
                coming = next(batches, None)
            refuse_corrupt(self.group, refused)
            _raise_on_all(self.group, failures, NotFinite)
            gathered = self.group.gather_objects(join_pieces(parts))
            columns = None if gathered is None else join_pieces([part for part in gathered if part])
            if columns is not None and number in self.shard.before.values():
                decided[number] = without_top_and_scores(columns)
            yield piece, columns

    def _decide(
        self, evaluation_set: EvaluationSet, rows: Tensor, images: Tensor, predict: Callable[[Tensor], Tensor]
    ) -> Columns:
        """Return what is stored of images (B, C, H, W), a value an image: decision, label, confidence, ranks, loss."""
        x = as_input(images.to(self.group.device, non_blocking=True))
        with self.precision.autocast():
            logits = predict(x)
        logits = at_least_fp32(logits)
        _refuse_not_finite(logits, evaluation_set, rows)
        source, label_map, task = evaluation_set.source, evaluation_set.label_map, evaluation_set.task
        scores, y = label_map(logits), self._send(source.y, rows)
        probabilities = label_map.probabilities(scores, task)
        decided = task.decided(scores)
        if source.accepted is not None:  # if several labels are right, the one that is decided for counts
            is_right = self._send(source.accepted, rows).gather(1, decided.unsqueeze(1)).squeeze(1)
            y = torch.where(is_right, decided, y)
        columns = {"row": rows.int(), "loss": torch.full((len(rows),), torch.nan)}
        if label_map.is_logits:
            columns["loss"] = task.loss(scores, y, reduction="none")
        if task.several:
            return {**_to_numpy(columns), "decision": decided.cpu().numpy(), **_to_numpy({"scores": probabilities})}
        columns["confidence"] = probabilities.gather(1, decided.unsqueeze(1)).squeeze(1)
        classes, ranks = {"decision": decided}, {"rank": _rank_labels(logits, label_map, y)}
        if source.accepted is not None:
            classes["label"] = y
        if self.scores.is_kept and keeps_scores(evaluation_set):
            columns |= self._select_scores(logits, label_map, scores, probabilities)
        if keeps_top(source):
            # Not topk: its order among ties is undefined, and the first class must win.
            classes["top"] = scores.argsort(dim=1, descending=True, stable=True)[:, : min(TOP, probabilities.shape[1])]
            columns["top_score"] = probabilities.gather(1, classes["top"])
        if source.bias is not None:
            ranks["bias_rank"] = _rank_labels(logits, label_map, self._send(source.bias, rows))
        class_type, rank_type = np.min_scalar_type(scores.shape[1]), np.min_scalar_type(logits.shape[1])
        return _to_numpy(columns) | _to_numpy(classes, class_type) | _to_numpy(ranks, rank_type)

    def _select_scores(
        self, logits: Tensor, label_map: LabelMap, scores: Tensor, probabilities: Tensor
    ) -> dict[str, Tensor]:
        """Return the scores that are kept of logits [N,O] of all outputs and scores [N,K] of the set's classes.

        Log-probabilities keep their digits in half precision, in which logits of different sizes would not.
        """
        kind = torch.half if self.scores.keep == "fp16" else torch.float
        log_probabilities = scores.log_softmax(dim=1) if label_map.is_logits else probabilities.log()
        return {
            "log_probability": log_probabilities.clamp(min=torch.finfo(kind).min).to(kind),
            "energy": logits.logsumexp(dim=1),
            "max_softmax": logits.softmax(dim=1).amax(dim=1),
        }

    def _send(self, column: np.ndarray, rows: Tensor) -> Tensor:
        """Return these rows of a column, on the device."""
        return self.group.send(torch.as_tensor(column[rows.numpy()]))


def _to_numpy(columns: Mapping[str, Tensor], kind: Any = None) -> Columns:
    """Copy columns to the CPU, as numbers of this kind or as they are. Waits for the device once for each."""
    arrays = {}
    for name, column in columns.items():
        array = column.cpu().numpy()
        arrays[name] = array if kind is None else array.astype(kind)
    return arrays


def _rank_labels(logits: Tensor, label_map: LabelMap, labels: Tensor) -> Tensor:
    """Return the rank [N] int32 of the label's best output among all of an image's logits, 1 for the largest.

    Equal logits are ranked in the order of the outputs, as argmax takes them. NaN can't be compared and comes first.
    """
    best = label_map.best_outputs(logits, labels).unsqueeze(1)
    best_logit = logits.gather(1, best)
    before = (logits == best_logit) & (torch.arange(logits.shape[1], device=logits.device) < best)
    return (logits.shape[1] + 1 - (logits <= best_logit).sum(dim=1) + before.sum(dim=1)).int()


def _refuse_not_finite(logits: Tensor, evaluation_set: EvaluationSet, rows: Tensor) -> None:
    """Raise NotFinite for the first image whose outputs have a NaN or an infinity: they decide nothing."""
    is_finite = logits.isfinite()
    if is_finite.all():
        return
    first = int((~is_finite.all(dim=1)).nonzero()[0])
    value = float(logits[first][~is_finite[first]][0])
    raise NotFinite(
        f"the model's outputs for the image {evaluation_set.source.ids[int(rows[first])]} of '{evaluation_set.name}' "
        f"are not finite ({value}), so they have no accuracy: the weights have diverged or are damaged, or overflow in "
        "this precision (try precision=fp32)"
    )


def refuse_corrupt(group: Group, messages: Collection[str]) -> None:
    """Raise CorruptImage on every rank if any has met one, so that none is left waiting for the others."""
    _raise_on_all(group, messages, CorruptImage)


def _raise_on_all(group: Group, messages: Collection[str], kind: type[Failure]) -> None:
    """Raise the first rank's first message on every rank if any has one."""
    first = None
    for of_rank in group.gather_objects(sorted(messages)) or ():
        if of_rank and first is None:
            first = of_rank[0]
    first = group.share_object(first)
    if first is not None:
        raise kind(first)


def _find_repeated_pieces(sets: Sequence[EvaluationSet], pieces: Sequence[Piece]) -> dict[int, int]:
    """Return numbers of pieces whose images another set shows too, and before, with the number of its piece."""
    numbers = {(sets[piece.set].name, piece.rows): n for n, piece in enumerate(pieces) if isinstance(piece.rows, range)}
    before = {}
    for number, piece in enumerate(pieces):
        earlier = numbers.get((sets[piece.set].plain, piece.rows)) if isinstance(piece.rows, range) else None
        if earlier is not None and earlier < number:
            before[number] = earlier
    return before


class _TestImages(Dataset[Any]):
    """Test images by (piece, row), as loader workers make them: decoded and transformed, or the file's error."""

    def __init__(
        self, sets: Sequence[EvaluationSet], pieces: Sequence[Piece], cached: Mapping[str, CachedImages]
    ) -> None:
        self.sets = [sets[piece.set] for piece in pieces]
        self.cached = [cached.get(evaluation_set.name) for evaluation_set in self.sets]

    def __getitems__(self, keys: Sequence[tuple[int, int]]) -> _Batch:
        """Return a batch of one piece, at a stroke if the images are in memory as they are needed."""
        piece, source = keys[0][0], self.sets[keys[0][0]].source
        if source.shape is not None and is_identity(self.sets[piece].transform, *source.shape[-2:]):
            rows = torch.tensor([row for _, row in keys])
            return piece, rows, source.load_all(rows.numpy()), []
        rows_read: list[int] = []
        images: list[Tensor] = []
        errors: list[CorruptImage] = []
        for _, row in keys:
            image = self._open(piece, row)
            if isinstance(image, CorruptImage):
                errors.append(image)
            elif images and image.shape != images[0].shape:  # of a user's own transform
                sizes = f"{list(image.shape)} and {list(images[0].shape)}"
                errors.append(
                    UnfitImage(f"{source.ids[row]}: the transform makes images of {sizes}; give all one size")
                )
            else:
                rows_read.append(row)
                images.append(image)
        batch = stacked(images) if images else torch.empty(0)
        return piece, torch.tensor(rows_read, dtype=torch.long), batch, errors

    def _open(self, piece: int, row: int) -> Tensor | CorruptImage:
        evaluation_set, cached = self.sets[piece], self.cached[piece]
        version = 0
        if cached is not None:
            version = evaluation_set.source.version(row)
            image = cached.read(row, version)
            if image is not None:
                return image
        # Random transforms are drawn by row, so that an image is the same in every evaluation.
        randomness = keyed_randomness(row) if is_random(evaluation_set.transform) else contextlib.nullcontext()
        try:
            with randomness:
                image = evaluation_set.transform(evaluation_set.source.open(row))
        except CorruptImage as error:
            return error
        if cached is not None:
            cached.write(row, version, image)
        return image


class _Shard(Sampler[list[tuple[int, int]]]):
    """Batches of one rank's rows of every piece in turn; a batch mixes no sets, whose images may differ in size."""

    def __init__(
        self, pieces: Sequence[Piece], batch_size: int, rank: int, world: int, before: Mapping[int, int]
    ) -> None:
        """before: pieces that an earlier one shows too, by number."""
        self.pieces, self.batch_size, self.rank, self.world, self.before = pieces, batch_size, rank, world, before
        self.sets = {piece.set for piece in pieces}  # numbers of the sets to decide on

    def chosen_pieces(self) -> Iterator[tuple[int, Piece]]:
        """Yield the pieces of the sets to decide on, with their numbers."""
        return ((number, piece) for number, piece in enumerate(self.pieces) if piece.set in self.sets)

    def shown_before(self, number: int) -> int | None:
        """Return the number of an earlier piece of a chosen set that has the same images; None if none has."""
        earlier = self.before.get(number)
        return earlier if earlier is not None and self.pieces[earlier].set in self.sets else None

    def _pieces_to_read(self) -> Iterator[tuple[int, Piece]]:
        return ((number, piece) for number, piece in self.chosen_pieces() if self.shown_before(number) is None)

    def __iter__(self) -> Iterator[list[tuple[int, int]]]:
        for number, piece in self._pieces_to_read():
            for start in self._starts(piece):
                yield [(number, row) for row in piece.shard(start, self.batch_size, self.world)]

    def __len__(self) -> int:
        return sum(len(self._starts(piece)) for _, piece in self._pieces_to_read())

    def _starts(self, piece: Piece) -> range:
        return range(self.rank, len(piece.rows), self.batch_size * self.world)
