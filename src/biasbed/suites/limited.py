"""A suite on a part of its images, of any suite: `limit=200` takes at most 200 of each set, to see whether all works.

Which images these are follows from their ids alone, so that all trainings see the same ones, whatever their seeds, and
copies that have their originals' names those of the same originals.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache, partial

import numpy as np

from biasbed import limits, record
from biasbed.data.source import Source
from biasbed.errors import UsageError
from biasbed.suites.sets import EvaluationSet
from biasbed.suites.suite import OpenSuite


def limited(suite: OpenSuite, most: int) -> OpenSuite:
    """The suite with at most so many images of every set and of all training data.

    UsageError where a set has more groups or conditions that are reported one by one.
    """
    drawn = {id(entry): _set(entry, most) for entry in dict.fromkeys((*suite.validation, *suite.sets))}
    own = suite.training.get(suite.train_name)
    found = replace(
        suite,
        training={name: cache(partial(_opened, opened, most)) for name, opened in suite.training.items()},
        unsplit=suite.unsplit or own,  # what is prepared is prepared of all images
        validation=tuple(drawn[id(entry)] for entry in suite.validation),
        sets=tuple(drawn[id(entry)] for entry in suite.sets),
        fingerprint=record.digest([suite.fingerprint, most]),
        limit=most,
        files={},  # of all images
        remarks=(*suite.remarks, limits.note(most)),
    )
    return found if suite.recount is None else replace(found, counts=suite.recount(found))


def _opened(opened: Callable[[], Source], most: int) -> Source:
    return few(opened(), most)


def _set(entry: EvaluationSet, most: int) -> EvaluationSet:
    return replace(entry, source=few(entry.source, most, "the set "))


def few(source: Source, most: int, what: str = "") -> Source:
    """At most so many images of a source, in its order: equal numbers of every condition, domain and class.

    Within a class groups and biases keep their shares, but each group is there. UsageError where that takes more.
    """
    if len(source) <= most:
        return source
    reported = _cells(len(source), source.condition, _codes(source.group))
    least = len(np.unique(reported))
    if least > most:
        raise UsageError(f"limit={most}: {what}'{source.name}' is reported by {least} groups or conditions; give more")
    order = np.argsort(_keys(source), kind="stable")
    levels = [source.condition, source.domain, _labels(source.y)]
    order = _sorted(order, np.minimum(1, _ranks(_cells(len(source), *levels, _kinds(source))[order])))
    for depth in range(len(levels), 0, -1):
        order = _sorted(order, _ranks(_cells(len(source), *levels[:depth])[order]))
    order = _sorted(order, np.minimum(1, _ranks(reported[order])))
    return source.subset(np.sort(order[:most]), source.name)


def _sorted(order: np.ndarray, by: np.ndarray) -> np.ndarray:
    found: np.ndarray = order[np.argsort(by, kind="stable")]
    return found


def _ranks(cells: np.ndarray) -> np.ndarray:
    """[N] the how-manieth of its cell each place is."""
    by = np.argsort(cells, kind="stable")
    _, sizes = np.unique(cells, return_counts=True)
    found = np.empty(len(cells), dtype=np.int64)
    found[by] = np.arange(len(cells)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return found


def _cells(size: int, *levels: np.ndarray | None) -> np.ndarray:
    """[N] number of each image's combination of columns, of those that are there."""
    found = np.zeros(size, dtype=np.int64)
    for level in levels:
        if level is not None:
            found = np.unique(found * (int(level.max()) + 1) + level, return_inverse=True)[1]
    return found


def _labels(y: np.ndarray) -> np.ndarray:
    """[N] class of each image; of several labels the rarest, so that few images show many labels."""
    if y.ndim == 1:
        return y
    has = y > 0
    rarest: np.ndarray = np.where(has, has.sum(axis=0), len(y) + 1).argmin(axis=1)
    return rarest


def _kinds(source: Source) -> np.ndarray | None:
    """[N] what tells images of one class apart: their group, else whether the bias suggests the class."""
    if source.group is not None or source.bias is None or source.y.ndim > 1:
        return _codes(source.group)
    return (source.bias == source.y).astype(np.int64)


def _codes(names: np.ndarray | None) -> np.ndarray | None:
    return None if names is None else np.unique(np.asarray(names, dtype=str), return_inverse=True)[1]


def _keys(source: Source) -> np.ndarray:
    """[N] uint64 that look random, of the images' ids without what they are saved as."""

    def digests() -> Iterator[bytes]:
        for name in source.ids:
            yield hashlib.blake2b((name.rpartition(".")[0] or name).encode(), digest_size=8).digest()

    return np.frombuffer(b"".join(digests()), dtype="<u8")
