"""LoRA: fine-tuning of low-rank updates of frozen weights (Hu et al., ICLR 2022)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import nn

from biasbed.algorithms.base import Optimizer, Setup
from biasbed.algorithms.erm import ERM
from biasbed.networks.low_rank import UpdateSettings, add_updates, check_layers, is_trained


class LoRA(ERM):
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

    @classmethod
    def check_backbone(cls, hparams: Any, backbone: nn.Module) -> None:
        super().check_backbone(hparams, backbone)
        check_layers(backbone, hparams.layers)

    def optimizers(self) -> dict[str, Optimizer]:
        return {"main": self.setup.optimizer(filter(is_trained, self.parameters()))}
