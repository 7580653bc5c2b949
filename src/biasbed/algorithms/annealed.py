"""Empirical risk with a penalty on how domains differ, which counts for little at first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from biasbed.algorithms.base import Setup
from biasbed.algorithms.domains import Count, OfDomains
from biasbed.batch import Batch
from biasbed.settings import setting


class Annealed(OfDomains):
    """Minimises the mean of the domains' risks, plus a weight times what `penalty` says.

    The weight is 1 in the first `anneal` updates, and `penalty_weight` from then on. As the loss jumps there, what the
    optimizer remembers is forgotten before that update.
    """

    @dataclass(frozen=True)
    class HParams:
        penalty_weight: float = setting(100.0, "weight of the penalty after `anneal` updates (DomainBed)", ge=0)
        anneal: int = setting(500, "updates in which the penalty has weight 1 (DomainBed)", ge=0)

    coupled: ClassVar[bool] = True

    hparams: HParams

    def __init__(self, hparams: Any, setup: Setup) -> None:
        super().__init__(hparams, setup)
        self.updates = Count()

    def penalty(self, logits: Tensor, batch: Batch, risks: Tensor) -> Tensor:
        """Of logits [N,K], and of the domains' risks [D]; over all processes."""
        raise NotImplementedError

    def losses(self, batch: Batch) -> dict[str, Tensor]:
        logits = self.logits(batch.x)
        self.observe(logits, batch.y)
        risks = self.risks(logits, batch)
        penalty = self.penalty(logits, batch, risks)
        self.note("raw_penalty", penalty)
        return {"classification": risks.mean(), "penalty": self.draws(batch).to(penalty.dtype) * penalty}

    def draw(self, batch: Batch) -> Tensor:
        """Return the weight in this update, which is counted. It stays on the host, as Python numbers do."""
        done = self.updates.value
        if done == self.hparams.anneal:
            self.reset_optimizer("main")
        self.updates.value += 1
        weight = 1.0 if done < self.hparams.anneal else self.hparams.penalty_weight
        return torch.tensor(weight, dtype=torch.float64)
