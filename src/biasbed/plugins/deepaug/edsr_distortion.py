"""DeepAugment with a super-resolution network: Hendrycks et al., The Many Faces of Robustness, ICCV 2021, section 4.

The options, their distributions and their quirks are those of the program that made the authors' images;
docs/methods/deepaugment.md lists them. A residual block has two convolutions, numbered 0 and 2.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from biasbed.plugins.deepaug.distortion import (
    Draws,
    NetworkDistortion,
    Weights,
    amplify,
    keep_strongest_tap,
    mask,
    minus_gelu,
    negate_once,
    resize_short_side,
    scale_count,
    turn,
)
from biasbed.plugins.deepaug.edsr import BLOCKS, EDSR, RANGE, SCALE

WEIGHT_OPTIONS = range(17)
NO_WEIGHTS = 17  # weight option of no distortion; never drawn
BEFORE_OPTIONS, BODY_OPTIONS = range(1, 5), range(1, 6)  # 4 and 5, in turn, change nothing
SIGNAL_OPTIONS = tuple(10 * before + body for before, body in itertools.product(BEFORE_OPTIONS, BODY_OPTIONS))
NO_SIGNAL = 45
CUT = 5  # number of the body's 17 modules before its features are distorted

_THIRDS, _FOURTHS = (0, 3, 6, 9), (1, 5, 9)
_FIRST_15 = range(BLOCKS - 1)
_CROSS = torch.tensor([[0.0, 1, 0], [1, -4, 1], [0, 1, 0]])
_SQUARE = torch.tensor([[-1.0, -1, -1], [-1, 8, -1], [-1, -1, -1]])


class EDSRDistortion(NetworkDistortion[EDSR]):
    """Distortion by EDSR. The image is reduced to a short side of `size` // 4 and enlarged by 4.

    weight_option: one of `WEIGHT_OPTIONS`, applied once, or `NO_WEIGHTS`; three are drawn, possibly the same.
    signal_option: 10 times the option before the body (1 to 4) plus the one within (1 to 5); `NO_SIGNAL`, 45, changes
    nothing; both are drawn.
    """

    weight_options = (*WEIGHT_OPTIONS, NO_WEIGHTS)
    signal_options = SIGNAL_OPTIONS

    def draw_weights(self, weights: Weights, draws: Draws) -> Weights:
        options = draws.several(len(WEIGHT_OPTIONS), 3) if self.weight_option is None else [self.weight_option]
        for option in options:
            weights = distort_weights(weights, option, draws)
        return weights

    def distort(self, image: Tensor, draws: Draws) -> Tensor:
        network, option = self.distorted, self.signal_option
        if option is None:
            option = 10 * draws.one_of(BEFORE_OPTIONS) + draws.one_of(BODY_OPTIONS)
        small = resize_short_side(image, network.size // SCALE)[None]
        return distort_signal(network, RANGE * small, option, draws)[0] / RANGE


# --- weights ----------------------------------------------------------------------------------------------------------


def distort_weights(weights: Weights, option: int, draws: Draws) -> Weights:
    """Return a state dict of `EDSR` with one of `WEIGHT_OPTIONS` applied; `weights` stays.

    Options 0 to 10 change one block, 11 one of the first fifteen, 12 to 16 five of those with replacement; block 15 is
    never changed. Option 15 draws 32 filters, the authors' number at their width of 64. In narrower networks it is half
    of the width, but at least one.
    """
    if option in ON_A_BLOCK:
        blocks, operation = ON_A_BLOCK[option]
        return operation(weights, draws.one_of(blocks), draws)
    if option in ON_FIVE_CONVS:
        for _ in range(5):
            block = draws.one_of(_FIRST_15)
            conv = draws.one_of((0, 2)) if option in (12, 16) else 0
            key = _weight_key(block, conv)
            weights = weights | {key: ON_FIVE_CONVS[option](weights[key], draws)}
    return weights


# --- weights of one block ---------------------------------------------------------------------------------------------


def flip_filters(weights: Weights, block: int, draws: Draws) -> Weights:
    """Reverse the order of the filters of both convolutions (option 0). The next layer still expects the old order."""
    keys = [f"body.{block}.body.{tensor}" for tensor in ("0.weight", "0.bias", "2.weight", "2.bias")]
    return weights | {key: weights[key].flip(0) for key in keys}


def multiply_first(factor: float, weights: Weights, block: int, draws: Draws) -> Weights:
    """Multiply the first convolution, weight and bias, by a factor: -1 (option 1) or 0 (option 2)."""
    keys = [f"body.{block}.body.0.{kind}" for kind in ("weight", "bias")]
    return weights | {key: factor * weights[key] for key in keys}


def apply_minus_gelu(weights: Weights, block: int, draws: Draws) -> Weights:
    """Replace both weights by their -gelu (option 3); the biases stay."""
    keys = [_weight_key(block, conv) for conv in (0, 2)]
    return weights | {key: minus_gelu(weights[key]) for key in keys}


def multiply_by_stencil(stencil: Tensor, weights: Weights, block: int, draws: Draws) -> Weights:
    """Multiply the first convolution's kernels element by element by a Laplacian (options 4 and 5)."""
    key = _weight_key(block, 0)
    return weights | {key: weights[key] * stencil.to(weights[key])}


