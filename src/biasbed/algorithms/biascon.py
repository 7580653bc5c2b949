"""Bias-contrastive and bias-balanced learning, for known bias labels (Hong and Yang, NeurIPS 2021)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from biasbed.algorithms.base import TrainData
from biasbed.algorithms.contrastive import contrastive
from biasbed.algorithms.erm import ERM
from biasbed.algorithms.groups import labels
from biasbed.algorithms.presets import ADAM, BIASED_MNIST, STEPS, epochs
from biasbed.algorithms.requests import Pass, Phase, Stage, StreamRequest, View
from biasbed.batch import MAIN, Batch, at_least_fp32
from biasbed.settings import setting

PAIRS = "pairs"  # the stream of the contrastive loss


def prior(y: Tensor, bias: Tensor, classes: int, biases: int) -> Tensor:
    """p(y | b) [C,K] in float64, of all training images' labels [M]; 1/C for a bias that no image has."""
    counts = torch.zeros(classes, biases, dtype=torch.float64, device=y.device)
    counts.index_put_((y, bias), counts.new_ones(()), accumulate=True)
    total = counts.sum(0)
    return torch.where(total > 0, counts / total.clamp_min(1), 1 / classes)


class BiasCon(ERM):
    """Cross-entropy that takes into account how often each class has each bias, plus a contrastive loss.

    To the logits of a training image is added log p(y | its bias), so that the network need not learn it (BiasBal). In
    batches of its own, each image is pulled towards those of its class whose bias differs (BiasCon): `contrastive` on
    the features that go into the classifier, divided by their length.
    """

    @dataclass(frozen=True)
    class HParams:
        ce_weight: float = setting(1.0, "weight of the cross-entropy (authors: 1; 0.01 on Biased-MNIST)", gt=0)
        temperature: float = setting(0.07, "of the similarities (authors)", gt=0)
        pairs: int = setting(64, "images of a contrastive batch, each in two views (authors)", ge=4)
        balanced: bool = setting(True, "the cross-entropy is balanced by p(y | b)")

    uses: ClassVar[frozenset[str]] = frozenset({"bias"})
    tasks: ClassVar[frozenset[str]] = frozenset({"multi_class"})
    coupled: ClassVar[bool] = True
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "authors": {
            **BIASED_MNIST,
            **epochs(80),
            "batch_size": 128,
            **ADAM,
            **STEPS,
            "optim.milestones": (1 / 3, 2 / 3),
            "hparams.ce_weight": 0.01,
            "hparams.temperature": 0.07,
            "hparams.pairs": 64,
            "hparams.balanced": True,
        }
    }

    hparams: HParams
    prior: Tensor

    @classmethod
    def streams(cls, hparams: Any) -> Mapping[str, StreamRequest]:
        return {MAIN: StreamRequest(), PAIRS: StreamRequest(size=hparams.pairs, views=(View(), View()))}

    def on_train_data(self, data: TrainData) -> None:
        even = torch.full((data.num_classes, data.num_biases), 1 / data.num_classes, dtype=torch.float64)
        self.register_buffer("prior", even)

    def stages(self) -> Sequence[Phase]:
        """Before training, all labels are counted."""
        return (Pass("prior", labels, self.keep), Stage(MAIN, self.update))

    def keep(self, found: Mapping[str, Tensor]) -> None:
        self.prior.copy_(prior(found["y"], found["bias"], *self.prior.shape))

    def losses(self, batch: Batch) -> dict[str, Tensor]:
        logits = self.network(batch.x)
        self.observe(logits, batch.y)
        classification = self.task.loss(self.balance(logits, batch), batch.y)
        return {
            "classification": self.hparams.ce_weight * classification,
            "contrastive": self.contrast(batch.extra[PAIRS]),
        }

    def contrast(self, pairs: Batch) -> Tensor:
        """The contrastive loss of images [N,V,C,H,W], those of all processes."""
        features = self.network.features(pairs.x.flatten(0, 1))
        with torch.autocast(self.group.device.type, enabled=False):
            h = functional.normalize(at_least_fp32(features), dim=1).unflatten(0, pairs.x.shape[:2])
            return contrastive(self.group.gather(h), self.weights(pairs), self.hparams.temperature)

    def balance(self, logits: Tensor, batch: Batch) -> Tensor:
        """Logits [N,C] plus log p(y | b) of each image's bias."""
        if not self.hparams.balanced:
            return logits
        logits = at_least_fp32(logits)
        return logits + self.prior.log().to(logits.dtype).T[batch.bias]

    def weights(self, pairs: Batch) -> Tensor:
        """Of pairs [N,N] of all processes' images: 1 for those of the same class and different biases, else 0."""
        assert pairs.bias is not None
        y, bias = self.group.gather(pairs.y), self.group.gather(pairs.bias)
        return (y[:, None] == y[None, :]) & (bias[:, None] != bias[None, :])
