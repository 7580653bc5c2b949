"""Stages of networks, and feature maps in tokens and in tensors with the channels last."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from biasbed.algorithms.padain import Swap, swap_statistics
from biasbed.algorithms.sagnet import Maps, Randomisation, StyleDraw, randomise_content, randomise_style
from biasbed.errors import UsageError
from biasbed.networks import build, stages, surgery
from biasbed.networks.stages import CHANNELS_LAST, MAPS, MapChange, MapLayout
from biasbed.networks.surgery import Window

TOKENS = MapLayout("tokens", prefix=2, grid=(2, 3))
LITE = "timm:tf_efficientnet_lite0"
SIDE = 64


def images(count: int = 3) -> Tensor:
    return torch.rand(count, 3, SIDE, SIDE, generator=torch.Generator().manual_seed(0))


def small(name: str) -> nn.Module:
    torch.manual_seed(0)
    return build(name, 5, image_size=SIDE).backbone.eval()


# --- layouts ----------------------------------------------------------------------------------------------------------


def test_a_network_of_too_few_blocks_has_no_stages() -> None:
    backbone = small("timm:test_vit")
    backbone.blocks = nn.Sequential(*list(backbone.blocks)[:3])
    with pytest.raises(UsageError, match="has 3 blocks, too few for 4 stages"):
        stages.find(backbone)


def test_a_map_is_read_row_by_row_and_written_back() -> None:
    x = torch.arange(2 * 8 * 4.0).view(2, 8, 4)
    maps = TOKENS.read(x)
    assert maps.shape == (2, 4, 2, 3)
    assert torch.equal(maps[1, :, 1, 2], x[1, 2 + 5])
    assert torch.equal(TOKENS.write(x, maps), x)
    assert torch.equal(TOKENS.write(x, maps + 1)[:, 2:], x[:, 2:] + 1)
    assert torch.equal(TOKENS.write(x, maps + 1)[:, :2], x[:, :2])
    last = x.view(2, 2, 4, 4)
    assert torch.equal(CHANNELS_LAST.read(last)[0, 3], last[0, :, :, 3])
    assert torch.equal(CHANNELS_LAST.write(last, CHANNELS_LAST.read(last)), last)


def test_tokens_of_a_larger_image_are_a_square() -> None:
    assert TOKENS.read(torch.zeros(1, 2 + 9, 4)).shape == (1, 4, 3, 3)


# --- methods on tokens ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("layout", [TOKENS, CHANNELS_LAST])
def test_padain_on_tokens_is_padain_on_the_map(layout: MapLayout) -> None:
    generator = torch.Generator().manual_seed(1)
    x = torch.randn((4, 8, 5) if layout == TOKENS else (4, 2, 3, 5), generator=generator)
    swap = Swap(1e-5)
    change = MapChange(layout, swap)
    assert change(x) is x
    swap.draw = torch.tensor([2, 0, 3, 1])
    patches = x[:, 2:] if layout == TOKENS else x.flatten(1, 2)
    expected = swap_statistics(patches.transpose(1, 2).reshape(4, 5, 2, 3), swap.draw)
    changed = change(x)
    found = changed[:, 2:] if layout == TOKENS else changed.flatten(1, 2)
    torch.testing.assert_close(found, expected.flatten(2).transpose(1, 2))
    # the mean of each channel over an image's patches is the donor's
    torch.testing.assert_close(found.mean(1), patches[swap.draw].mean(1))
    if layout == TOKENS:
        assert torch.equal(changed[:, :2], x[:, :2])


def test_sagnet_keeps_a_class_token_with_its_content() -> None:
    x = torch.randn(4, 8, 5, generator=torch.Generator().manual_seed(2)).requires_grad_()
    draw = StyleDraw(torch.tensor([1, 2, 3, 0]), torch.tensor([3, 2, 0, 1]), torch.tensor([0.1, 0.4, 0.7, 1.0]))
    randomisation = Randomisation(1e-5, TOKENS)
    randomisation.draw = draw
    styled, content = randomisation(x), randomisation.content_randomised
    assert content is not None
    maps = Maps.from_tensor(TOKENS.read(x))
    torch.testing.assert_close(TOKENS.read(styled), randomise_style(maps, draw.style, draw.alpha))
    torch.testing.assert_close(TOKENS.read(content), randomise_content(maps, draw.content))
    assert torch.equal(styled[:, :2], x[:, :2])
    assert torch.equal(content[:, :2], x[draw.content, :2])
    (gradient,) = torch.autograd.grad(content.square().sum(), x)
    assert not gradient[:, :2].any()
    assert gradient[:, 2:].any()


# --- stages -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "lengths"),
    [
        ("timm:test_vit", [1, 2, 1, 2]),
        ("timm:test_convnext", [1] * 4),
        ("resnet18", [1] * 4),
        ("timm:test_efficientnet", [2, 1, 1, 1]),
        (LITE, [2, 1, 2, 2]),
    ],
)
def test_four_stages_are_the_whole_sequence(name: str, lengths: list[int]) -> None:
    backbone = small(name)
    parts = stages.find(backbone)
    assert [len(modules) for modules in parts.stages] == lengths
    called: list[nn.Module] = []
    for module in [module for modules in parts.stages for module in modules]:
        module.register_forward_hook(lambda module, inputs, output: called.append(module))
    backbone(images())
    assert called == [module for modules in parts.stages for module in modules]


# name -> places: a patch embedding or stem, a layer between stages, and two per block
PLACES = {
    "timm:test_vit": 1 + 2 * 6,
    "timm:test_vit4": 1 + 2 * 9,
    "timm:test_convnext": 1 + 3 + 2 * 9,
    LITE: 1 + 2 + 3 * 15 + 1,  # a block of two convolutions and 15 of three, between stem and head
}


@pytest.mark.parametrize("name", PLACES)
def test_places_of_the_main_path_come_in_the_order_of_the_forward(name: str) -> None:
    backbone = small(name)
    places, called = surgery.main_path(backbone), list[tuple[int, tuple[int, ...]]]()

    class Seen:
        def __init__(self, number: int) -> None:
            self.number = number

        def __call__(self, maps: Tensor) -> Tensor:
            called.append((self.number, tuple(maps.shape)))
            return maps

    for number, place in enumerate(places):
        place.insert(Seen(number))
    backbone(images(2))
    assert [number for number, _ in called] == list(range(PLACES[name]))
    assert all(shape[0] == 2 and shape[2] == shape[3] > 1 for _, shape in called)


@pytest.mark.parametrize("name", ["timm:test_vit", "timm:test_vit2", "timm:test_vit3", "timm:test_convnext", LITE])
def test_the_tail_of_a_network_is_its_end(name: str) -> None:
    backbone, seen = small(name), list[Tensor]()
    parts = stages.find(backbone)
    parts.stages[2][0].register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]))
    logits = backbone(images())
    end = surgery.make_tail(backbone, 3)
    torch.testing.assert_close(end(seen[0]), logits)
    kept = {id(p) for p in end.parameters()}
    early = [p for modules in [parts.stem, *parts.stages[:2]] for module in modules for p in module.parameters()]
    assert not kept & {id(p) for p in [*early, *parts.tokens]}
    assert len(kept) + len({id(p) for p in [*early, *parts.tokens]}) == len(list(backbone.parameters()))


@pytest.mark.parametrize("name", ["timm:test_vit", "timm:test_convnext"])
def test_masked_patches_are_those_of_the_image(name: str) -> None:
    """The stem's map has a position for each patch, which its window sees."""
    backbone = small(name)
    stem, block = surgery.mask_sites(backbone, 1)
    side = 16 if "vit" in name else 4
    assert stem.window == Window(side, side, 0)
    shapes: list[torch.Size] = []
    for site in (stem, block):
        site.older.observe(lambda maps: shapes.append(maps.shape))
        site.computed.module.register_forward_hook(
            lambda module, inputs, output, site=site: shapes.append(site.target_layout.read(output).shape)
        )
    backbone(images(2))
    rows = SIDE // side
    assert [shape[2:] for shape in shapes] == [(SIDE, SIDE), (rows, rows), (rows, rows), (rows, rows)]
    assert block.window == (Window(7, 1, 3) if "convnext" in name else Window())


