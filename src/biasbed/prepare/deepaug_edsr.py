"""DeepAugment with a super-resolution network: Hendrycks et al., The Many Faces of Robustness, ICCV 2021, section 4.

The options, their laws and their quirks are those of the program that made the authors' images; they are listed in
docs/methods/deepaugment.md. A residual block has two convolutions, which count as 0 and 2.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from biasbed.errors import UsageError
from biasbed.networks.edsr import BLOCKS, EDSR, RANGE, SCALE
from biasbed.prepare.distortion import (
    Draws,
    Weights,
    amplified,
    masked,
    minus_gelu,
    negated_once,
    resized,
    scaled,
    strongest_tap,
    turned,
)

WEIGHT_OPTIONS = range(17)
NO_WEIGHTS = 17  # chosen as weight option: none; never drawn
BEFORE_OPTIONS, BODY_OPTIONS = range(1, 5), range(1, 6)  # 4 and 5, in turn, change nothing
SIGNAL_OPTIONS = tuple(10 * before + body for before in BEFORE_OPTIONS for body in BODY_OPTIONS)
NO_SIGNAL = 45
CUT = 5  # of the body's 17 modules, those before the place where its features are distorted

_THIRDS, _FOURTHS = (0, 3, 6, 9), (1, 5, 9)
_FIRST_15 = range(BLOCKS - 1)
_CROSS = torch.tensor([[0.0, 1, 0], [1, -4, 1], [0, 1, 0]])
_SQUARE = torch.tensor([[-1.0, -1, -1], [-1, 8, -1], [-1, -1, -1]])


class EDSRDistortion:
    """Images through a distorted EDSR (`Distortion`): made small, short side `size` // 4, and enlarged by 4.

    weight_option: one of `WEIGHT_OPTIONS`, applied once, or `NO_WEIGHTS`; None draws three at each `redraw`.
    signal_option: 10 times the option before the body (1 to 4) plus the one within (1 to 5), so `NO_SIGNAL`, 45, is
    none; None draws both for each image.
    """

    def __init__(self, network: EDSR, weight_option: int | None = None, signal_option: int | None = None) -> None:
        if weight_option is not None and weight_option not in range(NO_WEIGHTS + 1):
            raise UsageError(f"weight_option={weight_option}: EDSR has 0 to 16, and 17 for no distortion")
        if signal_option is not None and signal_option not in SIGNAL_OPTIONS:
            raise UsageError(
                f"signal_option={signal_option}: EDSR has 11 to 45 (tens 1 to 4 before the body, ones 1 to 5)"
            )
        self.clean = network
        self.distorted = copy.deepcopy(network).eval().requires_grad_(False)
        self.weight_option = weight_option
        self.signal_option = signal_option

    @torch.no_grad()
    def redraw(self, generator: torch.Generator) -> None:
        """Draw a new distortion of the weights, from the clean ones: three options in turn, possibly the same."""
        draws = Draws(generator, self.clean.mean.device)
        options = draws.several(len(WEIGHT_OPTIONS), 3) if self.weight_option is None else [self.weight_option]
        weights = dict(self.clean.state_dict())
        for option in options:
            weights = distort_weights(weights, option, draws)
        self.distorted.load_state_dict(weights)

    @torch.no_grad()
    def __call__(self, image: Tensor, generator: torch.Generator) -> Tensor:
        network = self.distorted
        draws = Draws(generator, network.mean.device)
        option = self.signal_option
        if option is None:
            option = 10 * draws.one_of(BEFORE_OPTIONS) + draws.one_of(BODY_OPTIONS)
        small = resized(image.to(draws.device), network.size // SCALE)[None]
        made = distort_signal(network, RANGE * small, option, draws)[0] / RANGE
        return made.clamp(0, 1).to(image.device)


# --- weights ----------------------------------------------------------------------------------------------------------


def distort_weights(weights: Weights, option: int, draws: Draws) -> Weights:
    """A state dict of `EDSR` with one of `WEIGHT_OPTIONS` applied; the given one stays.

    Options 0 to 10 change one block, 11 one of the first fifteen, 12 to 16 five of those with replacement: block 15 is
    never changed. Option 15 draws 32 filters, the authors' number at their width of 64: half of the width in narrow
    networks, but at least one.
    """
    if option in ON_A_BLOCK:
        blocks, operation = ON_A_BLOCK[option]
        return operation(weights, draws.one_of(blocks), draws)
    if option in ON_FIVE_CONVS:
        for _ in range(5):
            key = _weight(draws.one_of(_FIRST_15), draws.one_of((0, 2)) if option in (12, 16) else 0)
            weights = weights | {key: ON_FIVE_CONVS[option](weights[key], draws)}
    return weights


def flipped(weights: Weights, block: int, draws: Draws | None = None) -> Weights:
    """Option 0: the filters of both convolutions in reverse order. The next layer still expects the old one."""
    keys = [f"body.{block}.body.{conv}.{kind}" for conv in (0, 2) for kind in ("weight", "bias")]
    return weights | {key: weights[key].flip(0) for key in keys}


def first_times(factor: float, weights: Weights, block: int) -> Weights:
    """Options 1 (-1) and 2 (0): the first convolution, weight and bias, times a number."""
    keys = [f"body.{block}.body.0.{kind}" for kind in ("weight", "bias")]
    return weights | {key: factor * weights[key] for key in keys}


def gelu_both(weights: Weights, block: int, draws: Draws | None = None) -> Weights:
    """Option 3: -gelu of both weights; the biases stay."""
    return weights | {key: minus_gelu(weights[key]) for key in (_weight(block, 0), _weight(block, 2))}


def stencilled(stencil: Tensor, weights: Weights, block: int) -> Weights:
    """Options 4 and 5: the first convolution's kernels times a Laplacian element by element, not convolved with it."""
    key = _weight(block, 0)
    return weights | {key: weights[key] * stencil.to(weights[key])}


