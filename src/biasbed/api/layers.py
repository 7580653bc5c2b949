"""Layers of methods for networks of the user's own: InfoDrop's masked convolution and pAdaIN's swap of statistics."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from biasbed.algorithms.draws import with_draws
from biasbed.algorithms.infodrop import InfoDrop, Mask, MaskDraw
from biasbed.algorithms.padain import PAdaIN, swap_statistics
from biasbed.networks.surgery import Site, window_of
from biasbed.settings import build


class InfoDropLayer(nn.Module):
    """Convolution whose output loses, in training, the positions that resemble their neighbourhood in its input.

    Put it in place of an early convolution: `net.conv1 = biasbed.methods.InfoDrop(net.conv1)`. The weights' names then
    begin with `conv1.conv`. In evaluation it is the convolution alone. Draws come from torch's global generator.

    Shi et al., Informative Dropout for Robust Representation Learning, ICML 2020.

    Args:
        conv: the convolution.
        drop_rate: draws per channel, as a multiple of its positions.
        temperature: smaller drops more sharply where information is least.
        band_width: band width of the density estimate.
        radius: farthest offset of a compared patch, in pixels.
        num_offsets: patches that each patch is compared with.
    """

    def __init__(
        self,
        conv: nn.Conv2d,
        drop_rate: float = 1.5,
        temperature: float = 0.03,
        band_width: float = 1.0,
        radius: int = 3,
        num_offsets: int = 9,
    ) -> None:
        super().__init__()
        values = {"drop_rate": drop_rate, "temperature": temperature, "band_width": band_width}
        self.hparams = build(InfoDrop.HParams, {**values, "radius": radius, "num_offsets": num_offsets})
        self.conv = conv
        self._mask = Mask(Site(conv, conv, window_of(conv)), self.hparams)

    def forward(self, x: Tensor) -> Tensor:
        if not self.training:
            return self.conv(x)
        seed = int(torch.randint(2**31, ()))
        radius, shape = self.hparams.radius, (self.hparams.num_offsets, 2)
        offsets = [(int(i), int(j)) for i, j in torch.randint(-radius, radius + 1, shape)]
        draw = MaskDraw(offsets, torch.Generator(x.device).manual_seed(seed))
        with with_draws([self._mask], [draw]):
            self._mask.observe(x)
            return self._mask.change(self.conv(x))


class PAdaINLayer(nn.Module):
    """Swap of the mean and standard deviation of feature maps between the images of a batch, in training.

    With probability `p` per call; else, and in evaluation, maps pass unchanged. Put it after a convolution and before
    its norm: `net.conv1 = nn.Sequential(net.conv1, biasbed.methods.PAdaIN())`.

    Nuriel, Benaim and Wolf, Permuted AdaIN: Reducing the Bias Towards Global Statistics in Image Classification, CVPR
    2021.
    """

    def __init__(self, p: float = 0.01, eps: float = 1e-5) -> None:
        super().__init__()
        self.hparams = build(PAdaIN.HParams, {"p": p, "eps": eps})

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or float(torch.rand(())) >= self.hparams.p:
            return x
        return swap_statistics(x, torch.randperm(len(x), device=x.device), self.hparams.eps)

    def extra_repr(self) -> str:
        return f"p={self.hparams.p}, eps={self.hparams.eps}"