def amplify_second(weights: Weights, block: int, draws: Draws) -> Weights:
    """Multiply the second convolution's weight by 1 to 5 (option 6); see `amplify` for why none is below 1."""
    key = _weight_key(block, 2)
    return weights | {key: amplify(weights[key], 1, 4, draws.fraction(), draws.uniform(*weights[key].shape))}


def mirror_and_negate(weights: Weights, block: int, draws: Draws) -> Weights:
    """Mirror the first convolution's kernels left to right and negate the second's weight (option 7)."""
    first, second = _weight_key(block, 0), _weight_key(block, 2)
    return weights | {first: weights[first].flip(-1), second: -weights[second]}


def convolve_with_taps(weights: Weights, block: int, draws: Draws) -> Weights:
    """Convolve the first convolution's weight, as if it were a batch of images, with one tap per channel (option 8).

    A tap is 1 or -1 at a random place. The authors index all filters at once, so all filters are equal, as are all
    input channels of a convolved filter.
    """
    weight = weights[_weight_key(block, 0)]
    width = weight.shape[1]
    kernels = torch.zeros(width, width, 3, 3)
    for channel in range(width):
        row, column = draws.below(3), draws.below(3)
        kernels[:, channel, row, column] = draws.one_of((1, -1))
    return weights | {_weight_key(block, 0): functional.conv2d(weight, kernels.to(weight), padding=1)}


def convolve_with_noise(weights: Weights, block: int, draws: Draws) -> Weights:
    """Convolve the first convolution's weight with kernels of noise from -1/6 to 1/6 (option 9).

    Their centre, u / 6 - 1/6, is drawn once.
    """
    weight = weights[_weight_key(block, 0)]
    kernels = (2 * draws.fraction() * draws.uniform(*weight.shape) - 1) / 6
    return weights | {_weight_key(block, 0): functional.conv2d(weight, kernels, padding=1)}


def convolve_with_blurs(weights: Weights, block: int, draws: Draws) -> Weights:
    """Convolve the second convolution's weight with Dirichlet kernels of concentration 0.1 (option 10).

    Most of their mass is on one or two of the nine taps, over which each sums to one, but not over channels: every
    channel of a filter becomes a sum of all of them.
    """
    weight = weights[_weight_key(block, 2)]
    width = weight.shape[1]
    rng = np.random.default_rng(draws.below(2**62))  # torch's Dirichlet takes no generator
    kernels = torch.from_numpy(rng.dirichlet([0.1] * 9, (width, width))).view(width, width, 3, 3)
    return weights | {_weight_key(block, 2): functional.conv2d(weight, kernels.to(weight), padding=1)}


def shake_second(weights: Weights, block: int, draws: Draws) -> Weights:
    """Add noise of -0.5 to 0.5 to the second convolution's weight, many times larger than a trained one (option 11)."""
    weight = weights[_weight_key(block, 2)]
    return weights | {_weight_key(block, 2): weight + (draws.uniform(*weight.shape) - 0.5)}


# --- weight of one convolution ----------------------------------------------------------------------------------------


def turn_randomly(weight: Tensor, draws: Draws) -> Tensor:
    """Turn the kernels, or the table of filters and channels with its kernels unchanged (option 12)."""
    return turn(weight, 1 + draws.below(3), ((2, 3), (0, 1))[draws.below(2)])


