"""Compilation of networks by torch.compile, for training steps: seconds spent, and errors, as of a missing compiler.

Only training steps are compiled: evaluations have batches of many sizes, each of which would be compiled. Every size is
compiled by itself (`dynamic=False`) and random draws are PyTorch's own (`fallback_random`), so that a training that
resumes computes what an uninterrupted one does.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

from biasbed.errors import Failure, first_line
from biasbed.networks.layers import networks_in

MOST_GRAPHS = 64  # of a network; a training has a batch size per stream, and a smaller last batch


class CompiledForward:
    """Replacement for a backbone's `forward`: compiled in training, the plain one otherwise.

    An object in place of the method leaves the module tree and the state dict's keys as they are.
    """

    def __init__(self, module: nn.Module, backend: str | Callable[..., Any]) -> None:
        options: dict[str, Any] | None = {"fallback_random": True} if backend == "inductor" else None
        self.module, self.plain = module, module.forward
        self.compiled = torch.compile(module.forward, dynamic=False, backend=backend, options=options)

    def __call__(self, *arguments: Any) -> Any:
        is_step = self.module.training and torch.is_grad_enabled()
        return self.compiled(*arguments) if is_step else self.plain(*arguments)


def compile_networks(module: nn.Module, backend: str | Callable[..., Any] = "inductor") -> None:
    """Compile the backbone of every network in a module, when it is first used in a training step."""
    import torch._dynamo

    torch._dynamo.config.recompile_limit = max(torch._dynamo.config.recompile_limit, MOST_GRAPHS)
    for network in networks_in(module):
        network.backbone.forward = CompiledForward(network.backbone, backend)


@contextlib.contextmanager
def convert_errors() -> Iterator[None]:
    """Raise Failure with one line if torch.compile breaks down."""
    from torch._dynamo.exc import TorchDynamoException

    try:
        yield
    except TorchDynamoException as error:
        raise Failure(f"torch.compile failed ({first_line(error)}): give compile=no") from None


class CompilationClock:
    """Wall-clock seconds that torch.compile takes in this process, forward and backward graphs alike."""

    def __init__(self) -> None:
        from torch._dynamo.callback import callback_handler

        self._seconds, self._began = 0.0, 0.0
        self._handler = callback_handler
        callback_handler.register_start_callback(self._begin)
        callback_handler.register_end_callback(self._end)

    def take(self) -> float:
        """Return the seconds since the last call."""
        seconds, self._seconds = self._seconds, 0.0
        return seconds

    def close(self) -> None:
        """Stop counting."""
        self._handler.remove_start_callback(self._begin)
        self._handler.remove_end_callback(self._end)

    def _begin(self, *_: object) -> None:
        self._began = time.perf_counter()

    def _end(self, *_: object) -> None:
        self._seconds += time.perf_counter() - self._began
