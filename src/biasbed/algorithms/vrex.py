"""V-REx: risk extrapolation by the variance of risks (Krueger, Caballero, Jacobsen et al., ICML 2021)."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from biasbed.algorithms.domains import Annealed
from biasbed.batch import Batch
from biasbed.settings import setting


class VREx(Annealed):
    """ERM with the variance of the domains' risks as a penalty (V-REx)."""

    @dataclass(frozen=True)
    class HParams(Annealed.HParams):
        penalty_weight: float = setting(10.0, "weight of the variance after `anneal` updates (DomainBed)", ge=0)

    def penalty(self, logits: Tensor, batch: Batch, risks: Tensor) -> Tensor:
        """Return the variance over the domains, divided by their number; zero for one domain."""
        return risks.var(unbiased=False)
