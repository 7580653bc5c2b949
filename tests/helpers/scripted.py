"""Draws given instead of drawn: what torch's generators are asked for, in order, and the answers.

Vectors hold the draws of the authors' code. Under a `Script`, the product makes its draws as ever (in its own order, of
its own numbers and ranges), and is handed the vector's: so a replay runs the code that training runs, and a draw of
another law, another number of draws or one more of them is an error.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode


@dataclass(frozen=True)
class Given:
    """One draw: of which kind, between which bounds (the upper one excluded), and what comes out."""

    kind: str
    low: float
    high: float
    value: Tensor


def permutation(value: Any) -> Given:
    rows = _tensor(value)
    return Given("permutation", 0, len(rows), rows)


def whole(value: Any, high: int, low: int = 0) -> Given:
    """Whole numbers of low .. high - 1."""
    return Given("whole", low, high, _tensor(value))


def uniform(value: Any, low: float = 0.0, high: float = 1.0) -> Given:
    return Given("uniform", low, high, _tensor(value))


def _tensor(value: Any) -> Tensor:
    return value if isinstance(value, Tensor) else torch.as_tensor(np.asarray(value))


class Script(TorchFunctionMode):
    """`with Script(...):` every draw inside is the next of these; all of them are used."""

    def __init__(self, *given: Given | Iterable[Given]) -> None:
        super().__init__()
        self._left = [draw for item in given for draw in ([item] if isinstance(item, Given) else item)]

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        asked = _asked(func, args, kwargs)
        if asked is None:
            return func(*args, **kwargs)
        (kind, low, high), shape = asked
        assert kwargs.get("generator") is not None, f"a draw from a global generator: {func.__name__}"
        assert self._left, f"a draw that nobody expects: {kind} of {low} to {high}, {shape}"
        given = self._left.pop(0)
        assert (kind, shape) == (given.kind, tuple(given.value.shape)), f"asked for {kind} {shape}, not {given}"
        assert np.allclose((low, high), (given.low, given.high)), f"{kind} of {low} to {high}: {given.low, given.high}"
        if func is torch.Tensor.uniform_:
            return args[0].copy_(given.value)
        dtype = kwargs.get("dtype") or (torch.get_default_dtype() if kind == "uniform" else torch.long)
        return given.value.to(dtype)

    def __exit__(self, exc_type: Any, exc_val: Any, exc_tb: Any) -> None:
        super().__exit__(exc_type, exc_val, exc_tb)
        assert exc_type is not None or not self._left, f"{len(self._left)} draws were not asked for: {self._left[0]}"


def _asked(func: Any, args: Any, kwargs: Any) -> tuple[tuple[str, float, float], tuple[int, ...]] | None:
    """(kind, low, high) and shape of a draw; None for anything else."""
    if func is torch.Tensor.uniform_:
        low, high = args[1:] or (0.0, 1.0)
        return ("uniform", low, high), tuple(args[0].shape)
    if func is torch.randperm:
        return ("permutation", 0, args[0]), (args[0],)
    if func is torch.rand:
        return ("uniform", 0, 1), tuple(args[0] if args and not isinstance(args[0], int) else args)
    if func is torch.randint:
        *bounds, shape = args
        low, high = bounds if len(bounds) == 2 else (0, *bounds)
        return ("whole", low, high), tuple(shape)
    assert func not in _OTHERS, f"a draw that no script answers: {func.__name__}"
    return None


_OTHERS = (torch.randn, torch.multinomial, torch.bernoulli, torch.normal, torch.Tensor.normal_, torch.Tensor.random_)