@pytest.mark.parametrize(("name", "side"), [("timm:test_efficientnet", 64), (LITE, 64), (LITE, 75)])
def test_masked_positions_of_an_efficientnet_are_those_of_its_convolutions(name: str, side: int) -> None:
    """Padded as the site's window says, a map is what the convolution has computed its output from."""
    backbone = small(name)
    sites = surgery.mask_sites(backbone, 4)
    assert len(sites) == 5
    seen: list[tuple[Tensor, Tensor]] = []
    for site in sites:
        site.source.register_forward_hook(lambda module, inputs, output: seen.append((inputs[0], output)))
    backbone(torch.rand(2, 3, side, side))
    for site, (older, computed) in zip(sites, seen, strict=True):
        conv: Any = site.source
        padded = functional.pad(older, [*site.window.pads(older.shape[3]), *site.window.pads(older.shape[2])])
        again = functional.conv2d(padded, conv.weight, conv.bias, site.window.stride, groups=conv.groups)
        torch.testing.assert_close(again, computed)


# name -> channels in the middle
MIDDLES = {
    **{"mlp": 100, "simple_conv": 32, "resnet10": 128, "timm:test_resnet": 48, "timm:test_vit": 64},
    **{"timm:test_vit4": 96, "timm:test_convnext": 32, LITE: 40},
}


@pytest.mark.parametrize("name", MIDDLES)
def test_the_middle_of_a_network(name: str) -> None:
    """Check that the map has the channels it names, and depends only on the layers before it."""
    backbone, seen = small(name), list[Tensor]()
    middle = surgery.find_middle(backbone)
    middle.after.observe(seen.append)
    backbone(images(2))
    (maps,) = seen
    assert (maps.shape[1], middle.channels) == (MIDDLES[name], MIDDLES[name])
    early = {id(p) for p in [*nn.ModuleList(middle.before).parameters(), *middle.tokens]}
    reached = torch.autograd.grad(maps.square().sum(), list(backbone.parameters()), allow_unused=True)
    for parameter, gradient in zip(backbone.parameters(), reached, strict=True):
        assert (gradient is not None) == (id(parameter) in early)


def test_auxiliary_norms_of_a_transformer() -> None:
    """The second half of a batch meets the twins of layer norms, the first half the norms themselves."""
    backbone = small("timm:test_vit")
    plain = backbone(images(4))
    twins, norms = surgery.split_norms(backbone)
    assert len(twins) == 2 * 6 + 1
    for norm in norms:
        norm.draw = 2
    torch.testing.assert_close(backbone(images(4)), plain)  # twins begin as copies
    with torch.no_grad():
        for parameter in twins.parameters():
            parameter.mul_(2)
    changed = backbone(images(4))
    torch.testing.assert_close(changed[:2], plain[:2])
    assert not torch.allclose(changed[2:], plain[2:])


def test_batch_norms_alone_have_twins_where_there_are_some() -> None:
    resnet = small("timm:test_resnet")
    batch_norms = [module for module in resnet.modules() if isinstance(module, nn.BatchNorm2d)]
    assert surgery.norms_to_split(resnet) == batch_norms
    assert stages.find(resnet).layout == MAPS
