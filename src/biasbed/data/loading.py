"""Loaders: batches of opened and transformed images, made in this process or in loader processes.

Answers: How do images become batches?
"""

from __future__ import annotations

import itertools
import operator
import os
import signal
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Sampler

from biasbed.batch import MAIN, Batch, stacked
from biasbed.data import loader_queues
from biasbed.data.source import AllRows, Picture, Source
from biasbed.data.streams import BatchPlan, InOrder, Key, Part, Stream
from biasbed.data.transforms import is_identity, keyed_randomness
from biasbed.errors import CorruptImage, UnfitImage
from biasbed.system.processes import die_with_parent

COLUMNS = ("y", "domain", "bias")
VIEW = -1  # last element of the keys of a view's draws, which are independent of crop and flip


class Loaded(NamedTuple):
    """Batch, and the messages about files that were skipped."""

    batch: Batch
    skipped: tuple[str, ...]


class LoadedExample(NamedTuple):
    """Image of an example, or its views."""

    image: Tensor  # [C,H,W] or [V,C,H,W]
    row: int  # of the part


class _PartOfBatch(NamedTuple):
    """Examples of a batch that come from one part of its stream."""

    part: int  # number of the part
    positions: np.ndarray  # of the examples in the batch
    source: Source
    rows: np.ndarray  # of the examples in the source


def first_indices(sources: Sequence[Source]) -> dict[int, int]:
    """Return the index of the first example of each source, keyed by `id(source)`; a source counts only once."""
    firsts: dict[int, int] = {}
    start = 0
    for source in sources:
        if id(source) not in firsts:
            firsts[id(source)] = start
            start += len(source)
    return firsts


def sources_of(streams: Mapping[str, Stream]) -> list[Source]:
    """Return the sources of all parts, those of the main stream first."""
    ordered = sorted(streams, key=lambda name: name != MAIN)
    parts = itertools.chain.from_iterable(streams[name].parts for name in ordered)
    return [part.source for part in parts]


