"""Bias-contrastive and bias-balanced learning, for known bias labels (Hong and Yang, NeurIPS 2021)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from biasbed.algorithms.base import TrainData
from biasbed.algorithms.contrastive import CONTRASTIVE_MNIST, Contrastive
from biasbed.algorithms.groups import labels
from biasbed.algorithms.presets import epochs
from biasbed.algorithms.requests import Pass, Phase, Stage
from biasbed.batch import MAIN, Batch, at_least_fp32
from biasbed.settings import setting


def prior(y: Tensor, bias: Tensor, classes: int, biases: int) -> Tensor:
    """p(y | b) [C,K] in float64, of all training images' labels [M]; 1/C for a bias that no image has."""
    counts = torch.zeros(classes, biases, dtype=torch.float64, device=y.device)
    counts.index_put_((y, bias), counts.new_ones(()), accumulate=True)
    total = counts.sum(0)
    return torch.where(total > 0, counts / total.clamp_min(1), 1 / classes)


class BiasCon(Contrastive):
    """Cross-entropy that takes into account how often each class has each bias, plus a contrastive loss.

    To the logits of a training image is added log p(y | its bias), so that the network need not learn it (BiasBal). In
    batches of its own, each image is pulled towards those of its class whose bias differs (BiasCon): `contrastive` on
    the features that go into the classifier, divided by their length.
    """

    @dataclass(frozen=True)
    class HParams(Contrastive.HParams):
        balanced: bool = setting(True, "the cross-entropy is balanced by p(y | b)")

    uses: ClassVar[frozenset[str]] = frozenset({"bias"})
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "authors": {**CONTRASTIVE_MNIST, **epochs(80), "hparams.balanced": True}
    }

    hparams: HParams
    prior: Tensor

    def on_train_data(self, data: TrainData) -> None:
        even = torch.full((data.num_classes, data.num_biases), 1 / data.num_classes, dtype=torch.float64)
        self.register_buffer("prior", even)

    def stages(self) -> Sequence[Phase]:
        """Before training, all labels are counted."""
        return (Pass("prior", labels, self.keep), Stage(MAIN, self.update))

    def keep(self, found: Mapping[str, Tensor]) -> None:
        self.prior.copy_(prior(found["y"], found["bias"], *self.prior.shape))

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
