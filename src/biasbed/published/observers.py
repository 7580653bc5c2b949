"""People and networks on the cue conflicts of Geirhos et al. (ICLR 2019): for which cue each decided, by category.

Counted from the decisions that the authors have released (github.com/rgeirhos/texture-vs-shape): trials on images
whose cues conflict, by the category of the shape; ten people, each of whom saw an image once, and networks that were
trained on ImageNet.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from biasbed import measures

FILE = Path(__file__).parent / "shape_bias_observers.csv"
HUMANS, PUBLISHED = "humans", "published"  # words for the people, and for everybody
CITATION = "Geirhos et al. 2019"
KNOWN = ("alexnet", "vgg16", "googlenet_caffe", "resnet50")  # the networks of the paper's figure 4


@dataclass(frozen=True)
class PublishedObserver:
    """Somebody's decisions, counted."""

    name: str
    counts: Mapping[str, tuple[int, int]]  # category of the shape -> decisions for the shape, for the texture

    @property
    def is_human(self) -> bool:
        return self.name.startswith("subject-")

    @property
    def shape_bias(self) -> float:
        """Over all categories, each decision counting alike."""
        return measures.shape_bias(*map(sum, zip(*self.counts.values(), strict=True)))

    @property
    def interval(self) -> tuple[float, float]:
        """Wilson's, 95 %, over the decisions for either cue."""
        shape, texture = map(sum, zip(*self.counts.values(), strict=True))
        return measures.wilson(shape, shape + texture, 0.95)


@cache
def observers() -> tuple[PublishedObserver, ...]:
    """Everybody, people first."""
    found: dict[str, dict[str, tuple[int, int]]] = {}
    with FILE.open(newline="") as file:
        for row in csv.DictReader(file):
            found.setdefault(row["observer"], {})[row["category"]] = int(row["shape"]), int(row["texture"])
    every = [PublishedObserver(name, counts) for name, counts in found.items()]
    return tuple(sorted(every, key=lambda one: (not one.is_human, one.name)))


def categories() -> frozenset[str]:
    """The 16 that they decided among."""
    return frozenset(observers()[0].counts)


def pooled(name: str, of: Sequence[PublishedObserver]) -> PublishedObserver:
    """Several observers as one."""
    counts = {
        category: (sum(one.counts[category][0] for one in of), sum(one.counts[category][1] for one in of))
        for category in of[0].counts
    }
    return PublishedObserver(name, counts)


def chosen(words: Sequence[str]) -> tuple[PublishedObserver, ...]:
    """Those that words of `compare=` stand for."""
    if PUBLISHED in words:
        return observers()
    return tuple(one for one in observers() if one.is_human) if HUMANS in words else ()
