"""DeepAugment with a super-resolution network: Hendrycks et al., The Many Faces of Robustness, ICCV 2021, section 4.

The options, their distributions and their quirks are those of the program that made the authors' images;
docs/methods/deepaugment.md lists them. A residual block has two convolutions, numbered 0 and 2.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from biasbed.errors import UsageError
from biasbed.plugins.deepaug.distortion import (
    Draws,
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


class EDSRDistortion:
    """Distortion by EDSR (`Distortion`). The image is reduced to a short side of `size` // 4 and enlarged by 4.

    weight_option: one of `WEIGHT_OPTIONS`, applied once, or `NO_WEIGHTS`; None draws three at each `redraw`.
    signal_option: 10 times the option before the body (1 to 4) plus the one within (1 to 5); `NO_SIGNAL`, 45, changes
    nothing; None draws both for each image.
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
        """Draw a new distortion of the clean weights: three options in turn, possibly the same."""
        draws = Draws(generator, self.clean.mean.device)
        options = draws.several(len(WEIGHT_OPTIONS), 3) if self.weight_option is None else [self.weight_option]
        weights = dict(self.clean.state_dict())
        for option in options:
            weights = distort_weights(weights, option, draws)
        self.distorted.load_state_dict(weights)

    @torch.no_grad()
    def __call__(self, image: Tensor, generator: torch.Generator) -> Tensor:
        """Return the image, made small and enlarged by the distorted network on a distorted signal.

        The tens of a signal's option say what is done before the network's body, the ones what is done within it.
        """
        network = self.distorted
        draws = Draws(generator, network.mean.device)
        option = self.signal_option
        if option is None:
            option = 10 * draws.one_of(BEFORE_OPTIONS) + draws.one_of(BODY_OPTIONS)
        small = resize_short_side(image.to(draws.device), network.size // SCALE)[None]
        made = distort_signal(network, RANGE * small, option, draws)[0] / RANGE
        return made.clamp(0, 1).to(image.device)


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
            key = _weight(block, conv)
            weights = weights | {key: ON_FIVE_CONVS[option](weights[key], draws)}
    return weights


def flip_filters(weights: Weights, block: int, draws: Draws | None = None) -> Weights:
    """Reverse the order of the filters of both convolutions (option 0). The next layer still expects the old order."""
    changed = dict(weights)
    for conv in (0, 2):
        for kind in ("weight", "bias"):
            key = f"body.{block}.body.{conv}.{kind}"
            changed[key] = weights[key].flip(0)
    return changed


def multiply_first(factor: float, weights: Weights, block: int) -> Weights:
    """Multiply the first convolution, weight and bias, by a factor: -1 (option 1) or 0 (option 2)."""
    keys = [f"body.{block}.body.0.{kind}" for kind in ("weight", "bias")]
    return weights | {key: factor * weights[key] for key in keys}


def apply_minus_gelu_to_both(weights: Weights, block: int, draws: Draws | None = None) -> Weights:
    """Replace both weights by their -gelu (option 3); the biases stay."""
    first, second = _weight(block, 0), _weight(block, 2)
    return weights | {first: minus_gelu(weights[first]), second: minus_gelu(weights[second])}


def multiply_by_stencil(stencil: Tensor, weights: Weights, block: int) -> Weights:
    """Multiply the first convolution's kernels element by element by a Laplacian (options 4 and 5)."""
    key = _weight(block, 0)
    return weights | {key: weights[key] * stencil.to(weights[key])}


def amplify_second(weights: Weights, block: int, fraction: float, uniform: Tensor) -> Weights:
    """Multiply the second convolution's weight by 1 to 5 (option 6); see `amplify` for why none is below 1."""
    key = _weight(block, 2)
    return weights | {key: amplify(weights[key], 1, 4, fraction, uniform)}


def mirror_and_negate(weights: Weights, block: int, draws: Draws | None = None) -> Weights:
    """Mirror the first convolution's kernels left to right and negate the second's weight (option 7)."""
    first, second = _weight(block, 0), _weight(block, 2)
    return weights | {first: weights[first].flip(-1), second: -weights[second]}


def convolve(weight: Tensor, kernels: Tensor) -> Tensor:
    """Convolve a weight, as if it were a batch of images, with kernels (options 8 to 10)."""
    return functional.conv2d(weight, kernels, padding=1)


def make_tap_kernels(width: int, taps: Sequence[tuple[int, int, float]]) -> Tensor:
    """Return kernels [width,width,3,3] whose channel j has one tap, the j-th (row, column, value) (option 8).

    The authors index all filters at once, so all filters are equal, as are all input channels of a convolved filter.
    """
    kernels = torch.zeros(width, width, 3, 3)
    for channel, (row, column, value) in enumerate(taps):
        kernels[:, channel, row, column] = value
    return kernels


def make_noise_kernels(fraction: float, uniform: Tensor) -> Tensor:
    """Return kernels with elements between -1/6 and 1/6; their centre, u / 6 - 1/6, is drawn once (option 9)."""
    return (2 * fraction * uniform - 1) / 6


def shake(weight: Tensor, uniform: Tensor) -> Tensor:
    """Add noise of -0.5 to 0.5 to every element, many times larger than a trained weight (option 11)."""
    return weight + (uniform - 0.5)


def _random_taps(weights: Weights, block: int, draws: Draws) -> Weights:
    key = _weight(block, 0)
    width = weights[key].shape[1]
    taps = [(draws.below(3), draws.below(3), float(draws.one_of((1, -1)))) for _ in range(width)]
    return weights | {key: convolve(weights[key], make_tap_kernels(width, taps).to(weights[key]))}


def _random_noise(weights: Weights, block: int, draws: Draws) -> Weights:
    key = _weight(block, 0)
    kernels = make_noise_kernels(draws.fraction(), draws.uniform(*weights[key].shape))
    return weights | {key: convolve(weights[key], kernels)}


def _random_blur(weights: Weights, block: int, draws: Draws) -> Weights:
    """Convolve with Dirichlet kernels of concentration 0.1, with most mass on one or two taps (option 10).

    Each sums to one over its nine taps but not over channels: every channel of a filter becomes a sum of all of them.
    """
    key = _weight(block, 2)
    width = weights[key].shape[1]
    rng = np.random.default_rng(draws.below(2**62))  # torch's Dirichlet takes no generator
    kernels = torch.from_numpy(rng.dirichlet([0.1] * 9, (width, width))).view(width, width, 3, 3)
    return weights | {key: convolve(weights[key], kernels.to(weights[key]))}


def _random_amplified(weights: Weights, block: int, draws: Draws) -> Weights:
    return amplify_second(weights, block, draws.fraction(), draws.uniform(*weights[_weight(block, 2)].shape))


def _random_shaken(weights: Weights, block: int, draws: Draws) -> Weights:
    key = _weight(block, 2)
    return weights | {key: shake(weights[key], draws.uniform(*weights[key].shape))}


def _random_turn(weight: Tensor, draws: Draws) -> Tensor:
    """Turn the kernels, or the table of filters and channels with its kernels unchanged (option 12)."""
    return turn(weight, 1 + draws.below(3), ((2, 3), (0, 1))[draws.below(2)])


def _random_negated(weight: Tensor, draws: Draws) -> Tensor:
    """Negate half of the filters (option 15). A filter drawn twice in one call is negated once."""
    return negate_once(weight, draws.several(len(weight), scale_count(32, len(weight))))


ON_A_BLOCK: Mapping[int, tuple[Sequence[int], Callable[[Weights, int, Draws], Weights]]] = {
    0: (_THIRDS, flip_filters),
    1: ((1, 4, 7), lambda weights, block, draws: multiply_first(-1, weights, block)),
    2: (_THIRDS, lambda weights, block, draws: multiply_first(0, weights, block)),
    3: (_THIRDS, apply_minus_gelu_to_both),
    4: (_THIRDS, lambda weights, block, draws: multiply_by_stencil(_CROSS, weights, block)),
    5: (_THIRDS, lambda weights, block, draws: multiply_by_stencil(_SQUARE, weights, block)),
    6: (_THIRDS, _random_amplified),
    7: (_THIRDS, mirror_and_negate),
    8: (_FOURTHS, _random_taps),
    9: (_THIRDS, _random_noise),
    10: (_FOURTHS, _random_blur),
    11: (_FIRST_15, _random_shaken),
}
ON_FIVE_CONVS: Mapping[int, Callable[[Tensor, Draws], Tensor]] = {
    12: _random_turn,
    13: lambda weight, draws: mask(weight, draws.uniform(*weight.shape), signs=True),
    14: lambda weight, draws: mask(weight, draws.uniform(*weight.shape), signs=False),
    15: _random_negated,
    16: lambda weight, draws: keep_strongest_tap(weight),
}


def _weight(block: int, conv: int) -> str:
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
        shallow = copy_channels(
            shallow, [(draws.below(width), draws.below(width)) for _ in range(scale_count(5, width))]
        )
    elif before == 2:
        shallow = drop_elements(shallow, draws.uniform(*shallow.shape))
    elif before == 3:
        shallow = flip_signs(shallow, draws.uniform(*shallow.shape))
    if within == 4:
        deep = apply_last_module(network.body, shallow, [2 + skipped for skipped in draws.several(15, 3)])
    else:
        deep = change_within_body(network.body, shallow, _change(within, draws))
    return network.enlarge(deep + shallow)


def _change(within: int, draws: Draws) -> Callable[[Tensor], Tensor]:
    """Return the change of the body's features by options 1, 2, 3 and 5.

    Options 2 and 3 have two variants at odds of 1 to 2.
    """
    rare = draws.below(3) == 1
    axes = (1, 2) if rare else (1, 3)  # channels and rows, or channels and columns
    changes: Mapping[int, Callable[[Tensor], Tensor]] = {
        1: torch.neg,
        2: functional.relu if rare else functional.gelu,
        3: lambda x: x.flip(axes),
        5: lambda x: x,
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


def drop_elements(features: Tensor, uniform: Tensor) -> Tensor:
    """Set elements to zero with probability 0.05 (option 2 before the body)."""
    return features * torch.round(uniform + 0.45)


def flip_signs(features: Tensor, uniform: Tensor) -> Tensor:
    """Negate elements with probability 0.025 (option 3 before the body)."""
    return features * (2 * torch.round(uniform + 0.475) - 1)


def change_within_body(body: nn.Sequential, features: Tensor, change: Callable[[Tensor], Tensor]) -> Tensor:
    """Return the body's output with its features changed after `CUT` modules."""
    deep: Tensor = body[CUT:](change(body[:CUT](features)))
    return deep


def apply_last_module(body: nn.Sequential, features: Tensor, skipped: Sequence[int]) -> Tensor:
    """Return the output of the last module that is not skipped, applied to the body's input (body option 4).

    The authors mean to leave out three modules, but each module gets the body's input instead of the output of the one
    before it, so only the last one counts. At most three of modules 2 to 16 are skipped: it is one of 13 to 16.
    """
    last = max(index for index in range(len(body)) if index not in skipped)
    deep: Tensor = body[last](features)
    return deep
