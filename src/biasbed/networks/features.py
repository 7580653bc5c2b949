"""Features of networks, as methods that fit a last layer take them."""

from __future__ import annotations

from torch import Tensor

from biasbed.batch import at_least_fp32
from biasbed.networks.network import Network


def compute_features(network: Network, x: Tensor) -> Tensor:
    """Return the inputs [N,D] of a network's last linear layer for images [N,C,H,W], in fp32 or more."""
    return at_least_fp32(network.features(x))
