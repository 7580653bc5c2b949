"""Comparison of each file of vectors: glob -> a function that raises AssertionError if ours differs.

A module of this folder holds the replays of one family, as `REPLAYS`, and under `UNCOMPARED` the keys of a file in
which a change of one per cent need not be noticed, with the reason.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from biasbed.algorithms.base import Setup
from biasbed.compute.distributed import Group
from biasbed.compute.precision import Precision
from biasbed.tasks import MultiClass

Case = dict[str, np.ndarray]


def load(path: Path) -> Case:
    with np.load(path) as file:
        return {key: file[key] for key in file.files}


def close(ours: Tensor | np.ndarray, reference: np.ndarray, rtol: float = 1e-5, atol: float = 2e-6) -> None:
    """The vectors' tolerance for single modules; gradients have rtol 1e-4, atol 1e-5."""
    values = ours.detach().numpy() if isinstance(ours, Tensor) else ours
    np.testing.assert_allclose(values, reference, rtol=rtol, atol=atol)


def close_network(ours: Tensor, reference: np.ndarray) -> None:
    """The vectors' tolerance for whole networks: 2e-3 of the largest value."""
    assert ours.shape == reference.shape
    assert np.abs(ours.detach().numpy() - reference).max() <= 2e-3 * np.abs(reference).max()


def setup(
    num_classes: int,
    network: Callable[[], nn.Module],
    optimizer: Callable[..., torch.optim.Optimizer] = torch.optim.SGD,
    prepared: Mapping[str, nn.Module] | None = None,
) -> Setup:
    """Return the setup that the engine hands to a method, with the vector's network in place of the configured one."""
    return Setup(num_classes, MultiClass(), network, optimizer, Group(), Precision(), prepared=dict(prepared or {}).get)


def weights_by_formula(module: nn.Module, seed: int, gain: float = 1.0) -> None:
    """Weights that the vectors' README defines by the names and shapes of a state dict."""
    state = module.state_dict()
    for key, value in state.items():
        random = np.random.RandomState((zlib.crc32(key.encode()) + seed) % 2**32)
        shape = tuple(value.shape)
        if key.endswith("num_batches_tracked"):
            drawn: Any = np.zeros(shape)
        elif key.endswith("running_var"):
            drawn = random.uniform(0.5, 1.5, shape)
        elif key.endswith("running_mean"):
            drawn = 0.1 * random.standard_normal(shape)
        elif value.ndim >= 2:
            drawn = random.standard_normal(shape) * np.sqrt(2 / np.prod(shape[1:])) * gain
        else:
            drawn = 0.1 * random.standard_normal(shape) + (0 if key.endswith("bias") else 1)
        state[key] = torch.as_tensor(drawn).to(value.dtype)
    module.load_state_dict(state)