def amplified_second(weights: Weights, block: int, fraction: float, uniform: Tensor) -> Weights:
    """Option 6: factors of 1 to 5 (see `amplified` for why none is below 1)."""
    key = _weight(block, 2)
    return weights | {key: amplified(weights[key], 1, 4, fraction, uniform)}


def mirrored_and_negated(weights: Weights, block: int, draws: Draws | None = None) -> Weights:
    """Option 7: the first convolution's kernels mirrored left to right, the second's weight negated."""
    first, second = _weight(block, 0), _weight(block, 2)
    return weights | {first: weights[first].flip(-1), second: -weights[second]}


def convolved(weight: Tensor, kernels: Tensor) -> Tensor:
    """Options 8 to 10: the kernels, taken for images of as many channels, under a convolution."""
    return functional.conv2d(weight, kernels, padding=1)


def tap_kernels(width: int, taps: Sequence[tuple[int, int, float]]) -> Tensor:
    """Option 8: kernels [width,width,3,3] whose channel j has one tap (row, column, value), the j-th.

    The authors index all filters at once, so these are equal, and all input channels of a convolved filter become so.
    """
    kernels = torch.zeros(width, width, 3, 3)
    for channel, (row, column, value) in enumerate(taps):
        kernels[:, channel, row, column] = value
    return kernels


def noise_kernels(fraction: float, uniform: Tensor) -> Tensor:
    """Option 9: elements between -1/6 and 1/6, their centre u / 6 - 1/6 drawn for all at once."""
    return (2 * fraction * uniform - 1) / 6


def shaken(weight: Tensor, uniform: Tensor) -> Tensor:
    """Option 11: noise of -0.5 to 0.5 on every element, many times larger than a trained weight."""
    return weight + (uniform - 0.5)


def _random_taps(weights: Weights, block: int, draws: Draws) -> Weights:
    key = _weight(block, 0)
    width = weights[key].shape[1]
    taps = [(draws.below(3), draws.below(3), float(draws.one_of((1, -1)))) for _ in range(width)]
    return weights | {key: convolved(weights[key], tap_kernels(width, taps).to(weights[key]))}


def _random_noise(weights: Weights, block: int, draws: Draws) -> Weights:
    key = _weight(block, 0)
    kernels = noise_kernels(draws.fraction(), draws.uniform(*weights[key].shape))
    return weights | {key: convolved(weights[key], kernels)}


def _random_blur(weights: Weights, block: int, draws: Draws) -> Weights:
    """Option 10: kernels from a Dirichlet distribution of concentration 0.1, most of their mass on one or two taps.

    Each sums to one over its nine taps and not over channels: every channel of a filter becomes a sum of all of them.
    """
    key = _weight(block, 2)
    width = weights[key].shape[1]
    dice = np.random.default_rng(draws.below(2**62))  # torch has no such law with a generator
    kernels = torch.from_numpy(dice.dirichlet([0.1] * 9, (width, width))).view(width, width, 3, 3)
    return weights | {key: convolved(weights[key], kernels.to(weights[key]))}


def _random_amplified(weights: Weights, block: int, draws: Draws) -> Weights:
    return amplified_second(weights, block, draws.fraction(), draws.uniform(*weights[_weight(block, 2)].shape))


def _random_shaken(weights: Weights, block: int, draws: Draws) -> Weights:
    key = _weight(block, 2)
    return weights | {key: shaken(weights[key], draws.uniform(*weights[key].shape))}


def _random_turn(weight: Tensor, draws: Draws) -> Tensor:
    """Option 12: the kernels turned, or the table of filters and channels with all kernels as they are."""
    return turned(weight, 1 + draws.below(3), ((2, 3), (0, 1))[draws.below(2)])


