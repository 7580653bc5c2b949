"""Noise2Net against the authors' network, with its weights, kernel sizes and dilations given."""

from __future__ import annotations

import torch

from biasbed.algorithms.noise2net import NUM_BLOCKS, NUM_CONVS, Block, distort, residual
from replays import Case, close


def replay(case: Case) -> None:
    x = torch.from_numpy(case["x"])
    blocks = [block_of(case, number, len(x)) for number in range(NUM_BLOCKS)]
    for block, kernels in zip(blocks, case["kernel_sizes"].tolist(), strict=True):
        assert [weight.shape[-1] for weight in block.convs] == kernels
    close(residual(x, blocks[0]), case["block1_f"], atol=1e-5)
    close(distort(x, blocks, float(case["epsilon"])), case["y"], rtol=1e-4, atol=1e-5)


def block_of(case: Case, number: int, num_images: int) -> Block:
    """The authors' weights, which lie in the layout of grouped convolutions."""

    def weight(name: str) -> torch.Tensor:
        grouped = torch.from_numpy(case[f"block{number + 1}_{name}_weight"])
        return grouped.view(num_images, -1, *grouped.shape[1:])

    convs = [weight(f"convs_{i}") for i in range(NUM_CONVS)]
    return Block(weight("conv1"), convs, case["dilations"][number].tolist(), weight("conv3"))


LAYERS = [f"block{block + 1}_{layer}" for block in range(NUM_BLOCKS) for layer in ("conv1", "conv3")]
CONVS = [f"block{block + 1}_convs_{i}" for block in range(NUM_BLOCKS) for i in range(NUM_CONVS)]

REPLAYS = {"noise2net_*": replay}
UNCOMPARED = {
    "noise2net_*": {f"{name}_weight": "one factor for a layer cancels in its norm" for name in LAYERS + CONVS}
    | {f"{name}_bias": "cancels in the norm that follows" for name in CONVS},
}
