"""A method that asks for networks as real ones do: features and head apart, another architecture beside it."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from biasbed.algorithms.base import Algorithm, Setup
from biasbed.batch import Batch


class Asking(Algorithm):
    """A penalty on features, and a narrow network without batch norm that learns the same beside an encoder."""

    def __init__(self, hparams: Any, setup: Setup) -> None:
        super().__init__(hparams, setup)
        self.network = setup.network("mnist_convnet")
        self.encoder = setup.network("mnist_convnet", head=False, width=0.25)
        self.beside = setup.network("mnist_convnet", outputs=self.encoder.num_features)

    def losses(self, batch: Batch) -> dict[str, Tensor]:
        features = self.network.features(batch.x)
        logits = self.network.classify(features)
        self.observe(logits, batch.y)
        apart = (self.encoder(batch.x) - self.beside(batch.x)).square().mean()
        return {"classification": self.task.loss(logits, batch.y), "size": features.square().mean(), "apart": apart}

    def predict(self, x: Tensor) -> Tensor:
        logits: Tensor = self.network(x)
        return logits
