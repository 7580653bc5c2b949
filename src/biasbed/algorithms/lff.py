"""LfF: learning from failure (Nam, Cha, Ahn, Lee and Shin, NeurIPS 2020)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from biasbed.algorithms.base import Setup, Terms
from biasbed.algorithms.presets import ADAM, BIASED_MNIST, OPEN, epochs
from biasbed.algorithms.relative_difficulty import DifficultyWeighted, Pair, cross_entropy
from biasbed.batch import Batch
from biasbed.settings import setting


class SeparateNetworks(Pair):
    """Two networks that share nothing."""

    def __init__(self, setup: Setup, biased_backbone: str | None = None) -> None:
        """biased_backbone: architecture of the biased network; None: as configured."""
        super().__init__()
        self.network = setup.network()
        self.biased = setup.network() if biased_backbone is None else setup.network(biased_backbone)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.network(x), self.biased(x)

    def decide(self, x: Tensor) -> Tensor:
        logits: Tensor = self.network(x)
        return logits

    def losses(self, method: DifficultyWeighted, batch: Batch) -> Terms:
        assert batch.index is not None
        logits, biased_logits = self(batch.x)
        method.observe(logits, batch.y)
        ce, biased_ce = cross_entropy(logits, batch.y), cross_entropy(biased_logits, batch.y)
        weights = method.weigh(batch, ce, biased_ce)
        return {"biased": method.biased_mean(biased_ce, batch.index), "classification": (weights * ce).mean()}


class LfF(DifficultyWeighted):
    """Two networks: the bias of one is amplified, and the other learns most from the images that the first one fails.

    The biased network minimises `relative_difficulty.amplify`, the other one its cross-entropy weighted by the
    relative difficulty W of each image (equation 4, algorithm 1).
    """

    @dataclass(frozen=True)
    class HParams(DifficultyWeighted.HParams):
        biased_backbone: str | None = setting(None, "network that is to be biased (none: as configured)")

    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "authors": {
            **BIASED_MNIST,
            "backbone": OPEN,
            "network.scale": "unit_255",
            **epochs(100),
            "batch_size": 256,
            **ADAM,
            "optim.weight_decay": 0.0,
            "optim.schedule": "constant",
            "optim.milestones": OPEN,
            "optim.gamma": OPEN,
            "optim.warmup": 0.0,
            "optim.restarts": (),
            "hparams.alpha": 0.7,
            "hparams.q": 0.7,
            "hparams.biased_backbone": None,
        }
    }

    hparams: HParams

    def __init__(self, hparams: HParams, setup: Setup) -> None:
        super().__init__(hparams, setup)
        self.pair = SeparateNetworks(setup, hparams.biased_backbone)
