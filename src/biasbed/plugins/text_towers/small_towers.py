"""Small image and text towers for small images and quick studies, with texts read as bytes."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor, nn

from biasbed.networks.form import IMAGENET, Backbone, Form
from biasbed.networks.small import scaled
from biasbed.plugins.text_towers.towers import ImageTower, TextTower

LENGTH = 64  # bytes of a text; longer ones are cut
WIDTH = 32  # features of an image and of a text


class SmallImageTower(ImageTower):
    """Three convolutions of stride 2, each with batch norm and ReLU, a mean over positions and a projection."""

    def __init__(self, outputs: int, channels: int = 3, width: float = 1.0) -> None:
        super().__init__(scaled(WIDTH, width), outputs)
        sizes = [channels, *(scaled(number, width) for number in (16, 32, 64))]
        layers: list[nn.Module] = []
        for a, b in itertools.pairwise(sizes):
            layers += [nn.Conv2d(a, b, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(b), nn.ReLU()]
        self.visual = nn.Sequential(*layers)
        self.projection = nn.Linear(sizes[-1], scaled(WIDTH, width))

    def embed(self, x: Tensor) -> Tensor:
        return cast(Tensor, self.projection(self.visual(x).mean((2, 3))))


class _Texts(nn.Module):
    """Mean of the embeddings of a text's bytes, each times one of its place, and a hidden layer."""

    def __init__(self) -> None:
        super().__init__()
        self.token_embedding = nn.Embedding(256, WIDTH)
        self.positional_embedding = nn.Parameter(1 + torch.randn(LENGTH, WIDTH) / 2)
        self.layers = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH))
        self.logit_scale = nn.Parameter(torch.tensor(math.log(1 / 0.07)))

    def forward(self, tokens: Tensor) -> Tensor:
        is_there = (tokens > 0).unsqueeze(-1).to(self.positional_embedding.dtype)
        embedded = self.token_embedding(tokens) * self.positional_embedding * is_there
        return cast(Tensor, self.layers(embedded.sum(1) / is_there.sum(1)))


class SmallTextTower(TextTower):
    """Text tower of `small_clip`."""

    def __init__(self) -> None:
        super().__init__(_Texts())

    def tokenize(self, texts: Sequence[str]) -> Tensor:
        rows = [list(text.encode()[:LENGTH].ljust(LENGTH, b"\0")) for text in texts]
        return torch.tensor(rows, dtype=torch.int64)

    def forward(self, tokens: Tensor) -> Tensor:
        return cast(Tensor, self.model(tokens))


def make_small_clip(form: Form) -> Backbone:
    """Return the image tower of `small_clip`."""
    return Backbone(SmallImageTower(form.outputs, form.channels, form.width), IMAGENET.repeat(form.channels))
