"""Small networks for small images, from the papers of some suites. The last layer is always called `fc`.

All map images [N,C,H,W] to logits [N,K]. `width` scales the channels of every hidden layer.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import cast

from torch import Tensor, nn

from biasbed.networks.form import IMAGENET, USUAL_SIZE, Backbone, Form, MeanStd

GROUPS = 8  # groups of channels in each group norm of `MNISTConvNet`


def scaled(channels: int, width: float) -> int:
    """Return the number of channels times `width`, at least one."""
    return max(1, round(channels * width))


class MLP(nn.Module):
    """Three hidden layers with ReLU on flattened images, which must all have one size.

    100, 100 and 16 units are those of Lee, Kim, Lee, Lee and Choo, Learning Debiased Representation via Disentangled
    Feature Augmentation, NeurIPS 2021, for Colored MNIST.
    """

    def __init__(
        self, outputs: int, channels: int = 3, size: int = 28, hidden: Sequence[int] = (100, 100, 16), width: float = 1
    ) -> None:
        super().__init__()
        units = [channels * size**2, *(scaled(number, width) for number in hidden)]
        layers: list[nn.Module] = []
        for a, b in pairwise(units):
            layers += [nn.Linear(a, b), nn.ReLU()]
        self.layers = nn.Sequential(*layers)
        self.fc = nn.Linear(units[-1], outputs)

    def forward(self, x: Tensor) -> Tensor:
        return cast(Tensor, self.fc(self.layers(x.flatten(1))))


class SimpleConv(nn.Module):
    """Four convolutions without stride, each with batch norm and ReLU, and a mean over all positions.

    Bahng, Chun, Yun, Choo and Oh, Learning De-biased Representations with Biased Representations, ICML 2020. Theirs has
    kernels of 7 pixels, or of 1 pixel when it must see nothing but colours.
    """

    def __init__(self, outputs: int, channels: int = 3, kernel: int = 7, width: float = 1) -> None:
        super().__init__()
        sizes = [channels, *(scaled(number, width) for number in (16, 32, 64, 128))]
        layers: list[nn.Module] = []
        for a, b in pairwise(sizes):
            conv = nn.Conv2d(a, b, kernel, padding=kernel // 2)
            nn.init.kaiming_normal_(conv.weight, mode="fan_out", nonlinearity="relu")
            layers += [conv, nn.BatchNorm2d(b), nn.ReLU(inplace=True)]
        self.layers = nn.Sequential(*layers)
        self.fc = nn.Linear(sizes[-1], outputs)

    def forward(self, x: Tensor) -> Tensor:
        return cast(Tensor, self.fc(self.layers(x).mean((2, 3))))


class MNISTConvNet(nn.Module):
    """Four convolutions, each with ReLU and then group norm, the second with stride 2, and a mean over all positions.

    Gulrajani and Lopez-Paz, In Search of Lost Domain Generalization, ICLR 2021, appendix D.1: their network for
    Colored and Rotated MNIST. 128 features.
    """

    def __init__(self, outputs: int, channels: int = 1, width: float = 1) -> None:
        super().__init__()
        sizes = [channels, *(GROUPS * scaled(number // GROUPS, width) for number in (64, 128, 128, 128))]
        layers: list[nn.Module] = []
        for (a, b), stride in zip(pairwise(sizes), (1, 2, 1, 1), strict=True):
            layers += [nn.Conv2d(a, b, 3, stride, padding=1), nn.ReLU(), nn.GroupNorm(GROUPS, b)]
        self.layers = nn.Sequential(*layers)
        self.fc = nn.Linear(sizes[-1], outputs)

    def forward(self, x: Tensor) -> Tensor:
        return cast(Tensor, self.fc(self.layers(x).mean((2, 3))))


class SmallBlock(nn.Module):
    """Two convolutions without padding, the second of 1 pixel, and a shortcut that is cropped to their size."""

    def __init__(self, channels: int, outputs: int, kernel: int = 1, stride: int = 1) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, outputs, kernel, stride, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(outputs, outputs, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.downsample = nn.Sequential()
        if stride != 1 or channels != outputs:
            self.downsample.extend([nn.Conv2d(channels, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)])

    def forward(self, x: Tensor) -> Tensor:
        out = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        shortcut = self.downsample(x)[:, :, : out.shape[2], : out.shape[3]]
        return cast(Tensor, self.relu(out + shortcut))


class BagNet18(nn.Module):
    """Eight basic blocks with ResNet-18's channels, where a feature sees 5x5 pixels. Images need 8 pixels or more.

    A BagNet (Brendel and Bethge, ICLR 2019) as used for ImageNet by Bahng, Chun, Yun, Choo and Oh, Learning De-biased
    Representations with Biased Representations, ICML 2020: one convolution of 3 pixels in the stem and one in the first
    block, all others of 1; strides 2, 2, 2 and 1.
    """

    def __init__(self, outputs: int, channels: int = 3, width: float = 1) -> None:
        super().__init__()
        stem, *sizes = (scaled(number, width) for number in (64, 64, 128, 256, 512))
        self.conv1 = nn.Conv2d(channels, stem, 1, bias=False)
        self.conv2 = nn.Conv2d(stem, stem, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(stem)
        self.relu = nn.ReLU(inplace=True)
        self.layers = nn.Sequential(*_blocks((stem, *sizes)))
        self.fc = nn.Linear(sizes[-1], outputs)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: Tensor) -> Tensor:
        maps = self.layers(self.relu(self.bn1(self.conv2(self.conv1(x)))))
        return cast(Tensor, self.fc(maps.mean((2, 3))))


def _blocks(sizes: Sequence[int]) -> list[SmallBlock]:
    """Return two blocks for each pair of successive sizes; the first one changes the number of channels."""
    blocks = []
    for (channels, outputs), kernel, stride in zip(pairwise(sizes), (3, 1, 1, 1), (2, 2, 2, 1), strict=True):
        blocks += [SmallBlock(channels, outputs, kernel, stride), SmallBlock(outputs, outputs)]
    return blocks


def make_mlp(form: Form) -> Backbone:
    """Return an `MLP` for images of one size."""
    size = form.image_size or USUAL_SIZE
    network = MLP(form.outputs, form.channels, size, width=form.width)
    return Backbone(network, IMAGENET.repeat(form.channels), size)


def make_simple_conv(form: Form, kernel: int = 7) -> Backbone:
    """Return a `SimpleConv`."""
    network = SimpleConv(form.outputs, form.channels, kernel, form.width)
    return Backbone(network, IMAGENET.repeat(form.channels))


def make_simple_conv_1x1(form: Form) -> Backbone:
    """Return a `SimpleConv` that sees single pixels."""
    return make_simple_conv(form, kernel=1)


def make_mnist_convnet(form: Form) -> Backbone:
    """Return the network of the MNIST papers, which takes images in [0,1] without normalisation."""
    network = MNISTConvNet(form.outputs, form.channels, form.width)
    return Backbone(network, MeanStd((0.0,), (1.0,)).repeat(form.channels))


def make_bagnet18(form: Form) -> Backbone:
    """Return a `BagNet18`."""
    network = BagNet18(form.outputs, form.channels, form.width)
    return Backbone(network, IMAGENET.repeat(form.channels))
