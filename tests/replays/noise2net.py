"""Noise2Net against the authors' network, with the draws of a step coming out as its weights, sizes and dilations."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from biasbed.algorithms.noise2net import NUM_BLOCKS, NUM_CONVS, Noise2Net, residual
from replays import Case, close, setup
from scripted import Given, Script, uniform, whole

MAX_EPS = 0.75


class Passed(nn.Module):
    """Stands for a network: what comes out is what its backbone would see."""

    def __init__(self) -> None:
        super().__init__()
        self.normalise = nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        return self.normalise(x)


def draws_of(case: Case) -> Iterator[Given]:
    """Strength, kernel sizes of 1 and 3, dilations of 1 to 3, and weights that are asked for within 1 / sqrt(fan in) of
    zero, as torch draws a convolution's (the vectors' own are larger)."""
    yield uniform(case["epsilon"], MAX_EPS / 2, MAX_EPS)
    yield whole(case["kernel_sizes"] // 2, 2)
    yield whole(case["dilations"] - 1, 3)
    for block in range(1, NUM_BLOCKS + 1):
        for name in ("conv1", *(f"convs_{i}" for i in range(NUM_CONVS)), "conv3"):
            grouped = torch.from_numpy(case[f"block{block}_{name}_weight"])  # in the layout of grouped convolutions
            bound = grouped[0].numel() ** -0.5
            yield uniform(grouped.view(len(case["x"]), -1, *grouped.shape[1:]), -bound, bound)


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
        draw = algorithm._draw(len(batch))
    assert draw is not None
    close(residual(x, draw.blocks[0]), case["block1_f"], atol=1e-5)


LAYERS = [f"block{block + 1}_{layer}" for block in range(NUM_BLOCKS) for layer in ("conv1", "conv3")]
CONVS = [f"block{block + 1}_convs_{i}" for block in range(NUM_BLOCKS) for i in range(NUM_CONVS)]

REPLAYS = {"noise2net_*": replay}
UNCOMPARED = {
    "noise2net_*": {f"{name}_weight": "one factor for a layer cancels in its norm" for name in LAYERS + CONVS}
    | {f"{name}_bias": "cancels in the norm that follows" for name in CONVS},
}
