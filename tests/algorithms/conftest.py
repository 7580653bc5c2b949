"""Algorithms as the engine makes them, on one CPU process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from biasbed.algorithms.base import Algorithm
from biasbed.batch import Batch
from helpers import grouped, making

MakeAlgorithm = Callable[..., Algorithm]


@pytest.fixture
def make_algorithm() -> MakeAlgorithm:
    """`make(name, hparams, backbone=, precision=, seed=, accumulate=)` -> a started algorithm with 5 classes."""

    def make(name: str, hparams: dict[str, Any] | None = None, **named: Any) -> Algorithm:
        return making.make(name, hparams or {}, **{"backbone": "timm:test_resnet", **named})

    return make


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """`trained(*words)`: the run folder of a training on the biased toy data, made once for these words."""
    return grouped.trainer(tmp_path_factory)


@pytest.fixture
def batch() -> Batch:
    """Return eight images of 40 pixels, of which one is constant."""
    generator = torch.Generator().manual_seed(7)
    x = torch.rand(8, 3, 40, 40, generator=generator)
    x[3] = 0.5
    return Batch(x, torch.arange(8) % 5)
