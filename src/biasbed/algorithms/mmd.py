"""MMD: features with the same distribution in all domains (Li, Pan, Wang and Kot, CVPR 2018), as in DomainBed."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from biasbed.algorithms.domains import Matching, averaging_matrix, mean_distance
from biasbed.algorithms.rebias import squared_distances

PRECISIONS = (0.001, 0.01, 0.1, 1.0, 10.0, 100.0, 1000.0)  # one Gaussian kernel each


def sum_kernels(x: Tensor) -> Tensor:
    """Return the sums [N,N] of Gaussian kernels of rows [N,d], exactly len(PRECISIONS) on the diagonal."""
    # Distances in float64: the sharpest kernel multiplies the rounding error of cancelling squares by 1000.
    distances = squared_distances(x).to(x.dtype)
    return torch.stack([(-precision * distances).exp() for precision in PRECISIONS]).sum(0)


def mmd(features: Sequence[Tensor]) -> Tensor:
    """Return the squared maximum mean discrepancy between the domains' features [B,d], averaged over pairs of domains.

    mean K_aa + mean K_bb - 2 mean K_ab with K from `sum_kernels`, pairs of an image with itself included. At most 14.
    """
    averages = averaging_matrix(features)
    return mean_distance(averages @ sum_kernels(torch.cat(list(features))) @ averages.T)


class MMD(Matching):
    """ERM that aligns the distributions of the features across domains."""

    def penalty(self, features: Sequence[Tensor]) -> Tensor:
        return mmd(features)
