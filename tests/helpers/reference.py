"""A training written out plainly, to compare the engine with: halves of each batch in turn, gradients averaged."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import torch

from biasbed.algorithms.base import TrainData
from biasbed.algorithms.make import make_algorithm
from biasbed.algorithms.requests import StreamRequest
from biasbed.batch import MAIN
from biasbed.compute.distributed import Group
from biasbed.compute.optim import rate_factor
from biasbed.compute.precision import Precision
from biasbed.data.loading import TrainLoader
from biasbed.data.streams import BatchPlan
from biasbed.training import job
from biasbed.training.reading import prepare
from biasbed.training.resolve import resolve


def halves_by_hand(words: Sequence[str]) -> dict[str, torch.Tensor]:
    """Weights after training ERM on two halves per batch, each with its own batch statistics; buffers of the first."""
    settings = resolve({k[2:]: v for k, v in zip(words[::2], words[1::2], strict=True)})
    planned = job.plan(settings)
    torch.manual_seed(settings.seed)
    data = TrainData(42, len(planned.suite.classes), 1)
    algorithm = make_algorithm(settings, planned.suite.task, Group(), Precision(), data)
    algorithm.start()
    second = copy.deepcopy(algorithm.network).train()  # holds the other process's buffers
    stream = planned.suite.stream(StreamRequest(), planned.training_data, settings.batch_size)
    plan = BatchPlan({MAIN: stream}, settings.seed, at_least=4)
    loader = TrainLoader(plan, 0, False)
    optimizer = algorithm.optimizer("main")
    total = (settings.epochs or 0) * plan.steps_per_epoch
    for current, _, batch, _ in loader.from_step(0, total):
        algorithm.set_rate(rate_factor(settings.optim, current, total, plan.steps_per_epoch))
        batch = prepare(batch, frozenset(), torch.device("cpu"))
        second.load_state_dict({**second.state_dict(), **dict(algorithm.network.named_parameters())})
        optimizer.zero_grad()
        for part, network in zip(batch.split(2), (algorithm.network, second), strict=True):
            loss = torch.nn.functional.cross_entropy(network(part.x), part.y)
            gradients = torch.autograd.grad(loss * len(part) / len(batch), list(network.parameters()))
            for parameter, gradient in zip(algorithm.network.parameters(), gradients, strict=True):
                parameter.grad = gradient if parameter.grad is None else parameter.grad + gradient
        optimizer.step()
    return dict(algorithm.state_dict())
