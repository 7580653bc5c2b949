"""SoftCon beyond its vectors: draws of unlike images, partners, and what it keeps of biased features."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional

from biasbed.algorithms.softcon import NOISE, unlikeness
from biasbed.batch import Batch
from helpers.making import batch_for, make


def test_softcon_draws_what_is_unlike_its_class_most_often() -> None:
    """Three equal images and one that is orthogonal to them; a class of one image."""
    b = torch.tensor([[1.0, 0], [1, 0], [1, 0], [0, 1], [0, 1]])
    y = torch.tensor([0, 0, 0, 0, 1])
    distances = unlikeness(b, y, 3)
    torch.testing.assert_close(distances, torch.tensor([0.25, 0.25, 0.25, 0.75, NOISE]))
    algorithm: Any = make("softcon", {"ratio": 2.0})
    algorithm.unlikeness = distances[:4]
    assert algorithm.drawn.tolist() == [0.25, 0.25, 0.25, 0.5]


def test_softcon_s_partners_are_of_one_class_and_seen_apart() -> None:
    """Images 0 and 1 look the same to the biased network, up to rounding; 2 is opposite, 3 of another class.

    An image is no partner of its own, though its length be rounded.
    """
    algorithm: Any = make("softcon", {})
    b = functional.normalize(torch.tensor([[1.0, 2, 3], [1, 2, 3], [-1, -2, -3], [0, 1, 0]]), dim=1)
    algorithm.bias_features = b[[3, 2, 1, 0]] * torch.tensor([0.99, 1, 1, 1])[:, None]
    pairs = Batch(torch.zeros(4, 2, 3, 1, 1), torch.tensor([0, 0, 0, 1]), index=torch.tensor([3, 2, 1, 0]))
    expected = torch.zeros(4, 4)
    expected[:2, 2] = expected[2, :2] = 2
    torch.testing.assert_close(algorithm.weights(pairs), expected)
    assert not algorithm.weights(pairs)[0, 1]


def test_softcon_keeps_the_directions_of_biased_features() -> None:
    """Whose lengths differ by image; then two images of one class weigh 1 - cosine."""
    algorithm: Any = make("softcon", {})
    batch = batch_for(algorithm)
    scales = torch.linspace(0.5, 4, len(batch))[:, None]
    table = scales * torch.randn(len(batch), algorithm.biased.num_features)
    algorithm.biased.features = lambda x: table
    directions = algorithm.look(batch)["features"]
    torch.testing.assert_close(directions, table / table.norm(dim=1, keepdim=True))
    algorithm.bias_features[: len(batch)] = directions
    pairs = Batch(torch.zeros(2, 2, 3, 1, 1), torch.tensor([1, 1]), index=torch.tensor([0, 5]))
    cosine = functional.cosine_similarity(table[:1], table[5:6])
    torch.testing.assert_close(algorithm.weights(pairs)[0, 1], 1 - cosine[0])


def test_softcon_lets_go_of_the_biased_network_once_it_has_looked() -> None:
    algorithm: Any = make("softcon", {})
    count, width = algorithm.bias_features.shape
    algorithm.keep({"features": functional.normalize(torch.randn(count, width)), "y": torch.arange(count) % 5})
    assert algorithm.marks() == {"released": ["biased"]}
    assert set(algorithm.optimizer_states()) == {"main"}
    assert not [key for key in algorithm.state_dict() if key.startswith("biased.")]
