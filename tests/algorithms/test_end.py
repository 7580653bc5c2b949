"""EnD tests with features of length 1."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from helpers.making import images, make


def test_end_tests_with_features_of_length_1() -> None:
    """A network whose features are ten times as large decides alike; with tanh, some features are negative."""
    algorithm: Any = make("end", {"tanh": True}, backbone="simple_conv").eval()
    with torch.no_grad():
        features = algorithm.network.features(images(4))
        before = algorithm.predict(images(4))
    assert features.norm(dim=1).tolist() == pytest.approx([1, 1, 1, 1])
    assert features.min() < 0
    torch.testing.assert_close(before, algorithm.network.classify(features))
    assert make("end", {}, backbone="simple_conv").eval().network.features(images(4)).min() >= 0
