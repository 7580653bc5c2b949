"""In which order training reads its examples: a function of (seed, epoch), the same for any number of processes."""

from __future__ import annotations

import functools
import itertools
import math
import os
import signal
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Sampler

from biasbed.batch import Batch, stacked
from biasbed.data.sampling import Order, cells
from biasbed.data.source import Source
from biasbed.data.transforms import Transform, keyed_randomness
from biasbed.errors import CorruptImage, UsageError
from biasbed.settings import nearest
from biasbed.system.processes import die_with_parent

MAIN = "main"  # the stream that is the batch itself; others are its `extra`
BALANCED = ("y", "domain", "bias", "group")  # columns of a source that examples can be balanced by


@dataclass(frozen=True, eq=False)
class Part:
    """Images of one source within a stream, their share of each batch, and how they are drawn.

    by: columns (`y`, `domain`, `bias`, `group`) of which each combination that occurs is drawn equally often, whatever
    its number of images. replacement: every image is drawn by itself, not in passes. rows: the rows of the source that
    belong to the part, all where None.
    """

    source: Source
    share: float
    transform: Transform
    by: tuple[str, ...] = ()
    replacement: bool = False
    rows: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.source) if self.rows is None else len(self.rows)

    def row(self, place: int) -> int:
        """Row of the source that stands at a place of the part."""
        return place if self.rows is None else int(self.rows[place])

    def order(self, key: Sequence[int]) -> Order:
        """The order that a key stands for; UsageError for a column that can't be balanced."""
        columns = [_column(self.source, name) for name in self.by]
        if self.rows is not None:
            columns = [column[self.rows] for column in columns]
        found = cells(columns) if columns else np.zeros(len(self), dtype=np.int64)
        return Order(key, found, self.replacement)


def _column(source: Source, name: str) -> np.ndarray:
    if name not in BALANCED:
        raise UsageError(f"examples can't be balanced by '{name}'{nearest(name, BALANCED)}")
    column: np.ndarray | None = getattr(source, name)
    if column is None:
        raise UsageError(f"'{source.name}' has no column '{name}' to balance examples by")
    if column.ndim != 1:
        raise UsageError(f"'{source.name}' has several labels per image: examples can't be balanced by '{name}'")
    return column


def per_domain(
    source: Source, transform: Transform, by: tuple[str, ...] = (), replacement: bool = False
) -> tuple[Part, ...]:
    """A part of equal share for every domain that a source has images of, in the order of the domains' numbers.

    For `Stream(per_domain(source, ...), batch_size, images=len(source))`: an epoch is then as many images as there are,
    so that small domains are read more than once in it, and large ones not to their end. Every step has equal parts
    where their number divides the batch; else they differ by an image or two, in turn. UsageError without domains.
    """
    domain = _column(source, "domain")
    rows = [np.flatnonzero(domain == number) for number in np.unique(domain)]
    return tuple(Part(source, 1 / len(rows), transform, by, replacement, own) for own in rows)


