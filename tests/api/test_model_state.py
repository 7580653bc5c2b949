"""A model that is tested is as before, also after an exception or Ctrl-C."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import biasbed
from biasbed.api import model_state
from biasbed.datasets.digits import CLASSES
from helpers.runs import timeless

OPTIONS: dict[str, Any] = {
    "suite": "demo",
    "sets": ["edge"],
    "limit": 20,
    "image_size": 16,
    "workers": 0,
    "quiet": True,
}


def make_network() -> nn.Module:
    """Return a network in training mode, with one layer in evaluation mode."""
    torch.manual_seed(1)
    layers = nn.AdaptiveAvgPool2d(8), nn.Flatten(), nn.BatchNorm1d(192), nn.Dropout(0.5), nn.Linear(192, 10)
    network = nn.Sequential(*layers)
    network[-1].eval()
    return network


def read_state(network: nn.Module) -> list[Any]:
    """Return everything that a test of the network is to leave as it is."""
    modes = [module.training for module in network.modules()]
    weights = [tensor.tolist() for tensor in network.state_dict().values()]
    return [modes, weights, torch.get_rng_state().tolist(), repr(np.random.get_state()), random.getstate()]


def test_a_model_is_as_it_was_after_a_test_that_ends_and_one_that_does_not() -> None:
    network = make_network()
    before = read_state(network)

    def work(error: type[BaseException] | None) -> None:
        with model_state.unchanged(network, torch.device("cpu")):
            assert not any(module.training for module in network.modules())
            torch.rand(1), np.random.rand(), random.random()
            if error is not None:
                raise error

    work(None)
    assert read_state(network) == before
    with pytest.raises(KeyboardInterrupt):
        work(KeyboardInterrupt)
    assert read_state(network) == before


def test_an_interrupted_evaluator_tests_the_next_model_right() -> None:
    network, calls = make_network(), []
    expected = timeless(biasbed.evaluate(network, classes=CLASSES, **OPTIONS).values)
    evaluator = biasbed.Evaluator(classes=CLASSES, batch_size=2, **OPTIONS)

    def predict(x: Tensor) -> Tensor:
        calls.append(x)
        if len(calls) == 5:
            raise KeyboardInterrupt
        return torch.zeros(len(x), 10)

    with pytest.raises(KeyboardInterrupt):
        evaluator(predict)
    assert timeless(evaluator(network).values) == pytest.approx(expected)
