"""Heads and surgery of networks: features apart from the classifier, width, frozen statistics, channels and scale."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from biasbed.config import NetworkSettings
from biasbed.errors import UsageError
from biasbed.networks import Network, build, heads, surgery
from biasbed.networks.backbones import OWN

# Of each way in which a library ends its classifiers: name -> features. At 32 pixels.
ENDS = {
    "resnet10": 512,
    "mlp": 16,
    "simple_conv": 128,
    "mnist_convnet": 128,
    "bagnet18": 512,
    "torchvision:mobilenet_v3_small": 1024,  # in a sequence, after dropout of its own
    "torchvision:shufflenet_v2_x0_5": 1024,
    "timm:test_vit": 64,
    "timm:test_convnext": 64,
    "timm:test_byobnet": 256,
    "timm:test_efficientnet": 256,
}
FROZEN = NetworkSettings(freeze_statistics=True)


def images(count: int = 4, channels: int = 3, size: int = 32) -> Tensor:
    return torch.rand(count, channels, size, size, generator=torch.Generator().manual_seed(0))


def small(name: str, **named: Any) -> Network:
    torch.manual_seed(0)
    return build(name, 5, image_size=32, **named)


# --- features and head ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ENDS)
def test_features_and_head_are_the_network(name: str) -> None:
    network, x = small(name).eval(), images()
    logits, features = network(x), network.features(x)
    assert features.shape == (4, ENDS[name]) == (4, network.num_features)
    torch.testing.assert_close(network.classify(features), logits)
    assert network.head is not None
    assert sum(p.numel() for p in network.head.parameters()) == 5 * ENDS[name] + 5
    torch.testing.assert_close(network(x), logits)  # nothing stays switched


@pytest.mark.parametrize("name", ["torchvision:mobilenet_v3_small", "timm:test_vit"])
def test_keys_stay_the_library_s_and_a_network_without_a_head_has_all_others(name: str) -> None:
    whole, without = small(name), small(name, head=False)
    head = heads.find(whole.backbone)
    others = {key for key in whole.state_dict() if not key.startswith(f"backbone.{head}.")}
    assert set(without.state_dict()) == others
    without.load_state_dict({key: value for key, value in whole.state_dict().items() if key in others})
    torch.testing.assert_close(without.eval()(images()), whole.eval().features(images()))
    assert without.head is None
    assert without.num_features == whole.num_features


def test_a_convolution_at_the_end_is_a_head_too() -> None:
    network = small("timm:resnetv2_50").eval()
    features = network.features(images())
    assert isinstance(network.head, nn.Conv2d)
    assert features.shape == (4, 2048)
    torch.testing.assert_close(network.classify(features), network(images()))


def test_copies_and_pickles_are_parted_by_their_own_head() -> None:
    network = small("resnet10").eval()
    for other in (copy.deepcopy(network), pickle.loads(pickle.dumps(network))):
        with torch.no_grad():
            other.head.weight.zero_()
            other.head.bias.fill_(3)
        assert torch.equal(other(images()), torch.full((4, 5), 3.0))
        torch.testing.assert_close(other.classify(network.features(images())), torch.full((4, 5), 3.0))
        torch.testing.assert_close(other.features(images()), network.features(images()))
    assert not torch.equal(network(images()), torch.full((4, 5), 3.0))


@pytest.mark.parametrize(
    "ask",
    [
        lambda: build("squeezenet1_1", 5).features(images()),
        lambda: build("squeezenet1_1", 5).num_features,
        lambda: build("squeezenet1_1", 5, head=False),
        lambda: build("squeezenet1_1", 5, settings=NetworkSettings(dropout=0.1)),
    ],
)
def test_a_network_without_features_says_so(ask: Any) -> None:
    with pytest.raises(UsageError, match="SqueezeNet has no single linear layer at its end, and so no features"):
        ask()


# The smallest of each kind in torchvision, and timm's that take a size or have a head of another kind.
KINDS = (
    *("alexnet", "convnext_tiny", "densenet121", "efficientnet_b0", "googlenet", "inception_v3", "maxvit_t"),
    *("mnasnet0_5", "mobilenet_v2", "regnet_y_400mf", "resnext50_32x4d", "swin_t", "swin_v2_t", "vgg11", "vit_b_32"),
    *("timm:swin_tiny_patch4_window7_224", "timm:mixer_s32_224", "timm:dpn48b", "timm:inception_v4"),
)


@pytest.mark.slow
@pytest.mark.parametrize("name", KINDS)
def test_the_head_of_every_kind_of_classifier(name: str) -> None:
    size = 299 if "inception" in name else 224
    network, x = build(name, 5, image_size=size), images(2, size=size)
    assert network(x).shape == (2, 5)  # in training, too, where some have more outputs
    features = network.eval().features(x)
    torch.testing.assert_close(network.classify(features), network(x), rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_two_heads_together_are_none() -> None:
    network = build("timm:deit_tiny_distilled_patch16_224", 5, image_size=32)
    assert network(images()).shape == (4, 5)
    with pytest.raises(UsageError, match="has no single linear layer at its end"):
        network.features(images())


# --- dropout ----------------------------------------------------------------------------------------------------------


def test_dropout_is_part_of_the_features_and_of_training_alone() -> None:
    plain, network = small("mlp"), small("mlp", settings=NetworkSettings(dropout=0.5))
    x = images(64)
    torch.testing.assert_close(network.eval()(x), plain.eval()(x))
    features, dropped = plain.features(x), network.train().features(x)
    kept = dropped != 0
    torch.testing.assert_close(dropped[kept], 2 * features[kept])
    assert 0.3 < kept[features > 0].float().mean() < 0.7
    torch.manual_seed(1)
    logits = network(x)
    torch.manual_seed(1)
    torch.testing.assert_close(network.classify(network.features(x)), logits)


# --- frozen running statistics ----------------------------------------------------------------------------------------


def running(module: nn.Module) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in module.named_buffers()}


def test_statistics_stay_whatever_is_trained(tmp_path: Any) -> None:
    torch.save(small("resnet10").state_dict(), tmp_path / "w.pt")
    network = build("resnet10", 5, str(tmp_path / "w.pt"), FROZEN)
    twins, _ = surgery.split_norms(copy.deepcopy(network.backbone))
    tail, pickled = surgery.make_tail(network.backbone, 3), pickle.loads(pickle.dumps(network))
    copied = copy.deepcopy(tail)
    for module, x in ((network, images()), (pickled, images()), (copied, torch.rand(4, 128, 4, 4))):
        module.eval().train()
        before, expected = running(module), module(x)
        assert module.training
        assert all(torch.equal(value, before[name]) for name, value in running(module).items())
        torch.testing.assert_close(module.eval()(x), expected)  # no batch's own statistics
    assert not any(norm.training for norm in twins.train())
    expected.sum().backward()
    assert all(p.grad is not None for p in copied.parameters())  # weights and biases of norms included


def test_from_scratch_nothing_is_frozen() -> None:
    """Statistics of 0 and 1 are no norm at all; the configured network from scratch is refused before (`plan`)."""
    assert small("simple_conv", settings=FROZEN).train().backbone.layers[1].training


# --- channels, scale, size, width -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["torchvision:mobilenet_v3_small", "timm:test_vit", *OWN])
def test_other_channels(name: str) -> None:
    for channels in (1, 4):
        network = small(name, settings=NetworkSettings(channels=channels)).eval()
        assert network(images(channels=channels)).shape == (4, 5)
    with pytest.raises(UsageError, match=r"network\.channels=4: the images have 3"):
        network(images())


def test_filters_are_taken_in_turns() -> None:
    rgb, more = small("resnet10"), small("resnet10", settings=NetworkSettings(channels=5))
    assert torch.equal(more.backbone.conv1.weight, rgb.backbone.conv1.weight[:, [0, 1, 2, 0, 1]])
    assert more.normalise.mean.flatten().tolist() == pytest.approx([0.485, 0.456, 0.406, 0.485, 0.456])


@pytest.mark.parametrize(
    ("name", "scale", "expected"),
    [
        ("resnet10", "auto", (0.5 - 0.485) / 0.229),
        ("mlp", "auto", (0.5 - 0.485) / 0.229),
        ("mnist_convnet", "auto", 0.5),
        ("timm:test_vit2", "auto", 0.0),
        ("resnet10", "unit", 0.5),
        ("mlp", "unit_255", 0.5 / 255),
    ],
)
def test_scale(name: str, scale: Any, expected: float) -> None:
    network = small(name, settings=NetworkSettings(scale=scale))
    assert float(network.normalise(torch.full((1, 3, 2, 2), 0.5))[0, 0, 0, 0]) == pytest.approx(expected)


def test_networks_of_one_size_are_made_for_the_images() -> None:
    assert build("timm:test_vit", 3, image_size=48).eval()(images(size=48)).shape == (4, 3)
    assert build("mlp", 3, image_size=12).eval()(images(size=12)).shape == (4, 3)


def test_an_architecture_of_one_width_takes_no_other() -> None:
    with pytest.raises(UsageError, match="resnet18 has one width: only resnet10, resnet14, mlp"):
        build("resnet18", 5, width=2)


@pytest.mark.parametrize("name", OWN)
def test_width(name: str) -> None:
    usual, narrow = small(name), small(name, width=0.25)
    assert narrow.num_features == usual.num_features // 4
    assert narrow(images()).shape == (4, 5)
    assert sum(p.numel() for p in narrow.parameters()) < sum(p.numel() for p in usual.parameters()) / 2


# --- small networks ---------------------------------------------------------------------------------------------------


def test_parameters_of_the_small_networks() -> None:
    """By hand, without heads."""

    def count(name: str, channels: int) -> int:
        network = build(name, 5, settings=NetworkSettings(channels=channels), image_size=28, head=False)
        return sum(p.numel() for p in network.parameters())

    assert count("mnist_convnet", 1) == 370_560
    assert count("mnist_convnet", 2) == 371_136
    assert count("mlp", 3) == 2353 * 100 + 101 * 100 + 101 * 16
    for name, positions in (("simple_conv", 49), ("simple_conv_1x1", 1)):
        assert count(name, 3) == positions * (3 * 16 + 16 * 32 + 32 * 64 + 64 * 128) + 3 * (16 + 32 + 64 + 128)


def test_a_bagnet_s_features_see_five_pixels() -> None:
    network = build("bagnet18", 9).eval()
    assert sum(p.numel() for p in network.parameters()) == pytest.approx(1.48e6, rel=0.005)
    maps: list[Tensor] = []
    network.backbone.layers.register_forward_hook(lambda module, inputs, output: maps.append(output))
    x = torch.rand(1, 3, 64, 64, generator=torch.Generator().manual_seed(0)).requires_grad_()
    network(x)
    assert maps[0].shape[2:] == (8, 8)
    (slope,) = torch.autograd.grad(maps[0][0, :, 4, 4].sum(), x)
    rows, columns = slope[0].abs().sum(0).nonzero().unbind(1)
    assert rows.unique().tolist() == columns.unique().tolist() == [32, 33, 34, 35, 36]


def test_the_biased_network_sees_colours_alone() -> None:
    network = small("simple_conv_1x1").eval()
    x = images()
    order = torch.randperm(32 * 32)
    torch.testing.assert_close(network(x), network(x.flatten(2)[:, :, order].view_as(x)))
