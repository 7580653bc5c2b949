"""Analyses without what takes longest."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from biasbed.analysis.statistics import bayesian, per_set, planner
from biasbed.analysis.statistics.friedman import RankTests
from biasbed.analysis.statistics.pairwise import PairwiseResults


def draw_few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulations take most of an analysis of few runs; where their numbers are not the subject, coarse ones do."""
    draws = ((planner, "SIMULATIONS"), (planner, "RATE_SIMULATIONS"), (per_set, "PERMUTATIONS"), (bayesian, "SAMPLES"))
    for module, name in draws:
        monkeypatch.setattr(module, name, 200)


def without_sizes(comparisons: tuple[RankTests, ...], *rest: Any) -> PairwiseResults:
    """Return `PairwiseResults` as where nothing could be tested over sets: all frames, and those over sets empty."""
    skipped = [dataclasses.replace(comparison, skipped="a test does without") for comparison in comparisons]
    return PairwiseResults(skipped, *rest)