class Examples(Dataset[Any]):
    """Data set that loads, transforms and labels the examples of a batch's keys.

    A file that cannot be decoded is replaced by the next one, and the batch carries a message about it: all processes
    decide together whether to continue. If no file can be decoded, the exception is returned.
    """

    def __init__(self, plan: BatchPlan | InOrder, firsts: Mapping[int, int]) -> None:
        """firsts: as `first_indices` returns them."""
        self.streams, self.seed, self.stage = plan.streams, plan.seed, plan.stage
        self.stream_numbers = {name: plan.stream_number(name) for name in plan.streams}
        # By stream and part. A loader process has copies of the sources, so `id(source)` is of no use there.
        self.part_starts: dict[str, np.ndarray] = {}  # in the examples of all parts, one part after the other
        self.first_indices: dict[str, list[int]] = {}  # of the part's source
        for name, stream in plan.streams.items():
            self.part_starts[name] = np.cumsum([0, *map(len, stream.parts)])
            self.first_indices[name] = [firsts[id(part.source)] for part in stream.parts]

    def __getitems__(self, keys: Sequence[Key]) -> Loaded | CorruptImage:
        """Load the examples of all streams as one batch; `x` is uint8, unless a view makes floats."""
        batches: dict[str, Batch] = {}
        skipped: list[str] = []
        try:
            for name, stream_keys in itertools.groupby(keys, key=operator.attrgetter("stream")):
                batches[name] = self._load_batch(self.streams[name], list(stream_keys), skipped)
        except CorruptImage as error:
            return error
        main = batches.pop(MAIN)
        return Loaded(replace(main, extra=batches), tuple(skipped))

    def _load_batch(self, stream: Stream, keys: list[Key], skipped: list[str]) -> Batch:
        """Load the examples of one stream. skipped: receives the messages about skipped files."""
        parts = np.array([key.part for key in keys])
        rows = np.array([key.row for key in keys])
        x = _load_at_once(stream, parts, rows)
        if x is None:
            images = []
            for number, key in enumerate(keys):
                example = self._load_example(stream, key, skipped)
                images.append(example.image)
                rows[number] = example.row
            x = stacked(images)
        columns: dict[str, Any] = self._collect_columns(keys[0].stream, stream, _group_by_part(stream, parts, rows))
        return Batch(x, **columns, parts=stream.parts_apart)

    def _load_example(self, stream: Stream, key: Key, skipped: list[str]) -> LoadedExample:
        """Load the image of a key, or its views; if it can't be decoded, that of the next row that can."""
        part, row, failures = stream.parts[key.part], key.row, 0
        while True:
            try:
                return LoadedExample(self._load_views(stream, key, row), row)
            except UnfitImage:
                raise
            except CorruptImage as error:
                failures += 1
                if failures == len(part):
                    raise
                skipped.append(str(error))
                row = (row + 1) % len(part)

    def _load_views(self, stream: Stream, key: Key, row: int) -> Tensor:
        """Load and transform the image in a row of the key's part: [C,H,W], or [V,C,H,W] for several views."""
        part = stream.parts[key.part]
        picture: Picture = part.source.open(int(part.rows_at(np.array([row]))[0]))
        number_of_crops = 1 if stream.shared else max(1, len(stream.views))
        if number_of_crops > 1:
            picture = AllRows(picture)
        example = int(self.part_starts[key.stream][key.part]) + key.row
        draw_key = self.seed, self.stream_numbers[key.stream], key.pass_number, example
        crops = []
        for number in range(number_of_crops):
            with keyed_randomness(*draw_key, number, *self.stage):
                crops.append(part.transform(picture))
        if not stream.views:
            return crops[0]
        views = []
        for number, make_view in enumerate(stream.views):
            with keyed_randomness(*draw_key, number, *self.stage, VIEW):
                views.append(make_view(crops[0 if stream.shared else number]))
        return _stack_views(views)

    def _collect_columns(self, name: str, stream: Stream, parts: list[_PartOfBatch]) -> dict[str, Tensor]:
        """Return the columns that all parts have; labels only if the stream is labelled."""
        columns = {"index": [self.first_indices[name][part.part] + part.rows for part in parts]}  # [n] of each part
        for column in COLUMNS if stream.labelled else COLUMNS[1:]:
            values = [getattr(part.source, column) for part in parts]
            if all(value is not None for value in values):
                columns[column] = [value[part.rows] for value, part in zip(values, parts, strict=True)]
        order = _batch_order(parts)
        return {column: torch.from_numpy(np.concatenate(values)[order]) for column, values in columns.items()}


def _group_by_part(stream: Stream, parts: np.ndarray, rows: np.ndarray) -> list[_PartOfBatch]:
    """Group the examples of a batch by part. parts [n]: number of each example's part; rows [n]: its row in there."""
    grouped = []
    for number in np.unique(parts).tolist():
        part, positions = stream.parts[number], np.flatnonzero(parts == number)
        grouped.append(_PartOfBatch(number, positions, part.source, part.rows_at(rows[positions])))
    return grouped


def _batch_order(parts: list[_PartOfBatch]) -> np.ndarray:
    """Return the order [n] that puts the examples of all parts, one after the other, into the batch's order."""
    return np.argsort(np.concatenate([part.positions for part in parts]))


def _load_at_once(stream: Stream, parts: np.ndarray, rows: np.ndarray) -> Tensor | None:
    """Load images that are in memory and need no change; None if some need a transform, a view or decoding."""
    if stream.views or not all(_is_ready(part) for part in stream.parts):
        return None
    grouped = _group_by_part(stream, parts, rows)
    images = [part.source.load_all(part.rows) for part in grouped]
    return images[0] if len(images) == 1 else torch.cat(images)[_batch_order(grouped)]


def _is_ready(part: Part) -> bool:
    """Return True if the part's images can be loaded together and its transform leaves them unchanged."""
    shape = part.source.shape
    return shape is not None and is_identity(part.transform, *shape[-2:])


