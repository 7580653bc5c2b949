"""Style transfer by adaptive instance normalisation (Huang and Belongie, ICCV 2017).

Content and style images are encoded by the front of a VGG-19; the content's feature maps get the means and standard
deviations of the style's; a decoder makes an image of the result. The layout is the authors', so their weight files
fit, and `width` makes it narrower.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Self

import torch
from torch import Tensor, nn

from biasbed.batch import at_least_fp32
from biasbed.errors import UsageError
from biasbed.networks.frozen import PreparedNetwork
from biasbed.networks.weights import load_weights

EPS = 1e-5  # added to variances
AUTHORS_WIDTH, AUTHORS_SIZE = 64, 256
STAGES = (2, 2, 4, 1)  # VGG-19's convolutions per resolution, up to relu4_1
TAPS = (3, 10, 17, 30)  # where relu1_1, relu2_1, relu3_1 and relu4_1 are in the encoder
VGG_MODULES = 53  # modules of the published encoder, of which the first 31 are used
SMALLEST = 9  # below this many pixels relu4_1 is one pixel wide, which has no deviation and no reflection

Moments = tuple[Tensor, Tensor]


class StyleTransfer(PreparedNetwork):
    """Encoder to relu4_1 and its mirror image; images [N,3,H,W] are RGB in [0,1], never normalised before.

    width: channels of the first resolution (authors: 64), which double up to the fourth. Decoded images are not
    clamped, as the authors', and may leave [0,1] a little.
    """

    published = ("encoder", "decoder")

    def __init__(self, width: int = AUTHORS_WIDTH, size: int = AUTHORS_SIZE) -> None:
        super().__init__(width=width, size=size)
        self.encoder = _encoder(width)
        self.decoder = _decoder(width)

    @classmethod
    def from_published(cls, tensors: Mapping[str, Mapping[str, Tensor]]) -> Self:
        """The network of the authors' `vgg_normalised.pth` and `decoder.pth`."""
        network = cls()
        network.load_encoder(tensors["encoder"])
        load_weights(network.decoder, tensors["decoder"], "decoder", "the AdaIN decoder")
        return network

    def load_encoder(self, tensors: Mapping[str, Tensor]) -> None:
        """Take over the normalised VGG-19, whose layers behind relu4_1 are left out; UsageError for any other."""
        deeper = {f"{i}.{kind}" for i in range(TAPS[-1] + 1, VGG_MODULES) for kind in ("weight", "bias")}
        used = {key: value for key, value in tensors.items() if key not in deeper}
        load_weights(self.encoder, used, "encoder", "the normalised VGG-19")

    def encode(self, x: Tensor) -> Tensor:
        """relu4_1 [N,8*width,ceil(H/8),ceil(W/8)]."""
        return self.features(x)[-1]

    def features(self, x: Tensor) -> list[Tensor]:
        """relu1_1, relu2_1, relu3_1 and relu4_1; UsageError for images too small to be encoded."""
        if min(x.shape[-2:]) < SMALLEST:
            raise UsageError(f"style transfer needs images of at least {SMALLEST} pixels, not {min(x.shape[-2:])}")
        found = []
        for number, layer in enumerate(self.encoder):
            x = layer(x)
            if number in TAPS:
                found.append(x)
        return found

    def decode(self, features: Tensor) -> Tensor:
        """Images of relu4_1: [N,3,8h,8w], larger than what was encoded where its sides are no multiples of 8."""
        image: Tensor = self.decoder(features)
        return image

    def transfer(self, content: Tensor, style: Tensor, alpha: float = 1.0) -> Tensor:
        """The content images [N,3,H,W] in the style of [N,3,H',W']; alpha 0 keeps the content's own style."""
        f = self.encode(content)
        return self._render(f, adain(f, self.encode(style)), alpha, content)

    def permute(self, x: Tensor, permutation: Tensor, alpha: float = 1.0) -> Tensor:
        """Image i in the style of image permutation[i].

        Equals `transfer(x, x[permutation], alpha)`, but as the encoder treats every image by itself it runs once, and
        the [N,C] moments are permuted instead of the images.
        """
        f = self.encode(x)
        own = mean, std = moments(f)
        return self._render(f, restyle(f, own, (mean[permutation], std[permutation])), alpha, x)

    def _render(self, content: Tensor, styled: Tensor, alpha: float, image: Tensor) -> Tensor:
        """The decoded blend, without the rows and columns that pooling (which rounds up) has added at the far ends."""
        height, width = image.shape[-2:]
        return self.decode(blend(content, styled, alpha))[..., :height, :width]


def moments(f: Tensor, eps: float = EPS) -> Moments:
    """Mean and sqrt(v + eps) of every map of f [N,C,h,w], v unbiased: two of [N,C,1,1], at least fp32."""
    with torch.autocast(f.device.type, enabled=False):
        variance, mean = torch.var_mean(at_least_fp32(f), dim=(2, 3), keepdim=True)
        return mean, (variance + eps).sqrt()


def restyle(f: Tensor, own: Moments, target: Moments) -> Tensor:
    """f [N,C,h,w], whose moments are `own`, with those of `target` in their place."""
    with torch.autocast(f.device.type, enabled=False):
        # Centred first: a nearly constant map is scaled up by as much as 1/sqrt(eps), which rounding must not be.
        return torch.addcmul(target[0], at_least_fp32(f) - own[0], target[1] / own[1])


def adain(content: Tensor, style: Tensor, eps: float = EPS) -> Tensor:
    """AdaIN (equation 8): the content's maps [N,C,h,w] with mean and deviation of the style's [N,C,h',w'], in fp32."""
    return restyle(content, moments(content, eps), moments(style, eps))


def blend(content: Tensor, styled: Tensor, alpha: float) -> Tensor:
    """Features between content (alpha 0) and full style (alpha 1) (equation 14), in fp32."""
    with torch.autocast(content.device.type, enabled=False):
        return torch.lerp(at_least_fp32(content), at_least_fp32(styled), alpha)


def _conv(inputs: int, outputs: int) -> list[nn.Module]:
    return [nn.ReflectionPad2d(1), nn.Conv2d(inputs, outputs, 3)]


def _encoder(width: int) -> nn.Sequential:
    """31 modules; the leading 1x1 convolution takes the place of normalisation."""
    layers: list[nn.Module] = [nn.Conv2d(3, 3, 1)]
    inputs = 3
    for stage, convs in enumerate(STAGES):
        if stage:
            layers.append(nn.MaxPool2d(2, ceil_mode=True))
        for _ in range(convs):
            outputs = width * 2**stage
            layers += [*_conv(inputs, outputs), nn.ReLU()]
            inputs = outputs
    return nn.Sequential(*layers)


def _decoder(width: int) -> nn.Sequential:
    """29 modules: the encoder's convolutions from the last to the second, each from its outputs to its inputs, and one
    to RGB; nearest upsampling where the encoder pools."""
    layers: list[nn.Module] = []
    for stage, convs in reversed(list(enumerate(STAGES))):
        channels = width * 2**stage
        for _ in range(convs - 1):
            layers += [*_conv(channels, channels), nn.ReLU()]
        if stage:
            layers += [*_conv(channels, channels // 2), nn.ReLU(), nn.Upsample(scale_factor=2)]
    return nn.Sequential(*layers, *_conv(width, 3))
