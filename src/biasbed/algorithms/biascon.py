"""Bias-contrastive and bias-balanced learning, for known bias labels (Hong and Yang, NeurIPS 2021)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from biasbed.algorithms.base import TrainData
from biasbed.algorithms.contrastive import CONTRASTIVE_MNIST, Contrastive
from biasbed.algorithms.groups import group_labels
from biasbed.algorithms.presets import epochs
from biasbed.algorithms.requests import Pass, Phase, Stage
from biasbed.batch import MAIN, Batch, at_least_fp32
from biasbed.settings import setting


def prior(y: Tensor, bias: Tensor, classes: int, biases: int) -> Tensor:
    """Return p(y | b) [C,K] in float64 from all training images' labels [M]; 1/C for a bias that no image has."""
    counts = torch.zeros(classes, biases, dtype=torch.float64, device=y.device)
    counts.index_put_((y, bias), counts.new_ones(()), accumulate=True)
    total = counts.sum(0)
    return torch.where(total > 0, counts / total.clamp_min(1), 1 / classes)


class BiasCon(Contrastive):
    """Cross-entropy corrected for how often each class has each bias (BiasBal), plus a contrastive loss (BiasCon).

    BiasBal adds log p(y | bias) to the logits of a training image, so that the network need not learn it. BiasCon draws
    separate batches and pulls each image towards images of its class with another bias: `contrastive` on the input of
    the classifier, divided by its length.
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
        """Return a pass that counts the labels, then training."""
        return (Pass("prior", group_labels, self.set_prior), Stage(MAIN, self.update))

    def set_prior(self, values: Mapping[str, Tensor]) -> None:
        """Compute the prior from all training labels."""
        self.prior.copy_(prior(values["y"], values["bias"], *self.prior.shape))

    def balance(self, logits: Tensor, batch: Batch) -> Tensor:
        """Return logits [N,C] plus log p(y | b) of each image's bias."""
        if not self.hparams.balanced:
            return logits
        logits = at_least_fp32(logits)
        return logits + self.prior.log().to(logits.dtype).T[batch.bias]

    def weights(self, pairs: Batch) -> Tensor:
        """Return weights [N,N] of pairs over all processes: 1 for the same class and different biases, else 0."""
        assert pairs.bias is not None
        y, bias = self.group.gather(pairs.y), self.group.gather(pairs.bias)
        return (y[:, None] == y[None, :]) & (bias[:, None] != bias[None, :])
