"""DeepAugment with a compressive autoencoder: Hendrycks et al., The Many Faces of Robustness, ICCV 2021, section 4.

The options, their distributions and their quirks are those of the program that made the authors' images;
docs/methods/deepaugment.md lists them. Layers are counted in the order of the forward pass (`cae.LAYERS`): 8
is the last of the encoder, 9 and 10 are the decoder's first block (10 is transposed), 11 to 16 its residual blocks.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor
from torch.nn import functional

from biasbed.errors import UsageError
from biasbed.plugins.deepaug.cae import CAE, LAYERS, binarise
from biasbed.plugins.deepaug.distortion import (
    Draws,
    Weights,
    amplify,
    apply_minus_gelu,
    keep_strongest_tap,
    mask,
    negate,
    negate_once,
    resize_short_side,
    scale_count,
    turn,
    zero,
)

WEIGHT_OPTIONS = range(9)  # the authors' program never draws 8
SIGNAL_OPTIONS = range(9)
NONE = 9  # chosen as either option: no distortion of that kind; never drawn

_FLIPPED, _LATE, _OTHERS = range(11, 16), range(10, 14), range(8, 14)


class CAEDistortion:
    """Distortion by an autoencoder (`Distortion`). The image's short side is resized to the network's `size`.

    weight_option: one of `WEIGHT_OPTIONS` or `NONE`; None draws one of 0..7 at each `redraw`.
    signal_option: one of `SIGNAL_OPTIONS` or `NONE`; None draws one for each image.
    The output has 4 (H // 4) rows and 4 (W // 4) columns, with H and W those of the resized image. It is random even
    without any distortion, because the bits are drawn.
    """

    def __init__(self, network: CAE, weight_option: int | None = None, signal_option: int | None = None) -> None:
        for name, option in (("weight_option", weight_option), ("signal_option", signal_option)):
            if option is not None and option not in range(NONE + 1):
                raise UsageError(f"{name}={option}: the autoencoder has 0 to 8, and 9 for no distortion")
        self.clean = network
        self.distorted = copy.deepcopy(network).eval().requires_grad_(False)
        self.weight_option = weight_option
        self.signal_option = signal_option

    @torch.no_grad()
    def redraw(self, generator: torch.Generator) -> None:
        """Draw a new distortion of the weights, from the clean ones."""
        device = next(self.clean.parameters()).device
        weights = dict(self.clean.state_dict())
        draws = Draws(generator, device)
        option = draws.below(8) if self.weight_option is None else self.weight_option
        self.distorted.load_state_dict(distort_weights(weights, option, draws, self.clean.width))

    @torch.no_grad()
    def __call__(self, image: Tensor, generator: torch.Generator) -> Tensor:
        network = self.distorted
        draws = Draws(generator, next(network.parameters()).device)
        option = draws.below(9) if self.signal_option is None else self.signal_option
        latent = network.encode(resize_short_side(image.to(draws.device), network.size)[None])
        made: Tensor = network.decode(distort_signal(latent, option, draws, network.width))[0]
        return made.clamp(0, 1).to(image.device)


# --- weights ----------------------------------------------------------------------------------------------------------


def distort_weights(weights: Weights, option: int, draws: Draws, width: int) -> Weights:
    """Return a state dict of `CAE` with one of `WEIGHT_OPTIONS` applied to a randomly drawn layer; `weights` stays.

    A filter is an index along the first axis of the weight. In layer 10, whose convolution is transposed, that is an
    input channel, and the bias that is changed with it is that of the output channel of the same number. The numbers of
    filters drawn (12 of option 1, 25 of 2 and 3, from layers of 32 to 128) are the authors' at their width of 64. In
    narrower networks they are proportional to `width`, but at least one.
    """
    layers = {0: _FLIPPED, 3: _LATE}.get(option, _OTHERS)
    first, second = (LAYERS[draws.one_of(layers)] for _ in range(2))  # the second is drawn even if it is not used
    weight, bias = weights[f"{first}.weight"], weights[f"{first}.bias"]
    filters = len(weight)
    changed: Weights = {}
    if option == 0:
        changed = flip_filters(weights, first, second)
    elif option in (1, 2, 3):
        operation, count = {1: (negate, 12), 2: (zero, 25), 3: (apply_minus_gelu, 25)}[option]
        picks = draws.several(filters, scale_count(count, width))
        changed = {f"{first}.weight": operation(weight, picks), f"{first}.bias": operation(bias, picks)}
    elif option == 4:
        changed = dict(weights)
        for layer in (first, second):  # one after the other: the same layer may be drawn twice
            old = changed[f"{layer}.weight"]
            changed[f"{layer}.weight"] = amplify(old, 1, 8, draws.fraction(), draws.uniform(*old.shape))
    elif option == 5:
        changed = {f"{first}.weight": mask(weight, signs=draws.fraction() >= 0.5, uniform=draws.uniform(*weight.shape))}
    elif option == 6:
        changed = {f"{first}.weight": turn(weight, 1 + draws.below(3))}
    elif option == 7:
        picks = draws.several(filters, max(1, filters // 5))
        changed = {f"{first}.weight": negate_once(weight, picks)}
    elif option == 8:
        changed = {f"{first}.weight": keep_strongest_tap(weight)}
    return weights | changed


def flip_filters(weights: Weights, first: str, second: str) -> Weights:
    """Reverse the order of the filters of layer `first`, weight and bias (option 0).

    The authors mean to reverse both layers, but address the second one's weight twice and its bias not at all: it is
    reversed twice, which leaves it as it was. The same layer drawn twice is reversed three times, i.e. once.
    """
    result = dict(weights)
    for key in (f"{first}.weight", f"{first}.bias", f"{second}.weight", f"{second}.weight"):
        result[key] = result[key].flip(0)
    return result


# --- signal -----------------------------------------------------------------------------------------------------------


def distort_signal(latent: Tensor, option: int, draws: Draws, width: int) -> Tensor:
    """Return the code [N,C,h,w] of a latent map: distorted (options 1 to 8), made binary, and amplified (option 0).

    The numbers of channels (10 are permuted, 5 flipped) are the authors' at their width of 64, where the latent has 32.
    In narrower networks they are proportional to `width`, but at least one, and at least two are permuted.
    """
    channels, (h, w) = latent.shape[1], latent.shape[2:]
    if option == 1:
        latent = drop_positions(latent, draws.uniform(h, w))
    elif option == 2:
        latent = negate_positions(latent, draws.uniform(h, w))
    elif option == 3:
        latent = permute_channels(latent, draws.order(min(channels, max(2, scale_count(10, width)))))
    elif option in (4, 5):
        axes = draws.order(3)[:2]
        some = draws.several(channels, scale_count(5, width)) if option == 4 else range(channels)
        latent = mirror_channels(latent, some, axes)
    elif option in (6, 7, 8):
        latent = functional.conv2d(latent, _KERNELS[option](channels, draws).to(latent), padding=1)
    code = binarise(latent, draws.uniform(*latent.shape))
    if option == 0:
        code = amplify(code, 3, 4, draws.fraction(), draws.uniform(*code.shape))
    return code


def drop_positions(latent: Tensor, uniform: Tensor) -> Tensor:
    """Set a fifth of the positions [h,w] to zero, in all channels (option 1)."""
    return latent * (uniform > 0.2)


def negate_positions(latent: Tensor, uniform: Tensor) -> Tensor:
    """Negate a tenth of the positions [h,w], in all channels (option 2)."""
    return torch.where(uniform > 0.1, latent, -latent)


def permute_channels(latent: Tensor, order: Sequence[int]) -> Tensor:
    """Permute the first channels (option 3)."""
    return torch.cat([latent[:, list(order)], latent[:, len(order) :]], dim=1)


def mirror_channels(latent: Tensor, channels: Sequence[int], axes: Sequence[int]) -> Tensor:
    """Mirror each listed channel [N,h,w] along two of its axes, as often as it is listed (options 4 and 5).

    Mirroring along the first axis, the batch, does nothing to a single image.
    """
    result = latent.clone()
    for channel in channels:
        result[:, channel] = result[:, channel].flip(tuple(axes))
    return result


def make_identity_kernel(channels: int) -> Tensor:
    """Return the kernel [C,C,3,3] of the identity."""
    kernel = torch.zeros(channels, channels, 3, 3)
    kernel[range(channels), range(channels), 1, 1] = 1
    return kernel


def _noisy_kernel(channels: int, draws: Draws) -> Tensor:
    """Draw the kernel of option 6: the identity with noise."""
    return add_noise(make_identity_kernel(channels), draws.uniform(channels, channels, 3, 3).cpu())


def add_noise(kernel: Tensor, uniform: Tensor) -> Tensor:
    """Add noise of -0.1 to 0.1 to every tap."""
    return kernel + (uniform - 0.5) * 0.2


def _mixing_kernel(channels: int, draws: Draws) -> Tensor:
    """Draw the kernel of option 7: half of the channels have another one added, shifted by up to one position."""
    extra = [(c, draws.below(channels), draws.below(3), draws.below(3)) for c in range(channels) if draws.below(2)]
    return set_taps(make_identity_kernel(channels), extra)


def set_taps(kernel: Tensor, taps: Sequence[tuple[int, int, int, int]]) -> Tensor:
    """Return the kernel with taps (to, from, row, column) set to one."""
    result = kernel.clone()
    for tap in taps:
        result[tap] = 1
    return result


def _shifting_kernel(channels: int, draws: Draws) -> Tensor:
    """Draw the kernel of option 8: channels shifted by up to one position, each mostly like the one before it."""
    taps = []
    row, column = draws.below(3), draws.below(3)
    for channel in range(channels):
        if draws.fraction() < 0.2:
            row, column = draws.below(3), draws.below(3)
        taps.append((channel, channel, row, column))
    return set_taps(torch.zeros(channels, channels, 3, 3), taps)


_KERNELS: Mapping[int, Callable[[int, Draws], Tensor]] = {6: _noisy_kernel, 7: _mixing_kernel, 8: _shifting_kernel}
