"""FLYP-LoRA: the contrastive loss of FLYP on low-rank updates of both towers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from biasbed.algorithms.base import Setup
from biasbed.algorithms.low_rank import LowRankUpdates
from biasbed.networks.low_rank import UpdateSettings, add_updates
from biasbed.plugins.text_towers.flyp import FLYP


class FLYPLoRA(LowRankUpdates, FLYP):
    """FLYP on low-rank updates of the image tower and the text tower; all other weights are frozen."""

    @dataclass(frozen=True)
    class HParams(UpdateSettings, FLYP.HParams):
        pass

    usual_backbones: ClassVar[str] = "transformers:<a CLIP or SigLIP model>"

    def __init__(self, hparams: Any, setup: Setup) -> None:
        super().__init__(hparams, setup)
        assert self.text is not None
        add_updates(self.network.backbone, hparams)
        add_updates(self.text, hparams)
