"""DisEnt: disentangled feature augmentation (Lee, Kim, Lee, Lee and Choo, NeurIPS 2021)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from biasbed.algorithms.base import Algorithm, Setup, TrainData
from biasbed.algorithms.draws import HostDraws
from biasbed.algorithms.relative_difficulty import RelativeDifficulty, amplified, cross_entropy
from biasbed.batch import Batch
from biasbed.settings import setting


class DisEnt(Algorithm):
    """Two encoders, of what makes the class and of what biases it, and a classifier of both codes for each of them.

    The biased one's loss is `relative_difficulty.amplified`, the other's the cross-entropy, weighted by the relative
    difficulty W of each image (equations 1 and 2); neither loss reaches the other one's encoder. After a warm-up, the
    biased codes of a step are permuted among its images: the class is to be told beside any image's bias, and the
    biased classifier is to follow the code that came (equation 3). Weights stay those of the unpermuted images.
    """

    @dataclass(frozen=True)
    class HParams:
        alpha: float = setting(0.7, "share of the averaged losses that a step leaves (authors)", ge=0, lt=1)
        q: float = setting(0.7, "how far the bias is amplified (authors)", gt=0, le=1)
        biased_weight: float = setting(1.0, "weight of the biased loss, lambda_dis (authors: 10, 2, 1 by data)", ge=0)
        swap_weight: float = setting(1.0, "weight of both permuted losses, lambda_swap (authors: 1, 0.1, 1)", ge=0)
        biased_swap_weight: float = setting(1.0, "of the biased one among them (authors: 10, 2, 1)", ge=0)
        warmup: float = setting(0.2, "part of training before codes are permuted (authors: 10,000 of 50,000)", ge=0, le=1)

    uses: ClassVar[frozenset[str]] = frozenset({"index"})
    tasks: ClassVar[frozenset[str]] = frozenset({"multi_class"})
    coupled: ClassVar[bool] = True
    unused_parameters: ClassVar[bool] = False

    hparams: HParams

    def __init__(self, hparams: Any, setup: Setup) -> None:
        super().__init__(hparams, setup)
        self.encoder, self.biased_encoder = setup.network(head=False), setup.network(head=False)
        width = self.encoder.num_features + self.biased_encoder.num_features
        self.head, self.biased_head = (nn.Linear(width, setup.num_classes) for _ in range(2))
        self._host = HostDraws(setup.group)

    def on_train_data(self, data: TrainData) -> None:
        self.tables = RelativeDifficulty(data.num_examples, data.num_classes, self.hparams.alpha)

    def losses(self, batch: Batch) -> dict[str, Tensor]:
        assert batch.index is not None
        codes, biased_codes = self.encoder(batch.x), self.biased_encoder(batch.x)
        logits, biased_logits = self._both(codes, biased_codes)
        self.observe(logits, batch.y)
        own, biased = cross_entropy(logits, batch.y), cross_entropy(biased_logits, batch.y)
        self.tables.enter(batch.index, batch.y, biased, own, self.group)
        weights = self.tables.weights(batch.index).to(own.dtype)
        terms = {
            "classification": (weights * own).mean(),
            "biased": self.hparams.biased_weight * amplified(biased, self.hparams.q).mean(),
        }
        if self.progress.is_past(self.hparams.warmup):
            other_codes, other_y = self._permuted(biased_codes, batch.y)
            logits, biased_logits = self._both(codes, other_codes)
            swapped = (weights * cross_entropy(logits, batch.y)).mean()
            follows = amplified(cross_entropy(biased_logits, other_y), self.hparams.q).mean()
            terms["swapped"] = self.hparams.swap_weight * swapped
            terms["biased_swapped"] = self.hparams.swap_weight * self.hparams.biased_swap_weight * follows
        return terms

    def per_example(self) -> Mapping[str, Tensor]:
        return {"weight": self.tables.weights()}

    def predict(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(torch.cat([self.encoder(x), self.biased_encoder(x)], 1))
        return logits

    def _both(self, codes: Tensor, biased_codes: Tensor) -> tuple[Tensor, Tensor]:
        """Logits of both classifiers; each one's loss reaches its own encoder alone."""
        own = self.head(torch.cat([codes, biased_codes.detach()], 1))
        biased = self.biased_head(torch.cat([codes.detach(), biased_codes], 1))
        return own, biased

    def _permuted(self, codes: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Of the biased codes and labels of all processes' images, permuted, those that come to this process's."""
        everyone, labels = self.group.gather(codes), self.group.gather(y)
        order = torch.randperm(len(labels), generator=self._host.shared_generator(self.progress)).to(y.device)
        ranks = self.group.gather(torch.full_like(y, self.group.rank))
        mine = torch.argsort((ranks != self.group.rank).long(), stable=True)[: len(y)]
        rows = order[mine]
        return everyone[rows], labels[rows]
