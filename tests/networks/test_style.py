"""AdaIN style transfer: the layout, what a transfer does to moments, sizes, published weights, precision."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from biasbed.errors import UsageError
from biasbed.networks import frozen
from biasbed.networks.style import StyleTransfer, adain, moments


@pytest.fixture
def network() -> StyleTransfer:
    """Weights that keep the signal's scale: with torch's own, decoded images would hardly depend on what is encoded."""
    torch.manual_seed(0)
    network = StyleTransfer(width=4, size=32).eval().requires_grad_(False)
    for layer in network.modules():
        if isinstance(layer, nn.Conv2d):
            nn.init.kaiming_normal_(layer.weight)
    return network


def images(count: int = 4, height: int = 32, width: int = 32, seed: int = 0) -> Tensor:
    return torch.rand(count, 3, height, width, generator=torch.Generator().manual_seed(seed))


def vgg(width: int = 64) -> dict[str, Tensor]:
    """Zeros in the shapes of the normalised VGG-19's first layers, and of one behind them."""
    return {**StyleTransfer(width=width).encoder.state_dict(), "32.weight": torch.zeros(1), "32.bias": torch.zeros(1)}


def test_layout_is_the_authors() -> None:
    network = StyleTransfer()
    assert (len(network.encoder), len(network.decoder)) == (31, 29)
    assert network.encoder[28 + 1].weight.shape == (512, 256, 3, 3)
    assert network.decoder[28].weight.shape == (3, 64, 3, 3)


def test_constant_maps_stay_finite() -> None:
    constant, style = torch.full((1, 2, 4, 4), 3.0), torch.randn(1, 2, 4, 4)
    assert adain(constant, style).isfinite().all()
    torch.testing.assert_close(adain(style, constant).mean((2, 3)), constant.mean((2, 3)))


def test_half_precision_moments_are_computed_in_fp32() -> None:
    """Variances of 1e6 overflow fp16."""
    f = (1000 * torch.randn(2, 3, 8, 8)).half()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        mean, std = moments(f)
        styled = adain(f, f)
    assert mean.dtype == std.dtype == styled.dtype == torch.float32
    torch.testing.assert_close(std, f.float().std((2, 3), keepdim=True))
    assert styled.isfinite().all()


def test_permuting_equals_transferring(network: StyleTransfer) -> None:
    x, permutation = images(), torch.tensor([2, 0, 1, 3])
    found = network.permute(x, permutation, 0.6)
    torch.testing.assert_close(found, network.transfer(x, x[permutation], 0.6))
    assert (found - network.transfer(x, x, 0.6)).abs().max() > 0.05 * found.abs().max()


@pytest.mark.parametrize(("height", "width"), [(32, 32), (30, 41), (9, 17)])
def test_sizes_are_kept_although_decoding_rounds_up(network: StyleTransfer, height: int, width: int) -> None:
    x = images(2, height, width)
    assert network.permute(x, torch.tensor([1, 0])).shape == x.shape
    raw = network.decode(network.encode(x))
    assert raw.shape[2:] == (-(-height // 8) * 8, -(-width // 8) * 8)
    torch.testing.assert_close(network.transfer(x, x, 0.0), raw[..., :height, :width])


def test_published_weights_are_taken_over_without_the_deeper_layers() -> None:
    torch.manual_seed(0)
    encoder, decoder = vgg(), StyleTransfer().decoder.state_dict()
    network = StyleTransfer.from_published({"encoder": encoder, "decoder": decoder})
    assert torch.equal(network.encoder[29].weight, encoder["29.weight"])
    assert torch.equal(network.decoder[28].bias, decoder["28.bias"])
    assert network.settings == {"width": 64, "size": 256}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"features.weight": torch.zeros(1)}, "'features.weight' unknown"),
        ({"2.weight": torch.zeros(8, 3, 3, 3)}, "'2.weight' of another shape"),
    ],
)
def test_other_weights_are_refused_by_name(change: dict[str, Tensor], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        StyleTransfer().load_encoder({**vgg(), **change})


def test_a_saved_network_is_the_same(network: StyleTransfer, tmp_path: Path) -> None:
    frozen.save(tmp_path / "style.pt", "style", network, {})
    again = frozen.load(tmp_path / "style.pt", "style")
    assert isinstance(again, StyleTransfer)
    assert again.size == 32
    assert torch.equal(again.encode(images()), network.encode(images()))
