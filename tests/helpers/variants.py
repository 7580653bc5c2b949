"""Methods of ours under settings, or in states, that the conformance suite sees besides."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from biasbed.algorithms.base import TrainData
from biasbed.algorithms.biasensemble import BiasEnsemble
from biasbed.algorithms.debiased import Debiased
from biasbed.algorithms.group_dro import GroupDRO
from biasbed.algorithms.infodrop import InfoDrop
from biasbed.algorithms.lnl import LNL
from biasbed.algorithms.padain import PAdaIN
from biasbed.algorithms.sagnet import SagNet
from biasbed.settings import setting


class Grouped(GroupDRO):
    """Weighs classes x biases in place of domains."""

    tasks: ClassVar[frozenset[str]] = frozenset({"multi_class"})
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {}

    @dataclass(frozen=True)
    class HParams(GroupDRO.HParams):
        eta: float = setting(0.5, "how fast the weights follow", ge=0)
        over: Literal["domain", "group"] = setting("group", "what is weighed")


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
