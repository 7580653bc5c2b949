"""Methods of ours under settings, or in states, that the conformance suite sees besides."""

from __future__ import annotations

from biasbed.algorithms.base import TrainData
from biasbed.algorithms.biasensemble import BiasEnsemble
from biasbed.algorithms.debiased import Debiased
from biasbed.algorithms.infodrop import InfoDrop
from biasbed.algorithms.lnl import LNL
from biasbed.algorithms.padain import PAdaIN
from biasbed.algorithms.sagnet import SagNet


class Picky(BiasEnsemble):
    """Has selected one image alone, so that one of two processes has none."""

    def on_train_data(self, data: TrainData) -> None:
        super().on_train_data(data)
        self.selected[1:] = False


class SagNetOnViT(SagNet):
    """On tokens (`making.BACKBONES` has the networks of these)."""


class PAdaINOnViT(PAdaIN):
    """On tokens."""


class DebiasedOnViT(Debiased):
    """With twins of layer norms."""


class InfoDropOnViT(InfoDrop):
    """On patches, and on tokens."""


class LNLOnViT(LNL):
    """Half-way through the blocks."""
