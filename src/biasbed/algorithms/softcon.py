"""SoftCon: bias-contrastive learning without bias labels (Hong and Yang, NeurIPS 2021)."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from biasbed.algorithms.base import Optimizer, Setup, TrainData
from biasbed.algorithms.contrastive import CONTRASTIVE_MNIST, PAIRS, Contrastive
from biasbed.algorithms.presets import epochs
from biasbed.algorithms.requests import Pass, Phase, Stage, StreamRequest, View
from biasbed.batch import MAIN, Batch, at_least_fp32
from biasbed.settings import setting

NOISE = 1e-6  # bound on the rounding error of 1 - cosine for equal directions


def unlikeness(features: Tensor, y: Tensor, classes: int, compared: Tensor | None = None) -> Tensor:
    """Return each image's mean [M] of 1 - cosine with the images of its class, at least `NOISE`.

    features [M,D]: of length 1. y [M]: in [0, classes). compared: positions of the images to compare with (None: all).
    The result is the expectation of the authors' estimate from random images.
    """
    compared = torch.arange(len(y), device=y.device) if compared is None else compared
    sums = features.new_zeros(classes, features.shape[1]).index_add_(0, y[compared], features[compared])
    means = sums / torch.bincount(y[compared], minlength=classes).clamp_min(1)[:, None]
    return (1 - (features * means[y]).sum(1)).clamp_min(NOISE)


class SoftCon(Contrastive):
    """Cross-entropy plus a contrastive loss that pulls together images of a class that a biased network separates.

    First a biased network with a small receptive field is trained by ERM, and its features b of all training images,
    of length 1, are stored. Then two images of one class have the weight 1 - b_i.b_j in the contrastive loss. Images
    for it are drawn more often the more they differ from their class (section 4.3).
    """

    @dataclass(frozen=True)
    class HParams(Contrastive.HParams):
        biased_backbone: str = setting("simple_conv_1x1", "the biased network, of a small receptive field (authors)")
        share: float = setting(0.5, "part of training that the biased network takes (authors: half)", gt=0, lt=1)
        ratio: float = setting(
            10.0, "largest ratio of two images' probabilities to be drawn (authors: 10; 1: all equal)", ge=1
        )

    uses: ClassVar[frozenset[str]] = frozenset({"index"})
    unused_parameters: ClassVar[bool] = True  # the biased network's, until it is released
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "authors": {
            **CONTRASTIVE_MNIST,
            **epochs(160),
            "hparams.biased_backbone": "simple_conv_1x1",
            "hparams.share": 0.5,
            "hparams.ratio": 10.0,
        }
    }

    hparams: HParams
    bias_features: Tensor
    unlikeness: Tensor

    @classmethod
    def needs(cls, hparams: Any) -> frozenset[str]:
        """Return `bias_type`: no bias labels, but a bias that a small receptive field sees."""
        return super().needs(hparams) | {"bias_type"}

    @classmethod
    def streams(cls, hparams: Any) -> Mapping[str, StreamRequest]:
        """Return the main stream, and a stream of pairs drawn by the table `drawn`."""
        pairs = StreamRequest(size=hparams.pairs, views=(View(), View()), weights="drawn", replacement=True)
        return {MAIN: StreamRequest(), PAIRS: pairs}

    def __init__(self, hparams: HParams, setup: Setup) -> None:
        super().__init__(hparams, setup)
        self.biased = setup.network(hparams.biased_backbone)

    def on_train_data(self, data: TrainData) -> None:
        self._classes = data.num_classes
        like = next(self.biased.parameters())
        self.register_buffer("bias_features", like.new_zeros(data.num_examples, self.biased.num_features))
        self.register_buffer("unlikeness", like.new_zeros(data.num_examples))

    def optimizers(self) -> dict[str, Optimizer]:
        make = self.setup.optimizer
        return {"main": make(self.network.parameters()), "biased": make(self.biased.parameters())}

    def stages(self) -> Sequence[Phase]:
        """Return the biased network's training, the pass for its features, and the network's training."""
        first = Stage(
            "biased",
            functools.partial(self.update_other, "biased"),
            share=self.hparams.share,
            streams={MAIN: StreamRequest()},
            validate=self.predict_biased,
        )
        return (first, Pass("bias_features", self.embed_biased, self.store_bias_features), Stage(MAIN, self.update))

    def predict_biased(self, x: Tensor) -> Tensor:
        """Return the logits of the biased network."""
        logits: Tensor = self.biased(x)
        return logits

    def embed_biased(self, batch: Batch) -> Mapping[str, Tensor]:
        features = functional.normalize(at_least_fp32(self.biased.features(batch.x)), dim=1)
        return {"features": features, "y": batch.y}

    def store_bias_features(self, values: Mapping[str, Tensor]) -> None:
        """Store the biased network's features and what follows from them, and release the network."""
        self.bias_features.copy_(values["features"])
        y = values["y"].to(self.bias_features.device)
        self.unlikeness.copy_(unlikeness(self.bias_features, y, self._classes))
        self.release("biased")

    @property
    def drawn(self) -> Tensor:
        """Relative frequency [num_examples] with which each training image is drawn."""
        return self.unlikeness.clamp_max(self.hparams.ratio * self.unlikeness.min())

    def weights(self, pairs: Batch) -> Tensor:
        """Return weights [N,N] of pairs over all processes: 1 - b_i.b_j within a class, 0 for an image with itself."""
        assert pairs.index is not None
        y, index = self.group.gather(pairs.y), self.group.gather(pairs.index)
        b = self.bias_features[index]
        apart = 1 - b @ b.T
        return apart * ((y[:, None] == y[None, :]) & (index[:, None] != index[None, :]) & (apart > NOISE))

    def per_example(self) -> Mapping[str, Tensor]:
        return {"unlikeness": self.unlikeness}
