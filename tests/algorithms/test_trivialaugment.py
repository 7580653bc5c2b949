"""TrivialAugment beside torchvision."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional
from torchvision.transforms import v2

from biasbed.data import views
from biasbed.data.transforms import keyed_randomness

SIDE = 24


def photograph(side: int = SIDE, channels: int = 3) -> Tensor:
    """Return smooth bytes [C,side,side], of which none is 0."""
    coarse = torch.rand(1, channels, 5, 5, generator=torch.Generator().manual_seed(3))
    smooth = functional.interpolate(coarse, side, mode="bilinear")[0]
    return (20 + 230 * smooth).to(torch.uint8)


def test_trivialaugment_is_torchvision_s_and_bins_are_its_strengths() -> None:
    image = photograph()
    augmented = []
    for bins in (31, 2):
        with keyed_randomness(4):
            augmented.append([views.make("trivialaugment", {"bins": bins})(image) for _ in range(8)])
        with keyed_randomness(4):
            theirs = v2.TrivialAugmentWide(num_magnitude_bins=bins)
            assert all(torch.equal(ours, theirs(image)) for ours in augmented[-1])
    assert not all(torch.equal(many_bins, few_bins) for many_bins, few_bins in zip(*augmented, strict=True))
