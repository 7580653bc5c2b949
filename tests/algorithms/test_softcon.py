"""SoftCon beyond its vectors: draws of unlike images, partners, and what it keeps of biased features."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional

from biasbed.batch import Batch
from helpers.making import batch_for, make


def test_softcon_keeps_the_directions_of_biased_features() -> None:
    """Whose lengths differ by image; then two images of one class weigh 1 - cosine."""
    algorithm: Any = make("softcon", {})
    batch = batch_for(algorithm)
    scales = torch.linspace(0.5, 4, len(batch))[:, None]
    table = scales * torch.randn(len(batch), algorithm.biased.num_features)
    algorithm.biased.features = lambda x: table
    directions = algorithm.embed_biased(batch)["features"]
    torch.testing.assert_close(directions, table / table.norm(dim=1, keepdim=True))
    algorithm.bias_features[: len(batch)] = directions
    pairs = Batch(torch.zeros(2, 2, 3, 1, 1), torch.tensor([1, 1]), index=torch.tensor([0, 5]))
    cosine = functional.cosine_similarity(table[:1], table[5:6])
    torch.testing.assert_close(algorithm.weights(pairs)[0, 1], 1 - cosine[0])


def test_softcon_lets_go_of_the_biased_network_once_it_has_looked() -> None:
    algorithm: Any = make("softcon", {})
    count, width = algorithm.bias_features.shape
    algorithm.store_bias_features(
        {"features": functional.normalize(torch.randn(count, width)), "y": torch.arange(count) % 5}
    )
    assert algorithm.marks() == {"released": ["biased"]}
    assert set(algorithm.optimizer_states()) == {"main"}
    assert not [key for key in algorithm.state_dict() if key.startswith("biased.")]
