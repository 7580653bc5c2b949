"""torch.compile: a method's losses are one function of tensors, compiled in the first step and in no other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import torch

from biasbed import algorithms
from biasbed.algorithms.base import Algorithm, Progress
from biasbed.networks import compilation
from helpers.making import BUSY, batch_for, make

STEPS = 4
# Past the stretch in which a method trains without its own term.
WARM: Mapping[str, Mapping[str, Any]] = {name: {"warmup": 0.0} for name in ("disent", "hex", "biasensemble")}
# What alone may break a method's graph; its page in docs/methods says why.
BREAKS: Mapping[str, str] = {"infodrop": "Generator", "fast_adversarial": "torch.autograd.grad"}
QUICK = ("mixup",)


class Counting:
    """A backend that counts graphs, and runs them as they are."""

    def __init__(self) -> None:
        self.graphs = 0

    def __call__(self, graph: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> Any:
        self.graphs += 1
        return graph.forward


def graphs_of_steps(algorithm: Algorithm, backend: Counting) -> list[int]:
    """Return how many graphs each step compiles. Nobody takes the notes in between, which must not matter."""
    batch, counts = batch_for(algorithm), []
    for number in range(STEPS):
        algorithm.progress = Progress("main", 0, 8, number, STEPS, 1 - number / 8)
        before = backend.graphs
        algorithm.update(batch)
        counts.append(backend.graphs - before)
    return counts


def check(name: str) -> None:
    """Compile the networks of a method and, where it has nothing but `losses`, these."""
    import torch._dynamo as dynamo
    from torch._dynamo.utils import counters

    hparams = {**BUSY.get(name, {}), **WARM.get(name, {})}
    for what in ("networks", "losses"):
        dynamo.reset()
        counters.clear()
        algorithm, backend = make(name, hparams), Counting()
        if what == "losses":
            if type(algorithm).update is not Algorithm.update:
                return  # steps several optimizers by hand: there is no function to compile
            algorithm.losses = torch.compile(algorithm.losses, backend=backend)  # type: ignore[method-assign]
        else:
            compilation.compile_networks(algorithm, backend)
        first, *later = graphs_of_steps(algorithm, backend)
        assert first > 0, what
        assert sum(later) == 0, (what, later, counters["graph_break"])
        others = [reason for reason in counters["graph_break"] if name not in BREAKS or BREAKS[name] not in reason]
        assert not others, what


@pytest.mark.parametrize("name", QUICK)
def test_a_step_compiles_once(name: str) -> None:
    check(name)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in algorithms.names() if name not in QUICK])
def test_a_step_of_every_method_compiles_once(name: str) -> None:
    check(name)
