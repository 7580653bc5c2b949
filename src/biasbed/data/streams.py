"""In which order training reads its examples: a function of (seed, epoch), the same for any number of processes."""

from __future__ import annotations

import functools
import os
import signal
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Sampler

from biasbed.batch import Batch
from biasbed.data.source import CorruptImage, Source
from biasbed.data.transforms import Transform, keyed_randomness
from biasbed.processes import die_with_parent

MAIN = "main"  # the stream that is the batch itself; others are its `extra`


@dataclass(frozen=True, eq=False)
class Part:
    """One source within a stream and its share of each batch."""

    source: Source
    share: float
    transform: Transform


@dataclass(frozen=True, eq=False)
class Stream:
    """Batches drawn from one or several sources. The first source sets the length of an epoch: one pass over it.

    The others are read round and round, reshuffled with each pass, whatever their size.
    """

    parts: tuple[Part, ...]
    batch_size: int  # over all processes
    views: int = 1

    @property
    def counts(self) -> tuple[int, ...]:
        """Images of each part in a full batch; the first part takes what rounding leaves."""
        rest = [round(self.batch_size * part.share) for part in self.parts[1:]]
        return (self.batch_size - sum(rest), *rest)

    @property
    def steps_per_epoch(self) -> int:
        return -(-len(self.parts[0].source) // self.counts[0])

    def batch_positions(self, step: int) -> list[tuple[int, int]]:
        """(start, count) of each part in the batch of a step, in the endless sequence of passes over that part.

        Steps count from the start of training. The last batch of an epoch has the rest of the first source, and of the
        others in proportion.
        """
        epoch, within = divmod(step, self.steps_per_epoch)
        full, size = self.counts[0], len(self.parts[0].source)
        found = [(epoch * size + within * full, min(full, size - within * full))]
        for count in self.counts[1:]:
            per_epoch = sum(self._share(count, number) for number in range(self.steps_per_epoch))
            found.append((epoch * per_epoch + within * count, self._share(count, within)))
        return found

    def endless_positions(self, step: int) -> list[tuple[int, int]]:
        """The same for a full batch, whatever the step: for streams beside the main one."""
        return [(step * count, count) for count in self.counts]

    def _share(self, count: int, within: int) -> int:
        """Images of a later part in the batch at a position within the epoch."""
        full, size = self.counts[0], len(self.parts[0].source)
        return count if (within + 1) * full <= size else round(count * (size - within * full) / full)


@functools.lru_cache(maxsize=8)
def _permutation(seed: int, stream: int, part: int, number: int, size: int) -> np.ndarray:
    return np.random.default_rng([seed, stream, part, number]).permutation(size)


class Key(NamedTuple):
    """What the loader must produce: one example of one stream, in one pass over its source."""

    stream: str
    part: int
    row: int
    number: int  # of the pass


class Plan:
    """Every step's examples for one process, and that process's weight in the step."""

    def __init__(self, streams: Mapping[str, Stream], seed: int, rank: int = 0, world: int = 1) -> None:
        self.streams, self.seed, self.rank, self.world = streams, seed, rank, world
        self.steps_per_epoch = streams[MAIN].steps_per_epoch

    def keys(self, step: int) -> list[Key]:
        """This process's examples at a step: its slice of every part, so that all ranks see the same mixture."""
        found = []
        for name, stream in self.streams.items():
            positions = stream.batch_positions(step) if name == MAIN else stream.endless_positions(step)
            keys = []
            for part, (start, count) in enumerate(positions):
                own = np.array_split(np.arange(start, start + count), self.world)[self.rank]
                keys += [self._key(name, part, int(position)) for position in own]
            found += keys if len(positions) == 1 else self._mixed(keys, name, step)
        return found

    def _mixed(self, keys: list[Key], name: str, step: int) -> list[Key]:
        """Parts in one random order: what takes a slice of the batch must not take a part of it."""
        seed = [self.seed, stream_number(name, self.streams), step, self.rank, 0xA1]
        return [keys[place] for place in np.random.default_rng(seed).permutation(len(keys))]

    def _key(self, name: str, part: int, position: int) -> Key:
        size = len(self.streams[name].parts[part].source)
        number, within = divmod(position, size)
        order = _permutation(self.seed, stream_number(name, self.streams), part, number, size)
        return Key(name, part, int(order[within]), number)

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
        self.offsets = {
            name: np.cumsum([0, *(len(part.source) for part in stream.parts)]) for name, stream in streams.items()
        }

    def __getitem__(self, key: Key) -> tuple[str, dict[str, Tensor], tuple[str, ...]] | CorruptImage:
        stream = self.streams[key.stream]
        part = stream.parts[key.part]
        source, row = part.source, key.row
        skipped: list[str] = []
        while True:
            try:
                image = source.load(row)
                break
            except CorruptImage as error:
                if len(skipped) == len(source) - 1:
                    return error
                skipped.append(str(error))
                row = (row + 1) % len(source)
        first = int(self.offsets[key.stream][key.part])
        copies = []
        for view in range(stream.views):
            number = stream_number(key.stream, self.streams)
            with keyed_randomness(self.seed, number, key.number, first + key.row, view):
                copies.append(part.transform(image))
        columns = {"y": source.y[row], "index": first + row}
        columns |= {n: c[row] for n, c in (("domain", source.domain), ("bias", source.bias)) if c is not None}
        tensors = {name: torch.as_tensor(value) for name, value in columns.items()}
        tensors["x"] = copies[0] if stream.views == 1 else torch.stack(copies)
        return key.stream, tensors, tuple(skipped)


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
        columns: dict[str, Any] = {column: torch.stack([e[column] for e in examples]) for column in shared}
        batches[name] = Batch(**columns)
    main = batches.pop(MAIN)
    return replace(main, extra=batches), skipped


class Steps(Sampler[list[Key]]):
    """The keys of the steps from `start` to the end of the epoch; set `start` before each pass."""

    def __init__(self, plan: Plan, at_least: int) -> None:
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

    def __init__(self, plan: Plan, seed: int, workers: int, at_least: int, pin: bool) -> None:
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
