"""HEX beyond its vectors: projection, norms in tests, textures of large images."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from biasbed.algorithms import hex as hex_method
from biasbed.algorithms.base import Progress
from biasbed.algorithms.hex import NGLCM, grey_levels, project_out
from helpers.making import batch_for, images, make


def test_hex_projects_where_textures_are_fewer_than_classes() -> None:
    """The rest is orthogonal to every column of the texture's logits, and a second projection changes nothing."""
    generator = torch.Generator().manual_seed(0)
    texture = torch.randn(30, 2, generator=generator, dtype=torch.float64) @ torch.randn(2, 5, dtype=torch.float64)
    logits = torch.randn(30, 5, generator=generator, dtype=torch.float64, requires_grad=True)
    projected = project_out(logits, texture.requires_grad_())
    assert torch.linalg.matrix_rank(texture) == 2
    torch.testing.assert_close(texture.T @ projected, torch.zeros(5, 5, dtype=torch.float64), atol=1e-10, rtol=0)
    torch.testing.assert_close(project_out(projected, texture), projected)
    slopes = torch.autograd.grad(projected.square().sum(), [logits, texture])
    assert all(bool(slope.isfinite().all()) for slope in slopes)
    none = torch.zeros(30, 5, dtype=torch.float64)
    torch.testing.assert_close(project_out(logits, none), logits)


def test_hex_of_black_images_and_of_single_ones() -> None:
    algorithm: Any = make("hex", {"warmup": 0.0, "levels": 4}, backbone="simple_conv")
    batch = batch_for(algorithm)
    batch.x[0] = 0
    algorithm.progress = Progress()
    assert bool(algorithm.update(batch)["classification"].isfinite())
    algorithm.eval()
    with torch.no_grad():
        together, single = algorithm.predict(batch.x), algorithm.predict(batch.x[:1])
    torch.testing.assert_close(together[:1], single)
    assert not grey_levels(batch.x, 4)[0].any()


def test_hex_tests_with_the_norms_of_training() -> None:
    """Running norms become those of a batch that is repeated, and tests divide by them."""
    algorithm: Any = make("hex", {"warmup": 0.99}, backbone="timm:test_resnet")
    batch = batch_for(algorithm)
    features = algorithm.network.features(batch.x).detach()
    algorithm.network.features = lambda x: features
    algorithm.progress = Progress()
    for _ in range(200):
        algorithm.losses(batch)
    torch.testing.assert_close(algorithm.norms, torch.linalg.vector_norm(features, dim=0))
    logits = algorithm.network.classify(features / algorithm.norms)
    torch.testing.assert_close(algorithm.eval().predict(batch.x), logits)


def test_hex_s_texture_is_of_the_mean_over_pixels() -> None:
    """The layer's weights by the co-occurrences over 12 x 20 pixels, and nothing below 0."""
    algorithm: Any = make("hex", {"levels": 4, "textures": 6}, backbone="simple_conv").double()
    x = images(3, 12, 20).double()
    weight, shift = algorithm.texture.weight, algorithm.texture.bias
    expected = (algorithm.nglcm(x).flatten(1) / 240) @ weight.T + shift
    assert (expected < 0).any()
    torch.testing.assert_close(algorithm.textures(x), torch.where(expected > 0, expected, 0))


def test_hex_keeps_little_of_large_images(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut into blocks, sums and gradients are what they are of all at once; and what is kept for them is the images."""
    levels, x = NGLCM(4, (1, -1), 1e-5).double(), images(6).double()
    thresholds = list(levels.parameters())

    def slopes() -> list[torch.Tensor]:
        kept.clear()
        with torch.autograd.graph.saved_tensors_hooks(lambda t: (kept.append(t.numel()), t)[1], lambda t: t):
            sums = levels(x)
        return [sums, *torch.autograd.grad(sums.square().sum(), thresholds)]

    kept: list[int] = []
    at_once = slopes()
    monkeypatch.setattr(hex_method, "BLOCK", 4 * x[0, 0].numel())
    for cut, uncut in zip(slopes(), at_once, strict=True):
        torch.testing.assert_close(cut, uncut)
    assert sum(kept) <= 2 * x[:, 0].numel() + 6 * 8, "both images of levels, and the thresholds of each block"
