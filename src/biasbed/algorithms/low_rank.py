"""Part of methods that train low-rank updates of frozen weights (Hu et al., ICLR 2022)."""

from __future__ import annotations

from typing import Any

from torch import nn

from biasbed.algorithms.base import Algorithm, Optimizer
from biasbed.networks.low_rank import check_layers


class LowRankUpdates(Algorithm):
    """What such a method adds to the one that it extends, before which it stands among the bases."""

    @classmethod
    def check_backbone(cls, hparams: Any, backbone: nn.Module) -> None:
        super().check_backbone(hparams, backbone)
        check_layers(backbone, hparams.layers)

    def optimizers(self) -> dict[str, Optimizer]:
        return {"main": self.setup.optimizer(p for p in self.parameters() if p.requires_grad)}