@dataclass(frozen=True, eq=False)
class Stream:
    """Batches drawn from one or several parts.

    An epoch is one pass over the first part, and its last batch has what is left of it. The others are read round and
    round, reshuffled with each pass, whatever their size. Where the first part has no passes (`by`, `replacement`), an
    epoch has as many of its images all the same, and where `images` is given, that many of all parts together; every
    batch is then full.
    """

    parts: tuple[Part, ...]
    batch_size: int  # over all processes
    views: int = 1
    images: int | None = None

    def __post_init__(self) -> None:
        shares = [self.batch_size * (end - start) for start, end in itertools.pairwise(self._bounds)]
        if min(shares if self._is_always_full else self.counts) < 1:
            raise UsageError(f"batch_size={self.batch_size} is too small for {len(self.parts)} parts of each batch")

    @property
    def counts(self) -> tuple[int, ...]:
        """Images of each part in a full batch; the first part takes what rounding leaves."""
        rest = [round(self.batch_size * part.share) for part in self.parts[1:]]
        return (self.batch_size - sum(rest), *rest)

    @property
    def _is_always_full(self) -> bool:
        first = self.parts[0]
        return self.images is not None or first.replacement or bool(first.by)

    @property
    def num_examples(self) -> int:
        """Images of all sources, each counted once: the values of the column `index` are below it."""
        return sum(len(source) for source in {id(part.source): part.source for part in self.parts}.values())

    @property
    def steps_per_epoch(self) -> int:
        if self.images is not None:
            return -(-self.images // self.batch_size)
        share = self.batch_size * self._bounds[1] if self._is_always_full else Fraction(self.counts[0])
        return math.ceil(len(self.parts[0]) / share)

    def batch_positions(self, step: int) -> list[tuple[int, int]]:
        """(start, count) of each part in the batch of a step, in the endless sequence of that part's images.

        Steps count from the start of training. The last batch of an epoch has the rest of the first part, and of the
        others in proportion.
        """
        if self._is_always_full:
            return self.endless_positions(step)
        epoch, within = divmod(step, self.steps_per_epoch)
        full, size = self.counts[0], len(self.parts[0])
        found = [(epoch * size + within * full, min(full, size - within * full))]
        last = self.steps_per_epoch - 1
        for count in self.counts[1:]:
            per_epoch = last * count + self._share(count, last)
            found.append((epoch * per_epoch + within * count, self._share(count, within)))
        return found

    def endless_positions(self, step: int) -> list[tuple[int, int]]:
        """The same for a full batch, whatever the step: for streams beside the main one, and those without passes.

        Where a share of the batch is no whole number, counts of steps differ by an image or two but not on average.
        """
        before, after = self._before(step), self._before(step + 1)
        return [(start, end - start) for start, end in zip(before, after, strict=True)]

    def _before(self, step: int) -> list[int]:
        """Images of each part in all steps before one, when every batch is full."""
        bounds = [int(step * self.batch_size * bound) for bound in self._bounds]
        return [end - start for start, end in itertools.pairwise(bounds)]

    @functools.cached_property
    def _bounds(self) -> list[Fraction]:
        """Where each part's share ends within the whole; fractions, as rounding must not shift any position."""
        ends = list(itertools.accumulate(Fraction(part.share).limit_denominator(10_000) for part in self.parts))
        return [Fraction(0), *(end / ends[-1] for end in ends)]

    def _share(self, count: int, within: int) -> int:
        """Images of a later part in the batch at a position within the epoch."""
        full, size = self.counts[0], len(self.parts[0])
        return count if (within + 1) * full <= size else round(count * (size - within * full) / full)


class Key(NamedTuple):
    """What the loader must produce: one example of one stream, at one of the times that it is read."""

    stream: str
    part: int
    row: int  # among the part's
    number: int  # of the pass; no row of a part has the same one twice


class BatchPlan:
    """Every step's examples for one process, and that process's weight in the step."""

    def __init__(self, streams: Mapping[str, Stream], seed: int, rank: int = 0, world: int = 1) -> None:
        self.streams, self.seed, self.rank, self.world = streams, seed, rank, world
        self.steps_per_epoch = streams[MAIN].steps_per_epoch
        self.orders = {
            name: [part.order((seed, stream_number(name, streams), number)) for number, part in enumerate(stream.parts)]
            for name, stream in streams.items()
        }

    def keys(self, step: int) -> list[Key]:
        """This process's examples at a step: its slice of every part, so that all ranks see the same mixture."""
        found = []
        for name, stream in self.streams.items():
            positions = stream.batch_positions(step) if name == MAIN else stream.endless_positions(step)
            keys = []
            for part, (start, count) in enumerate(positions):
                each, more = divmod(count, self.world)
                first = start + self.rank * each + min(self.rank, more)
                rows, numbers = self.orders[name][part].read(first, each + (self.rank < more))
                keys += [Key(name, part, *found) for found in zip(rows.tolist(), numbers.tolist(), strict=True)]
            found += keys if len(positions) == 1 else self._mixed(keys, name, step)
        return found

    def _mixed(self, keys: list[Key], name: str, step: int) -> list[Key]:
        """Parts in one random order: what takes a slice of the batch must not take a part of it."""
        seed = [self.seed, stream_number(name, self.streams), step, self.rank, 0xA1]
        return [keys[place] for place in np.random.default_rng(seed).permutation(len(keys))]

    def sizes(self, step: int) -> list[int]:
        """Main examples of each process at a step."""
        counts = [count for _, count in self.streams[MAIN].batch_positions(step)]
        return [
            sum(count // self.world + (rank < count % self.world) for count in counts) for rank in range(self.world)
        ]

    def weight(self, step: int) -> float:
        """Share of the step's main examples that this process has, times the number of processes (mean: 1)."""
        sizes = self.sizes(step)
        return sizes[self.rank] * self.world / sum(sizes)

    def usable(self, step: int, at_least: int = 2) -> bool:
        """Whether every process gets enough examples for batch statistics.

        Only the last step of an epoch may fall short; it is then passed over by all processes.
        """
        return min(self.sizes(step)) >= at_least


def stream_number(name: str, streams: Mapping[str, Stream]) -> int:
    """Streams draw apart from each other even where they share a source."""
    return list(streams).index(name)


class Examples(Dataset[Any]):
    """Loads, transforms and labels the example of a key.

    For a file that can't be decoded the next one stands in, and what was wrong comes along: whether to go on is decided
    by all processes together. Where no file can be decoded, the exception comes back.
    """

    def __init__(self, streams: Mapping[str, Stream], seed: int) -> None:
        self.streams, self.seed = streams, seed
        self.offsets = {name: np.cumsum([0, *(len(part) for part in stream.parts)]) for name, stream in streams.items()}
        self.firsts = _firsts(streams)

    def __getitem__(self, key: Key) -> tuple[str, dict[str, Tensor], tuple[str, ...]] | CorruptImage:
        part, place = self.streams[key.stream].parts[key.part], key.row
        skipped: list[str] = []
        while True:
            try:
                x = self._views(key, place)
                break
            except CorruptImage as error:
                if len(skipped) == len(part) - 1:
                    return error
                skipped.append(str(error))
                place = (place + 1) % len(part)
        source, row = part.source, part.row(place)
        columns = {"y": source.y[row], "index": self.firsts[key.stream][key.part] + row}
        columns |= {n: c[row] for n, c in (("domain", source.domain), ("bias", source.bias)) if c is not None}
        return key.stream, {"x": x, **{name: torch.as_tensor(c) for name, c in columns.items()}}, tuple(skipped)

    def _views(self, key: Key, place: int) -> Tensor:
        """The transformed image at a place of the key's part [3,H,W], or [V,3,H,W] for several views."""
        stream = self.streams[key.stream]
        part, number = stream.parts[key.part], stream_number(key.stream, self.streams)
        own = int(self.offsets[key.stream][key.part]) + key.row
        picture, views = part.source.open(part.row(place)), []
        for view in range(stream.views):
            with keyed_randomness(self.seed, number, key.number, own, view):
                views.append(part.transform(picture))
        return views[0] if stream.views == 1 else torch.stack(views)


def _firsts(streams: Mapping[str, Stream]) -> dict[str, list[int]]:
    """Index of the first example of every part's source: dense, the main stream's sources first, each source once."""
    found: dict[int, int] = {}
    count = 0
    for name in sorted(streams, key=lambda name: name != MAIN):
        for part in streams[name].parts:
            if id(part.source) not in found:
                found[id(part.source)] = count
                count += len(part.source)
    return {name: [found[id(part.source)] for part in stream.parts] for name, stream in streams.items()}


def collate(items: Sequence[Any]) -> tuple[Batch, tuple[str, ...]] | CorruptImage:
    """One batch of examples of all streams (`x` still uint8), and the messages of files that were passed over."""
    by_stream: dict[str, list[dict[str, Tensor]]] = {}
    skipped: tuple[str, ...] = ()
    for item in items:
        if isinstance(item, CorruptImage):
            return item
        by_stream.setdefault(item[0], []).append(item[1])
        skipped += item[2]
    batches = {}
    for name, examples in by_stream.items():
        shared = set.intersection(*(set(example) for example in examples))
        columns: dict[str, Any] = {column: stacked([e[column] for e in examples]) for column in shared}
        batches[name] = Batch(**columns)
    main = batches.pop(MAIN)
    return replace(main, extra=batches), skipped


class Steps(Sampler[list[Key]]):
    """The keys of the steps from `start` to the end of the epoch; set `start` before each pass."""

    def __init__(self, plan: BatchPlan, at_least: int) -> None:
        self.plan, self.at_least, self.start = plan, at_least, 0

    def __iter__(self) -> Iterator[list[Key]]:
        for step in self.remaining():
            yield self.plan.keys(step)

    def remaining(self) -> range:
        """The steps of the pass, in order."""
        end = (self.start // self.plan.steps_per_epoch + 1) * self.plan.steps_per_epoch
        return range(self.start, end if self.plan.usable(end - 1, self.at_least) else end - 1)


class TrainLoader:
    """Batches of one process, from any step to the end of its epoch; workers live as long as the loader."""

    def __init__(self, plan: BatchPlan, seed: int, workers: int, at_least: int, pin: bool) -> None:
        self.plan = plan
        self.steps = Steps(plan, at_least)
        self.loader = DataLoader(
            Examples(plan.streams, seed),
            batch_sampler=self.steps,
            collate_fn=collate,
            **loader_options(workers, pin),
        )

    def close(self) -> None:
        """End the loader's workers, in order."""
        del self.loader

    def from_step(self, start: int) -> Iterator[tuple[int, int, Batch, tuple[str, ...]]]:
        """(step, the step after it, batch, passed-over files) up to the end of the epoch that `start` lies in.

        After the last usable step comes the next epoch's first. Raises CorruptImage.
        """
        self.steps.start = start
        steps = self.steps.remaining()
        next_epoch = (start // self.plan.steps_per_epoch + 1) * self.plan.steps_per_epoch
        for step, loaded in zip(steps, self.loader, strict=True):
            if isinstance(loaded, CorruptImage):
                raise loaded
            yield step, next_epoch if step == steps[-1] else step + 1, *loaded


def loader_options(workers: int, pin: bool) -> dict[str, Any]:
    """What all loaders share: persistent workers that leave signals to the main process."""
    options: dict[str, Any] = {"num_workers": workers, "pin_memory": pin}
    if workers:
        options |= {"persistent_workers": True, "worker_init_fn": _start_worker, "prefetch_factor": 4}
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
