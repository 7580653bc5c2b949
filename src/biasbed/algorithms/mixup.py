"""Mixup between domains (Zhang, Cisse, Dauphin and Lopez-Paz, ICLR 2018; between domains: Wang, Li and Kot 2020)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from scipy.special import betaincinv
from torch import Tensor

from biasbed.algorithms.base import Setup
from biasbed.algorithms.domains import PAPER_2020, OfDomains, ring
from biasbed.algorithms.draws import HostDraws
from biasbed.batch import Batch
from biasbed.settings import setting


class Mixup(OfDomains):
    """ERM on mixtures of two domains' images, with both labels.

    In every step the domains stand in a random ring, and each is mixed with the one that follows it, image by image:
    l of the one and 1 - l of the other, with one l of Beta(alpha, alpha) for each of these pairs. Order and mixtures
    are those of all processes.
    """

    @dataclass(frozen=True)
    class HParams:
        alpha: float = setting(0.2, "of Beta(alpha, alpha), of which the parts are drawn (DomainBed)", gt=0)

    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {"paper2020": {**PAPER_2020, "hparams.alpha": 0.1}}

    hparams: HParams

    def __init__(self, hparams: HParams, setup: Setup) -> None:
        super().__init__(hparams, setup)
        self._host = HostDraws(setup.group)

    def losses(self, batch: Batch) -> dict[str, Tensor]:
        pairs, parts = self.draws(batch)
        each = len(batch) // self.num_domains
        rows = pairs[..., None] * each + torch.arange(each, device=pairs.device)  # [2,D,N/D]
        first, second = rows.flatten(1).unbind()
        # Mixtures of what has been normalised are what mixtures are when they are normalised.
        shares = parts.repeat_interleave(each, output_size=len(batch))
        of_images = shares.to(batch.x.dtype).view(-1, *[1] * (batch.x.ndim - 1))
        logits = self.logits(torch.lerp(batch.x[second], batch.x[first], of_images))
        self.observe(logits, batch.y[torch.where(shares >= 0.5, first, second)])
        own, other = (self.task.loss(logits, batch.y[side], reduction="none") for side in (first, second))
        share = parts.to(own.dtype)[:, None]
        return {"classification": torch.lerp(self.apart(other), self.apart(own), share).mean()}

    def draw(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return the pairs [2,D] of domains and the part [D] that the first of each has."""
        pairs, parts = self._draw()
        made = torch.tensor(pairs).T, torch.tensor(parts, dtype=torch.float64)
        return self.group.send(made[0].contiguous()), self.group.send(made[1])

    def _draw(self) -> tuple[list[tuple[int, int]], list[float]]:
        """Pairs of domains, and what part the first of each has. By its distribution function, the part follows alpha
        from the same uniform number."""
        generator = self._host.shared_generator(self.progress)
        order = torch.randperm(self.num_domains, generator=generator).tolist()
        uniform = torch.rand(self.num_domains, generator=generator, dtype=torch.float64)
        return ring(order), betaincinv(self.hparams.alpha, self.hparams.alpha, uniform.numpy()).tolist()
