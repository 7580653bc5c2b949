"""From keys to batches: images opened, transformed and put together, in this process or in the loader's."""

from __future__ import annotations

import itertools
import os
import signal
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Sampler

from biasbed.batch import MAIN, Batch, stacked
from biasbed.data import loader_queues
from biasbed.data.source import Picture, Source, Whole
from biasbed.data.streams import BatchPlan, InOrder, Key, Part, Stream
from biasbed.data.transforms import keeps, keyed_randomness
from biasbed.errors import CorruptImage
from biasbed.system.processes import die_with_parent

COLUMNS = ("y", "domain", "bias")
VIEW = -1  # last word of the keys of what is drawn for a view, apart from crop and flip

Loaded = tuple[Batch, tuple[str, ...]]  # with the messages of files that were passed over


def first_indices(sources: Sequence[Source]) -> dict[int, int]:
    """Index of the first example of each source, by its `id`: dense, in their order, each source once."""
    unique = list({id(source): source for source in sources}.values())
    starts = itertools.accumulate((len(source) for source in unique), initial=0)
    return {id(source): start for source, start in zip(unique, starts, strict=False)}


def sources_of(streams: Mapping[str, Stream]) -> list[Source]:
    """The sources of all parts, the main stream's first."""
    ordered = sorted(streams, key=lambda name: name != MAIN)
    return [part.source for name in ordered for part in streams[name].parts]


class Examples(Dataset[Any]):
    """Loads, transforms and labels the examples of a batch's keys.

    For a file that can't be decoded the next one stands in, and what was wrong comes along: whether to go on is decided
    by all processes together. Where no file can be decoded, the exception comes back.
    """

    def __init__(self, plan: BatchPlan | InOrder, firsts: Mapping[int, int]) -> None:
        self.streams, self.key = plan.streams, (plan.seed, plan.stage)
        self.numbers = {name: plan.number(name) for name in plan.streams}
        self.offsets = {n: np.cumsum([0, *(len(part) for part in s.parts)]) for n, s in self.streams.items()}
        # By part, as a source is another object in a loader's process.
        self.firsts = {name: [firsts[id(part.source)] for part in s.parts] for name, s in self.streams.items()}

    def __getitems__(self, keys: Sequence[Key]) -> Loaded | CorruptImage:
        """One batch of examples of all streams; `x` is uint8, unless a view makes floats."""
        batches: dict[str, Batch] = {}
        skipped: list[str] = []
        try:
            for name, own in itertools.groupby(keys, key=lambda key: key.stream):
                batches[name] = self._batch(self.streams[name], list(own), skipped)
        except CorruptImage as error:
            return error
        main = batches.pop(MAIN)
        return replace(main, extra=batches), tuple(skipped)

    def _batch(self, stream: Stream, keys: list[Key], skipped: list[str]) -> Batch:
        parts = np.array([key.part for key in keys])
        places = np.array([key.row for key in keys])
        x = _at_a_stroke(stream, parts, places)
        if x is None:
            found = [self._example(stream, key, skipped) for key in keys]
            x, places = stacked([image for image, _ in found]), np.array([place for _, place in found])
        columns: dict[str, Any] = self._columns(keys[0].stream, stream, parts, places)
        return Batch(x, **columns, parts=stream.parts_apart)

    def _example(self, stream: Stream, key: Key, skipped: list[str]) -> tuple[Tensor, int]:
        """(image or its views, the place that it was found at: the key's, or the next that can be read)."""
        part, place, tried = stream.parts[key.part], key.row, 0
        while True:
            try:
                return self._views(stream, key, place), place
            except CorruptImage as error:
                tried += 1
                if tried == len(part):
                    raise
                skipped.append(str(error))
                place = (place + 1) % len(part)

    def _views(self, stream: Stream, key: Key, place: int) -> Tensor:
        """The transformed image at a place of the key's part [C,H,W], or [V,C,H,W] for several views."""
        part, (seed, stage) = stream.parts[key.part], self.key
        own = int(self.offsets[key.stream][key.part]) + key.row
        words = seed, self.numbers[key.stream], key.number, own
        picture: Picture = part.source.open(int(part.rows_at(np.array([place]))[0]))
        count = 1 if stream.shared or not stream.views else len(stream.views)
        picture = picture if count == 1 else Whole(picture)
        crops = []
        for view in range(count):
            with keyed_randomness(*words, view, *stage):
                crops.append(part.transform(picture))
        if not stream.views:
            return crops[0]
        views = []
        for number, change in enumerate(stream.views):
            with keyed_randomness(*words, number, *stage, VIEW):
                views.append(change(crops[0 if stream.shared else number]))
        return _together(views)

    def _columns(self, name: str, stream: Stream, parts: np.ndarray, places: np.ndarray) -> dict[str, Tensor]:
        """The columns that all parts have; labels where the stream has any."""
        found: dict[str, list[np.ndarray]] = {}
        groups = [(at, stream.parts[n].source, stream.parts[n].rows_at(places[at]), n) for n, at in _places(parts)]
        found["index"] = [self.firsts[name][n] + rows for _, _, rows, n in groups]
        for column in COLUMNS if stream.labelled else COLUMNS[1:]:
            if all(getattr(source, column) is not None for _, source, _, _ in groups):
                found[column] = [getattr(source, column)[rows] for _, source, rows, _ in groups]
        order = np.argsort(np.concatenate([at for at, _, _, _ in groups]))
        return {column: torch.from_numpy(np.concatenate(values)[order]) for column, values in found.items()}


