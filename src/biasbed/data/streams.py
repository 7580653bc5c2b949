"""Order in which training reads examples: a function of seed and step, the same for any number of processes.

Answers: Which examples is a batch made of, also equally many of each domain, and in which order?
"""

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
from biasbed.data.sampling import Order, stratify
from biasbed.data.source import Source
from biasbed.data.transforms import Transform
from biasbed.errors import Failure, UsageError
from biasbed.settings import refuse_unknown

BALANCED = ("y", "domain", "bias", "group")  # columns by which examples can be balanced


@dataclass(frozen=True, eq=False)
class Part:
    """Images of one source within a stream, their share of each batch, and the way they are drawn.

    by: columns (`y`, `domain`, `bias`, `group`); each combination of their values that occurs is drawn equally often,
    however many images it has. replacement: draw each image independently instead of in passes. rows: rows of the
    source that belong to the part, by default all; a row that is listed twice comes twice in each pass. weights: with
    replacement, probability of each row, up to a factor.
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

    def rows_at(self, positions: np.ndarray) -> np.ndarray:
        """Return the rows of the source at positions of the part."""
        return positions if self.rows is None else self.rows[positions]

    def order(self, key: Sequence[int]) -> Order:
        """Return the order that follows from a key. Raises UsageError for a column that can't be balanced."""
        columns = [_column(self.source, name) for name in self.by]
        if self.rows is not None:
            columns = [column[self.rows] for column in columns]
        stratum_of_row = stratify(columns) if columns else np.zeros(len(self), dtype=np.int64)
        return Order(key, stratum_of_row, self.replacement, self.weights)


def _column(source: Source, name: str) -> np.ndarray:
    """Return a column [N] to balance examples by. Raises UsageError if there is no such column."""
    refuse_unknown(name, BALANCED, f"examples can't be balanced by '{name}'")
    column: np.ndarray | None = getattr(source, name)
    if column is None or column.ndim != 1:
        problem = "has no such column" if column is None else "has several labels per image"
        raise UsageError(f"examples can't be balanced by '{name}': '{source.name}' {problem}")
    return column


def per_domain(part: Part) -> tuple[Part, ...]:
    """Divide a part into parts of equal share, one for each domain that occurs, in the order of the domains' numbers.

    For `Stream(per_domain(part), batch_size, images=len(part))`: an epoch then has as many images as there are, so that
    it reads small domains more than once and large ones only partly. If the number of domains divides the batch size,
    all parts of a batch are equal; otherwise they differ by an image or two, in turn. Raises UsageError without
    domains.
    """
    positions = np.arange(len(part))
    domain = _column(part.source, "domain")[part.rows_at(positions)]
    numbers = np.unique(domain)
    parts = []
    for number in numbers:
        members = positions[domain == number]
        weights = None if part.weights is None else part.weights[members]
        parts.append(replace(part, share=1 / len(numbers), rows=part.rows_at(members), weights=weights))
    return tuple(parts)


def weighted(part: Part, weights: np.ndarray, name: str) -> Part:
    """Draw the rows of a part as often as a table [len(source)] says.

    With replacement the weights are probabilities up to a factor, otherwise the number of times a row comes in each
    pass. name: of the table, for messages. Raises Failure for negative or infinite weights, for weights that are all 0,
    and for fractions without replacement.
    """
    rows = part.rows_at(np.arange(len(part)))
    row_weights = weights[rows]
    problem = ""
    if not np.isfinite(row_weights).all() or (row_weights < 0).any():
        problem = "it has values that are no weights"
    elif not row_weights.any():
        problem = "it is 0 for every image"
    elif part.by:
        problem = f"they are balanced by {', '.join(part.by)}"
    elif not part.replacement and (row_weights != row_weights.round()).any():
        problem = "it has parts of images, and a pass without replacement takes whole numbers"
    if problem:
        raise Failure(f"images can't be drawn by the table '{name}': {problem}")
    if part.replacement:
        return replace(part, weights=row_weights)
    return replace(part, rows=np.repeat(rows, row_weights.astype(np.int64)))


class Span(NamedTuple):
    """Consecutive positions in the endless order of a part."""

    start: int
    length: int


