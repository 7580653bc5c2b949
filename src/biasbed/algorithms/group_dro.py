"""GroupDRO: distributionally robust optimisation over groups (Sagawa, Koh, Hashimoto and Liang, ICLR 2020)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from biasbed.algorithms.base import TrainData
from biasbed.algorithms.domains import PAPER_2020, OfDomains
from biasbed.algorithms.recipes import OPEN
from biasbed.batch import Batch
from biasbed.settings import setting


class GroupDRO(OfDomains):
    """Minimises a weighted mean of the domains' risks, in which those weigh more that have been high (algorithm 1).

    In every step a domain's weight q is multiplied by exp(eta * its risk), then all are divided by their sum, and the
    loss is taken with the new ones, which are constants in it. Domains are the groups; nothing is adjusted by their
    sizes.
    """

    @dataclass(frozen=True)
    class HParams:
        eta: float = setting(0.01, "how fast the weights follow the risks (DomainBed)", ge=0)
        mean_over_domains: bool = setting(
            False, "divide the loss by the number of domains, as DomainBed did until January 2021"
        )

    coupled: ClassVar[bool] = True
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "paper2020": {**PAPER_2020, "hparams.eta": OPEN, "hparams.mean_over_domains": True}
    }

    hparams: HParams
    q: Tensor

    def on_train_data(self, data: TrainData) -> None:
        super().on_train_data(data)
        even = torch.full((data.num_domains,), 1 / data.num_domains, dtype=torch.float64)
        self.register_buffer("q", even)

    def losses(self, batch: Batch) -> dict[str, Tensor]:
        logits = self.logits(batch.x)
        self.observe(logits, batch.y)
        risks = self.risks(logits, batch)
        # q exp(eta L) / sum, by its logarithm, so that no risk is too large for it.
        self.q.copy_((self.q.log() + self.hparams.eta * risks.detach()).softmax(0))
        for domain, weight in enumerate(self.q.clone()):
            self.note(f"q_{domain}", weight)
        scale = self.num_domains if self.hparams.mean_over_domains else 1
        return {"classification": (self.q.to(risks.dtype) * risks).sum() / scale}
