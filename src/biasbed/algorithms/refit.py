"""Last layer of a network that is not learned by steps but computed from the features of all images."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from biasbed.algorithms.base import Setup, TrainData
from biasbed.algorithms.erm import ERM
from biasbed.batch import Batch
from biasbed.errors import Failure
from biasbed.networks.heads import no_head_error


class Refit(ERM):
    """Base of methods that compute a last layer from features. Steps are ERM's, for those that have any."""

    strength: Tensor  # C of the last layer, for the log

    def __init__(self, hparams: Any, setup: Setup) -> None:
        super().__init__(hparams, setup)
        if self.network.head is None or self.network.head.bias is None:
            raise no_head_error(self.network.get_submodule("backbone"))

    def on_train_data(self, data: TrainData) -> None:
        self.num_classes = data.num_classes
        self.register_buffer("strength", torch.zeros((), dtype=torch.float64))

    def refuse_missing(self, y: np.ndarray, images: str = "training") -> None:
        """Raise Failure if a class has no images to fit the last layer on. images: the kind that y belongs to."""
        missing = sorted(set(range(self.num_classes)) - set(y.tolist()))
        if missing:
            raise Failure(f"no {images} image is of class {missing[0]}; a last layer can't be fitted without one")

    @torch.no_grad()
    def set_head(self, weights: np.ndarray, intercepts: np.ndarray, strength: float) -> None:
        """Make weights [K,D] and intercepts [K] the network's last layer."""
        assert self.network.head is not None
        weight, bias = map(self.network.head.get_parameter, ("weight", "bias"))
        weight.copy_(torch.from_numpy(weights).view_as(weight))
        bias.copy_(torch.from_numpy(intercepts))
        self.strength.fill_(strength)

    @torch.no_grad()
    def evaluate_batch(self, batch: Batch) -> Mapping[str, Tensor]:
        """Return the loss of a batch in evaluation mode; no weight changes."""
        self.eval()
        logits = self.predict(batch.x)
        self.observe(logits, batch.y)
        self.note("strength", self.strength)
        return {"classification": self.task.loss(logits, batch.y)}
