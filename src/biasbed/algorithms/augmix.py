"""AugMix: mixtures of an image with distorted copies of itself (Hendrycks et al., ICLR 2020)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from biasbed.algorithms.erm import ERM
from biasbed.algorithms.presets import IMAGENET, epochs
from biasbed.algorithms.requests import StreamRequest, View
from biasbed.batch import MAIN, Batch, at_least_fp32
from biasbed.settings import setting


def jensen_shannon(logits: Tensor, several: bool = False) -> Tensor:
    """Return the Jensen-Shannon divergence of the predictions for V views [V,N,K], averaged over images (equation 2).

    mean_v KL(p_v || M) with M = mean_v p_v. several: each image has any number of labels; the result is then the mean
    over labels of the divergence of the binary predictions. Computed from logarithms, so that certain predictions need
    no clamp.
    """
    if several:
        log_p = torch.stack([functional.logsigmoid(logits), functional.logsigmoid(-logits)], dim=-1)
    else:
        log_p = logits.log_softmax(dim=-1)
    log_m = log_p.logsumexp(dim=0) - math.log(len(logits))
    return (log_p.exp() * (log_p - log_m)).sum(dim=-1).mean()


class AugMix(ERM):
    """Cross-entropy of the clean image plus the divergence between predictions for it and for two mixtures of it.

    All three share crop and flip and pass through the network as one batch (clean images, first mixtures, second
    mixtures) with common batch statistics. Without `jsd` training is ERM on one mixture of each image.
    """

    @dataclass(frozen=True)
    class HParams:
        jsd: bool = setting(True, "the divergence is added; if not, mixtures alone are trained on (authors' --no-jsd)")
        jsd_weight: float = setting(12.0, "weight of the divergence (paper, section 4)", ge=0)
        severity: float = setting(
            1.0, "largest level, of 10; the least is 0.1 (authors: 1 on ImageNet, 3 on CIFAR)", ge=0.1, le=10
        )
        width: int = setting(3, "chains of operations in a mixture (paper, section 3)", ge=1)
        depth: int = setting(0, "operations of each chain; 0: one to three, drawn for each (paper, section 3)", ge=0)
        alpha: float = setting(1.0, "of the Dirichlet and Beta distributions of the weights (paper)", ge=0.05)
        all_ops: bool = setting(False, "color, contrast, brightness and sharpness too (authors: off)")

    overlaps: ClassVar[Mapping[str, str]] = dict.fromkeys(("brightness", "contrast", "saturate"), "all_ops")
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "authors": {
            **IMAGENET,
            "init": "scratch",
            **epochs(90),
            "optim.milestones": (1 / 3, 2 / 3),
            "hparams.jsd": True,
            "hparams.jsd_weight": 12.0,
            "hparams.severity": 1.0,
            "hparams.width": 3,
            "hparams.depth": 0,
            "hparams.alpha": 1.0,
            "hparams.all_ops": False,
        }
    }

    hparams: HParams

    @classmethod
    def streams(cls, hparams: HParams) -> Mapping[str, StreamRequest]:
        names = ("severity", "width", "depth", "alpha", "all_ops")
        mixture = View("augmix", {name: getattr(hparams, name) for name in names})
        return {MAIN: StreamRequest(views=(View(), mixture, mixture) if hparams.jsd else (mixture,), shared=True)}

    def losses(self, batch: Batch) -> dict[str, Tensor]:
        if not self.hparams.jsd:
            return super().losses(batch)
        logits = self.logits(batch.x.transpose(0, 1).flatten(0, 1)).unflatten(0, (-1, len(batch)))
        self.observe(logits[0], batch.y)
        with torch.autocast(self.group.device.type, enabled=False):
            divergence = jensen_shannon(at_least_fp32(logits), self.task.several)
        return {
            "classification": self.task.loss(logits[0], batch.y),
            "divergence": self.hparams.jsd_weight * divergence,
        }
