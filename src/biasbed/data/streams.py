"""In which order training reads its examples: a function of (seed, epoch), the same for any number of processes."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import NamedTuple

import numpy as np
from torch import Tensor

from biasbed.batch import MAIN
from biasbed.data.sampling import Order, cells
from biasbed.data.source import Source
from biasbed.data.transforms import Transform
from biasbed.errors import Failure, UsageError
from biasbed.settings import nearest

BALANCED = ("y", "domain", "bias", "group")  # columns of a source that examples can be balanced by


@dataclass(frozen=True, eq=False)
class Part:
    """Images of one source within a stream, their share of each batch, and how they are drawn.

    by: columns (`y`, `domain`, `bias`, `group`) of which each combination that occurs is drawn equally often, whatever
    its number of images. replacement: every image is drawn by itself, not in passes. rows: the rows of the source that
    belong to the part, all where None; one that is there twice comes twice in each pass. weights: with replacement, of
    every row in proportion to what it is drawn.
    """

    source: Source
    share: float
    transform: Transform
    by: tuple[str, ...] = ()
    replacement: bool = False
    rows: np.ndarray | None = None
    weights: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.source) if self.rows is None else len(self.rows)

    def rows_at(self, places: np.ndarray) -> np.ndarray:
        """Rows of the source that stand at places of the part."""
        return places if self.rows is None else self.rows[places]

    def order(self, key: Sequence[int]) -> Order:
        """The order that a key stands for; UsageError for a column that can't be balanced."""
        columns = [_column(self.source, name) for name in self.by]
        if self.rows is not None:
            columns = [column[self.rows] for column in columns]
        found = cells(columns) if columns else np.zeros(len(self), dtype=np.int64)
        return Order(key, found, self.replacement, self.weights)


def _column(source: Source, name: str) -> np.ndarray:
    if name not in BALANCED:
        raise UsageError(f"examples can't be balanced by '{name}'{nearest(name, BALANCED)}")
    column: np.ndarray | None = getattr(source, name)
    if column is None:
        raise UsageError(f"'{source.name}' has no column '{name}' to balance examples by")
    if column.ndim != 1:
        raise UsageError(f"'{source.name}' has several labels per image: examples can't be balanced by '{name}'")
    return column


def per_domain(whole: Part) -> tuple[Part, ...]:
    """A part of equal share for every domain that a part has images of, in the order of the domains' numbers.

    For `Stream(per_domain(part), batch_size, images=len(part))`: an epoch is then as many images as there are, so that
    small domains are read more than once in it, and large ones not to their end. Every step has equal parts where their
    number divides the batch; else they differ by an image or two, in turn. UsageError without domains.
    """
    places = np.arange(len(whole))
    domain = _column(whole.source, "domain")[whole.rows_at(places)]
    of_domains = [places[domain == number] for number in np.unique(domain)]
    weights = [None if whole.weights is None else whole.weights[own] for own in of_domains]
    return tuple(
        replace(whole, share=1 / len(of_domains), rows=whole.rows_at(own), weights=weight)
        for own, weight in zip(of_domains, weights, strict=True)
    )


def weighted(part: Part, weights: np.ndarray, name: str) -> Part:
    """The part with its rows drawn as often as a table [len(source)] says; Failure for one that can't say it.

    With replacement in proportion to it, else so often in each pass. name: of the table, for the message.
    """
    own = weights[part.rows_at(np.arange(len(part)))]
    if not np.isfinite(own).all() or (own < 0).any() or not own.any():
        what = "is 0 for every image" if np.isfinite(own).all() and not own.any() else "has values that are no weights"
        raise Failure(f"the table '{name}', by which images are to be drawn, {what}")
    if part.by:
        raise Failure(f"images can't be drawn by the table '{name}' and be balanced by {', '.join(part.by)}")
    if part.replacement:
        return replace(part, weights=own)
    if (own != own.round()).any():
        raise Failure(f"the table '{name}' has parts of images: a pass without replacement takes whole numbers")
    return replace(part, rows=np.repeat(part.rows_at(np.arange(len(part))), own.astype(np.int64)))