@dataclass(frozen=True, eq=False)
class Stream:
    """Batches drawn from one or several parts.

    An epoch is one pass over the first part; its last batch has the images that are left. The other parts are read
    endlessly and reshuffled for each pass, whatever their size. If the first part has no passes (`by`, `replacement`),
    an epoch has as many images of it as a pass would have. If `images` is set, an epoch has that many images of all
    parts together. In both cases every batch is full.

    views: functions that make the copies of each image in a batch; none for the image alone. shared: all copies of an
    image have the same crop and flip. apart: the parts of a batch come one after the other, unmixed. drop_last: skip a
    last batch that is not full.
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
        mean_counts = [self.batch_size * (end - start) for start, end in itertools.pairwise(self._bounds)]
        if min(mean_counts if self.is_always_full else self.counts) < 1:
            raise UsageError(f"batch_size={self.batch_size} is too small for {len(self.parts)} parts of each batch")

    @property
    def parts_apart(self) -> int:
        """Number of equal parts, one after the other, that a batch consists of."""
        return len(self.parts) if self.apart else 1

    @property
    def counts(self) -> tuple[int, ...]:
        """Images of each part in a full batch; the first part takes the rest after rounding."""
        others = [round(self.batch_size * part.share) for part in self.parts[1:]]
        return (self.batch_size - sum(others), *others)

    @property
    def is_always_full(self) -> bool:
        """True if every batch is full, because no pass ends."""
        first = self.parts[0]
        return self.images is not None or first.replacement or bool(first.by)

    @property
    def num_examples(self) -> int:
        """Number of images of all sources, each counted once; the column `index` is below it."""
        sources = {id(part.source): part.source for part in self.parts}
        return sum(map(len, sources.values()))

    @property
    def steps_per_epoch(self) -> int:
        if self.images is not None:
            return -(-self.images // self.batch_size)
        first_per_step = self.batch_size * self._bounds[1] if self.is_always_full else Fraction(self.counts[0])
        return math.ceil(len(self.parts[0]) / first_per_step)

    def batch_spans(self, step: int) -> list[Span]:
        """Return the span of each part that the batch of a step consists of.

        Steps count from the start of training. The last batch of an epoch has the rest of the first part, and the other
        parts in proportion.
        """
        if self.is_always_full:
            return self.full_spans(step)
        epoch, step_of_epoch = divmod(step, self.steps_per_epoch)
        last_step = self.steps_per_epoch - 1
        first_count, first_size = self.counts[0], len(self.parts[0])
        done = step_of_epoch * first_count
        spans = [Span(epoch * first_size + done, min(first_count, first_size - done))]
        for count in self.counts[1:]:
            per_epoch = last_step * count + self._count_in_step(count, last_step)
            start = epoch * per_epoch + step_of_epoch * count
            spans.append(Span(start, self._count_in_step(count, step_of_epoch)))
        return spans

    def full_spans(self, step: int) -> list[Span]:
        """Return the spans of a full batch: for streams beside the main one, and for streams without passes.

        If a share of the batch is not a whole number of images, counts differ between steps by an image or two, but not
        on average.
        """
        starts, ends = self._counts_before(step), self._counts_before(step + 1)
        return [Span(start, end - start) for start, end in zip(starts, ends, strict=True)]

    def _counts_before(self, step: int) -> list[int]:
        """Return the number of images of each part in all steps before `step`, if every batch is full."""
        bounds = [int(step * self.batch_size * bound) for bound in self._bounds]
        return [end - start for start, end in itertools.pairwise(bounds)]

    @functools.cached_property
    def _bounds(self) -> list[Fraction]:
        """Cumulative shares of the parts, from 0 to 1; fractions, because rounding must not shift any position."""
        shares = [Fraction(part.share).limit_denominator(10_000) for part in self.parts]
        ends = list(itertools.accumulate(shares, initial=Fraction(0)))
        return [end / ends[-1] for end in ends]

    def _count_in_step(self, count: int, step_of_epoch: int) -> int:
        """Return a part's number of images in a batch: `count`, or in the last batch of an epoch in proportion."""
        full, left = self.counts[0], len(self.parts[0]) - step_of_epoch * self.counts[0]
        return count if left >= full else round(count * left / full)


class Key(NamedTuple):
    """Key of an example for the loader: its stream, its row and the pass in which it is read."""

    stream: str
    part: int
    row: int  # of the part
    pass_number: int  # (row, pass_number) is unique within a part; with replacement the position in the order


