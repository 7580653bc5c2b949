"""Small things that tests of weights share."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def changed(before: Mapping[str, Tensor], after: Mapping[str, Tensor]) -> set[str]:
    """Return names of the tensors that differ."""
    assert before.keys() == after.keys()
    return {key for key in before if not torch.equal(before[key], after[key])}
