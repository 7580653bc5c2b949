"""Insertion into the ResNets of torchvision and timm."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field

import pytest
import torch
import torchvision
from torch import Tensor, nn

from biasbed.networks import build, hooks, surgery
from biasbed.networks.surgery import Window

# name -> convolutions of the main path
COUNTS = {
    "resnet14": 13,
    "resnet18": 17,
    "resnet50": 49,
    "timm:resnetblur50": 49,  # blurs are pooling, no convolutions
    "timm:seresnet18": 17,  # attention has 1x1 convolutions of its own
    "timm:resnet50d": 51,  # three in the stem; shortcuts pool
    "timm:resnetrs50": 52,  # one more in place of the max-pooling
}


@dataclass
class Add:
    """Adds a number where it is inserted, and counts its calls."""

    amount: float = 0.0
    shapes: list[list[int]] = field(default_factory=list)

    def __call__(self, x: Tensor) -> Tensor:
        self.shapes.append(list(x.shape))
        return x + self.amount


@pytest.mark.parametrize("name", COUNTS)
def test_number_of_convolutions(name: str) -> None:
    assert len(surgery.main_path_convs(build(name, 3).backbone)) == COUNTS[name]


@pytest.mark.parametrize("name", ["resnet14", "timm:seresnet18", "timm:resnetrs50"])
def test_convolutions_come_in_the_order_of_the_forward(name: str) -> None:
    backbone = build(name, 3).backbone.eval()
    convs, called = surgery.main_path_convs(backbone), []
    for number, conv in enumerate(convs):
        conv.register_forward_hook(lambda module, inputs, output, number=number: called.append(number))
    backbone(torch.rand(1, 3, 64, 64))
    assert called == list(range(len(convs)))


@pytest.mark.parametrize("name", ["resnet18", "timm:seresnet18"])
def test_what_is_inserted_acts_before_the_norm(name: str) -> None:
    """A constant added after every convolution is taken out again by the norms in train mode, but for the padding."""
    backbone = build(name, 3).backbone
    plain = copy.deepcopy(backbone)
    x = torch.rand(2, 3, 64, 64)
    adds = [Add(0.5) for _ in surgery.main_path_convs(backbone)]
    for conv, add in zip(surgery.main_path_convs(backbone), adds, strict=True):
        hooks.insert_after(conv, add)
    torch.testing.assert_close(backbone.train()(x), plain.train()(x), rtol=1e-2, atol=1e-3)
    assert all(len(add.shapes) == 1 for add in adds)
    assert not torch.allclose(backbone.eval()(x), plain.eval()(x), atol=1e-3)


def test_keys_and_weights_stay_torchvisions() -> None:
    reference = torchvision.models.resnet18(num_classes=3).eval()
    network = build("resnet18", 3).eval()
    for conv in surgery.main_path_convs(network.backbone):
        hooks.insert_after(conv, Add())
    network.backbone.load_state_dict(reference.state_dict())
    assert list(network.backbone.state_dict()) == list(reference.state_dict())
    x = torch.rand(2, 3, 64, 64)
    torch.testing.assert_close(network(x), reference(network.normalise(x)))


def test_stem_and_block_sites_of_a_basic_block() -> None:
    resnet = build("resnet18", 3).backbone
    stem = surgery.stem_site(resnet)
    assert (stem.source, stem.target) == (resnet.conv1, resnet.maxpool)
    assert (stem.window, stem.pool) == (Window(7, 2, 3), Window(3, 2, 1))
    first, second = surgery.first_block_sites(resnet, 1)
    block = resnet.layer1[0]
    assert (first.source, first.target, first.window) == (block.conv1, block.bn1, Window(3, 1, 1))
    assert (second.source, second.target, second.window) == (block.conv2, block, Window(3, 1, 1))
    (only,) = surgery.first_block_sites(resnet, 2)  # its shortcut is a convolution
    assert (only.source, only.window) == (resnet.layer2[0].conv1, Window(3, 2, 1))


def test_block_sites_of_a_bottleneck() -> None:
    resnet = build("resnet14", 3).backbone
    first, second = surgery.first_block_sites(resnet, 2)
    block = resnet.layer2[0]
    assert (first.source, first.target, first.window) == (block.conv1, block.bn1, Window(1, 1, 0))
    assert (second.source, second.target, second.window) == (block.conv2, block.bn2, Window(3, 2, 1))


def test_windows_of_layers_in_a_row() -> None:
    """A pixel's influence reaches exactly as far as the window says."""
    stem = nn.Sequential(nn.Conv2d(1, 1, 3, 2, 1), nn.ReLU(), nn.Conv2d(1, 1, 3, 1, 1), nn.MaxPool2d(3, 2, 1))
    window = surgery.window_of(stem)
    assert window == Window(11, 4, 5)
    linear = nn.Sequential(nn.Conv2d(1, 1, 3, 2, 1), nn.Conv2d(1, 1, 3, 1, 1), nn.AvgPool2d(3, 2, 1))
    x = torch.rand(1, 1, 64, 64, requires_grad=True)
    linear(x)[0, 0, 5, 5].backward()
    rows = x.grad[0, 0].abs().sum(dim=1).nonzero()
    assert (int(rows.min()), int(rows.max())) == (5 * 4 - 5, 5 * 4 - 5 + 11 - 1)
    assert surgery.window_of(nn.Conv2d(1, 1, 3, padding=2, dilation=2)) == Window(5, 1, 2)
