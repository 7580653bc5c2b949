"""LfF: learning from failure (Nam, Cha, Ahn, Lee and Shin, NeurIPS 2020)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from biasbed.algorithms.base import Algorithm, Setup, TrainData
from biasbed.algorithms.relative_difficulty import RelativeDifficulty, amplified, cross_entropy
from biasbed.batch import Batch
from biasbed.settings import setting


class LfF(Algorithm):
    """Two networks: one whose bias is amplified, and one that learns most from what the first one fails at.

    The biased one minimises `relative_difficulty.amplified`, the other its cross-entropy, weighted by the relative
    difficulty W of each image (equation 4, algorithm 1). One optimizer has both, as they share no parameter.
    """

    @dataclass(frozen=True)
    class HParams:
        alpha: float = setting(0.7, "share of the averaged losses that a step leaves (authors' code)", ge=0, lt=1)
        q: float = setting(0.7, "how far the bias is amplified (paper, section 3.1)", gt=0, le=1)
        biased_backbone: str | None = setting(None, "network that is to be biased (none: as configured)")

    uses: ClassVar[frozenset[str]] = frozenset({"index"})
    tasks: ClassVar[frozenset[str]] = frozenset({"multi_class"})
    coupled: ClassVar[bool] = True

    hparams: HParams

    def __init__(self, hparams: Any, setup: Setup) -> None:
        super().__init__(hparams, setup)
        self.network = setup.network()
        own = hparams.biased_backbone
        self.biased = setup.network() if own is None else setup.network(own)

    def on_train_data(self, data: TrainData) -> None:
        self.tables = RelativeDifficulty(data.num_examples, data.num_classes, self.hparams.alpha)

    def losses(self, batch: Batch) -> dict[str, Tensor]:
        assert batch.index is not None
        logits = self.network(batch.x)
        self.observe(logits, batch.y)
        biased, debiased = cross_entropy(self.biased(batch.x), batch.y), cross_entropy(logits, batch.y)
        self.tables.enter(batch.index, batch.y, biased, debiased, self.group)
        weights = self.tables.weights(batch.index).to(debiased.dtype)
        self.note("weight", weights.mean())
        return {"biased": amplified(biased, self.hparams.q).mean(), "classification": (weights * debiased).mean()}

    def per_example(self) -> Mapping[str, Tensor]:
        return {"weight": self.tables.weights()}

    def predict(self, x: Tensor) -> Tensor:
        logits: Tensor = self.network(x)
        return logits
