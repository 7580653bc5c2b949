"""Analyses without what takes longest."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest

from biasbed.analysis.statistics import bayesian, pairwise, per_set, planner
from biasbed.analysis.statistics.friedman import RankTests


def draw_few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulations take most of an analysis of few runs; where their numbers are not the subject, coarse ones do."""
    draws = ((planner, "SIMULATIONS"), (planner, "RATE_SIMULATIONS"), (per_set, "PERMUTATIONS"), (bayesian, "SAMPLES"))
    for module, name in draws:
        monkeypatch.setattr(module, name, 200)


Begin = Callable[..., AbstractContextManager[pairwise.Computing]]


def without_sizes(computing: Begin) -> Begin:
    """`pairwise.computing` as where nothing could be tested over sets: all frames, and those over sets empty."""

    def begin(comparisons: tuple[RankTests, ...], *rest: object) -> AbstractContextManager[pairwise.Computing]:
        skipped = [dataclasses.replace(comparison, skipped="a test does without") for comparison in comparisons]
        return computing(skipped, *rest)

    return begin
