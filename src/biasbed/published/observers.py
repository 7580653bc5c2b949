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
from typing import NamedTuple

from biasbed import measures

FILE = Path(__file__).parent / "shape_bias_observers.csv"
CITATION = "Geirhos et al. 2019"
KNOWN = ("alexnet", "vgg16", "googlenet_caffe", "resnet50")  # the networks of the paper's figure 4


class CueDecisions(NamedTuple):
    """Numbers of decisions for either cue."""

    shape: int
    texture: int


@dataclass(frozen=True)
class PublishedObserver:
    """Observer with the numbers of decisions for shape and texture."""

    name: str
    counts: Mapping[str, CueDecisions]  # by category of the shape

    @property
    def is_human(self) -> bool:
        return self.name.startswith("subject-")

    @property
    def total(self) -> CueDecisions:
        """Decisions in all categories together."""
        shape = sum(counts.shape for counts in self.counts.values())
        texture = sum(counts.texture for counts in self.counts.values())
        return CueDecisions(shape, texture)

    @property
    def shape_bias(self) -> float:
        """Shape bias over the decisions in all categories."""
        return measures.shape_bias(*self.total)

    @property
    def interval(self) -> tuple[float, float]:
        """Confidence interval of the shape bias (Wilson, 95 %), over the decisions for either cue."""
        return measures.wilson(self.total.shape, sum(self.total), 0.95)


@cache
def observers() -> tuple[PublishedObserver, ...]:
    """Return all observers, people first, then by name."""
    counts: dict[str, dict[str, CueDecisions]] = {}
    with FILE.open(newline="") as file:
        for row in csv.DictReader(file):
            decisions = CueDecisions(int(row["shape"]), int(row["texture"]))
            counts.setdefault(row["observer"], {})[row["category"]] = decisions
    published = [PublishedObserver(name, by_category) for name, by_category in counts.items()]
    return tuple(sorted(published, key=lambda observer: (not observer.is_human, observer.name)))


def categories() -> frozenset[str]:
    """Return the 16 categories that the observers chose from."""
    return frozenset(observers()[0].counts)


def pooled(name: str, members: Sequence[PublishedObserver]) -> PublishedObserver:
    """Return the sum of several observers as one observer."""
    counts = {}
    for category in members[0].counts:
        of_members = [member.counts[category] for member in members]
        shape = sum(decisions.shape for decisions in of_members)
        counts[category] = CueDecisions(shape, sum(decisions.texture for decisions in of_members))
    return PublishedObserver(name, counts)


def people() -> tuple[PublishedObserver, ...]:
    """Return the human observers."""
    return tuple(observer for observer in observers() if observer.is_human)
