"""The Hilbert-Schmidt independence criterion of two networks' features, with Gaussian kernels."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def squared_distances(x: Tensor) -> Tensor:
    """|x_i - x_j|^2 [N,N] of rows [N,D], in float64: exactly 0 on the diagonal, and never below."""
    wide = x.double()
    squares = wide.square().sum(1)
    found = (squares[:, None] + squares[None, :] - 2 * wide @ wide.T).clamp_min(0)
    return found.masked_fill(torch.eye(len(x), dtype=torch.bool, device=x.device), 0)


def median_width(batches: Sequence[Tensor]) -> Tensor:
    """The width of a Gaussian kernel by the median heuristic: a scalar in float64, not differentiated.

    The root of the median of |u - v|^2 over all ordered pairs of rows within each batch [N,D], of a row with itself
    too. Where most rows are equal it is a ten-thousandth of their length, or 1 where that is 0.
    """
    with torch.no_grad():
        found = torch.cat([squared_distances(x).flatten() for x in batches]).sort().values
        median = (found[(len(found) - 1) // 2] + found[len(found) // 2]) / 2
        length = torch.cat([x.double().square().sum(1) for x in batches]).mean()
        square = torch.maximum(median, 1e-8 * length)
        return torch.where(square > 0, square, 1).sqrt()


def hsic(x: Tensor, y: Tensor, width_x: Tensor | float, width_y: Tensor | float) -> Tensor:
    """How dependent rows x [N,D] and y [N,E] of the same images are: a scalar in float64, 0 where they are independent.

    The unbiased estimator (Song, Smola, Gretton, Bedo and Borgwardt, JMLR 2012, equation 5), so perhaps below 0, with
    kernels exp(-|u - v|^2 / (2 width^2)):

        [ tr(KL) + (1'K1)(1'L1) / ((N-1)(N-2)) - 2 (K1)'(L1) / (N-2) ] / (N (N-3))

    with the diagonals of K and L set to 0; computed as sum A_ij B_ij / (N (N-3)) of the two matrices centred that way
    (Szekely and Rizzo 2014), which is the same and loses no digits. It takes four images: 0 of fewer.
    """
    n = len(x)
    if n < 4:
        return (x.sum() + y.sum()).double() * 0
    return (_centred(x, width_x) * _centred(y, width_y)).sum() / (n * (n - 3))


def _centred(x: Tensor, width: Tensor | float) -> Tensor:
    """K_ij - sum_k K_ik / (N-2) - sum_k K_kj / (N-2) + sum K / ((N-1)(N-2)) for i != j, and 0 for i = j.

    Of the kernel minus 1, which changes nothing but that small numbers stay.
    """
    n = len(x)
    kernel = torch.expm1(-squared_distances(x) / (2 * width**2))
    rows = kernel.sum(1)
    found = kernel - (rows[:, None] + rows[None, :]) / (n - 2) + rows.sum() / ((n - 1) * (n - 2))
    return found.masked_fill(torch.eye(n, dtype=torch.bool, device=x.device), 0)