@dataclass(frozen=True, eq=False)
class Stream:
    """Batches drawn from one or several parts.

    An epoch is one pass over the first part, and its last batch has what is left of it. The others are read round and
    round, reshuffled with each pass, whatever their size. Where the first part has no passes (`by`, `replacement`), an
    epoch has as many of its images all the same, and where `images` is given, that many of all parts together; every
    batch is then full.

    views: what makes the copies of each image that its batch has, none to take it as it is. shared: all copies of an
    image have the same crop and flip. apart: its parts stand one after the other in each batch. drop_last: a last batch
    that is not full is passed over.
    """

    parts: tuple[Part, ...]
    batch_size: int  # over all processes
    views: tuple[Callable[[Tensor], Tensor], ...] = ()
    shared: bool = False
    images: int | None = None
    apart: bool = False
    labelled: bool = True
    drop_last: bool = False

    def __post_init__(self) -> None:
        shares = [self.batch_size * (end - start) for start, end in itertools.pairwise(self._bounds)]
        if min(shares if self.is_always_full else self.counts) < 1:
            raise UsageError(f"batch_size={self.batch_size} is too small for {len(self.parts)} parts of each batch")

    @property
    def parts_apart(self) -> int:
        """Of how many equal parts, one after the other, a batch consists."""
        return len(self.parts) if self.apart else 1

    @property
    def counts(self) -> tuple[int, ...]:
        """Images of each part in a full batch; the first part takes what rounding leaves."""
        rest = [round(self.batch_size * part.share) for part in self.parts[1:]]
        return (self.batch_size - sum(rest), *rest)

    @property
    def is_always_full(self) -> bool:
        """Whether every batch is, as there are no passes to come to an end."""
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
        share = self.batch_size * self._bounds[1] if self.is_always_full else Fraction(self.counts[0])
        return math.ceil(len(self.parts[0]) / share)

    def batch_positions(self, step: int) -> list[tuple[int, int]]:
        """(start, count) of each part in the batch of a step, in the endless sequence of that part's images.

        Steps count from the start of training. The last batch of an epoch has the rest of the first part, and of the
        others in proportion.
        """
        if self.is_always_full:
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

    def __init__(
        self, streams: Mapping[str, Stream], seed: int, rank: int = 0, world: int = 1, stage: int = 0, at_least: int = 2
    ) -> None:
        """stage: number of the stage, 0 for the last, as each draws apart. at_least: examples that a process needs."""
        self.streams, self.seed, self.rank, self.world = streams, seed, rank, world
        self.stage, self.at_least = (stage,) if stage else (), at_least
        self.steps_per_epoch = streams[MAIN].steps_per_epoch
        self.orders = {
            name: [part.order((seed, self.number(name), n, *self.stage)) for n, part in enumerate(stream.parts)]
            for name, stream in streams.items()
        }

    def number(self, name: str) -> int:
        """Streams draw apart from each other even where they share a source."""
        return list(self.streams).index(name)

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
            found += keys if len(positions) == 1 or stream.apart else self._mixed(keys, name, step)
        return found

    def _mixed(self, keys: list[Key], name: str, step: int) -> list[Key]:
        """Parts in one random order: what takes a slice of the batch must not take a part of it."""
        seed = [self.seed, self.number(name), step, self.rank, 0xA1, *self.stage]
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

    def usable(self, step: int) -> bool:
        """Whether every process gets enough examples, for batch statistics among others.

        Only the last step of an epoch may fall short, or not be full where that is asked for; it is then passed over by
        all processes.
        """
        main, sizes = self.streams[MAIN], self.sizes(step)
        return min(sizes) >= self.at_least and not (main.drop_last and sum(sizes) < main.batch_size)

    def following(self, step: int) -> int:
        """The step that comes after one: the next that is usable."""
        return step + 1 if self.usable(step + 1) else step + 2


class InOrder:
    """Every example of one stream once, in order: every `world`-th for one process, `size` at a time."""

    def __init__(self, stream: Stream, size: int, rank: int = 0, world: int = 1) -> None:
        self.streams, self.seed, self.stage = {MAIN: stream}, 0, ()
        self.ends = np.cumsum([len(part) for part in stream.parts])
        self.size, self.rank, self.world = size, rank, world

    def __len__(self) -> int:
        return -(-len(self.positions(self.rank)) // self.size)

    def positions(self, rank: int) -> range:
        """What a process reads, of all parts' examples one after the other."""
        return range(rank, int(self.ends[-1]), self.world)

    def number(self, name: str) -> int:
        """There is one stream."""
        return 0

    def keys(self, step: int) -> list[Key]:
        """This process's examples at a step."""
        found = np.array(self.positions(self.rank)[step * self.size : (step + 1) * self.size])
        parts = np.searchsorted(self.ends, found, side="right")
        places = found - np.array([0, *self.ends])[parts]
        return [Key(MAIN, part, place, 0) for part, place in zip(parts.tolist(), places.tolist(), strict=True)]

    def usable(self, step: int) -> bool:
        """Every step is."""
        return True

    def following(self, step: int) -> int:
        """The next."""
        return step + 1
