"""CORAL: correlation alignment of features (Sun and Saenko, ECCV workshops 2016), as in DomainBed."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from biasbed.algorithms.domains import Matching, averaging_matrix, mean_distance


def coral(features: Sequence[Tensor]) -> Tensor:
    """Return the distance between the domains' features [B,d] in mean and covariance, averaged over pairs of domains.

    mean_k (mu_a - mu_b)_k^2 + mean_kl (C_a - C_b)_kl^2, with covariances divided by B - 1 (zero for a single image).
    The d x d matrices are never built: the inner product of two of them is the sum of the squared inner products of the
    domains' centred features.
    """
    # In float64, because squares that nearly cancel are subtracted from each other.
    wide = [x.double() for x in features]
    means = torch.stack([x.mean(0) for x in wide])
    centred = torch.cat([x - x.mean(0) for x in wide])
    unbiased = averaging_matrix(wide, ddof=1)
    products = unbiased @ (centred @ centred.T).square() @ unbiased.T
    return mean_distance(means @ means.T) / means.shape[1] + mean_distance(products) / means.shape[1] ** 2


class CORAL(Matching):
    """ERM that aligns means and covariances of the features across domains."""

    def penalty(self, features: Sequence[Tensor]) -> Tensor:
        return coral(features)
