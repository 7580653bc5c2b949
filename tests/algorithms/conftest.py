"""Algorithms as the engine makes them, on one CPU process."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch

from biasbed import algorithms
from biasbed.algorithms.base import Algorithm, Setup
from biasbed.batch import Batch
from biasbed.distributed import Group
from biasbed.networks import build
from biasbed.precision import Precision
from biasbed.settings import build as build_settings
from biasbed.tasks import MultiClass

MakeAlgorithm = Callable[..., Algorithm]

# Small convolutions: threads that wait for each other on a busy machine take longer than they save.
torch.set_num_threads(1)


@pytest.fixture
def make_algorithm() -> MakeAlgorithm:
    """`make(name, hparams, backbone=, precision=, seed=, accumulate=)` -> a started algorithm with 5 classes."""

    def make(
        name: str,
        hparams: dict[str, Any] | None = None,
        backbone: str = "timm:test_resnet",
        precision: str = "fp32",
        seed: int = 0,
        accumulate: int = 1,
    ) -> Algorithm:
        cls = algorithms.load(name)
        group = Group()
        group.seed(seed)
        setup = Setup(
            num_classes=5,
            task=MultiClass(),
            network=lambda: build(backbone, 5),
            optimizer=functools.partial(torch.optim.SGD, lr=0.01, momentum=0.9),
            group=group,
            precision=Precision(precision),
            accumulate=accumulate,
        )
        algorithm = cls(build_settings(cls.HParams, hparams or {}), setup)
        algorithm.start()
        return algorithm

    return make


@pytest.fixture
def batch() -> Batch:
    """Eight images of 40 pixels, of which one is constant."""
    generator = torch.Generator().manual_seed(7)
    x = torch.rand(8, 3, 40, 40, generator=generator)
    x[3] = 0.5
    return Batch(x, torch.arange(8) % 5)
