"""Operations of DeepAugment's two distortions (Hendrycks et al., The Many Faces of Robustness, ICCV 2021, section 4).

An image passes through an image-to-image network whose weights and features are distorted (`NetworkDistortion`). Every
operation here is a pure function of tensors and random draws.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Sequence
from typing import ClassVar, Generic, TypeVar

import torch
from torch import Tensor
from torch.nn import functional
from torchvision.transforms import v2

from biasbed.errors import UsageError, listed
from biasbed.networks.frozen import PreparedNetwork

N = TypeVar("N", bound=PreparedNetwork)
Weights = dict[str, Tensor]  # a state dict whose tensors may be replaced, but are never written into


class Draws:
    """Random draws from one generator on the CPU; tensors are returned on `device`."""

    def __init__(self, generator: torch.Generator, device: torch.device | str = "cpu") -> None:
        self.generator = generator
        self.device = device

    def below(self, limit: int) -> int:
        """Draw an integer, uniform over 0 .. limit - 1."""
        return int(torch.randint(limit, (), generator=self.generator))

    def one_of(self, options: Sequence[int]) -> int:
        """Draw one of the options, with equal probability."""
        return options[self.below(len(options))]

    def several(self, limit: int, count: int) -> list[int]:
        """Draw `count` integers below `limit`, with replacement."""
        return torch.randint(limit, (count,), generator=self.generator).tolist()

    def fraction(self) -> float:
        """Draw a number, uniform over [0,1)."""
        return float(torch.rand((), generator=self.generator))

    def uniform(self, *shape: int) -> Tensor:
        """Draw a tensor, uniform over [0,1), fp32."""
        return torch.rand(shape, generator=self.generator).to(self.device)

    def order(self, count: int) -> list[int]:
        """Draw a permutation of 0 .. count - 1."""
        return torch.randperm(count, generator=self.generator).tolist()


class NetworkDistortion(Generic[N]):
    """Distortion of images by a network whose weights and features are distorted (`Distortion`).

    weight_option, signal_option: always apply this option; None draws one, the first at each `redraw`, the second for
    each image.
    """

    weight_options: ClassVar[Collection[int]]  # that may be chosen, with the one that changes nothing
    signal_options: ClassVar[Collection[int]]

    def __init__(self, network: N, weight_option: int | None = None, signal_option: int | None = None) -> None:
        """Raise UsageError for an option that the network does not have."""
        for name, option, options in (
            ("weight_option", weight_option, self.weight_options),
            ("signal_option", signal_option, self.signal_options),
        ):
            if option is not None and option not in options:
                raise UsageError(f"{name}={option}: should be one of {listed(options)}")
        self.clean = network
        self.distorted = copy.deepcopy(network).eval().requires_grad_(False)
        self.weight_option = weight_option
        self.signal_option = signal_option

    @torch.no_grad()
    def redraw(self, generator: torch.Generator) -> None:
        """Draw a new distortion of the weights, from the clean ones."""
        draws = Draws(generator, next(self.clean.parameters()).device)
        self.distorted.load_state_dict(self.draw_weights(dict(self.clean.state_dict()), draws))

    @torch.no_grad()
    def __call__(self, image: Tensor, generator: torch.Generator) -> Tensor:
        """Return the distorted image [3,H,W] in [0,1] of an image [3,h,w] in [0,1]."""
        draws = Draws(generator, next(self.distorted.parameters()).device)
        return self.distort(image.to(draws.device), draws).clamp(0, 1).to(image.device)

    def draw_weights(self, weights: Weights, draws: Draws) -> Weights:
        """Return the clean weights with a distortion: that of `weight_option`, or a drawn one."""
        raise NotImplementedError

    def distort(self, image: Tensor, draws: Draws) -> Tensor:
        """Return the image that the distorted network makes, its features changed by `signal_option` or a drawn one."""
        raise NotImplementedError


def scale_count(count: int, width: int, full: int = 64) -> int:
    """Return the same share of a narrower network's filters, at least one: 6 of 32 for 12 of the authors' 64."""
    return max(1, round(count * width / full))


def resize_short_side(image: Tensor, size: int) -> Tensor:
    """Resize an image [...,H,W] in [0,1] to a short side of `size`."""
    if min(image.shape[-2:]) == size:
        return image
    result: Tensor = v2.functional.resize(image, [size], antialias=True)
    return result.clamp(0, 1)


# --- operations on a layer's weight, whose first axis counts filters --------------------------------------------------


def negate(tensor: Tensor, filters: Sequence[int]) -> Tensor:
    """Negate each listed filter as often as it is listed: twice is not at all."""
    return tensor * (1 - 2 * (_counts(tensor, filters) % 2))


def negate_once(tensor: Tensor, filters: Sequence[int]) -> Tensor:
    """Negate each listed filter once, even if it is listed several times."""
    return tensor * (1 - 2 * _counts(tensor, filters).clamp(max=1))


def zero(tensor: Tensor, filters: Sequence[int]) -> Tensor:
    """Set each listed filter to zero."""
    return tensor * (1 - _counts(tensor, filters).clamp(max=1))


def minus_gelu(tensor: Tensor) -> Tensor:
    """Compute -gelu(x) of each element."""
    return -functional.gelu(tensor)


def apply_minus_gelu(tensor: Tensor, filters: Sequence[int]) -> Tensor:
    """Replace each listed filter by its -gelu, as often as it is listed."""
    result = tensor.clone()
    for index in filters:
        result[index] = minus_gelu(result[index])
    return result


def amplify(tensor: Tensor, base: float, slope: float, fraction: float, uniform: Tensor) -> Tensor:
    """Return tensor * (base + slope u U) with one u for all and one U per element, both uniform over [0,1).

    The authors write `rand_like(x - 1)`, presumably to centre the noise. The -1 only changes the tensor whose shape is
    taken, so the factor is never below `base`.
    """
    return tensor * (base + slope * fraction * uniform)


def mask(weight: Tensor, uniform: Tensor, signs: bool) -> Tensor:
    """Multiply each element by 0 or 1, or by -1 or 1 with `signs`, at even odds."""
    bits = torch.round(uniform)
    return weight * (2 * bits - 1 if signs else bits)


def turn(weight: Tensor, quarters: int, axes: Sequence[int] = (2, 3)) -> Tensor:
    """Turn by `quarters` times 90 degrees in the plane of two axes, by default those of the kernels."""
    return torch.rot90(weight, quarters, tuple(axes))


def keep_strongest_tap(weight: Tensor) -> Tensor:
    """Keep only the largest value of every kernel (not the largest magnitude).

    A kernel without a positive value keeps a negative one; the same operation then sets it to zero.
    """
    flat = weight.flatten(2)
    largest = flat.topk(1)
    return torch.zeros_like(flat).scatter(2, largest.indices, largest.values).view_as(weight)


def _counts(tensor: Tensor, filters: Sequence[int]) -> Tensor:
    """Count how often each index along the first axis is listed, in a shape that multiplies `tensor`."""
    counts = torch.zeros(len(tensor), dtype=tensor.dtype, device=tensor.device)
    for index in filters:
        counts[index] += 1
    return counts.view(-1, *[1] * (tensor.dim() - 1))
