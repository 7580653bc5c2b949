"""Noise2Net: images passed through a random network (Hendrycks et al., The Many Faces of Robustness, ICCV 2021)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from biasbed.algorithms.base import Setup
from biasbed.algorithms.draws import Drawn, HostDraws, uniform, with_draws
from biasbed.algorithms.erm import ERM
from biasbed.algorithms.presets import BIASBED_PAPER, DEEPAUGMENT_AUTHORS
from biasbed.batch import Batch, at_least_fp32
from biasbed.networks import hooks
from biasbed.settings import setting

NUM_BLOCKS = 4
NUM_CONVS = 3  # convolutions of a block, each on one of NUM_CONVS + 1 groups of channels
KERNELS = (1, 3)
DILATIONS = (1, 2, 3)
EPS = 1e-5  # added to variances
# Values of the random network's widest maps that are computed at a time. On a CPU single images stay in its cache,
# which halves the time; on a GPU this bounds the memory.
VALUES_AT_A_TIME = {"cpu": 1 << 20, "cuda": 1 << 27}

# --- the random network as a function of its weights ------------------------------------------------------------------


@dataclass(frozen=True)
class Shape:
    """Kernel size and dilation of one convolution."""

    kernel: int
    dilation: int


@dataclass(frozen=True, eq=False)
class Block:
    """Weights of a block of four groups of h channels, separate for each of N images.

    expand [N,4h,3,1,1], convs [N,h,h,K,K] with their dilations, project [N,3,4h,1,1]. No biases: the norms that follow
    would remove them.
    """

    expand: Tensor
    convs: Sequence[Tensor]
    dilations: Sequence[int]
    project: Tensor

    def __getitem__(self, images: slice) -> Block:
        """Return the weights of some of the images."""
        return Block(self.expand[images], [w[images] for w in self.convs], self.dilations, self.project[images])


@torch.no_grad()
def distort(x: Tensor, blocks: Sequence[Block], strength: Tensor | float) -> Tensor:
    """Return images [N,C,H,W] after x <- x + strength * f(x) for each block's f; not clamped.

    Under bf16 autocast f is computed in bf16 with fp32 statistics; fp16 is too narrow for them.
    """
    device = x.device.type
    half = torch.is_autocast_enabled(device) and torch.get_autocast_dtype(device) == torch.bfloat16
    x = at_least_fp32(x)
    with torch.autocast(device, enabled=False):
        for block in blocks:
            x = x + strength * residual(x.bfloat16() if half else x, block)
    return x


def residual(x: Tensor, block: Block) -> Tensor:
    """Return f(x) of one block: Res2Net's hierarchical residual (Gao et al. 2019) with random weights, [N,C,H,W].

    Channels are expanded and split into four groups. The first is convolved, the next two are convolved after adding
    the previous outcome, and the last stays unchanged; all are projected to the image's channels. A norm over the
    image's pixels follows each convolution, and a ReLU all but the last.
    """
    maps = functional.relu_(_expand(x, block.expand))
    groups = maps.chunk(NUM_CONVS + 1, dim=1)
    for number, (weight, dilation) in enumerate(zip(block.convs, block.dilations, strict=True)):
        joined = groups[number] + groups[number - 1] if number > 0 else groups[0]
        # In the group's place, so that one product projects all channels.
        groups[number].copy_(functional.relu_(_norm(_convolve(joined, weight, dilation))))
    return _norm(_convolve(maps, block.project))


def _expand(x: Tensor, weight: Tensor) -> Tensor:
    """Return `_norm(_convolve(x, weight))` for 1x1 kernels, up to rounding, without reading its many maps.

    Mean and variance of W x are W mean(x) and the diagonal of W cov(x) W^T, so the norm is folded into the weights.
    """
    pixels, weight = at_least_fp32(x).flatten(2), at_least_fp32(weight).flatten(2)
    centred = pixels - pixels.mean(dim=2, keepdim=True)
    covariance = torch.bmm(centred, centred.transpose(1, 2)) / pixels.shape[2]
    variance = (torch.bmm(weight, covariance) * weight).sum(dim=2, keepdim=True).clamp_min(0)
    scaled = weight * (variance + EPS).rsqrt()
    return torch.bmm(scaled.to(x.dtype), centred.to(x.dtype)).view(len(x), -1, *x.shape[2:])


def _convolve(x: Tensor, weight: Tensor, dilation: int = 1) -> Tensor:
    """Convolve every image of x [N,C,H,W] with its own weights [N,O,C,K,K]. Returns [N,O,H,W]."""
    num_images, channels, height, width = x.shape
    weight, kernel = weight.to(x.dtype), weight.shape[-1]
    if kernel == 1:  # a matrix product, in a tenth of the time of a grouped convolution of three channels
        return torch.bmm(weight.flatten(2), x.flatten(2)).view(num_images, -1, height, width)
    images_as_groups = x.reshape(1, num_images * channels, height, width)
    padding = kernel // 2 * dilation
    maps = functional.conv2d(
        images_as_groups, weight.flatten(0, 1), padding=padding, dilation=dilation, groups=num_images
    )
    return maps.view(num_images, -1, height, width)


def _norm(x: Tensor) -> Tensor:
    """Return x [N,C,H,W] with zero mean and unit (biased) variance of each map.

    The authors' code has a batch norm in train mode on a single image with N*C channels. That equals an instance norm,
    and so a layer norm over pixels, which takes a third of the time on a CPU.
    """
    return functional.layer_norm(x, x.shape[2:], eps=EPS)


def draw_shapes(generator: torch.Generator) -> list[list[Shape]]:
    """Return a kernel size and a dilation for each block and convolution, uniform and independent."""
    shape = (NUM_BLOCKS, NUM_CONVS)
    kernels = torch.randint(len(KERNELS), shape, generator=generator).tolist()
    dilations = torch.randint(len(DILATIONS), shape, generator=generator).tolist()
    shapes = []
    for block_kernels, block_dilations in zip(kernels, dilations, strict=True):
        pairs = zip(block_kernels, block_dilations, strict=True)
        shapes.append([Shape(KERNELS[kernel], DILATIONS[dilation]) for kernel, dilation in pairs])
    return shapes


def draw_blocks(
    num_images: int,
    hidden: int,
    shapes: Sequence[Sequence[Shape]],
    generator: torch.Generator,
    dtype: torch.dtype = torch.float32,
    channels: int = 3,
) -> list[Block]:
    """Return weights drawn uniformly within 1 / sqrt(fan in) of zero, on the generator's device.

    hidden: channels of each group. channels: of the images.
    """

    def draw(outputs: int, inputs: int, kernel: int = 1) -> Tensor:
        bound = (inputs * kernel**2) ** -0.5
        return uniform((num_images, outputs, inputs, kernel, kernel), -bound, bound, generator, dtype)

    width = hidden * (NUM_CONVS + 1)
    return [
        Block(
            expand=draw(width, channels),
            convs=[draw(hidden, hidden, shape.kernel) for shape in row],
            dilations=[shape.dilation for shape in row],
            project=draw(channels, width),
        )
        for row in shapes
    ]


# --- the method -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class NetworkDraw:
    """Draws of one forward pass: a random network for each of the first images, and the strength of the distortion."""

    blocks: Sequence[Block]
    strength: Tensor


class NoiseDistortion(Drawn):
    """Distortion of the first images of a batch, one per drawn network. The other images stay unchanged."""

    draw: NetworkDraw | None

    def __call__(self, x: Tensor) -> Tensor:
        if self.draw is None:
            return x
        count, width = self.draw.blocks[0].expand.shape[:2]
        step = max(1, VALUES_AT_A_TIME[x.device.type] // (width * x.shape[2] * x.shape[3]))
        distorted = []
        for first in range(0, count, step):
            part = slice(first, min(first + step, count))
            blocks = [block[part] for block in self.draw.blocks]
            distorted.append(distort(x[part], blocks, self.draw.strength).to(x.dtype))
        return torch.cat([*distorted, x[count:]])


class Noise2Net(ERM):
    """ERM with part of each batch distorted by random convolutional networks.

    The first floor(share * B) of a process's B images pass, after normalisation, through a network of four residual
    blocks with random weights, each image through its own. Weights and the strength are drawn in every step, kernel
    sizes and dilations in every epoch. A subclass that trains on further data sets sets `training_data`.
    """

    @dataclass(frozen=True)
    class HParams:
        max_eps: float = setting(0.75, "largest strength; each step draws from half of it up (authors)", gt=0)
        hidden: int = setting(16, "channels per group of the random network (authors)", ge=1)
        share: float = setting(0.5, "part of a batch that is distorted (authors' code; their paper: 1)", gt=0, le=1)

    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "paper": BIASBED_PAPER,
        "authors": {
            **DEEPAUGMENT_AUTHORS,
            "hparams.max_eps": 0.75,
            "hparams.hidden": 16,
            "hparams.share": 0.5,
        },
    }

    hparams: HParams

    def __init__(self, hparams: HParams, setup: Setup) -> None:
        super().__init__(hparams, setup)
        self.distortion = NoiseDistortion()
        hooks.insert_after(self.network.get_submodule("normalise"), self.distortion)
        self._host = HostDraws(setup.group)

    def logits(self, x: Tensor) -> Tensor:
        with with_draws([self.distortion], [self.draws(Batch(x))]):
            return super().logits(x)

    def draw(self, batch: Batch) -> NetworkDraw | None:
        """Return networks for the first floor(share * N) images of a batch; None if that is none, or in evaluation."""
        count, channels = int(self.hparams.share * len(batch) + 1e-9), batch.x.shape[1]
        if count == 0 or not self.training:
            return None
        generator, dtype = self.group.generator, next(self.parameters()).dtype
        strength = uniform((), self.hparams.max_eps / 2, self.hparams.max_eps, generator, dtype)
        shapes = draw_shapes(self._host.epoch_generator(self.progress))
        return NetworkDraw(draw_blocks(count, self.hparams.hidden, shapes, generator, dtype, channels), strength)
