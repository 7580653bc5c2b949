"""A method whose network diverges where no loss shows it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from biasbed.algorithms.base import Setup
from biasbed.batch import Batch
from helpers.toys import Plain


class Overflowing(Plain):
    """A finite loss, and from the second epoch on infinite outputs, as running statistics that overflowed give them."""

    def __init__(self, hparams: Any, setup: Setup) -> None:
        super().__init__(hparams, setup)
        self.register_buffer("scale", torch.ones(()))

    def losses(self, batch: Batch) -> dict[str, Tensor]:
        if self.progress.epoch >= 1:
            self.scale.fill_(torch.inf)
        return super().losses(batch)

    def predict(self, x: Tensor) -> Tensor:
        return super().predict(x) * self.scale