def _random_negated(weight: Tensor, draws: Draws) -> Tensor:
    """Option 15: a filter drawn twice is negated once; one that is drawn for the same block again, back."""
    return negated_once(weight, draws.several(len(weight), scaled(32, len(weight))))


ON_A_BLOCK: Mapping[int, tuple[Sequence[int], Callable[[Weights, int, Draws], Weights]]] = {
    0: (_THIRDS, flipped),
    1: ((1, 4, 7), lambda weights, block, draws: first_times(-1, weights, block)),
    2: (_THIRDS, lambda weights, block, draws: first_times(0, weights, block)),
    3: (_THIRDS, gelu_both),
    4: (_THIRDS, lambda weights, block, draws: stencilled(_CROSS, weights, block)),
    5: (_THIRDS, lambda weights, block, draws: stencilled(_SQUARE, weights, block)),
    6: (_THIRDS, _random_amplified),
    7: (_THIRDS, mirrored_and_negated),
    8: (_FOURTHS, _random_taps),
    9: (_THIRDS, _random_noise),
    10: (_FOURTHS, _random_blur),
    11: (_FIRST_15, _random_shaken),
}
ON_FIVE_CONVS: Mapping[int, Callable[[Tensor, Draws], Tensor]] = {
    12: _random_turn,
    13: lambda weight, draws: masked(weight, draws.uniform(*weight.shape), signs=True),
    14: lambda weight, draws: masked(weight, draws.uniform(*weight.shape), signs=False),
    15: _random_negated,
    16: lambda weight, draws: strongest_tap(weight),
}


def _weight(block: int, conv: int) -> str:
    return f"body.{block}.body.{conv}.weight"


# --- signal -----------------------------------------------------------------------------------------------------------


def distort_signal(network: EDSR, x: Tensor, option: int, draws: Draws) -> Tensor:
    """The enlarged image [N,3,4H,4W] of x [N,3,H,W], both in [0,255], with one of `SIGNAL_OPTIONS`; not clamped.

    What happens before the body also happens to the features that are added behind it.
    """
    before, within = divmod(option, 10)
    shallow = network.shallow(x)
    width = shallow.shape[1]
    if before == 1:
        shallow = copied(shallow, [(draws.below(width), draws.below(width)) for _ in range(scaled(5, width))])
    elif before == 2:
        shallow = dropped(shallow, draws.uniform(*shallow.shape))
    elif before == 3:
        shallow = with_signs(shallow, draws.uniform(*shallow.shape))
    if within == 4:
        deep = last_module_only(network.body, shallow, [2 + skipped for skipped in draws.several(15, 3)])
    else:
        deep = within_body(network.body, shallow, _change(within, draws))
    return network.enlarge(deep + shallow)


def _change(within: int, draws: Draws) -> Callable[[Tensor], Tensor]:
    """What body options 1, 2, 3 and 5 do to its features; each has two variants at odds of 1 to 2."""
    rare = draws.below(3) == 1
    changes: Mapping[int, Callable[[Tensor], Tensor]] = {
        1: torch.neg,
        2: functional.relu if rare else functional.gelu,
        3: lambda x: x.flip((1, 2) if rare else (1, 3)),  # channels and rows, or channels and columns
        5: lambda x: x,
    }
    return changes[within]


def copied(features: Tensor, pairs: Sequence[tuple[int, int]]) -> Tensor:
    """Before 1: channel b of each pair (a, b) written over channel a.

    The authors mean to swap them, but what they keep of a is a view of it, which is b's by the time it is written to b.
    """
    result = features.clone()
    for to, source in pairs:
        result[:, to] = result[:, source]
    return result


def dropped(features: Tensor, uniform: Tensor) -> Tensor:
    """Before 2: elements set to zero with probability 0.05."""
    return features * torch.round(uniform + 0.45)


def with_signs(features: Tensor, uniform: Tensor) -> Tensor:
    """Before 3: elements negated with probability 0.025."""
    return features * (2 * torch.round(uniform + 0.475) - 1)


def within_body(body: nn.Sequential, features: Tensor, change: Callable[[Tensor], Tensor]) -> Tensor:
    deep: Tensor = body[CUT:](change(body[:CUT](features)))
    return deep


def last_module_only(body: nn.Sequential, features: Tensor, skipped: Sequence[int]) -> Tensor:
    """Body 4: the last module that is not skipped, alone.

    The authors mean to leave out three modules, but each module gets the body's input instead of the one before it, so
    that the last one is all that counts. At most three of modules 2 to 16 are skipped: it is one of 13 to 16.
    """
    last = max(index for index in range(len(body)) if index not in skipped)
    deep: Tensor = body[last](features)
    return deep
