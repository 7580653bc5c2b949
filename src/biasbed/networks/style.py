"""Style transfer by adaptive instance normalisation, AdaIN (Huang and Belongie, ICCV 2017).

The first layers of a VGG-19 encode content and style images; the content's feature maps get the means and standard
deviations of the style's; a decoder turns the result into an image. The layout is the authors', so that their weight
files fit. `width` makes it narrower.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Self

import torch
from torch import Tensor, nn

from biasbed.batch import at_least_fp32
from biasbed.networks.frozen import PreparedNetwork
from biasbed.networks.weights import load_weights

EPS = 1e-5  # added to variances
AUTHORS_WIDTH, AUTHORS_SIZE = 64, 256
STAGES = (2, 2, 4, 1)  # VGG-19's convolutions per resolution, up to relu4_1
TAPS = (3, 10, 17, 30)  # indices of relu1_1, relu2_1, relu3_1 and relu4_1 in the encoder
VGG_MODULES = 53  # modules of the published encoder, of which the first 31 are used

Moments = tuple[Tensor, Tensor]


class StyleTransfer(PreparedNetwork):
    """Encoder up to relu4_1 and its mirror image as decoder, for RGB images [N,3,H,W] in [0,1], not normalised.

    width: channels at the first resolution (authors: 64), doubled up to the fourth. Decoded images are not clamped (as
    in the authors' code) and may leave [0,1] a little.
    """

    published = ("encoder", "decoder")

    def __init__(self, width: int = AUTHORS_WIDTH, size: int = AUTHORS_SIZE) -> None:
        super().__init__(width=width, size=size)
        self.encoder = _encoder(width)
        self.decoder = _decoder(width)

    @classmethod
    def from_published(cls, tensors: Mapping[str, Mapping[str, Tensor]]) -> Self:
        """Return the network of the authors' `vgg_normalised.pth` and `decoder.pth`."""
        network = cls()
        network.load_encoder(tensors["encoder"])
        load_weights(network.decoder, tensors["decoder"], "decoder", "the AdaIN decoder")
        return network

    def load_encoder(self, tensors: Mapping[str, Tensor]) -> None:
        """Load the normalised VGG-19 without its layers after relu4_1. Raises UsageError for other weights."""
        numbers = range(TAPS[-1] + 1, VGG_MODULES)
        deeper = {f"{i}.weight" for i in numbers} | {f"{i}.bias" for i in numbers}
        used = {key: value for key, value in tensors.items() if key not in deeper}
        load_weights(self.encoder, used, "encoder", "the normalised VGG-19")

    def encode(self, x: Tensor) -> Tensor:
        """Return relu4_1 [N,8*width,ceil(H/8),ceil(W/8)]."""
        return self.features(x)[-1]

    def features(self, x: Tensor) -> list[Tensor]:
        """Return relu1_1, relu2_1, relu3_1 and relu4_1."""
        features = []
        for number, layer in enumerate(self.encoder):
            x = layer(x)
            if number in TAPS:
                features.append(x)
        return features

    def decode(self, features: Tensor) -> Tensor:
        """Return images of relu4_1: [N,3,8h,8w], larger than the encoded ones if their sides are no multiples of 8."""
        image: Tensor = self.decoder(features)
        return image

    def transfer(self, content: Tensor, style: Tensor, alpha: float = 1.0) -> Tensor:
        """Return content images [N,3,H,W] in the style of images [N,3,H',W']. alpha=0 keeps the content's style."""
        f = self.encode(content)
        return self._render(f, adain(f, self.encode(style)), alpha, content)

    def permute(self, x: Tensor, permutation: Tensor, alpha: float = 1.0) -> Tensor:
        """Return each image i in the style of image permutation[i].

        Equals `transfer(x, x[permutation], alpha)`. The encoder treats every image by itself, so it runs once and the
        moments [N,C] are permuted instead of the images.
        """
        f = self.encode(x)
        current = mean, std = moments(f)
        return self._render(f, restyle(f, current, (mean[permutation], std[permutation])), alpha, x)

    def _render(self, content: Tensor, styled: Tensor, alpha: float, image: Tensor) -> Tensor:
        """Return the decoded blend, cropped to the image: pooling rounds up and adds rows and columns at the end."""
        height, width = image.shape[-2:]
        return self.decode(blend(content, styled, alpha))[..., :height, :width]


def moments(f: Tensor, eps: float = EPS) -> Moments:
    """Return mean and sqrt(v + eps) of every map of f [N,C,h,w], v unbiased: two [N,C,1,1] of at least fp32."""
    with torch.autocast(f.device.type, enabled=False):
        variance, mean = torch.var_mean(at_least_fp32(f), dim=(2, 3), keepdim=True)
        return mean, (variance + eps).sqrt()


def restyle(f: Tensor, current: Moments, target: Moments) -> Tensor:
    """Return f [N,C,h,w] with its `current` moments replaced by `target`."""
    with torch.autocast(f.device.type, enabled=False):
        # Centred first: a nearly constant map is scaled by up to 1/sqrt(eps), which must not magnify rounding errors.
        return torch.addcmul(target[0], at_least_fp32(f) - current[0], target[1] / current[1])


def adain(content: Tensor, style: Tensor, eps: float = EPS) -> Tensor:
    """Return the content's maps [N,C,h,w] with the style's mean and deviation (AdaIN, equation 8), in fp32."""
    return restyle(content, moments(content, eps), moments(style, eps))


def blend(content: Tensor, styled: Tensor, alpha: float) -> Tensor:
    """Return features between content (alpha 0) and full style (alpha 1) (equation 14), in fp32."""
    with torch.autocast(content.device.type, enabled=False):
        return torch.lerp(at_least_fp32(content), at_least_fp32(styled), alpha)


def _conv(inputs: int, outputs: int) -> list[nn.Module]:
    return [nn.ReflectionPad2d(1), nn.Conv2d(inputs, outputs, 3)]


def _encoder(width: int) -> nn.Sequential:
    """Return the encoder's 31 modules. The leading 1x1 convolution takes the place of normalisation."""
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
    """Return the decoder's 29 modules: the encoder's convolutions from the last to the second with inputs and outputs
    swapped, one convolution to RGB, and nearest upsampling where the encoder pools."""
    layers: list[nn.Module] = []
    for stage, convs in reversed(list(enumerate(STAGES))):
        channels = width * 2**stage
        for _ in range(convs - 1):
            layers += [*_conv(channels, channels), nn.ReLU()]
        if stage:
            layers += [*_conv(channels, channels // 2), nn.ReLU(), nn.Upsample(scale_factor=2)]
    return nn.Sequential(*layers, *_conv(width, 3))