def negate_half(weight: Tensor, draws: Draws) -> Tensor:
    """Negate half of the filters (option 15). A filter drawn twice in one call is negated once."""
    return negate_once(weight, draws.several(len(weight), scale_count(32, len(weight))))


ON_A_BLOCK: Mapping[int, tuple[Sequence[int], Callable[[Weights, int, Draws], Weights]]] = {
    0: (_THIRDS, flip_filters),
    1: ((1, 4, 7), functools.partial(multiply_first, -1)),
    2: (_THIRDS, functools.partial(multiply_first, 0)),
    3: (_THIRDS, apply_minus_gelu),
    4: (_THIRDS, functools.partial(multiply_by_stencil, _CROSS)),
    5: (_THIRDS, functools.partial(multiply_by_stencil, _SQUARE)),
    6: (_THIRDS, amplify_second),
    7: (_THIRDS, mirror_and_negate),
    8: (_FOURTHS, convolve_with_taps),
    9: (_THIRDS, convolve_with_noise),
    10: (_FOURTHS, convolve_with_blurs),
    11: (_FIRST_15, shake_second),
}
ON_FIVE_CONVS: Mapping[int, Callable[[Tensor, Draws], Tensor]] = {
    12: turn_randomly,
    13: lambda weight, draws: mask(weight, draws.uniform(*weight.shape), signs=True),
    14: lambda weight, draws: mask(weight, draws.uniform(*weight.shape), signs=False),
    15: negate_half,
    16: lambda weight, draws: keep_strongest_tap(weight),
}


def _weight_key(block: int, conv: int) -> str:
    return f"body.{block}.body.{conv}.weight"


# --- signal -----------------------------------------------------------------------------------------------------------


def distort_signal(network: EDSR, x: Tensor, option: int, draws: Draws) -> Tensor:
    """Return the enlarged image [N,3,4H,4W] of x [N,3,H,W] with one of `SIGNAL_OPTIONS`.

    Both images are in [0,255]; the output is not clamped. The distortion before the body also applies to the features
    that skip it.
    """
    before, within = divmod(option, 10)
    shallow = network.shallow(x)
    width = shallow.shape[1]
    if before == 1:
        pairs = [(draws.below(width), draws.below(width)) for _ in range(scale_count(5, width))]
        shallow = copy_channels(shallow, pairs)
    elif before == 2:  # elements become zero with probability 0.05
        shallow = shallow * torch.round(draws.uniform(*shallow.shape) + 0.45)
    elif before == 3:  # elements are negated with probability 0.025
        shallow = shallow * (2 * torch.round(draws.uniform(*shallow.shape) + 0.475) - 1)
    if within == 4:
        deep = apply_last_module(network.body, shallow, [2 + skipped for skipped in draws.several(15, 3)])
    else:
        change = draw_change(within, draws)
        deep = network.body[CUT:](change(network.body[:CUT](shallow)))
    return network.enlarge(deep + shallow)


def draw_change(within: int, draws: Draws) -> Callable[[Tensor], Tensor]:
    """Return the change of the features [N,width,H,W] within the body by option 1, 2, 3 or 5.

    Options 2 and 3 have two variants at odds of 1 to 2.
    """
    is_rare = draws.below(3) == 1
    axes = (1, 2) if is_rare else (1, 3)  # channels and rows, or channels and columns
    changes: Mapping[int, Callable[[Tensor], Tensor]] = {
        1: torch.neg,
        2: functional.relu if is_rare else functional.gelu,
        3: lambda features: features.flip(axes),
        5: lambda features: features,
    }
    return changes[within]


def copy_channels(features: Tensor, pairs: Sequence[tuple[int, int]]) -> Tensor:
    """Write channel b of each pair (a, b) over channel a (option 1 before the body).

    The authors mean to swap them, but what they keep of a is a view of it, which is b's by the time it is written to b.
    """
    result = features.clone()
    for to, source in pairs:
        result[:, to] = result[:, source]
    return result


def apply_last_module(body: nn.Sequential, features: Tensor, skipped: Sequence[int]) -> Tensor:
    """Return the output of the last module that is not skipped, applied to the body's input (body option 4).

    The authors mean to leave out three modules, but each module gets the body's input instead of the output of the one
    before it, so only the last one counts. At most three of modules 2 to 16 are skipped: it is one of 13 to 16.
    """
    last = max(index for index in range(len(body)) if index not in skipped)
    deep: Tensor = body[last](features)
    return deep
