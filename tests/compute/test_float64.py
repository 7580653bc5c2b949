"""A method in float64 stays it: losses, gradients averaged over processes, weights, decisions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from biasbed.compute.distributed import Group
from biasbed.compute.precision import Precision
from biasbed.data.source import MemorySource
from biasbed.data.transforms import SquareResize
from biasbed.evaluation.evaluator import Evaluator
from biasbed.suites.sets import EvaluationSet
from helpers.making import batch_for, make
from helpers.ranks import gradients, in_two_processes

METHODS = ("helpers.double:Losses", "helpers.double:Gradients")
ROUNDING = 1e-13  # relative; what fp32 anywhere on the way would leave is 1e-8


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    return in_two_processes(METHODS, tmp_path_factory.mktemp("ranks"))


@pytest.mark.parametrize("name", METHODS)
def test_one_process(name: str) -> None:
    algorithm = make(name)
    terms = algorithm.update(batch_for(algorithm))
    assert {value.dtype for value in terms.values()} == {torch.float64}
    assert {value.dtype for value in algorithm.state_dict().values()} == {torch.float64}
    for values in gradients(algorithm, batch_for(algorithm)).values():
        assert {value.dtype for value in values} == {torch.float64}


@pytest.mark.parametrize("name", METHODS)
def test_two_processes_average_in_float64(name: str, ranks: list[dict[str, Any]]) -> None:
    """The mean of two halves' gradients is the whole's, to rounding in float64; and so are the weights after a step."""
    algorithm = make(name)
    whole = gradients(algorithm, batch_for(algorithm))
    algorithm = make(name)
    algorithm.update(batch_for(algorithm))
    for rank in ranks:
        for optimizer, values in whole.items():
            for mine, theirs in zip(values, rank[name]["gradients"][optimizer], strict=True):
                assert theirs.dtype == torch.float64
                torch.testing.assert_close(theirs, mine, rtol=ROUNDING, atol=1e-15)
        for key, value in algorithm.named_parameters():
            torch.testing.assert_close(rank[name]["weights"][key], value.detach(), rtol=ROUNDING, atol=1e-15)


def test_decisions_are_made_of_what_the_network_gives() -> None:
    """Two logits that differ by less than fp32 can tell; the second is larger."""
    source = MemorySource(
        name="set",
        classes=("a", "b"),
        y=np.array([0, 1, 1]),
        ids=["1", "2", "3"],
        images=np.zeros((3, 3, 8, 8), dtype=np.uint8),
    )
    evaluator = Evaluator(
        [EvaluationSet("set", source, SquareResize(8))], Group(), Precision(), 2, 0, skip_corrupt=False
    )
    logits = torch.tensor([1.0, 1.0 + 1e-12], dtype=torch.float64)
    found = evaluator.decide(lambda x: logits.expand(len(x), 2))
    assert found is not None
    assert found["set"].decision.tolist() == ["b", "b", "b"]
    assert found["set"].loss is not None
    assert found["set"].loss.dtype == np.float64
    assert found["set"].loss[0] - found["set"].loss[1] == pytest.approx(1e-12, rel=1e-3)
