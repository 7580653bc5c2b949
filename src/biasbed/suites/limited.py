"""Suites on a part of their images: `limit=200` takes at most 200 of each set, for a quick trial.

Images are selected by their ids alone. All trainings see the same images, whatever their seeds, and copies that are
named like their originals are selected with them.
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
from biasbed.suites.suite import OpenSuite


def limit_images(suite: OpenSuite, most: int) -> OpenSuite:
    """Return the suite with at most `most` images of every set and of all training data.

    Raises UsageError if a set is reported by more groups or conditions than that.
    """
    sets = dict.fromkeys((*suite.validation, *suite.sets))
    part = replace(
        suite.with_sets({full: replace(full, source=select(full.source, most, "the set ")) for full in sets}),
        training={name: cache(partial(_open_part, open_source, most)) for name, open_source in suite.training.items()},
        unsplit=suite.unsplit or suite.training.get(suite.train_name),  # copies are prepared of all images
        fingerprint=record.digest([suite.fingerprint, most]),
        limit=most,
        files={},  # they describe all images
        remarks=(*suite.remarks, limits.note(most)),
    )
    return part if suite.recount is None else replace(part, counts=suite.recount(part))


def _open_part(open_source: Callable[[], Source], most: int) -> Source:
    return select(open_source(), most)


def select(source: Source, most: int, kind: str = "") -> Source:
    """Return at most `most` images of a source, in its order: equal numbers of every condition, domain and class.

    Within a class, groups and biases keep their shares, but no group is lost. Raises UsageError if `most` is too small
    for that. kind: precedes the source's name in messages.
    """
    size = len(source)
    if size <= most:
        return source
    reported = _combine(size, source.condition, _codes(source.group))
    least = len(np.unique(reported))
    if least > most:
        raise UsageError(f"limit={most}: {kind}'{source.name}' is reported by {least} groups or conditions; give more")
    order = np.argsort(_pseudorandom_keys(source), kind="stable")
    levels = [source.condition, source.domain, _classes(source.y)]
    # Rows are sorted by the least important key first. So the last key decides first: one image of each reported cell
    # comes before all others, then equal numbers at each level from the top, then one image of each kind.
    order = _sort_rows(order, np.minimum(1, _ranks(_combine(size, *levels, _kinds(source))[order])))
    for depth in range(len(levels), 0, -1):
        order = _sort_rows(order, _ranks(_combine(size, *levels[:depth])[order]))
    order = _sort_rows(order, np.minimum(1, _ranks(reported[order])))
    return source.subset(np.sort(order[:most]), source.name)


def _sort_rows(rows: np.ndarray, keys: np.ndarray) -> np.ndarray:
    """Return rows [N] sorted by their keys [N]; rows with equal keys keep their order."""
    ordered: np.ndarray = rows[np.argsort(keys, kind="stable")]
    return ordered


def _ranks(cells: np.ndarray) -> np.ndarray:
    """Return the rank of each position within its cell [N], from 0: 0, 0, 1, 2, 1 for the cells 7, 4, 7, 7, 4."""
    order = np.argsort(cells, kind="stable")
    _, sizes = np.unique(cells, return_counts=True)
    ranks = np.empty(len(cells), dtype=np.int64)
    ranks[order] = np.arange(len(cells)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return ranks


def _combine(size: int, *levels: np.ndarray | None) -> np.ndarray:
    """Return the number of each image's combination of levels [size]. A level that is None is ignored."""
    cells = np.zeros(size, dtype=np.int64)
    for level in levels:
        if level is not None:
            cells = np.unique(cells * (int(level.max()) + 1) + level, return_inverse=True)[1]
    return cells


def _classes(y: np.ndarray) -> np.ndarray:
    """Return the class of each image [N]; of several labels the rarest, so that few images show many labels."""
    if y.ndim == 1:
        return y
    has = y > 0
    rarest: np.ndarray = np.where(has, has.sum(axis=0), len(y) + 1).argmin(axis=1)
    return rarest


def _kinds(source: Source) -> np.ndarray | None:
    """Return the number of each image's kind within its class [N]: its group, else 1 if its bias is the class, else 0.

    None if it has neither, or several labels.
    """
    if source.group is not None or source.bias is None or source.y.ndim > 1:
        return _codes(source.group)
    return (source.bias == source.y).astype(np.int64)


def _codes(names: np.ndarray | None) -> np.ndarray | None:
    """Return names as numbers in the names' order [N]; None stays None."""
    return None if names is None else np.unique(np.asarray(names, dtype=str), return_inverse=True)[1]


def _pseudorandom_keys(source: Source) -> np.ndarray:
    """Return the hash of each image's id without its suffix [N], uint64."""

    def digests() -> Iterator[bytes]:
        for name in source.ids:
            yield hashlib.blake2b((name.rpartition(".")[0] or name).encode(), digest_size=8).digest()

    return np.frombuffer(b"".join(digests()), dtype="<u8")
