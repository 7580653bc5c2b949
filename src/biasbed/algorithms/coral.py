"""CORAL: correlation alignment of features (Sun and Saenko, ECCV workshops 2016), as DomainBed has it."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from biasbed.algorithms.matching import Matching, averaging, between


def coral(features: Sequence[Tensor]) -> Tensor:
    """How far means and covariances of each domain's features [B,d] are from those of the others: a mean over pairs.

    mean_k (mu_a - mu_b)_k^2 + mean_kl (C_a - C_b)_kl^2, with covariances by 1 / (B - 1); zero of a single image. The
    d x d matrices are never made: the inner product of two of them is the sum of the squared inner products of the
    domains' centred features.
    """
    # In float64, as squares that cancel are subtracted from each other.
    wide = [x.double() for x in features]
    means = torch.stack([x.mean(0) for x in wide])
    centred = torch.cat([x - x.mean(0) for x in wide])
    unbiased = averaging(wide, ddof=1)
    products = unbiased @ (centred @ centred.T).square() @ unbiased.T
    return between(means @ means.T) / means.shape[1] + between(products) / means.shape[1] ** 2


class CORAL(Matching):
    """ERM that makes means and covariances of the features alike in all domains."""

    def penalty(self, features: Sequence[Tensor]) -> Tensor:
        return coral(features)