class BatchPlan:
    """Plan of the examples that one process reads at each step, and of the process's weight in the step."""

    def __init__(
        self, streams: Mapping[str, Stream], seed: int, rank: int = 0, world: int = 1, stage: int = 0, at_least: int = 2
    ) -> None:
        """stage: number of the stage, 0 for the last; stages draw independently. at_least: examples a process needs."""
        self.streams, self.seed, self.rank, self.world = streams, seed, rank, world
        self.stage = (stage,) if stage else ()  # end of all keys of random draws
        self.at_least = at_least
        self.steps_per_epoch = streams[MAIN].steps_per_epoch
        self.orders: dict[str, list[Order]] = {}
        for name, stream in streams.items():
            keys = [(seed, self.stream_number(name), number, *self.stage) for number in range(len(stream.parts))]
            self.orders[name] = [part.order(key) for part, key in zip(stream.parts, keys, strict=True)]

    def stream_number(self, name: str) -> int:
        """Return the number of a stream: streams draw independently even if they share a source."""
        return list(self.streams).index(name)

    def keys(self, step: int) -> list[Key]:
        """Return this process's keys at a step: its slice of every part, so that all ranks see the same mixture."""
        step_keys: list[Key] = []
        for name, stream in self.streams.items():
            spans = stream.batch_spans(step) if name == MAIN else stream.full_spans(step)
            keys: list[Key] = []
            for part, span in enumerate(spans):
                start, count = self._own_span(span)
                rows, passes = self.orders[name][part].read(start, count)
                keys += [Key(name, part, *example) for example in zip(rows.tolist(), passes.tolist(), strict=True)]
            is_mixed = len(spans) > 1 and not stream.apart
            step_keys += self._mix(keys, name, step) if is_mixed else keys
        return step_keys

    def _own_span(self, span: Span) -> Span:
        """Return the slice of a span that this process reads; the first processes get the remainder, one each."""
        each, remainder = divmod(span.length, self.world)
        start = span.start + self.rank * each + min(self.rank, remainder)
        return Span(start, each + (self.rank < remainder))

    def _mix(self, keys: list[Key], name: str, step: int) -> list[Key]:
        """Shuffle the parts of a batch, so that a slice of the batch has images of all parts."""
        seed = [self.seed, self.stream_number(name), step, self.rank, 0xA1, *self.stage]
        return [keys[position] for position in np.random.default_rng(seed).permutation(len(keys))]

    def sizes(self, step: int) -> list[int]:
        """Count the main stream's examples of each process at a step."""
        sizes = np.zeros(self.world, dtype=np.int64)
        for span in self.streams[MAIN].batch_spans(step):
            each, remainder = divmod(span.length, self.world)
            sizes += each + (np.arange(self.world) < remainder)
        return sizes.tolist()

    def weight(self, step: int) -> float:
        """Return this process's share of the step's main examples, times the number of processes (mean: 1)."""
        sizes = self.sizes(step)
        return sizes[self.rank] * self.world / sum(sizes)

    def is_usable(self, step: int) -> bool:
        """Return True if every process gets enough examples, for example for batch statistics.

        Only the last step of an epoch may have too few examples, or may not be full as `drop_last` demands; then all
        processes skip it.
        """
        main, sizes = self.streams[MAIN], self.sizes(step)
        is_dropped = main.drop_last and sum(sizes) < main.batch_size
        return min(sizes) >= self.at_least and not is_dropped

    def next_usable(self, step: int) -> int:
        """Return the next usable step."""
        return step + 1 if self.is_usable(step + 1) else step + 2


class InOrder:
    """Plan that reads each example of one stream once, in order: a process gets every `world`-th, `size` at a time."""

    def __init__(self, stream: Stream, size: int, rank: int = 0, world: int = 1) -> None:
        self.streams, self.seed, self.stage = {MAIN: stream}, 0, ()
        self.ends = np.cumsum([len(part) for part in stream.parts])
        self.size, self.rank, self.world = size, rank, world

    def __len__(self) -> int:
        return -(-len(self.positions(self.rank)) // self.size)

    def positions(self, rank: int) -> range:
        """Return the positions that a process reads, in the examples of all parts one after the other."""
        return range(rank, int(self.ends[-1]), self.world)

    def stream_number(self, name: str) -> int:
        """Return 0, the number of the only stream."""
        return 0

    def keys(self, step: int) -> list[Key]:
        """Return the keys of this process at a step."""
        positions = np.array(self.positions(self.rank)[step * self.size : (step + 1) * self.size])
        parts = np.searchsorted(self.ends, positions, side="right")
        rows = positions - np.array([0, *self.ends])[parts]
        return [Key(MAIN, part, row, 0) for part, row in zip(parts.tolist(), rows.tolist(), strict=True)]

    def is_usable(self, step: int) -> bool:
        """Return True: every step is usable."""
        return True

    def next_usable(self, step: int) -> int:
        """Return the next step."""
        return step + 1
