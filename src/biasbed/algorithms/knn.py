"""Weighted k nearest neighbours on frozen features (Wu, Xiong, Yu and Lin 2018, section 3.4; Caron et al. 2021)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from biasbed.algorithms.base import Setup, TrainData
from biasbed.algorithms.erm import ERM
from biasbed.algorithms.requests import Pass, Phase, Stage
from biasbed.batch import MAIN, Batch, at_least_fp32
from biasbed.errors import UsageError
from biasbed.settings import setting

PART = 2**16  # training images whose similarities are computed together
LEAST = 1e-12  # probability of a class without neighbours, so that its logit is finite


class KNN(ERM):
    """Vote of the k most similar training images, each weighted by exp(cosine similarity / temperature).

    Nothing is trained. Steps are ERM's, but no stage takes any.
    """

    @dataclass(frozen=True)
    class HParams:
        k: int = setting(20, "neighbours (Caron et al. 2021, best of 10, 20, 100, 200)", ge=1)
        temperature: float = setting(0.07, "of the weights of the votes (Wu et al. 2018)", gt=0)

    needs_head: ClassVar[bool] = True
    tasks: ClassVar[frozenset[str]] = frozenset({"multi_class"})
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {}

    hparams: HParams
    bank: Tensor  # [N,D] features of the training images, each of length 1
    labels: Tensor  # [N]

    def __init__(self, hparams: Any, setup: Setup) -> None:
        super().__init__(hparams, setup)
        self.num_features = self.network.num_features  # refuses networks without a head

    def on_train_data(self, data: TrainData) -> None:
        if self.hparams.k > data.num_examples:
            raise UsageError(f"hparams.k={self.hparams.k}: there are only {data.num_examples} training images")
        dtype = next(self.network.parameters()).dtype
        self.register_buffer("bank", torch.zeros(data.num_examples, self.num_features, dtype=dtype))
        self.register_buffer("labels", torch.zeros(data.num_examples, dtype=torch.int64))

    def stages(self) -> Sequence[Phase]:
        """Return the pass over the training images, and a step without change, so that the model is tested."""
        return (
            Pass("features", self.embed_with_label, self.store_bank),
            Stage(MAIN, self.evaluate_batch, steps=1, learns=False),
        )

    def embed_with_label(self, batch: Batch) -> Mapping[str, Tensor]:
        return {"y": batch.y, "features": self.embed(batch.x)}

    def store_bank(self, values: Mapping[str, Tensor]) -> None:
        """Keep the features and labels of all training images."""
        self.bank.copy_(values["features"])
        self.labels.copy_(values["y"])

    @torch.no_grad()
    def evaluate_batch(self, batch: Batch) -> Mapping[str, Tensor]:
        """Return the loss of a batch. Each image is among its own neighbours."""
        self.eval()
        logits = self.predict(batch.x)
        self.observe(logits, batch.y)
        return {"classification": self.task.loss(logits, batch.y)}

    def embed(self, x: Tensor) -> Tensor:
        """Return the features [N,D] of images, each of length 1."""
        return functional.normalize(self.setup.features(self.network, x), dim=1)

    def predict(self, x: Tensor) -> Tensor:
        """Return the logarithms of the votes as parts of all votes."""
        queries = self.embed(x)
        with torch.autocast(queries.device.type, enabled=False):
            return self.vote(queries).clamp_min(LEAST).log()

    def vote(self, queries: Tensor) -> Tensor:
        """Return each class's part of the neighbours' weights [N,K] for features [N,D] of length 1."""
        count = queries.shape[0]  # not len(), which would fix the batch size of an exported model
        similarity, index = queries.new_empty(count, 0), self.labels.new_empty(count, 0)
        start = 0
        for part in self.bank.split(PART):
            similar = queries @ at_least_fp32(part).T
            similarity = torch.cat([similarity, similar], dim=1)
            numbers = torch.arange(start, start + len(part), device=index.device).expand(count, -1)
            index = torch.cat([index, numbers], dim=1)
            nearest = similarity.topk(min(self.hparams.k, similarity.shape[1]), dim=1)
            similarity, index = nearest.values, index.gather(1, nearest.indices)
            start += len(part)
        weights = (similarity / self.hparams.temperature).softmax(dim=1)  # their sum cancels: no exp overflows
        votes = weights.new_zeros(count, self.setup.num_classes)
        return votes.scatter_add(1, self.labels[index], weights)
