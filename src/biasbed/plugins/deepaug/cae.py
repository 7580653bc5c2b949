"""Compressive autoencoder (CAE): encodes an image as a map of bits, and decodes the bits to an image.

Theis, Shi, Cunningham and Huszar, Lossy Image Compression with Compressive Autoencoders, 2017; bits instead of integers
and their stochastic rounding after Toderici et al., Variable Rate Image Compression with Recurrent Neural Networks,
2016. The layout and the parameters' names are those of the network that DeepAugment distorts (Hendrycks et al. 2021,
section 4).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Self

from torch import Tensor, nn

from biasbed.networks.frozen import PreparedNetwork
from biasbed.networks.weights import load_weights

FULL_WIDTH = 64  # channels of the first layer in the authors' network

# The 21 convolutions in the order of the forward pass, by their names in the state dict.
LAYERS = (
    *("e_conv_1.1", "e_conv_2.1"),
    *("e_block_1.1", "e_block_1.4", "e_block_2.1", "e_block_2.4", "e_block_3.1", "e_block_3.4"),
    *("e_conv_3.0", "d_up_conv_1.0", "d_up_conv_1.3"),
    *("d_block_1.1", "d_block_1.4", "d_block_2.1", "d_block_2.4", "d_block_3.1", "d_block_3.4"),
    *("d_up_conv_2.0", "d_up_conv_2.3", "d_up_conv_3.0", "d_up_conv_3.3"),
)


def binarise(latent: Tensor, uniform: Tensor) -> Tensor:
    """Return random bits of a latent map in [-1,1], of the same shape: 1 with probability (1 + latent) / 2.

    uniform: draws from [0,1), one per element. The decoder's input, 2 bits - 1, has the latent as its mean. The
    gradient is that of (1 + latent) / 2, as if nothing were rounded (Theis et al., section 2.1).
    """
    probability = (1 + latent) / 2
    bits = (uniform <= probability).to(latent.dtype)
    return bits + (probability - probability.detach())


class CAE(PreparedNetwork):
    """Images [N,3,H,W] in [0,1] -> latent maps [N,C,h,w] in (-1,1) and back, with h = H // 4 and w = W // 4.

    size: short side in pixels of the images. width: channels of the first layer; all others are in proportion (at the
    authors' 64: 128 inside, a latent of 32). Images need at least 12 pixels per side. The output has 4 h rows and 4 w
    columns, in (-1,1).
    """

    published: ClassVar[tuple[str, ...]] = ("weights",)

    def __init__(self, size: int = 512, width: int = FULL_WIDTH) -> None:
        super().__init__(size=size, width=width)
        stem, inner, code, up, last = (max(1, round(n * width / FULL_WIDTH)) for n in (64, 128, 32, 256, 16))
        self.latent_channels = code
        self.e_conv_1 = _down(3, stem)
        self.e_conv_2 = _down(stem, inner)
        self.e_block_1, self.e_block_2, self.e_block_3 = (_residual(inner) for _ in range(3))
        self.e_conv_3 = nn.Sequential(nn.Conv2d(inner, code, 5, padding=2), nn.Tanh())
        self.d_up_conv_1 = _up(code, stem, inner)
        self.d_block_1, self.d_block_2, self.d_block_3 = (_residual(inner) for _ in range(3))
        self.d_up_conv_2 = _up(inner, code, up)
        self.d_up_conv_3 = nn.Sequential(
            nn.Conv2d(up, last, 3), nn.LeakyReLU(), nn.ReflectionPad2d(2), nn.Conv2d(last, 3, 3), nn.Tanh()
        )

    @property
    def width(self) -> int:
        """Number of channels of the first layer."""
        return int(self.settings["width"])

    def encode(self, x: Tensor) -> Tensor:
        """Return the latent map."""
        h: Tensor = self.e_conv_2(self.e_conv_1(x))
        for block in (self.e_block_1, self.e_block_2, self.e_block_3):
            h = h + block(h)
        latent: Tensor = self.e_conv_3(h)
        return latent

    def decode(self, code: Tensor) -> Tensor:
        """Return the image of a code, which holds bits unless it was distorted."""
        h: Tensor = self.d_up_conv_1(2 * code - 1)
        for block in (self.d_block_1, self.d_block_2, self.d_block_3):
            h = h + block(h)
        image: Tensor = self.d_up_conv_3(self.d_up_conv_2(h))
        return image

    def forward(self, x: Tensor, uniform: Tensor) -> Tensor:
        """Return the reconstruction. uniform [N,C,h,w]: draws from [0,1) for the bits."""
        return self.decode(binarise(self.encode(x), uniform))

    @classmethod
    def from_published(cls, tensors: Mapping[str, Mapping[str, Tensor]]) -> Self:
        network = cls()
        load_weights(network, tensors["weights"], "weights", "DeepAugment's compressive autoencoder")
        return network


def _down(channels: int, filters: int) -> nn.Sequential:
    """Return layers that halve the size, rounded down."""
    return nn.Sequential(nn.ZeroPad2d((1, 2, 1, 2)), nn.Conv2d(channels, filters, 5, stride=2), nn.LeakyReLU())


def _residual(channels: int) -> nn.Sequential:
    """Return the residual branch of a block."""
    return nn.Sequential(
        *(nn.ZeroPad2d(1), nn.Conv2d(channels, channels, 3), nn.LeakyReLU()),
        *(nn.ZeroPad2d(1), nn.Conv2d(channels, channels, 3)),
    )


def _up(channels: int, between: int, filters: int) -> nn.Sequential:
    """Return layers that double the size."""
    return nn.Sequential(
        *(nn.Conv2d(channels, between, 3), nn.LeakyReLU()),
        *(nn.ZeroPad2d(1), nn.ConvTranspose2d(between, filters, 2, stride=2)),
    )
