"""ERM that makes the features of all domains alike: what methods share that say how far apart they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from biasbed.algorithms.domains import OfDomains
from biasbed.batch import Batch, at_least_fp32
from biasbed.settings import setting


class Matching(OfDomains):
    """ERM with `gamma` times how far the features of domains are apart, by `penalty`: those of all processes."""

    @dataclass(frozen=True)
    class HParams:
        gamma: float = setting(1.0, "weight of the distance between domains (DomainBed)", ge=0)

    needs_head: ClassVar[bool] = True
    coupled: ClassVar[bool] = True

    hparams: HParams

    def penalty(self, features: Sequence[Tensor]) -> Tensor:
        """The mean over pairs of domains, of each domain's features [B,d], in fp32 at least."""
        raise NotImplementedError

    def losses(self, batch: Batch) -> dict[str, Tensor]:
        features = self.network.features(batch.x)
        logits = self.network.classify(features)
        self.observe(logits, batch.y)
        loss = self.task.loss(logits, batch.y)
        with torch.autocast(self.group.device.type, enabled=False):
            penalty = self.penalty(self._of_all(at_least_fp32(features))).to(loss.dtype)
        self.note("raw_penalty", penalty)
        return {"classification": loss, "penalty": self.hparams.gamma * penalty}

    def _of_all(self, features: Tensor) -> list[Tensor]:
        """Features [N,d] of this process's images as those of each domain [B,d], of all processes."""
        gathered = self.group.gather(features).unflatten(0, (self.group.world, self.num_domains, -1))
        return [domain.flatten(0, 1) for domain in gathered.unbind(1)]


def averaging(features: Sequence[Tensor], ddof: int = 0) -> Tensor:
    """The matrix [D,N] that averages what is there of all images, by domain; with `ddof` taken off their number."""
    return torch.block_diag(*(x.new_full((1, len(x)), 1 / max(1, len(x) - ddof)) for x in features))


def between(products: Tensor) -> Tensor:
    """From the inner products [D,D] of the domains' representatives, the mean over pairs of their squared distance.

    Zero of one domain. What rounding makes of a distance of nothing is not below it.
    """
    squares = products.diagonal()
    distances = (squares[:, None] + squares[None, :] - 2 * products).clamp_min(0)
    return distances.sum() / max(1, len(products) * (len(products) - 1))
