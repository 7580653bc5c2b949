"""LoRA: fine-tuning of low-rank updates of frozen weights (Hu et al., ICLR 2022)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from biasbed.algorithms.base import Setup
from biasbed.algorithms.erm import ERM
from biasbed.algorithms.low_rank import LowRankUpdates
from biasbed.networks.low_rank import UpdateSettings, add_updates


class LoRA(LowRankUpdates, ERM):
    """ERM on low-rank updates of a network's linear layers, and on its last layer; all other weights are frozen."""

    @dataclass(frozen=True)
    class HParams(UpdateSettings):
        pass

    needs_head: ClassVar[bool] = True
    usual_backbones: ClassVar[str] = "timm:vit_small_patch14_dinov2, transformers:<a ViT or CLIP model>, ..."
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {}

    def __init__(self, hparams: Any, setup: Setup) -> None:
        super().__init__(hparams, setup)
        add_updates(self.network.backbone, hparams)
        assert self.network.head is not None
        self.network.head.requires_grad_(True)
