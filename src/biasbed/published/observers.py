"""Published observers of cue conflicts (Geirhos et al., ICLR 2019): decisions for shape and texture by category.

The counts are of the decisions that the authors released (github.com/rgeirhos/texture-vs-shape): trials on images
whose cues conflict, by the category of the shape. The observers are ten people, each of whom saw an image once, and
networks that were trained on ImageNet.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from biasbed import measures

FILE = Path(__file__).parent / "shape_bias_observers.csv"
CITATION = "Geirhos et al. 2019"
KNOWN = ("alexnet", "vgg16", "googlenet_caffe", "resnet50")  # the networks of the paper's figure 4


@dataclass(frozen=True)
class PublishedObserver:
    """Numbers of an observer's decisions."""

    name: str
    counts: Mapping[str, tuple[int, int]]  # category of the shape -> (decisions for shape, for texture)

    @property
    def is_human(self) -> bool:
        return self.name.startswith("subject-")

    @property
    def shape_bias(self) -> float:
        """Shape bias over the decisions in all categories."""
        return measures.shape_bias(*map(sum, zip(*self.counts.values(), strict=True)))

    @property
    def interval(self) -> tuple[float, float]:
        """Confidence interval of the shape bias (Wilson, 95 %), over the decisions for either cue."""
        shape, texture = map(sum, zip(*self.counts.values(), strict=True))
        return measures.wilson(shape, shape + texture, 0.95)


@cache
def observers() -> tuple[PublishedObserver, ...]:
    """Return all observers, people first, then by name."""
    counts: dict[str, dict[str, tuple[int, int]]] = {}
    with FILE.open(newline="") as file:
        for row in csv.DictReader(file):
            counts.setdefault(row["observer"], {})[row["category"]] = int(row["shape"]), int(row["texture"])
    published = [PublishedObserver(name, by_category) for name, by_category in counts.items()]
    return tuple(sorted(published, key=lambda observer: (not observer.is_human, observer.name)))


def categories() -> frozenset[str]:
    """Return the 16 categories that the observers chose from."""
    return frozenset(observers()[0].counts)


def pooled(name: str, members: Sequence[PublishedObserver]) -> PublishedObserver:
    """Return the sum of several observers as one observer."""
    counts = {}
    for category in members[0].counts:
        shape, texture = zip(*(member.counts[category] for member in members), strict=True)
        counts[category] = sum(shape), sum(texture)
    return PublishedObserver(name, counts)


def people() -> tuple[PublishedObserver, ...]:
    """Return the human observers."""
    return tuple(observer for observer in observers() if observer.is_human)
