"""Pieces of training methods for loops of the user's own: layers, losses and penalties.

Layers:
    InfoDrop, PAdaIN: `biasbed.api.layers` describes them.
Losses and penalties, each a function of tensors:
    coral, mmd: distance between the features [B,d] of domains, given as a list.
    irm_penalty: IRMv1's penalty of one domain's logits and labels.
    contrastive: contrastive loss of views, with weights of pairs.
    bias_amplified: cross-entropies [N] that LfF's biased network minimises.
    hsic: dependence of two sets of features.
    swap_statistics, drop_weights: what PAdaIN and InfoDrop compute, as functions of their draws.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from biasbed.algorithms.contrastive import contrastive
from biasbed.algorithms.coral import coral
from biasbed.algorithms.infodrop import drop_weights
from biasbed.algorithms.irm import irm_penalty
from biasbed.algorithms.mmd import mmd
from biasbed.algorithms.padain import swap_statistics
from biasbed.algorithms.rebias import hsic
from biasbed.algorithms.relative_difficulty import amplify as bias_amplified
from biasbed.api.layers import InfoDropLayer as InfoDrop
from biasbed.api.layers import PAdaINLayer as PAdaIN
from biasbed.api.unknown_names import make_error

__all__ = [
    "InfoDrop",
    "PAdaIN",
    "bias_amplified",
    "contrastive",
    "coral",
    "drop_weights",
    "hsic",
    "irm_penalty",
    "mmd",
    "swap_statistics",
]

if not TYPE_CHECKING:  # or every name would be one

    def __getattr__(name: str) -> object:
        raise make_error("biasbed.methods", name, __all__)


def __dir__() -> list[str]:
    return list(__all__)
