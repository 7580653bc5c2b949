"""Contrastive learning over weighted pairs of images, beside cross-entropy (Hong and Yang, NeurIPS 2021)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from biasbed.algorithms.erm import ERM
from biasbed.algorithms.presets import ADAM, BIASED_MNIST, STEPS
from biasbed.algorithms.requests import StreamRequest, View
from biasbed.batch import MAIN, Batch, to_unit_length
from biasbed.settings import setting

PAIRS = "pairs"  # stream of the contrastive loss

# Settings that the programs of both methods for Biased-MNIST share.
CONTRASTIVE_MNIST: Mapping[str, Any] = {
    **BIASED_MNIST,
    "batch_size": 128,
    **ADAM,
    **STEPS,
    "optim.milestones": (1 / 3, 2 / 3),
    "hparams.ce_weight": 0.01,
    "hparams.temperature": 0.07,
    "hparams.pairs": 64,
}


def contrastive(features: Tensor, weights: Tensor, temperature: float) -> Tensor:
    """Return the loss that pulls together views of images whose pair has a weight, and pushes all others apart.

    features [N,V,D]: V views of N images, each of length 1. weights [N,N] >= 0: weights of pairs of images; the pair of
    an image with itself means two different views. With similarities s_ij = h_i.h_j / temperature of all V N views,

        l_i = - sum_j w_ij log( exp(s_ij) / sum_{k != i} exp(s_ik) ) / sum_j w_ij,    j != i,

    the loss is the mean of all l_i. A view without any weight has l_i = 0 and counts in the mean.
    """
    views = features.shape[1]
    h, w = features.transpose(0, 1).flatten(0, 1), weights.to(features.dtype).repeat(views, views)
    itself = torch.eye(len(h), dtype=torch.bool, device=h.device)
    similarities = h @ h.T / temperature
    others = similarities.masked_fill(itself, -torch.inf).logsumexp(1, keepdim=True)
    w = w.masked_fill(itself, 0)
    total = w.sum(1)
    each = (w * (others - similarities)).sum(1) / torch.where(total > 0, total, 1)
    return each.mean()


class Contrastive(ERM):
    """Cross-entropy plus a contrastive loss on separate images in two views each; `weights` defines the partners.

    The contrastive loss uses the input of the classifier divided by its length; the logits use it unchanged.
    """

    @dataclass(frozen=True)
    class HParams:
        ce_weight: float = setting(1.0, "weight of the cross-entropy (authors: 1; 0.01 on Biased-MNIST)", gt=0)
        temperature: float = setting(0.07, "of the similarities (authors)", gt=0)
        pairs: int = setting(64, "images of a contrastive batch, each in two views (authors)", ge=4)

    needs_head: ClassVar[bool] = True
    tasks: ClassVar[frozenset[str]] = frozenset({"multi_class"})
    coupled: ClassVar[bool] = True

    hparams: HParams

    @classmethod
    def streams(cls, hparams: Any) -> Mapping[str, StreamRequest]:
        return {MAIN: StreamRequest(), PAIRS: StreamRequest(size=hparams.pairs, views=(View(), View()))}

    def losses(self, batch: Batch) -> dict[str, Tensor]:
        logits = self.network(batch.x)
        self.observe(logits, batch.y)
        classification = self.task.loss(self.balance(logits, batch), batch.y)
        return {
            "classification": self.hparams.ce_weight * classification,
            "contrastive": self.contrast(batch.extra[PAIRS]),
        }

    def balance(self, logits: Tensor, batch: Batch) -> Tensor:
        """Return the logits [N,C] that the cross-entropy uses."""
        return logits

    def contrast(self, pairs: Batch) -> Tensor:
        """Return the contrastive loss of images [N,V,C,H,W] over all processes."""
        features = self.network.features(pairs.x.flatten(0, 1))
        with torch.autocast(self.group.device.type, enabled=False):
            h = to_unit_length(features).unflatten(0, pairs.x.shape[:2])
            return contrastive(self.group.gather(h), self.weights(pairs), self.hparams.temperature)

    def weights(self, pairs: Batch) -> Tensor:
        """Return the weights [N,N] of pairs of all processes' images."""
        raise NotImplementedError
