"""Speckle noise: strengths, and images that stay as they are."""

from __future__ import annotations

import torch

from biasbed.algorithms.speckle import Speckle, add_speckle
from biasbed.batch import Batch
from helpers.making import make


def test_half_of_a_batch_is_noisy_with_strengths_of_its_images() -> None:
    algorithm = make("speckle")
    assert isinstance(algorithm, Speckle)
    x, seen = torch.full((40, 3, 32, 32), 0.3), []
    algorithm.network.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]))
    algorithm.logits(x)
    assert torch.equal(seen[0][20:], x[20:])
    assert seen[0].min() >= 0
    low, high = seen[0][:20].flatten(1).quantile(torch.tensor([0.25, 0.75]), dim=1)  # which no clamp has touched
    strengths = (high - low) / (2 * 0.6745 * 0.3)
    nearest = torch.tensor(algorithm.hparams.sigmas)
    assert (strengths[:, None] - nearest).abs().min(1).values.max() < 0.03
    assert len(set((strengths[:, None] - nearest).abs().argmin(1).tolist())) >= 4


def test_black_stays_black_under_speckle() -> None:
    black = torch.zeros(3, 3, 8, 8)
    sigma, noise = make("speckle", {"share": 1.0}).draw(Batch(black))
    assert not add_speckle(black, sigma, noise).any()
