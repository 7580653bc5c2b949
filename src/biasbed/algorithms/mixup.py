"""Mixup between domains (Zhang, Cisse, Dauphin and Lopez-Paz, ICLR 2018; across domains: Wang, Li and Kot 2020)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from scipy.special import betaincinv
from torch import Tensor

from biasbed.algorithms.base import Setup
from biasbed.algorithms.domains import PAPER_2020, DomainERM, pair_in_ring
from biasbed.algorithms.draws import HostDraws
from biasbed.batch import Batch
from biasbed.settings import setting


class Mixup(DomainERM):
    """ERM on mixtures of two domains' images with both labels.

    In every step the domains form a random ring, and each is mixed with the next one, image by image: a share l of the
    first and 1 - l of the second, with one l drawn from Beta(alpha, alpha) for each pair of domains. Ring and shares
    are the same on all processes.
    """

    @dataclass(frozen=True)
    class HParams:
        alpha: float = setting(0.2, "of Beta(alpha, alpha), of which the shares are drawn (DomainBed)", gt=0)

    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {"paper2020": {**PAPER_2020, "hparams.alpha": 0.1}}

    hparams: HParams

    def __init__(self, hparams: HParams, setup: Setup) -> None:
        super().__init__(hparams, setup)
        self._host = HostDraws(setup.group)

    def losses(self, batch: Batch) -> dict[str, Tensor]:
        pairs, shares = self.draws(batch)
        each = len(batch) // self.num_domains
        rows = pairs[..., None] * each + torch.arange(each, device=pairs.device)  # [2,D,N/D]
        first, second = rows.flatten(1).unbind()
        # Mixing before normalisation equals mixing after it, because normalisation is affine.
        image_shares = shares.repeat_interleave(each, output_size=len(batch))
        factors = image_shares.to(batch.x.dtype).view(-1, *[1] * (batch.x.ndim - 1))
        logits = self.logits(torch.lerp(batch.x[second], batch.x[first], factors))
        self.observe(logits, batch.y[torch.where(image_shares >= 0.5, first, second)])
        losses = [self.task.loss(logits, batch.y[side], reduction="none") for side in (first, second)]
        first_loss, second_loss = (self.by_domain(loss) for loss in losses)
        factors = shares.to(first_loss.dtype)[:, None]
        return {"classification": torch.lerp(second_loss, first_loss, factors).mean()}

    def draw(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return the pairs [2,D] of domains and the share [D] of the first domain in each."""
        pairs, shares = self.draw_on_host()
        send = self.group.send
        return send(torch.tensor(pairs).T.contiguous()), send(torch.tensor(shares, dtype=torch.float64))

    def draw_on_host(self) -> tuple[list[tuple[int, int]], list[float]]:
        """Return D pairs of domains, and the share of the first in each.

        Shares come from uniform numbers through the inverse distribution function, so that they change smoothly with
        alpha.
        """
        generator = self._host.shared_generator(self.progress)
        order = torch.randperm(self.num_domains, generator=generator).tolist()
        uniform = torch.rand(self.num_domains, generator=generator, dtype=torch.float64)
        return pair_in_ring(order), betaincinv(self.hparams.alpha, self.hparams.alpha, uniform.numpy()).tolist()
