"""A model that is tested is as before: in threads, after exceptions, and after Ctrl-C at any moment."""

from __future__ import annotations

import os
import random
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn
from torchvision.transforms import v2

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


def test_threads_that_test_one_model_get_its_numbers_and_leave_it_as_it_was() -> None:
    network = make_network()
    before = read_state(network)
    expected = timeless(biasbed.evaluate(network, classes=CLASSES, **OPTIONS).values)
    evaluator = biasbed.Evaluator(classes=CLASSES, **OPTIONS)
    results: list[bool] = []

    def run(test: Callable[[nn.Module], biasbed.Card]) -> None:
        results.append(timeless(test(network).values) == expected)

    def evaluate(model: nn.Module) -> biasbed.Card:
        return biasbed.evaluate(model, classes=CLASSES, **OPTIONS)

    threads = [threading.Thread(target=run, args=(test,)) for test in (evaluate, evaluator) * 2]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [True] * 4
    assert read_state(network) == before


def add_to_weight(network: nn.Module) -> None:
    network[-1].weight.data.add_(1)


def take_step(network: nn.Module) -> None:
    for tensor in network.parameters():
        tensor.grad = torch.ones_like(tensor)
    torch.optim.Adam(network.parameters(), 0.1).step()


@pytest.mark.parametrize("change", [nn.Module.train, add_to_weight, take_step])
def test_a_model_that_changes_while_it_is_tested_is_refused(change: Callable[[nn.Module], object]) -> None:
    network = make_network()
    modes = read_state(network)[0]
    calls = []

    def transform(image: Image.Image) -> Tensor:
        calls.append(image)
        if len(calls) == 10:  # the model was tried with the first
            with torch.inference_mode(False):
                change(network)
        return v2.functional.pil_to_tensor(image)

    with pytest.raises(biasbed.UsageError, match="mode or weights changed while it was tested"):
        biasbed.evaluate(network, classes=CLASSES, transform=transform, **OPTIONS)
    assert read_state(network)[0] == modes


def test_a_model_that_changes_its_outputs_is_refused() -> None:
    calls = []

    def predict(x: Tensor) -> Tensor:
        calls.append(x)
        return torch.zeros(len(x), 10 if len(calls) < 5 else 9)

    with pytest.raises(biasbed.UsageError, match="the model returns 9 outputs, and before it returned 10"):
        biasbed.evaluate(predict, classes=CLASSES, batch_size=2, **OPTIONS)


def interrupt_at(number: int) -> Callable[[FrameType, str, Any], Any]:
    """Return a trace function that presses Ctrl-C at a line of `model_state`, counted as lines run."""
    count = 0

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal count
        if frame.f_code.co_filename != model_state.__file__:
            return None
        if event == "line":
            count += 1
            if count == number:
                signal.raise_signal(signal.SIGINT)
        return trace

    return trace


def test_ctrl_c_at_any_line_leaves_the_model_as_it_was() -> None:
    network = make_network()
    before, handler, tracer = read_state(network), signal.getsignal(signal.SIGINT), sys.gettrace()

    def work() -> None:
        torch.rand(1), np.random.rand(), random.random()

    interrupted = 0
    while interrupted < 1000:
        sys.settrace(interrupt_at(interrupted + 1))
        try:
            model_state.run_unchanged(network, torch.device("cpu"), work)
            is_over = True
        except KeyboardInterrupt:
            is_over = False
        finally:
            sys.settrace(tracer)
        assert read_state(network) == before
        assert signal.getsignal(signal.SIGINT) is handler
        if is_over:
            break
        interrupted += 1
    assert 30 < interrupted < 1000


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


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_an_evaluator_of_a_parent_process_is_refused() -> None:
    evaluator = biasbed.Evaluator(classes=CLASSES, **OPTIONS)
    child = os.fork()
    if not child:
        try:
            evaluator(make_network())
            os._exit(0)
        except biasbed.UsageError as error:
            os._exit(3 if "was made in another process" in str(error) else 4)
        finally:
            os._exit(5)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
