"""State of a model in memory: kept while it is tested, and restored after it.

Answers: Does a test leave a model of mine as it was?
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator

import numpy as np
import torch
from torch import Tensor, nn

from biasbed.errors import UsageError, first_line

Model = nn.Module | Callable[[Tensor], Tensor]


def find_device(model: Model, device: str | torch.device) -> torch.device:
    """Return the device to test on: the one that is named, or for `auto` the one on which the model's weights are."""
    if device != "auto":
        try:
            chosen = torch.device(device)
        except (RuntimeError, TypeError) as error:
            raise UsageError(f"device={device}: {first_line(error)}") from None
        if chosen.type == "cuda" and not torch.cuda.is_available():
            raise UsageError(f"device={device}: there is no GPU here")
        return chosen
    if isinstance(model, nn.Module):
        for tensor in (*model.parameters(), *model.buffers()):
            return tensor.device
    return torch.device("cpu")


@contextlib.contextmanager
def unchanged(model: Model, device: torch.device) -> Iterator[None]:
    """Put the model in evaluation mode on `device` for a block; then restore mode, device and random states."""
    module = model if isinstance(model, nn.Module) else None
    home = find_device(model, "auto")
    modes = [] if module is None else [(layer, layer.training) for layer in module.modules()]
    of_torch, of_numpy, of_python = torch.get_rng_state(), np.random.get_state(), random.getstate()
    of_gpu = torch.cuda.get_rng_state(device) if device.type == "cuda" else None
    try:
        if module is not None:
            module.to(device)
            with contextlib.suppress(NotImplementedError):  # a model of torch.export has one mode and refuses the call
                module.eval()
        yield
    finally:
        for layer, mode in modes:
            layer.training = mode
        torch.set_rng_state(of_torch)
        np.random.set_state(of_numpy)
        random.setstate(of_python)
        if of_gpu is not None:
            torch.cuda.set_rng_state(of_gpu, device)
        if module is not None:
            module.to(home)
