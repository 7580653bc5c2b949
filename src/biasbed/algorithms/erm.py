"""Empirical risk minimisation (ERM): the plain classifier that every other method is compared with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

from torch import Tensor

from biasbed.algorithms.base import Algorithm, Objective, Setup, Terms
from biasbed.algorithms.groups import GROUP
from biasbed.algorithms.presets import BIASBED_CODE, BIASBED_PAPER
from biasbed.algorithms.requests import StreamRequest
from biasbed.batch import MAIN, Batch
from biasbed.settings import setting

BALANCED: Mapping[str, tuple[str, ...] | None] = {"none": None, "class": ("y",), "group": GROUP}


class ERM(Algorithm):
    """Mean loss of the training examples (Vapnik 1992), optionally of balanced draws."""

    @dataclass(frozen=True)
    class HParams:
        balance: Literal["none", "class", "group"] = setting(
            "none", "draws each class, or each group of one class and one bias, equally often", optional=True
        )

    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {"paper": BIASBED_PAPER, "biasbed_code": BIASBED_CODE}

    def __init__(self, hparams: Any, setup: Setup) -> None:
        super().__init__(hparams, setup)
        self.network = setup.network()

    @classmethod
    def streams(cls, hparams: Any) -> Mapping[str, StreamRequest]:
        """Return the main stream, balanced if asked for. Subclasses with their own settings define their own draws."""
        requests = super().streams(hparams)
        by = BALANCED[hparams.balance] if isinstance(hparams, ERM.HParams) else None
        return {**requests, MAIN: replace(requests[MAIN], by=by)}

    def losses(self, batch: Batch) -> dict[str, Tensor]:
        logits = self.logits(batch.x)
        self.observe(logits, batch.y)
        return {"classification": self.task.loss(logits, batch.y)}

    def logits(self, x: Tensor) -> Tensor:
        """Return the logits of a training batch. Methods that differ from ERM only in this forward pass override it."""
        logits: Tensor = self.network(x)
        return logits

    def update_other(self, name: str, batch: Batch) -> Terms:
        """Take one ERM step of another network of the method, with the optimizer of the same name."""
        network = self.get_submodule(name)

        def objective(part: Batch) -> dict[str, Objective]:
            logits = network(part.x)
            self.observe(logits, part.y)
            return {"classification": (self.task.loss(logits, part.y), network.parameters())}

        gradients, terms = self.grads(batch, objective)
        self.apply_gradients({name: gradients["classification"]})
        return terms

    def predict(self, x: Tensor) -> Tensor:
        logits: Tensor = self.network(x)
        return logits
