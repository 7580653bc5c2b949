"""Noise2Net against the authors' network, with the draws of a step coming out as its weights, sizes and dilations."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from biasbed.algorithms.noise2net import NUM_BLOCKS, NUM_CONVS, Noise2Net, residual
from biasbed.batch import Batch
from helpers.scripted import Given, Script, uniform, whole
from replays import Case, close, setup

MAX_EPS = 0.75


class Passed(nn.Module):
    """Stands for a network: what comes out is what its backbone would see."""

    def __init__(self) -> None:
        super().__init__()
        self.normalise = nn.Identity()
        self.unused = nn.Parameter(torch.zeros(()))  # draws are of the weights' dtype

    def forward(self, x: Tensor) -> Tensor:
        return self.normalise(x)


def draws_of(case: Case) -> Iterator[Given]:
    """Strength, kernel sizes of 1 and 3, dilations of 1 to 3, and weights within 1 / sqrt(fan in) of zero, as torch
    draws a convolution's (the vectors' own are larger).

    What is drawn is between 0 and 1; the draws come out as the vector's where ours are scaled to these bounds.
    """
    yield unscaled(case["epsilon"], MAX_EPS / 2, MAX_EPS)
    yield whole(case["kernel_sizes"] // 2, 2)
    yield whole(case["dilations"] - 1, 3)
    for block in range(1, NUM_BLOCKS + 1):
        for name in ("conv1", *(f"convs_{i}" for i in range(NUM_CONVS)), "conv3"):
            grouped = torch.from_numpy(case[f"block{block}_{name}_weight"])  # in the layout of grouped convolutions
            bound = grouped[0].numel() ** -0.5
            yield unscaled(grouped.view(len(case["x"]), -1, *grouped.shape[1:]), -bound, bound)


def unscaled(value: Any, low: float, high: float) -> Given:
    """Return the draw from [0,1) that stands for a value between the bounds."""
    return uniform((torch.as_tensor(value) - low) / (high - low))


def replay(case: Case) -> None:
    """A batch whose first half is the vector's images."""
    x = torch.from_numpy(case["x"])
    hidden = int(case["hidden_planes"])
    algorithm = Noise2Net(Noise2Net.HParams(max_eps=MAX_EPS, hidden=hidden), setup(1, Passed)).train()
    batch = torch.cat([x, x.flip(3)])
    with Script(draws_of(case)):
        seen = algorithm.logits(batch)
    close(seen[: len(x)], case["y"], rtol=1e-4, atol=1e-5)
    assert torch.equal(seen[len(x) :], batch[len(x) :])
    with Script(draws_of(case)):
        draw = algorithm.draw(Batch(batch))
    assert draw is not None
    close(draw.strength, case["epsilon"])
    for number, block in enumerate(draw.blocks, start=1):
        weights = {"conv1": block.expand, "conv3": block.project}
        weights |= {f"convs_{i}": weight for i, weight in enumerate(block.convs)}
        for name, weight in weights.items():
            close(weight.flatten(0, 1), case[f"block{number}_{name}_weight"], atol=1e-5)
    close(residual(x, draw.blocks[0]), case["block1_f"], atol=1e-5)


LAYERS = [f"block{block + 1}_{layer}" for block in range(NUM_BLOCKS) for layer in ("conv1", "conv3")]
CONVS = [f"block{block + 1}_convs_{i}" for block in range(NUM_BLOCKS) for i in range(NUM_CONVS)]

REPLAYS = {"noise2net_*": replay}
UNCOMPARED = {
    "noise2net_*": {f"{name}_weight": "one factor for a layer cancels in its norm" for name in LAYERS + CONVS}
    | {f"{name}_bias": "cancels in the norm that follows" for name in CONVS},
}
