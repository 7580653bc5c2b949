"""pAdaIN: permuted adaptive instance normalisation (Nuriel, Benaim and Wolf, CVPR 2021)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from biasbed.algorithms.base import Setup
from biasbed.algorithms.draws import Drawn, HostDraws, with_draws
from biasbed.algorithms.erm import ERM
from biasbed.algorithms.presets import BIASBED_CODE, BIASBED_PAPER, IMAGENET, epochs
from biasbed.batch import Batch, at_least_fp32
from biasbed.networks import surgery
from biasbed.settings import setting


def swap_statistics(x: Tensor, permutation: Tensor, eps: float = 1e-5) -> Tensor:
    """Return every image's feature maps with the mean and standard deviation of another image's.

    y = (x - mu) / (sqrt(v + eps) + eps) * sqrt(v[pi] + eps) + mu[pi], with mu and v (unbiased) the moments of each map
    of x [N,C,H,W] over its pixels and pi `permutation` [N]. No gradient flows into mu[pi] and v[pi]: the donor gives
    its style and is not trained by the receiver. Maps of one pixel have no style and a batch of one image has no donor:
    both are returned unchanged. Computed in fp32 at least, whatever the autocast, because v overflows fp16 and eps is
    lost in it.
    """
    if len(x) == 1 or x.shape[2] * x.shape[3] == 1:
        return x
    with torch.autocast(x.device.type, enabled=False):
        maps = at_least_fp32(x)
        variance, mean = torch.var_mean(maps, dim=(2, 3), keepdim=True)
        std = (variance + eps).sqrt()
        # The [N,C] moments are permuted, not the maps. Centred first: with the mean folded into the shift, a map that
        # is nearly constant (scale up to 1/sqrt(eps)) would lose its digits to cancellation.
        scale = std.detach()[permutation] / (std + eps)
        return torch.addcmul(mean.detach()[permutation], maps - mean, scale).to(x.dtype)


class Swap(Drawn):
    """Insertion point. Its draw is a permutation [N], or None if this forward pass leaves the maps unchanged."""

    draw: Tensor | None

    def __init__(self, eps: float) -> None:
        self.eps = eps

    def __call__(self, x: Tensor) -> Tensor:
        return x if self.draw is None else swap_statistics(x, self.draw, self.eps)


class PAdaIN(ERM):
    """ERM with randomly swapped statistics of feature maps between the images of a batch.

    After every convolution of the main path, before its norm, a coin with probability `p` decides whether the maps'
    statistics are permuted over the batch. Batch norm sees the swapped maps, for its running statistics too. In other
    networks than ResNets the places are those of `surgery.main_path`; class tokens stay as they are (ours). Every
    process has its own coins and permutations and swaps its own images: the pool of styles is the per-process batch, as
    in the authors' code.
    """

    @dataclass(frozen=True)
    class HParams:
        p: float = setting(0.01, "probability of a swap, per layer and step (authors, ImageNet)", ge=0, le=1)
        eps: float = setting(1e-5, "added to variances, and to the receiver's std (authors)", gt=0)

    maps: ClassVar[bool] = True
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "paper": BIASBED_PAPER,
        "biasbed_code": {**BIASBED_CODE, "optim.lr": 0.2, "hparams.p": 0.01, "hparams.eps": 1e-5},
        # ImageNet, ResNet-50.
        "authors": {
            **IMAGENET,
            "init": "scratch",
            **epochs(300),
            "optim.milestones": (0.25, 0.5, 0.75),
            "hparams.p": 0.01,
            "hparams.eps": 1e-5,
        },
    }

    hparams: HParams

    @classmethod
    def check_backbone(cls, hparams: Any, backbone: torch.nn.Module) -> None:
        surgery.main_path(backbone)

    def __init__(self, hparams: HParams, setup: Setup) -> None:
        super().__init__(hparams, setup)
        self.swaps = insert_swaps(self.network.get_submodule("backbone"), hparams.eps)
        self._host = HostDraws(setup.group)

    def logits(self, x: Tensor) -> Tensor:
        with with_draws(self.swaps, self.draws(Batch(x))):
            return super().logits(x)

    def draw(self, batch: Batch) -> list[Tensor | None]:
        """Return for each insertion point a permutation [N] of the images, or None where none swap.

        All coins are drawn at once on the host, which reads them; then one permutation per swap on the device.
        """
        if not self.training:
            return [None] * len(self.swaps)
        coins = torch.rand(len(self.swaps), generator=self._host.generator(self.progress)) < self.hparams.p
        group = self.group
        return [
            torch.randperm(len(batch), generator=group.generator, device=group.device) if coin else None
            for coin in coins.tolist()
        ]


def insert_swaps(backbone: torch.nn.Module, eps: float) -> list[Swap]:
    """Insert a swap after every layer of the main path. Returns the swaps in the order of the forward pass."""
    swaps = []
    for map_place in surgery.main_path(backbone):
        swaps.append(Swap(eps))
        map_place.insert(swaps[-1])
    return swaps
