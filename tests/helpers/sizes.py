"""Analyses without what takes longest."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from biasbed.analysis.statistics import pairwise
from biasbed.analysis.statistics.friedman import RankTests


def without_sizes(gather: Callable[..., pairwise.PairwiseResults]) -> Callable[..., pairwise.PairwiseResults]:
    """`evidence.gather` as where nothing could be tested over sets: all frames, and those over sets empty."""

    def gathered(comparisons: tuple[RankTests, ...], *rest: object) -> pairwise.PairwiseResults:
        skipped = [dataclasses.replace(comparison, skipped="a test does without") for comparison in comparisons]
        return gather(skipped, *rest)

    return gathered
