"""A differentiable grey-level co-occurrence matrix: what an image's texture is, whatever it shows.

Wang, He, Lipton and Xing, Learning Robust Representations by Projecting Superficial Statistics Out, ICLR 2019,
section 3.1.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

LUMINANCE = (0.299, 0.587, 0.114)  # of red, green and blue
# Of 8-bit grey levels in proportion to the brightest, none is as near as this below a whole level: rounding, which
# differs between machines, decides about none.
SLACK = 1e-4
BLOCK = 2**23  # numbers of one comparison of levels with thresholds that are held at once: 32 MiB in fp32


def grey_levels(x: Tensor, levels: int) -> Tensor:
    """Images [N,C,H,W] >= 0 as whole levels [N,H,W] from 0 to levels - 1 of the brightest pixel of each image.

    Three channels are red, green and blue, of which the luminance is taken; of others the mean. A black image stays 0.
    """
    shares = x.new_ones(x.shape[1])
    if x.shape[1] == 3:
        for channel, share in enumerate(LUMINANCE):  # filled in place: a tensor made of a list is copied to a GPU
            shares[channel].fill_(share)
    grey = torch.einsum("nchw,c->nhw", x, shares)
    brightest = grey.amax((1, 2), keepdim=True)
    return ((levels - 1) * grey / torch.where(brightest > 0, brightest, 1) + SLACK).trunc()


def differences(x: Tensor, offset: tuple[int, int]) -> Tensor:
    """The pixel that is `offset` (rows, columns) before each of [N,H,W], or 0 beyond the border, minus that pixel."""
    (rows, columns), (height, width) = offset, x.shape[1:]
    padded = functional.pad(x, (max(columns, 0), max(-columns, 0), max(rows, 0), max(-rows, 0)))
    top, left = max(-rows, 0), max(-columns, 0)
    return padded[:, top : top + height, left : left + width] - x


class NGLCM(nn.Module):
    """How often differences to a neighbour go with levels, both softly compared with thresholds that are learned.

    With phi(x; t) = clip(x - t, floor, 1), its entry [a, b] is the sum over pixels of
    phi(difference; lambda_a) phi(level; theta_b). Comparisons of all pixels with all thresholds are made image by image
    where they are more than `BLOCK`, and made again for the gradient. Of 64 images of 224 pixels and 16 levels
    that is 2 x 33 MB at a time and 26 MB kept, in place of 205 MB for each step of either comparison.
    """

    def __init__(self, levels: int, offset: Sequence[int], floor: float) -> None:
        super().__init__()
        rows, columns = offset
        self.levels, self.offset, self.floor = levels, (rows, columns), floor
        self.difference_thresholds = nn.Parameter(torch.rand(levels) * levels)
        self.level_thresholds = nn.Parameter(torch.rand(levels) * levels)

    def forward(self, x: Tensor) -> Tensor:
        """Of images [N,C,H,W] in [0,1]: [N,levels,levels]."""
        level = grey_levels(x, self.levels)
        difference = differences(level, self.offset).flatten(1)
        thresholds = (self.difference_thresholds, self.level_thresholds)
        images = max(1, BLOCK // (self.levels * difference.shape[1]))
        blocks = zip(difference.split(images), level.flatten(1).split(images), strict=True)
        made = [checkpoint(self._sums, *block, *thresholds, use_reentrant=False) for block in blocks]
        return torch.cat(made)

    def _sums(self, difference: Tensor, level: Tensor, lambdas: Tensor, thetas: Tensor) -> Tensor:
        def phi(x: Tensor, thresholds: Tensor) -> Tensor:
            return (x[:, None, :] - thresholds[None, :, None]).clamp(self.floor, 1)

        return phi(difference, lambdas) @ phi(level, thetas).transpose(1, 2)
