"""Several methods in two processes: what each has averaged, and where it stands after a step and a bad batch."""

from __future__ import annotations

import multiprocessing
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from biasbed.algorithms.base import Algorithm
from biasbed.batch import Batch
from biasbed.compute.distributed import Group
from biasbed.training.step_metrics import StepMetrics
from helpers.children import start_server
from helpers.commands import free_port
from helpers.making import batch_for, make

_CONTEXT = multiprocessing.get_context("forkserver")


def half(batch: Batch, rank: int) -> Batch:
    """Return the examples of one of two processes."""
    return batch.split(2)[rank]


def still(algorithm: Algorithm) -> Algorithm:
    """The algorithm with its batch norms in evaluation mode: what they see of a batch is each process's own part."""
    for module in algorithm.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            module.eval()
    return algorithm


def gradients(algorithm: Algorithm, batch: Batch) -> dict[str, list[Tensor]]:
    """Return the gradients that one update hands to the optimizers; nothing steps."""
    by_optimizer: dict[str, list[Tensor]] = {}

    def record(given: Mapping[str, Sequence[Tensor | None]], clip: Any = None) -> None:
        for name, values in given.items():
            by_optimizer[name] = [torch.zeros(0) if g is None else g.detach().clone() for g in values]

    algorithm.apply_gradients = record  # type: ignore[method-assign]
    algorithm.update(batch)
    del algorithm.apply_gradients
    return by_optimizer


def in_two_processes(names: Sequence[str], folder: Path, timeout: float = 600) -> list[dict[str, Any]]:
    """Per rank what `_visit` finds, by method; TimeoutError when a process hangs."""
    port = free_port()
    start_server()
    processes = [_CONTEXT.Process(target=_rank, args=(rank, port, list(names), folder)) for rank in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(timeout)
        if process.is_alive():
            for started in processes:
                started.kill()
            raise TimeoutError("a process hangs")
    return [torch.load(folder / f"{rank}.pt", weights_only=True) for rank in range(2)]


def _rank(rank: int, port: int, names: list[str], folder: Path) -> None:
    from torch import distributed as dist

    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
    torch.save({name: _visit(name, rank) for name in names}, folder / f"{rank}.pt")
    dist.destroy_process_group()


def _visit(name: str, rank: int) -> dict[str, Any]:
    """Averaged gradients, weights after a step, and whether a bad batch on one rank is noticed on this one."""
    group = Group(rank, 2)
    algorithm = make(name, group=group)
    batch = half(batch_for(algorithm), rank)
    by_optimizer = gradients(still(algorithm) if algorithm.coupled else algorithm, batch)
    algorithm = make(name, group=group)
    algorithm.update(batch)
    weights = {key: value.clone() for key, value in algorithm.named_parameters()}
    bad = batch if rank == 0 else replace(batch, x=batch.x * torch.nan)
    step_metrics = StepMetrics()
    step_metrics.add(algorithm.update(bad), len(bad))
    assert step_metrics.not_finite is not None
    spoilt = torch.stack([p.isfinite().all() for p in nn.Module.parameters(algorithm)])
    noticed = group.any(step_metrics.not_finite | ~spoilt.all())
    return {"gradients": by_optimizer, "weights": weights, "noticed": noticed}
