"""DeepAugment with a compressive autoencoder: Hendrycks et al., The Many Faces of Robustness, ICCV 2021, section 4.

The options, their laws and their quirks are those of the program that made the authors' images; they are listed in
docs/methods/deepaugment.md. Layers are counted in the order of the forward pass (`networks.cae.LAYERS`): 8 is the last
of the encoder, 9 and 10 are the decoder's first block (10 is transposed), 11 to 16 its residual blocks.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor
from torch.nn import functional

from biasbed.errors import UsageError
from biasbed.networks.cae import CAE, LAYERS, binarise
from biasbed.prepare.distortion import (
    Draws,
    Weights,
    amplified,
    masked,
    minus_gelu_of,
    negated,
    negated_once,
    resized,
    scaled,
    strongest_tap,
    turned,
    zeroed,
)

WEIGHT_OPTIONS = range(9)  # the authors' program never draws 8
SIGNAL_OPTIONS = range(9)
NONE = 9  # chosen as either option: no distortion of that kind; never drawn

_FLIPPED, _LATE, _OTHERS = range(11, 16), range(10, 14), range(8, 14)


class CAEDistortion:
    """Images through a distorted autoencoder (`Distortion`): their short side is resized to the network's `size`.

    weight_option: one of `WEIGHT_OPTIONS` or `NONE`; None draws one of 0..7 at each `redraw`.
    signal_option: one of `SIGNAL_OPTIONS` or `NONE`; None draws one for each image.
    The made image has 4 (H // 4) rows and 4 (W // 4) columns, H and W being those of the resized one. Even without any
    distortion it is random, because the bits are drawn.
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
        latent = network.encode(resized(image.to(draws.device), network.size)[None])
        made: Tensor = network.decode(distort_signal(latent, option, draws, network.width))[0]
        return made.clamp(0, 1).to(image.device)


# --- weights ----------------------------------------------------------------------------------------------------------


def distort_weights(weights: Weights, option: int, draws: Draws, width: int) -> Weights:
    """A state dict of `CAE` with one of `WEIGHT_OPTIONS` applied to a layer that is drawn; the given one stays.

    A filter is an index along the first axis of the weight. In layer 10, whose convolution is transposed, that is an
    input channel, and the bias that is changed with it is that of the output channel of the same number. Numbers of
    filters that are drawn (12 of option 1, 25 of 2 and 3, from layers of 32 to 128) are the authors' at their width of
    64, and in proportion to `width`, but at least one, in narrower networks.
    """
    layers = {0: _FLIPPED, 3: _LATE}.get(option, _OTHERS)
    first, second = (LAYERS[draws.one_of(layers)] for _ in range(2))  # the second is drawn even where it is not used
    weight, bias = weights[f"{first}.weight"], weights[f"{first}.bias"]
    filters = len(weight)
    changed: Weights = {}
    if option == 0:
        changed = flipped(weights, first, second)
    elif option in (1, 2, 3):
        operation, count = {1: (negated, 12), 2: (zeroed, 25), 3: (minus_gelu_of, 25)}[option]
        picks = draws.several(filters, scaled(count, width))
        changed = {f"{first}.weight": operation(weight, picks), f"{first}.bias": operation(bias, picks)}
    elif option == 4:
        changed = dict(weights)
        for layer in (first, second):  # one after the other: the same layer may be drawn twice
            old = changed[f"{layer}.weight"]
            changed[f"{layer}.weight"] = amplified(old, 1, 8, draws.fraction(), draws.uniform(*old.shape))
    elif option == 5:
        changed = {
            f"{first}.weight": masked(weight, signs=draws.fraction() >= 0.5, uniform=draws.uniform(*weight.shape))
        }
    elif option == 6:
        changed = {f"{first}.weight": turned(weight, 1 + draws.below(3))}
    elif option == 7:
        picks = draws.several(filters, max(1, filters // 5))
        changed = {f"{first}.weight": negated_once(weight, picks)}
    elif option == 8:
        changed = {f"{first}.weight": strongest_tap(weight)}
    return weights | changed


def flipped(weights: Weights, first: str, second: str) -> Weights:
    """Option 0: the filters of layer `first`, weight and bias, in reverse order.

    The authors mean to do so in both layers, but address the second one's weight twice and its bias not at all: it is
    reversed twice, which leaves it as it was. The same layer drawn twice is reversed three times, i.e. once.
    """
    result = dict(weights)
    for key in (f"{first}.weight", f"{first}.bias", f"{second}.weight", f"{second}.weight"):
        result[key] = result[key].flip(0)
    return result


# --- signal -----------------------------------------------------------------------------------------------------------


def distort_signal(latent: Tensor, option: int, draws: Draws, width: int) -> Tensor:
    """The code [N,C,h,w] of a latent map: distorted (options 1 to 8), made bits, and amplified (option 0).

    Numbers of channels (10 that are permuted, 5 that are flipped) are the authors' at their width of 64, where the
    latent has 32, and in proportion to `width` in narrower networks: at least one, and at least two are permuted.
    """
    channels, (h, w) = latent.shape[1], latent.shape[2:]
    if option == 1:
        latent = dropped_positions(latent, draws.uniform(h, w))
    elif option == 2:
        latent = negated_positions(latent, draws.uniform(h, w))
    elif option == 3:
        latent = permuted(latent, draws.order(min(channels, max(2, scaled(10, width)))))
    elif option in (4, 5):
        axes = draws.order(3)[:2]
        some = draws.several(channels, scaled(5, width)) if option == 4 else range(channels)
        latent = mirrored(latent, some, axes)
    elif option in (6, 7, 8):
        latent = functional.conv2d(latent, _KERNELS[option](channels, draws).to(latent), padding=1)
    code = binarise(latent, draws.uniform(*latent.shape))
    if option == 0:
        code = amplified(code, 3, 4, draws.fraction(), draws.uniform(*code.shape))
    return code


def dropped_positions(latent: Tensor, uniform: Tensor) -> Tensor:
    """Option 1: a fifth of the positions [h,w] set to zero, in all channels."""
    return latent * (uniform > 0.2)


def negated_positions(latent: Tensor, uniform: Tensor) -> Tensor:
    """Option 2: a tenth of the positions [h,w] negated, in all channels."""
    return torch.where(uniform > 0.1, latent, -latent)


def permuted(latent: Tensor, order: Sequence[int]) -> Tensor:
    """Option 3: the first channels in another order."""
    return torch.cat([latent[:, list(order)], latent[:, len(order) :]], dim=1)


def mirrored(latent: Tensor, channels: Sequence[int], axes: Sequence[int]) -> Tensor:
    """Options 4 and 5: each listed channel [N,h,w] mirrored along two axes of it, as often as it is listed.

    Along the first one, the batch, nothing happens to a single image.
    """
    result = latent.clone()
    for channel in channels:
        result[:, channel] = result[:, channel].flip(tuple(axes))
    return result


def identity_kernel(channels: int) -> Tensor:
    """[C,C,3,3] that changes nothing."""
    kernel = torch.zeros(channels, channels, 3, 3)
    kernel[range(channels), range(channels), 1, 1] = 1
    return kernel


def _noisy_kernel(channels: int, draws: Draws) -> Tensor:
    """Option 6."""
    return noisy(identity_kernel(channels), draws.uniform(channels, channels, 3, 3).cpu())


def noisy(kernel: Tensor, uniform: Tensor) -> Tensor:
    """Every tap moved by -0.1 to 0.1."""
    return kernel + (uniform - 0.5) * 0.2


def _mixing_kernel(channels: int, draws: Draws) -> Tensor:
    """Option 7: half of the channels get another one on top, shifted by up to one position."""
    extra = [(c, draws.below(channels), draws.below(3), draws.below(3)) for c in range(channels) if draws.below(2)]
    return with_taps(identity_kernel(channels), extra)


def with_taps(kernel: Tensor, taps: Sequence[tuple[int, int, int, int]]) -> Tensor:
    """Taps (to, from, row, column) set to one; a tap that is one already stays as it is."""
    result = kernel.clone()
    for tap in taps:
        result[tap] = 1
    return result


def _shifting_kernel(channels: int, draws: Draws) -> Tensor:
    """Option 8: channels shifted by up to one position, each mostly like the one before it."""
    taps = []
    row, column = draws.below(3), draws.below(3)
    for channel in range(channels):
        if draws.fraction() < 0.2:
            row, column = draws.below(3), draws.below(3)
        taps.append((channel, channel, row, column))
    return with_taps(torch.zeros(channels, channels, 3, 3), taps)


_KERNELS: Mapping[int, Callable[[int, Draws], Tensor]] = {6: _noisy_kernel, 7: _mixing_kernel, 8: _shifting_kernel}
