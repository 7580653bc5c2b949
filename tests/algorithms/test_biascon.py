"""BiasCon beyond its vectors: counts of labels, and features of length zero."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional

from biasbed.algorithms.biascon import prior
from biasbed.batch import to_unit_length
from helpers.making import batch_for, make


def test_features_of_length_zero_get_no_gradient_and_others_their_own() -> None:
    torch.manual_seed(0)
    features = torch.randn(4, 3, dtype=torch.float64)
    features[1] = 0
    ours, plain = (features.clone().requires_grad_() for _ in range(2))
    slopes = torch.randn(4, 3, dtype=torch.float64)
    torch.testing.assert_close(to_unit_length(ours), functional.normalize(plain, dim=1), rtol=0, atol=0)
    (to_unit_length(ours) * slopes).sum().backward()
    (functional.normalize(plain, dim=1) * slopes).sum().backward()
    assert ours.grad is not None
    assert plain.grad is not None
    rows = [0, 2, 3]
    torch.testing.assert_close(ours.grad[rows], plain.grad[rows], rtol=0, atol=0)
    assert plain.grad[1].abs().max() > 1e9  # from which a training would not recover
    assert not ours.grad[1].any()


def test_biascon_counts_labels() -> None:
    y, bias = torch.tensor([0, 0, 0, 1, 1]), torch.tensor([0, 0, 1, 0, 1])
    expected = torch.tensor([[2 / 3, 1 / 2, 1 / 2], [1 / 3, 1 / 2, 1 / 2]], dtype=torch.float64)
    torch.testing.assert_close(prior(y, bias, 2, 3), expected)


def test_biascon_s_cross_entropy_rules_out_what_never_happens() -> None:
    algorithm: Any = make("biascon", {}, num_classes=2)
    algorithm.set_prior({"y": torch.tensor([0, 0, 1, 0]), "bias": torch.tensor([0, 0, 1, 1])})
    batch = batch_for(algorithm, "two_classes")
    logits = algorithm.balance(torch.zeros(len(batch), 2), batch)
    first = logits[batch.bias == 0].softmax(1)
    assert first.tolist() == [[1, 0]] * len(first)
    second = logits[batch.bias == 1].softmax(1)
    torch.testing.assert_close(second, torch.full_like(second, 0.5))
    assert make("biascon", {"balanced": False}).balance(logits, batch) is logits
