"""The Hilbert-Schmidt independence criterion, written out term by term."""

from __future__ import annotations

import torch
from torch import Tensor


def kernel(x: Tensor, width: float) -> Tensor:
    """Return the Gaussian kernel [N,N] of rows [N,D] with zeros on the diagonal."""
    distances = (x[:, None] - x[None, :]).square().sum(-1)
    return (-distances / (2 * width**2)).exp() * (1 - torch.eye(len(x), dtype=x.dtype))


def independence(x: Tensor, y: Tensor, width_x: float, width_y: float) -> Tensor:
    """Return the unbiased estimate for rows [N,D] and [N,E] (Song et al. 2012, equation 5)."""
    n, k, m = len(x), kernel(x, width_x), kernel(y, width_y)
    product = k.sum() * m.sum() / ((n - 1) * (n - 2))
    return ((k @ m).trace() + product - 2 * (k.sum(1) @ m.sum(1)) / (n - 2)) / (n * (n - 3))


def median_width(x: Tensor) -> float:
    """Return the root of the median of |x_i - x_j|^2 over all ordered pairs of rows [N,D], each with itself too."""
    distances = (x[:, None] - x[None, :]).square().sum(-1)
    return float(distances.quantile(0.5).sqrt())
