"""DisEnt: disentangled feature augmentation (Lee, Kim, Lee, Lee and Choo, NeurIPS 2021)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from biasbed.algorithms.base import Setup, Terms
from biasbed.algorithms.draws import HostDraws
from biasbed.algorithms.presets import ADAM, BIASED_MNIST, STEPS
from biasbed.algorithms.relative_difficulty import DifficultyWeighted, Pair, cross_entropy
from biasbed.batch import Batch
from biasbed.networks.network import Classifier
from biasbed.settings import setting

# Settings that the programs of both methods for Colored MNIST share.
SWAPPING_MNIST: Mapping[str, Any] = {
    **BIASED_MNIST,
    "backbone": "mlp",
    "network.scale": "unit_255",
    "epochs": None,
    "batch_size": 256,
    **ADAM,
    "optim.lr": 0.01,
    "optim.weight_decay": 0.0,
    **STEPS,
    "optim.gamma": 0.5,
    "hparams.alpha": 0.7,
    "hparams.q": 0.7,
    "hparams.biased_weight": 10.0,
    "hparams.swap_weight": 1.0,
    "hparams.biased_swap_weight": 10.0,
    "hparams.warmup": 0.2,
}


@dataclass(frozen=True)
class Swapping(DifficultyWeighted.HParams):
    """Settings of the method: typed, with ranges and a source for each default."""

    biased_weight: float = setting(1.0, "weight of the biased loss, lambda_dis (authors: 10, 2, 1 by data)", ge=0)
    swap_weight: float = setting(1.0, "weight of both permuted losses, lambda_swap (authors: 1, 0.1, 1)", ge=0)
    biased_swap_weight: float = setting(1.0, "weight of the biased one of these (authors: 10, 2, 1)", ge=0)
    warmup: float = setting(0.2, "part of training before codes are permuted (authors: 0.2 of 50,000)", ge=0, lt=1)


class Disentangled(Pair):
    """Two encoders and two classifiers of both codes side by side. Each classifier's loss trains one encoder only."""

    def __init__(self, setup: Setup, settings: Swapping) -> None:
        super().__init__()
        self.settings = settings
        self.network, self.biased = setup.network(head=False), setup.network(head=False)
        width = self.network.num_features + self.biased.num_features
        self.head, self.biased_head = (Classifier(width, setup.num_classes) for _ in range(2))
        setup.group.send_module(self)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.classify(self.network(x), self.biased(x))

    def classify(self, codes: Tensor, biased_codes: Tensor) -> tuple[Tensor, Tensor]:
        """Return the logits [N,K] of both classifiers for the codes [N,F] of both encoders."""
        logits = self.head(torch.cat([codes, biased_codes.detach()], 1))
        return logits, self.biased_head(torch.cat([codes.detach(), biased_codes], 1))

    def losses(self, method: DifficultyWeighted, batch: Batch) -> Terms:
        assert batch.index is not None
        codes, biased_codes = self.network(batch.x), self.biased(batch.x)
        logits, biased_logits = self.classify(codes, biased_codes)
        method.observe(logits, batch.y)
        ce, biased_ce = cross_entropy(logits, batch.y), cross_entropy(biased_logits, batch.y)
        weights = method.weigh(batch, ce, biased_ce)
        terms = {
            "biased": self.settings.biased_weight * method.biased_mean(biased_ce, batch.index),
            "classification": (weights * ce).mean(),
        }
        rows = method.draws(batch)
        if rows is not None:
            terms |= self.swapped_losses(method, batch, weights, codes, biased_codes, rows)
        return terms

    def swapped_losses(
        self,
        method: DifficultyWeighted,
        batch: Batch,
        weights: Tensor,
        codes: Tensor,
        biased_codes: Tensor,
        rows: Tensor,
    ) -> Terms:
        """Return the losses with the biased codes of `rows` among all processes' images; W stays each image's own.

        The classifier must predict its image's class beside any bias; the biased classifier must predict the class of
        the image that its code came from.
        """
        assert batch.index is not None
        gather = method.group.gather
        swapped_codes, swapped_y = gather(biased_codes)[rows], gather(batch.y)[rows]
        swapped_index = gather(batch.index)[rows]
        logits, biased_logits = self.classify(codes, swapped_codes)
        loss = (weights * cross_entropy(logits, batch.y)).mean()
        biased_loss = method.biased_mean(cross_entropy(biased_logits, swapped_y), swapped_index)
        weight = self.settings.swap_weight
        return {"swapped": weight * loss, "biased_swapped": weight * self.settings.biased_swap_weight * biased_loss}

    def draw(self, method: DifficultyWeighted, batch: Batch) -> Tensor | None:
        """Return the rows, among all processes' images, of the codes that this process's images get.

        One permutation of all images. None before codes are permuted.
        """
        if not method.progress.is_past(self.settings.warmup):
            return None
        ranks = method.group.gather(torch.full_like(batch.y, method.group.rank))
        order = torch.randperm(len(ranks), generator=HostDraws(method.group).shared_generator(method.progress))
        before = (ranks < method.group.rank).sum()
        return method.group.send(order)[before + torch.arange(len(batch), device=ranks.device)]


class DisEnt(DifficultyWeighted):
    """Two encoders, one for the class and one for its bias, each with a classifier of both codes.

    The biased classifier's loss is `relative_difficulty.amplify`, the other's the cross-entropy weighted by the
    relative difficulty W of each image (equations 1 and 2). Neither loss trains the other one's encoder. After a
    warm-up both losses are added once more, with the biased codes of a step permuted among its images (equation 3).
    """

    @dataclass(frozen=True)
    class HParams(Swapping):
        pass

    needs_head: ClassVar[bool] = True
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "authors": {**SWAPPING_MNIST, "steps": 50_000, "optim.milestones": (0.4, 0.6, 0.8)}
    }

    hparams: HParams

    def __init__(self, hparams: HParams, setup: Setup) -> None:
        super().__init__(hparams, setup)
        self.pair = Disentangled(setup, hparams)
