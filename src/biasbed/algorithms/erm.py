"""Empirical risk minimisation: the plain classifier that every other method is compared with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from torch import Tensor

from biasbed.algorithms.base import Algorithm, Setup
from biasbed.algorithms.presets import BIASBED_CODE, BIASBED_PAPER
from biasbed.batch import Batch


class ERM(Algorithm):
    """Minimises the mean loss of the training examples (Vapnik 1992)."""

    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {"paper": BIASBED_PAPER, "biasbed_code": BIASBED_CODE}

    def __init__(self, hparams: Any, setup: Setup) -> None:
        super().__init__(hparams, setup)
        self.network = setup.network()

    def losses(self, batch: Batch) -> dict[str, Tensor]:
        logits = self.logits(batch.x)
        self.observe(logits, batch.y)
        return {"classification": self.task.loss(logits, batch.y)}

    def logits(self, x: Tensor) -> Tensor:
        """Of a training batch; methods that differ from ERM in this forward pass alone override it."""
        logits: Tensor = self.network(x)
        return logits

    def predict(self, x: Tensor) -> Tensor:
        logits: Tensor = self.network(x)
        return logits
