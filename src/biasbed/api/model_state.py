"""State of a model in memory: kept while it is tested, and restored after it.

A process tests one model at a time. Modes, devices and random states belong to all of its threads, and models share
layers, so that a lock of each model would not do.

Answers: Does a test leave a model of mine as it was?
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

T = TypeVar("T")
Model = nn.Module | Callable[[Tensor], Tensor]
CHANGED = (
    "the model's mode or weights changed while it was tested: wait until nothing else trains or uses it, or give a copy"
)
_LOCKS = [threading.RLock()]


def _renew_lock() -> None:
    """Free a forked child of a lock that another thread of its parent held."""
    _LOCKS[0] = threading.RLock()


os.register_at_fork(after_in_child=_renew_lock)


def find_device(model: Model, device: str | torch.device) -> torch.device:
    """Return the device to test on: the one that is named, or for `auto` the one on which the model's weights are."""
    if device != "auto":
        return torch.device(device)
    if isinstance(model, nn.Module):
        for tensor in (*model.parameters(), *model.buffers()):
            return tensor.device
    return torch.device("cpu")


def run_unchanged(model: Model, device: torch.device, work: Callable[[], T]) -> T:
    """Call a function with the model in evaluation mode on `device`; then restore mode, device and random states.

    They are restored after any exception, and after Ctrl-C at any moment.
    """
    with _LOCKS[0]:
        interrupts = _HeldInterrupts()
        state = _ModelState(model, device)
        try:
            state.prepare()
            try:
                interrupts.act_at_once = True
                return work()
            finally:  # of two blocks, as Ctrl-C may come at the first line of one
                interrupts.act_at_once = False
        finally:
            interrupts.act_at_once = False
            state.restore()
            interrupts.end()


def fingerprint(model: nn.Module) -> tuple[list[bool], list[int]]:
    """Return the modes of a model's layers and the versions of its tensors, which PyTorch counts up at each change."""
    modes = [module.training for module in model.modules()]
    tensors = [tensor for tensor in (*model.parameters(), *model.buffers()) if not tensor.is_inference()]
    return modes, [tensor._version for tensor in tensors]


class _ModelState:
    """Modes and device of a model, and random states, as they are when it is made."""

    def __init__(self, model: Model, device: torch.device) -> None:
        self.model = model if isinstance(model, nn.Module) else None
        self.home, self.device = find_device(model, "auto"), device
        self.modes = [] if self.model is None else [(module, module.training) for module in self.model.modules()]
        self.random = torch.get_rng_state(), np.random.get_state(), random.getstate()
        self.cuda = torch.cuda.get_rng_state(device) if device.type == "cuda" else None

    def prepare(self) -> None:
        """Put the model in evaluation mode on the device."""
        if self.model is not None:
            if self.device != self.home:
                self.model.to(self.device)
            with contextlib.suppress(NotImplementedError):  # a model of torch.export has one mode and refuses the call
                self.model.eval()

    def restore(self) -> None:
        """Restore everything."""
        for module, mode in self.modes:
            module.training = mode
        torch.set_rng_state(self.random[0])
        np.random.set_state(self.random[1])
        random.setstate(self.random[2])
        if self.cuda is not None:
            torch.cuda.set_rng_state(self.cuda, self.device)
        if self.model is not None and self.device != self.home:
            self.model.to(self.home)


class _HeldInterrupts:
    """Handler of Ctrl-C that acts as the former one, or keeps the signal until `end`. Other threads get none."""

    def __init__(self) -> None:
        self.act_at_once, self.is_kept = False, False
        self.former: Any = None
        if threading.current_thread() is threading.main_thread():
            self.former = signal.getsignal(signal.SIGINT)
        if callable(self.former):
            signal.signal(signal.SIGINT, self.handle)

    def handle(self, number: int, frame: FrameType | None) -> None:
        """Act as the former handler, or keep the signal."""
        if self.act_at_once:
            self.former(number, frame)
        else:
            self.is_kept = True

    def end(self) -> None:
        """Restore the former handler, which gets a signal that was kept."""
        if callable(self.former):
            signal.signal(signal.SIGINT, self.former)
        if self.is_kept:
            self.former(signal.SIGINT, None)
