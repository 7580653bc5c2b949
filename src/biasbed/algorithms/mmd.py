"""MMD: features whose distribution is the same in all domains (Li, Pan, Wang and Kot, CVPR 2018), as in DomainBed."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from biasbed.algorithms.matching import Matching, averaging, between

PRECISIONS = (0.001, 0.01, 0.1, 1.0, 10.0, 100.0, 1000.0)  # of the Gaussian kernels


def kernels(x: Tensor) -> Tensor:
    """Sums [N,N] of Gaussian kernels of rows [N,d]: exactly as many as there are on the diagonal."""
    # Distances in float64: the sharpest kernel multiplies by 1000 what is left of squares that cancel.
    wide = x.double()
    squares = wide.square().sum(1)
    distances = (squares[:, None] + squares[None, :] - 2 * wide @ wide.T).clamp_min(0)
    distances = distances.masked_fill(torch.eye(len(x), dtype=torch.bool, device=x.device), 0).to(x.dtype)
    return torch.stack([(-precision * distances).exp() for precision in PRECISIONS]).sum(0)


def mmd(features: Sequence[Tensor]) -> Tensor:
    """The squared maximum mean discrepancy of each domain's features [B,d] from those of the others: mean over pairs.

    mean K_aa + mean K_bb - 2 mean K_ab, images with themselves included, of `kernels`; 14 at most.
    """
    averages = averaging(features)
    return between(averages @ kernels(torch.cat(list(features))) @ averages.T)


class MMD(Matching):
    """ERM that makes the distributions of the features alike in all domains."""

    def penalty(self, features: Sequence[Tensor]) -> Tensor:
        return mmd(features)
