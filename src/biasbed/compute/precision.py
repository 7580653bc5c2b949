"""Mixed precision: autocast and loss scale in one object. With fp32 both do nothing."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


class Precision:
    """`fp32`, `bf16` or `fp16`. fp16 always has a dynamic loss scale (Micikevicius et al. 2018, section 3.2).

    torch's GradScaler decides per optimizer. A method with several optimizers needs one decision for all of them, so
    the scale is kept here. It halves when a step is skipped and doubles after `growth_interval` accepted steps.
    """

    growth_interval = 2000

    def __init__(self, name: str = "fp32", device: torch.device | str = "cpu") -> None:
        self.name = name
        self.device = torch.device(device)
        self._scale = 2.0**16 if name == "fp16" else 1.0
        self._accepted = 0

    def autocast(self) -> contextlib.AbstractContextManager[Any]:
        """Return the context in which the forward pass runs."""
        if self.name == "fp32":
            return contextlib.nullcontext()
        return torch.autocast(self.device.type, dtype=DTYPES[self.name])

    def scale(self, loss: Tensor) -> Tensor:
        """Return the loss times the scale."""
        return loss if self.name != "fp16" else loss * self._scale

    def unscale(self, gradient: Tensor) -> Tensor:
        """Return the gradient of the unscaled loss."""
        return gradient if self.name != "fp16" else gradient / self._scale

    def approve(self, gradients: Sequence[Tensor]) -> bool:
        """Return True if the step may be taken. With fp16, waits for the device and adapts the scale."""
        if self.name != "fp16":
            return True
        if not all(torch.stack([gradient.isfinite().all() for gradient in gradients]).tolist()):
            self._scale, self._accepted = max(self._scale / 2, 1.0), 0
            return False
        self._accepted += 1
        if self._accepted == self.growth_interval:
            self._scale, self._accepted = self._scale * 2, 0
        return True

    def state_dict(self) -> dict[str, float]:
        return {"scale": self._scale, "accepted": self._accepted}

    def load_state_dict(self, state: dict[str, float]) -> None:
        self._scale, self._accepted = state["scale"], int(state["accepted"])
