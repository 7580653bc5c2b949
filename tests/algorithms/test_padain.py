"""pAdaIN's draws and edges; tests/replays/padain.py has the authors' module."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from biasbed.algorithms.padain import swap_statistics
from biasbed.batch import Batch
from helpers.commands import ROOT
from replays import load
from replays.padain import replay_network

VECTORS = ROOT / "tests" / "vectors"


def test_coins(make_algorithm: Any) -> None:
    def share(p: float, training: bool = True) -> float:
        algorithm = make_algorithm("padain", {"p": p}).train(training)
        drawn = [draw is not None for _ in range(300) for draw in algorithm.draw(Batch(torch.empty(4, 3, 8, 8)))]
        return sum(drawn) / len(drawn)

    assert share(0.0) == 0
    assert share(1.0) == 1
    assert share(1.0, training=False) == 0
    assert abs(share(0.2) - 0.2) < 5 * (0.16 / (300 * 12)) ** 0.5


def test_one_permutation_per_swap(make_algorithm: Any) -> None:
    first, second, *_ = make_algorithm("padain", {"p": 1}).draw(Batch(torch.empty(50, 3, 8, 8)))
    assert sorted(first.tolist()) == sorted(second.tolist()) == list(range(50))
    assert not torch.equal(first, second)


def test_one_image_has_no_donor() -> None:
    x = torch.randn(1, 3, 4, 4)
    assert torch.equal(swap_statistics(x, torch.tensor([0])), x)


def test_half_precision_is_computed_in_fp32() -> None:
    """Variances of 1e6 overflow fp16, and eps is lost in it."""
    x = (1000 * torch.randn(4, 2, 8, 8, generator=torch.Generator().manual_seed(0))).half()
    y = swap_statistics(x, torch.tensor([1, 2, 3, 0]))
    assert y.dtype == torch.float16
    torch.testing.assert_close(y.float(), swap_statistics(x.float(), torch.tensor([1, 2, 3, 0])), rtol=1e-3, atol=1e-2)


def test_each_swap_of_a_network_counts() -> None:
    """One permutation of the authors' 17 exchanged for another one."""
    case = load(VECTORS / "padain_net_r18.npz")
    case["perms"][3] = np.roll(case["perms"][3], 1)
    with pytest.raises(AssertionError):
        replay_network(case)
