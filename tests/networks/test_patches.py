"""Image sizes that the patches of a network divide, and networks that pad or resize images themselves."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from torch import nn

import biasbed
from biasbed import networks
from biasbed.errors import UsageError

SWIN = "timm:swin_tiny_patch4_window7_224"
# Sizes that are refused: the patch, and the nearest sizes that would do.
REFUSED = {
    ("timm:test_vit", 100): (16, "96 or 112"),
    ("timm:vit_small_patch14_dinov2", 100): (14, "98 or 112"),
    ("swin_t", 102): (4, "100 or 104"),
    ("timm:twins_svt_small", 102): (4, "96 or 128"),  # 100 and 104 leave windows without a border further on
    ("timm:convnext_atto", 101): (4, "100 or 104"),
}
# Networks that take any size here: windows are padded (Swin), images are padded or resized, or nothing is cut at once.
TAKEN = {SWIN: 100, "timm:naflexvit_base_patch16_gap": 100, "timm:vit_tiny_r_s16_p8_224": 100, "inception_v3": 224}


@pytest.mark.parametrize(("name", "size"), REFUSED)
def test_a_size_that_the_patches_do_not_divide_is_refused_with_sizes_that_would_do(name: str, size: int) -> None:
    patch, sizes = REFUSED[name, size]
    lost = f"patches of {patch} x {patch} pixels leave out {size % patch} of {size} pixels per side"
    with pytest.raises(UsageError, match=rf"^{re.escape(name)} .*{lost}; take image_size={sizes}$"):
        networks.refuse_size(name, size)
    for good in map(int, sizes.split(" or ")):
        networks.refuse_size(name, good)


@pytest.mark.parametrize("name", TAKEN)
def test_networks_that_leave_nothing_out_take_any_size(name: str) -> None:
    networks.refuse_size(name, TAKEN[name])


def made(name: str, size: int, **how: Any) -> nn.Module:
    """A network of timm, past our refusal."""
    import timm

    torch.manual_seed(0)
    network: nn.Module = timm.create_model(name.partition(":")[2], img_size=size, num_classes=3, **how)
    return network.eval()


def reads_its_border(network: nn.Module, size: int) -> bool:
    x = torch.rand(1, 3, size, size, requires_grad=True)
    network(x).square().sum().backward()
    assert x.grad is not None
    return bool(x.grad[..., -1, -1].any())


@pytest.mark.parametrize(
    ("how", "size"), [({}, 36), ({}, 48), ({"dynamic_img_pad": True, "dynamic_img_size": True}, 36)]
)
def test_what_decides_is_whether_the_network_reads_the_border(how: dict[str, Any], size: int) -> None:
    network = made("timm:vit_tiny_patch16_224", size, depth=1, **how)
    if reads_its_border(network, size):
        with networks.refuse_lost_border(network, 3):
            network(torch.zeros(1, 3, size, size))
    else:
        with pytest.raises(UsageError, match="leave out 4 of 36 pixels"), networks.refuse_lost_border(network, 3):
            network(torch.zeros(1, 3, size, size))
    assert not any(module._forward_pre_hooks for module in network.modules())
    assert reads_its_border(network, size) == (size == 48 or bool(how))


def test_a_model_of_ones_own_is_refused_too() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 8, 4, stride=4), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 10)).eval()
    classes = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
    settings: dict[str, Any] = {"suite": "demo", "sets": "in_domain", "classes": classes, "device": "cpu"}
    with pytest.raises(UsageError, match="patches of 4 x 4 pixels leave out 2 of 42 pixels"):
        biasbed.evaluate(model, image_size=42, **settings)
    assert biasbed.evaluate(model, image_size=40, **settings)
