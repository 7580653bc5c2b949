"""Part of methods that train low-rank updates of frozen weights (Hu et al., ICLR 2022)."""

from __future__ import annotations

from typing import Any

from torch import nn

from biasbed.algorithms.base import Algorithm, Optimizer
from biasbed.networks.low_rank import check_layers


class LowRankUpdates(Algorithm):
    """Addition to a method, before which it stands among the bases: only updates and what is unfrozen are trained."""

    @classmethod
    def check_backbone(cls, hparams: Any, backbone: nn.Module) -> None:
        super().check_backbone(hparams, backbone)
        check_layers(backbone, hparams.layers)

    def optimizers(self) -> dict[str, Optimizer]:
        return {"main": self.setup.optimizer(p for p in self.parameters() if p.requires_grad)}
