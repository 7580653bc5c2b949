"""Random Erasing: law of its rectangles, and what they are filled with."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torchvision.transforms import v2

from biasbed.algorithms.random_erasing import RandomErasing, choose_rectangles, mask_inside
from helpers.making import make


def test_rectangles_have_the_law_of_torchvision_s() -> None:
    """Mean area 0.18 where anything is erased, as measured of torchvision's; within the image; of the ratios asked."""
    count, size = 4000, (60, 40)
    boxes = choose_rectangles(
        torch.rand(count, 10, 4, generator=torch.Generator().manual_seed(0)), size, (0.02, 0.33), (0.3, 3.3)
    )
    top, left, height, width = boxes.T
    assert (top >= 0).all()
    assert (left >= 0).all()
    assert (top + height <= size[0]).all()
    assert (left + width <= size[1]).all()
    assert (height > 0).float().mean() > 0.99
    area = (height * width) / (size[0] * size[1])
    assert 0.015 < area[area > 0].min() < 0.03
    assert area.max() == pytest.approx(0.33, abs=0.015)
    torch.manual_seed(0)
    theirs = [v2.RandomErasing(1.0).make_params([torch.zeros(3, *size)]) for _ in range(1500)]
    expected = np.mean([box["h"] * box["w"] / (size[0] * size[1]) for box in theirs if box["v"] is not None])
    assert float(area.mean()) == pytest.approx(float(expected), abs=0.01)
    assert torch.equal(mask_inside(boxes, size).sum((1, 2, 3)), (height * width).long())


def test_no_rectangle_that_fits_is_none() -> None:
    """A rectangle as large as the image is never smaller than it both ways."""
    assert not choose_rectangles(torch.full((2, 10, 4), 0.5), (8, 8), (1.0, 1.0), (1.0, 1.0)).any()


def erased(**hparams: Any) -> tuple[Tensor, Tensor]:
    """(what the backbone sees of images, what it sees of them otherwise)."""
    algorithm = make("random_erasing", hparams)
    assert isinstance(algorithm, RandomErasing)
    x, seen = torch.rand(64, 3, 16, 16, generator=torch.Generator().manual_seed(2)), []
    backbone = algorithm.network.get_submodule("backbone")
    backbone.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]))
    algorithm.logits(x)
    algorithm.eval().logits(x)
    return seen[0], seen[1]


def test_what_is_erased_has_the_mean_colour_once_normalised() -> None:
    erased_images, plain = erased(p=1.0)
    changed = (erased_images != plain).any(1)
    assert changed.flatten(1).any(1).all()
    assert not erased_images.transpose(0, 1)[:, changed].any()
    assert torch.equal(erased_images.transpose(0, 1)[:, ~changed], plain.transpose(0, 1)[:, ~changed])
    some = (erased(p=0.5)[0] != plain).flatten(1).any(1).float().mean()
    assert 0.3 < some < 0.7
    assert torch.equal(*erased(p=0.0))


def test_or_noise_of_unit_variance() -> None:
    erased_images, plain = erased(p=1.0, value="random")
    noise = erased_images[erased_images != plain]
    assert abs(float(noise.mean())) < 0.1
    assert 0.9 < float(noise.std()) < 1.1
