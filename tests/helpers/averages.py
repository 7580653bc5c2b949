"""Averages computed by hand."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from biasbed.config import Swad


def mean(tensors: Sequence[Tensor]) -> Tensor:
    """In float64, as the tensors' own type."""
    return torch.stack([tensor.double() for tensor in tensors]).mean(0).to(tensors[0].dtype)


def valley(losses: Sequence[float], settings: Swad) -> tuple[int, int] | None:
    """First and last evaluation that is averaged; None before there is a start (algorithm 1, at evaluations)."""
    n_s, n_e, threshold = settings.optimum_patience, settings.overfit_patience, None
    start = 0
    for i in range(len(losses)):
        if threshold is None:
            recent = losses[max(0, i - n_s + 1) : i + 1]
            if i >= n_s - 1 and recent[0] == min(recent):
                start, threshold = i - n_s + 1, settings.tolerance / n_s * math.fsum(recent)
        elif threshold < min(losses[max(0, i - n_e + 1) : i + 1]):
            return start, i - n_e
    return None if threshold is None else (start, len(losses) - 1)