def _places(parts: np.ndarray) -> list[tuple[int, np.ndarray]]:
    """Where in a batch the examples of each of its parts are."""
    return [(number, np.flatnonzero(parts == number)) for number in np.unique(parts).tolist()]


def _at_a_stroke(stream: Stream, parts: np.ndarray, places: np.ndarray) -> Tensor | None:
    """The images of a stream that are in memory as they are needed; None where there is anything to do to them."""
    if stream.views or not all(_is_ready(part) for part in stream.parts):
        return None
    groups = [(at, stream.parts[n].source.load_all(stream.parts[n].rows_at(places[at]))) for n, at in _places(parts)]
    if len(groups) == 1:
        return groups[0][1]
    return torch.cat([images for _, images in groups])[np.argsort(np.concatenate([at for at, _ in groups]))]


def _is_ready(part: Part) -> bool:
    shape = part.source.shape
    return shape is not None and keeps(part.transform, *shape[-2:])


def _together(views: list[Tensor]) -> Tensor:
    """[V,C,H,W], or the only view; where one of them is of floats in [0,1], all are."""
    if any(view.is_floating_point() for view in views):
        views = [view if view.is_floating_point() else view.float() / 255 for view in views]
    return stacked(views) if len(views) > 1 else views[0]


class Steps(Sampler[list[Key]]):
    """The keys of the usable steps from `start` to `end`; set both before each pass."""

    def __init__(self, plan: BatchPlan | InOrder) -> None:
        self.plan, self.start, self.end = plan, 0, 0

    def __iter__(self) -> Iterator[list[Key]]:
        return (self.plan.keys(step) for step in self.remaining())

    def remaining(self) -> Iterator[int]:
        """The steps of the pass, in order."""
        return filter(self.plan.usable, range(self.start, self.end))


class TrainLoader:
    """Batches of one process, from any step to any other; workers live as long as the loader."""

    def __init__(
        self, plan: BatchPlan | InOrder, workers: int, pin: bool, firsts: Mapping[int, int] | None = None
    ) -> None:
        """firsts: index of the first example of each source; by default in the order of the plan's streams."""
        self.plan, self.steps = plan, Steps(plan)
        examples = Examples(plan, first_indices(sources_of(plan.streams)) if firsts is None else firsts)
        self.loader = DataLoader(
            examples, batch_sampler=self.steps, collate_fn=as_it_is, **loader_options(workers, pin)
        )

    def close(self) -> None:
        """End the loader's workers, in order."""
        del self.loader

    def from_step(self, start: int, end: int) -> Iterator[tuple[int, int, Batch, tuple[str, ...]]]:
        """(step, the step after it, batch, passed-over files) of every usable step before `end`; raises CorruptImage.

        One pass of the workers, over however many epochs: what is ahead is loaded while an epoch ends.
        """
        self.steps.start, self.steps.end = start, end
        for step, loaded in zip(self.steps.remaining(), loader_queues.received(self.loader), strict=True):
            if isinstance(loaded, CorruptImage):
                raise loaded
            yield step, self.plan.following(step), *loaded


def as_it_is(loaded: Any) -> Any:
    """For data sets that make whole batches."""
    return loaded


def loader_options(workers: int, pin: bool) -> dict[str, Any]:
    """What all loaders share: persistent workers that leave signals to the main process."""
    options: dict[str, Any] = {"num_workers": workers, "pin_memory": pin}
    if workers:
        options |= {"persistent_workers": True, "worker_init_fn": _start_worker, "prefetch_factor": 4}
        options["multiprocessing_context"] = loader_queues.make_context()
    # A generator of its own, since DataLoader draws a base seed from the global one with every pass.
    return options | {"generator": torch.Generator()}


def _start_worker(_: int) -> None:
    """Workers inherit the trainer's signal handlers and would act on them; one thread each is enough.

    A signal to the whole group leaves the trainer two seconds to settle its run before its workers are gone. A trainer
    that is killed takes them along, and with them their copies of the run folder's lock.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: signal.alarm(2) and None)
    die_with_parent(signal.SIGKILL)
    torch.set_num_threads(1)


def auto_workers(processes: int, per_process: int = 8) -> int:
    """Loader processes per training process when not told otherwise."""
    return min(per_process, max(0, (os.cpu_count() or 1) // processes - 1))
