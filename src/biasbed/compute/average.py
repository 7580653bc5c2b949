"""Average of a training's weights that is evaluated, saved and exported instead of the live ones; here none.

`compute/mean_weights.py` has the averages (SMA, SWAD, EMA).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase

from biasbed.compute.distributed import Group


class Average:
    """`average=none`: the live weights are evaluated. Subclasses define a mean of them."""

    def __init__(self, module: nn.Module, group: Group) -> None:
        self.module, self.group = module, group

    @torch.no_grad()
    def weights(self) -> dict[str, Tensor]:
        """Return the live weights to average by name: parameters and running statistics."""
        weights: dict[str, Tensor] = {name: parameter.detach() for name, parameter in self.module.named_parameters()}
        for prefix, norm in self.module.named_modules():
            if isinstance(norm, _NormBase):
                statistics = {"running_mean": norm.running_mean, "running_var": norm.running_var}
                weights |= {f"{prefix}.{name}": buffer for name, buffer in statistics.items() if buffer is not None}
        return weights

    def add(self, step: int) -> None:
        """Record the live weights after a step of the last stage. Steps count from 1."""

    def before_evaluation(self) -> None:
        """Record that an evaluation is about to start. Every rank takes part."""

    def mean(self) -> Mapping[str, Tensor]:
        """Return the weights to evaluate instead of the live ones; empty if the live ones are evaluated."""
        return {}

    @contextlib.contextmanager
    def evaluated_weights(self) -> Iterator[Mapping[str, Tensor]]:
        """Replace the live weights by the mean within the block, and yield the live ones. Every rank takes part."""
        mean = self.mean()
        if not mean:
            yield {}
            return
        self.group.share_buffers(self.module)  # as after any evaluation, every rank has rank 0's buffers
        weights = self.weights()
        live = {name: tensor.clone() for name, tensor in weights.items()}
        copy_weights(mean, weights)
        try:
            yield live
        finally:
            copy_weights(live, weights)

    def checkpoint(self, live: Mapping[str, Tensor]) -> dict[str, Any]:
        """Return the entries of a checkpoint that resume averaging. live: weights that `evaluated_weights` yielded."""
        return {}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Resume from a checkpoint whose evaluated weights are already loaded."""


@torch.no_grad()
def copy_weights(values: Mapping[str, Tensor], into: Mapping[str, Tensor]) -> None:
    """Copy weights into tensors of the same names."""
    for name, tensor in into.items():
        tensor.copy_(values[name])
