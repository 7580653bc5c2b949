"""Noise2Net: what is drawn when, which images it reaches, and the mathematics by another route."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from biasbed.algorithms import noise2net
from biasbed.algorithms.base import Progress
from biasbed.algorithms.noise2net import (
    DILATIONS,
    KERNELS,
    NUM_BLOCKS,
    NUM_CONVS,
    Block,
    Shape,
    distort,
    draw_blocks,
    draw_shapes,
)
from biasbed.batch import Batch

SHAPES = [
    [Shape(3, 2), Shape(1, 3), Shape(3, 1)],
    [Shape(1, 1), Shape(3, 3), Shape(3, 2)],
    [Shape(3, 1)] * 3,
    [Shape(1, 1)] * 3,
]
FOUR_IMAGES = Batch(torch.empty(4, 3, 8, 8))


def images(count: int = 3) -> Tensor:
    return torch.randn(count, 3, 12, 10, generator=torch.Generator().manual_seed(0))


def blocks(count: int = 3, hidden: int = 4, seed: int = 1) -> list[Block]:
    return draw_blocks(count, hidden, SHAPES, torch.Generator().manual_seed(seed))


# --- the mathematics --------------------------------------------------------------------------------------------------


def test_fp16_is_not_used_and_bf16_is() -> None:
    x, net = images(), blocks()
    plain = distort(x, net, 0.5)
    with torch.autocast("cpu", dtype=torch.float16):
        assert torch.equal(distort(x, net, 0.5), plain)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        rough = distort(x, net, 0.5)
    assert rough.dtype == torch.float32
    assert not torch.equal(rough, plain)
    assert (rough - plain).abs().mean() < 0.02


# --- draws ------------------------------------------------------------------------------------------------------------


def test_law_of_the_weights() -> None:
    (block, *_) = draw_blocks(50, 16, SHAPES, torch.Generator().manual_seed(0))
    for weight, fan_in in ((block.expand, 3), (block.convs[0], 16 * 9), (block.convs[1], 16), (block.project, 64)):
        assert weight.abs().max() <= fan_in**-0.5
        assert abs(float(weight.std()) / (fan_in**-0.5 / 3**0.5) - 1) < 0.03
        assert abs(float(weight.mean())) < 0.03 * fan_in**-0.5
    assert block.dilations == [2, 3, 1]
    assert [weight.shape[-1] for weight in block.convs] == [3, 1, 3]


def test_kernel_sizes_and_dilations_are_uniform_and_independent() -> None:
    generator = torch.Generator().manual_seed(0)
    drawn = [shape for _ in range(300) for row in draw_shapes(generator) for shape in row]
    assert len(drawn) == 300 * NUM_BLOCKS * NUM_CONVS
    for kernel in KERNELS:
        for dilation in DILATIONS:
            assert abs(drawn.count(Shape(kernel, dilation)) / len(drawn) - 1 / 6) < 0.03


def shapes_of(algorithm: Any, epoch: int, step: int) -> list[Any]:
    algorithm.progress = Progress("main", epoch, 3, step, 10)
    return [([w.shape[-1] for w in block.convs], list(block.dilations)) for block in algorithm.draw(FOUR_IMAGES).blocks]


def test_shapes_are_drawn_per_epoch_and_weights_per_step(make_algorithm: Any) -> None:
    algorithm = make_algorithm("noise2net")
    first = algorithm.draw(FOUR_IMAGES)
    shapes = shapes_of(algorithm, 0, 0)
    assert all(shapes_of(algorithm, 0, step) == shapes for step in range(1, 5))
    assert all(shapes_of(algorithm, epoch, 0) != shapes for epoch in (1, 2))
    second = algorithm.draw(FOUR_IMAGES)
    assert not torch.equal(first.blocks[0].expand, second.blocks[0].expand)
    assert first.strength != second.strength


def test_a_resume_in_the_midst_of_an_epoch_keeps_its_shapes(make_algorithm: Any) -> None:
    uninterrupted = make_algorithm("noise2net", seed=3)
    shapes = shapes_of(uninterrupted, 2, 0)
    resumed = make_algorithm("noise2net", seed=8)
    resumed.group.load_random_states(uninterrupted.group.random_states())
    assert shapes_of(resumed, 2, 7) == shapes


def test_strength_is_uniform_from_half_of_the_largest_up(make_algorithm: Any) -> None:
    algorithm = make_algorithm("noise2net", {"max_eps": 0.6, "hidden": 1})
    drawn = torch.stack([algorithm.draw(FOUR_IMAGES).strength for _ in range(300)])
    assert drawn.min() >= 0.3
    assert drawn.max() <= 0.6
    assert abs(drawn.mean() - 0.45) < 0.02
    assert abs(drawn.std() - 0.3 / 12**0.5) < 0.01


# --- in a network -----------------------------------------------------------------------------------------------------


def seen_by_backbone(algorithm: Any, batch: Any) -> Tensor:
    seen: list[Tensor] = []
    hook = algorithm.network.backbone.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]))
    algorithm.losses(batch)
    hook.remove()
    return seen[0]


@pytest.mark.parametrize(
    ("size", "share", "count"), [(8, 0.5, 4), (7, 0.5, 3), (2, 0.5, 1), (8, 1.0, 8), (8, 0.1, 0), (1, 0.5, 0)]
)
def test_the_first_images_are_distorted_after_normalisation(
    make_algorithm: Any, batch: Any, size: int, share: float, count: int
) -> None:
    algorithm = make_algorithm("noise2net", {"share": share}).eval()
    algorithm.training = True  # the method draws, while norms can do with one image
    batch.x = torch.rand_like(batch.x)  # an image without contrast would not be changed
    part = batch.select(slice(size))
    twin = make_algorithm("noise2net", {"share": share})
    draw = twin.draw(part)
    seen, plain = seen_by_backbone(algorithm, part), algorithm.network.normalise(part.x)
    assert torch.equal(seen[count:], plain[count:])
    if count == 0:
        assert draw is None
    else:
        expected = distort(plain[:count], draw.blocks, draw.strength)
        torch.testing.assert_close(seen[:count], expected, rtol=1e-4, atol=1e-5)
        assert (seen[:count] - plain[:count]).flatten(1).abs().amax(dim=1).gt(0.1).all()


def test_images_are_distorted_a_few_at_a_time(make_algorithm: Any, batch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """This saves memory and changes nothing."""
    algorithm = make_algorithm("noise2net").eval()
    algorithm.training = True
    state = algorithm.group.random_states()
    distorted = []
    for values in (1, 3 * 64 * 40 * 40, 1 << 30):
        monkeypatch.setitem(noise2net.VALUES_AT_A_TIME, "cpu", values)
        algorithm.group.load_random_states(state)
        distorted.append(seen_by_backbone(algorithm, batch))
    for again in distorted[1:]:
        torch.testing.assert_close(again, distorted[0], rtol=1e-4, atol=1e-5)


def test_nothing_is_differentiated_through_the_random_network(make_algorithm: Any, batch: Any) -> None:
    batch.x.requires_grad_()
    make_algorithm("noise2net").losses(batch)["classification"].backward()
    used = batch.x.grad.flatten(1).abs().amax(dim=1) > 0
    assert used.tolist() == [False] * 4 + [True] * 4
