"""Methods in float64 throughout: what they compute from the images, and all that is made of it, has 53 bits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from biasbed.algorithms.base import Objective, Setup
from biasbed.batch import Batch
from biasbed.settings import setting
from helpers import toys


class Losses(toys.Plain):
    """`losses` alone, so that DDP averages."""

    @dataclass(frozen=True)
    class HParams(toys.Plain.HParams):
        noise: float = setting(0.0, "standard deviation of feature noise", ge=0)

    def __init__(self, hparams: Any, setup: Setup) -> None:
        super().__init__(hparams, setup)
        self.double()

    def losses(self, batch: Batch) -> dict[str, Tensor]:
        return super().losses(Batch(batch.x.double(), batch.y))

    def predict(self, x: Tensor) -> Tensor:
        return super().predict(x.double())


class Gradients(toys.SagNetLike):
    """Three optimizers, `grads`, a clip."""

    def __init__(self, hparams: Any, setup: Setup) -> None:
        super().__init__(hparams, setup)
        self.double()

    def objectives(self, batch: Batch) -> dict[str, Objective]:
        return super().objectives(Batch(batch.x.double(), batch.y))

    def predict(self, x: Tensor) -> Tensor:
        return super().predict(x.double())