def _stack_views(views: list[Tensor]) -> Tensor:
    """Stack views to [V,C,H,W], or return the only one. If one has floats in [0,1], all are converted to floats."""
    if any(view.is_floating_point() for view in views):
        views = [view if view.is_floating_point() else view.float() / 255 for view in views]
    return stacked(views) if len(views) > 1 else views[0]


class Steps(Sampler[list[Key]]):
    """Sampler of the keys of the usable steps from `start` to `end`; set both before each pass."""

    def __init__(self, plan: BatchPlan | InOrder) -> None:
        self.plan, self.start, self.end = plan, 0, 0

    def __iter__(self) -> Iterator[list[Key]]:
        return (self.plan.keys(step) for step in self.remaining())

    def remaining(self) -> Iterator[int]:
        """Return the steps of the pass, in order."""
        return filter(self.plan.is_usable, range(self.start, self.end))


class LoadedStep(NamedTuple):
    """Step of a training with its batch."""

    step: int
    following: int  # the next step with a batch; some have none
    batch: Batch
    skipped: tuple[str, ...]  # messages about files that can't be decoded


class TrainLoader:
    """Loader of one process's batches, from any step to any other; its workers live as long as it does."""

    def __init__(
        self, plan: BatchPlan | InOrder, workers: int, pin: bool, firsts: Mapping[int, int] | None = None
    ) -> None:
        """firsts: index of the first example of each source; by default in the order of the plan's streams."""
        self.plan, self.steps = plan, Steps(plan)
        examples = Examples(plan, first_indices(sources_of(plan.streams)) if firsts is None else firsts)
        self.loader = DataLoader(
            examples, batch_sampler=self.steps, collate_fn=unchanged, **loader_options(workers, pin)
        )

    def close(self) -> None:
        """Stop the loader's workers."""
        del self.loader

    def from_step(self, start: int, end: int) -> Iterator[LoadedStep]:
        """Yield the batch of each usable step from `start` on, before `end`.

        The workers make one pass over all epochs, so that they load ahead while an epoch ends. Raises CorruptImage if
        no file of a part can be decoded.
        """
        self.steps.start, self.steps.end = start, end
        for step, loaded in zip(self.steps.remaining(), loader_queues.receive(self.loader), strict=True):
            if isinstance(loaded, CorruptImage):
                raise loaded
            yield LoadedStep(step, self.plan.next_usable(step), *loaded)


def unchanged(batch: Any) -> Any:
    """Return the batch: collate function of data sets that make whole batches."""
    return batch


def loader_options(workers: int, pin: bool) -> dict[str, Any]:
    """Return the options that all loaders share: persistent workers, which leave signals to the main process."""
    options: dict[str, Any] = {"num_workers": workers, "pin_memory": pin}
    if workers:
        options |= {"persistent_workers": True, "worker_init_fn": _start_worker, "prefetch_factor": 4}
        options["multiprocessing_context"] = loader_queues.make_context(workers)
    # Its own generator, because DataLoader draws a base seed from the global one for each pass.
    return options | {"generator": torch.Generator()}


def _start_worker(_: int) -> None:
    """Replace the signal handlers that a worker inherits from the trainer, and use one thread.

    After a signal to the process group, workers stay for two seconds so that the trainer can finish its run. They end
    with a trainer that is killed, and so release their copies of the run folder's lock. A worker that ends on request
    exits with 0: torch would raise an error in the trainer for one that a signal has killed.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: signal.alarm(2) and None)
    signal.signal(signal.SIGALRM, lambda *_: os._exit(0))
    die_with_parent(signal.SIGKILL)
    torch.set_num_threads(1)


def number_of_workers(setting: int | str, processes: int) -> int:
    """Return the number of loader processes per training process; for `auto` one per free core, at most 8."""
    if setting != "auto":
        return int(setting)
    return min(8, max(0, (os.cpu_count() or 1) // processes - 1))
