"""Snapshots of a network's weights, and weights between two of them (Wortsman et al., CVPR 2022, equation 1)."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Snapshot(nn.Module):
    """Copy of a module's state as buffers, which a checkpoint includes and no optimizer steps."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.names = list(module.state_dict())
        for number, tensor in enumerate(module.state_dict().values()):
            self.register_buffer(f"tensor{number}", tensor.detach().clone())

    @property
    def tensors(self) -> dict[str, Tensor]:
        """Tensors by their name in the module."""
        return {name: self.get_buffer(f"tensor{number}") for number, name in enumerate(self.names)}

    @torch.no_grad()
    def copy_from(self, module: nn.Module) -> None:
        """Copy the module's present state."""
        state = module.state_dict()
        for name, tensor in self.tensors.items():
            tensor.copy_(state[name])


@torch.no_grad()
def interpolate(module: nn.Module, initial: Snapshot, tuned: Snapshot, alpha: float) -> None:
    """Give a module the weights (1 - alpha) initial + alpha tuned. At 0 and 1 they are those of the ends, bit for bit.

    Running statistics of batch norm are mixed like weights. Integers are those of the nearer end.
    """
    start, end = initial.tensors, tuned.tensors
    for name, tensor in module.state_dict().items():
        if tensor.is_floating_point() and 0 < alpha < 1:
            tensor.copy_((1 - alpha) * start[name] + alpha * end[name])
        else:
            tensor.copy_(start[name] if alpha < 0.5 else end[name])
