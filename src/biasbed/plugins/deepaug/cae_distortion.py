"""DeepAugment with a compressive autoencoder: Hendrycks et al., The Many Faces of Robustness, ICCV 2021, section 4.

The options, their distributions and their quirks are those of the program that made the authors' images;
docs/methods/deepaugment.md lists them. Layers are counted in the order of the forward pass (`cae.LAYERS`): 8
is the last of the encoder, 9 and 10 are the decoder's first block (10 is transposed), 11 to 16 its residual blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor
from torch.nn import functional

from biasbed.plugins.deepaug.cae import CAE, LAYERS, binarise
from biasbed.plugins.deepaug.distortion import (
    Draws,
    NetworkDistortion,
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


class CAEDistortion(NetworkDistortion[CAE]):
    """Distortion by an autoencoder. The image's short side is resized to the network's `size`.

    weight_option: one of `WEIGHT_OPTIONS` or `NONE`; 0..7 are drawn. signal_option: one of `SIGNAL_OPTIONS` or `NONE`.
    The output has 4 (H // 4) rows and 4 (W // 4) columns, with H and W those of the resized image. It is random even
    without any distortion, because the bits are drawn.
    """

    weight_options = (*WEIGHT_OPTIONS, NONE)
    signal_options = (*SIGNAL_OPTIONS, NONE)

    def draw_weights(self, weights: Weights, draws: Draws) -> Weights:
        option = draws.below(8) if self.weight_option is None else self.weight_option
        return distort_weights(weights, option, draws, self.clean.width)

    def distort(self, image: Tensor, draws: Draws) -> Tensor:
        network = self.distorted
        option = draws.below(9) if self.signal_option is None else self.signal_option
        latent = network.encode(resize_short_side(image, network.size)[None])
        return network.decode(distort_signal(latent, option, draws, network.width))[0]


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
    if option == 1:  # a fifth of the positions becomes zero, in all channels
        latent = latent * (draws.uniform(h, w) > 0.2)
    elif option == 2:  # a tenth of the positions is negated, in all channels
        latent = torch.where(draws.uniform(h, w) > 0.1, latent, -latent)
    elif option == 3:  # the first channels are permuted
        order = draws.order(min(channels, max(2, scale_count(10, width))))
        latent = torch.cat([latent[:, order], latent[:, len(order) :]], dim=1)
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
    """Draw the kernel of option 6: the identity, with noise of -0.1 to 0.1 on every tap."""
    return make_identity_kernel(channels) + (draws.uniform(channels, channels, 3, 3).cpu() - 0.5) * 0.2


def _mixing_kernel(channels: int, draws: Draws) -> Tensor:
    """Draw the kernel of option 7: half of the channels have another one added, shifted by up to one position."""
    kernel = make_identity_kernel(channels)
    for channel in range(channels):
        if draws.below(2):
            kernel[channel, draws.below(channels), draws.below(3), draws.below(3)] = 1
    return kernel


def _shifting_kernel(channels: int, draws: Draws) -> Tensor:
    """Draw the kernel of option 8: channels shifted by up to one position, each mostly like the one before it."""
    kernel = torch.zeros(channels, channels, 3, 3)
    row, column = draws.below(3), draws.below(3)
    for channel in range(channels):
        if draws.fraction() < 0.2:
            row, column = draws.below(3), draws.below(3)
        kernel[channel, channel, row, column] = 1
    return kernel


_KERNELS: Mapping[int, Callable[[int, Draws], Tensor]] = {6: _noisy_kernel, 7: _mixing_kernel, 8: _shifting_kernel}
