"""The two networks of DeepAugment: their layout at any width, and the authors' weight files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from biasbed.errors import Failure, UsageError
from biasbed.networks import frozen
from biasbed.plugins.deepaug.cae import CAE, LAYERS, binarise
from biasbed.plugins.deepaug.edsr import BLOCKS, EDSR, MEAN


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def order_of_convolutions(network: nn.Module, run: Callable[[], object]) -> list[str]:
    """Names of the convolutions in the order of a forward pass."""
    called: list[str] = []
    for name, module in network.named_modules():
        if isinstance(module, (nn.Conv2d, nn.ConvTranspose2d)):
            module.register_forward_hook(lambda *_, name=name: called.append(name))
    run()
    return called


def test_layers_are_the_autoencoder_s_convolutions_in_forward_order() -> None:
    network = CAE(size=16, width=8)
    assert order_of_convolutions(network, lambda: network.decode(network.encode(torch.rand(1, 3, 16, 16)))) == [*LAYERS]
    assert len(LAYERS) == 21


@pytest.mark.parametrize(("height", "width"), [(12, 12), (40, 42), (15, 29)])
def test_autoencoder_sizes(height: int, width: int) -> None:
    network = CAE(size=12, width=8)
    latent = network.encode(torch.rand(2, 3, height, width))
    assert latent.shape == (2, 4, height // 4, width // 4)
    assert network.latent_channels == 4
    assert network(torch.rand(2, 3, height, width), torch.rand(latent.shape)).shape == (
        *(2, 3),
        *(height // 4 * 4, width // 4 * 4),
    )


def test_narrow_autoencoder_has_channels_in_proportion() -> None:
    full, narrow = ([weight_of(CAE(width=w), layer) for layer in LAYERS] for w in (64, 16))
    for wide, slim in zip(full, narrow, strict=True):
        assert wide.shape[2:] == slim.shape[2:]
        for a, b in zip(wide.shape[:2], slim.shape[:2], strict=True):
            assert b == (3 if a == 3 else a // 4)


def weight_of(network: nn.Module, layer: str) -> Tensor:
    return network.state_dict()[f"{layer}.weight"]


def test_bits_have_the_latent_as_their_mean_and_pass_its_gradient() -> None:
    latent = torch.linspace(-1, 1, 9).repeat(4000, 1).requires_grad_()
    bits = binarise(latent, torch.rand(latent.shape, generator=seeded()))
    assert set(bits.detach().unique().tolist()) == {0.0, 1.0}
    torch.testing.assert_close((2 * bits - 1).mean(0), latent[0], atol=0.06, rtol=0)
    bits.sum().backward()
    assert torch.equal(latent.grad, torch.full_like(latent, 0.5))


def test_enlarging_by_four_at_any_width() -> None:
    network = EDSR(size=16, width=4)
    assert network(torch.rand(2, 3, 5, 6)).shape == (2, 3, 20, 24)
    assert len(network.body) == BLOCKS + 1
    assert sum(isinstance(module, nn.Conv2d) for module in network.modules()) == 1 + 2 * BLOCKS + 1 + 2 + 1


@torch.no_grad()
def test_mean_is_taken_off_and_put_back_and_is_no_weight() -> None:
    network = EDSR(size=16, width=4)
    assert not any("mean" in key for key in network.state_dict())
    mean = 255 * torch.tensor(MEAN).view(1, 3, 1, 1)
    for parameter in network.parameters():
        if parameter.dim() == 1:
            parameter.zero_()
    assert torch.equal(network(mean.expand(1, 3, 4, 4)), mean.expand(1, 3, 16, 16))


# --- files ------------------------------------------------------------------------------------------------------------


def with_mean_shifts(state: dict[str, Tensor], value_range: float = 255.0) -> dict[str, Tensor]:
    """As in the authors' files, which hold the fixed shifts as 1x1 convolutions."""
    mean, eye = value_range * torch.tensor(MEAN), torch.eye(3).view(3, 3, 1, 1)
    shifts = {"sub_mean.weight": eye, "sub_mean.bias": -mean, "add_mean.weight": eye, "add_mean.bias": mean}
    return state | shifts


@pytest.mark.parametrize("shifts", [True, False])
def test_published_edsr(tmp_path: Path, shifts: bool) -> None:
    authors = EDSR()
    state = dict(authors.state_dict())
    torch.save(with_mean_shifts(state) if shifts else state, tmp_path / "edsr.pt")
    network, checksums = frozen.load_published("edsr", {"weights": tmp_path / "edsr.pt"})
    assert (network.size, network.settings["width"], len(checksums["weights"])) == (512, 64, 64)
    x = 255 * torch.rand(1, 3, 3, 4, generator=seeded())
    assert torch.equal(network(x), authors(x))


def test_published_autoencoder(tmp_path: Path) -> None:
    authors = CAE()
    torch.save(authors.state_dict(), tmp_path / "cae.state")
    network, _ = frozen.load_published("cae", {"weights": tmp_path / "cae.state"})
    x, uniform = torch.rand(1, 3, 16, 16, generator=seeded()), torch.rand(1, 32, 4, 4, generator=seeded(1))
    assert torch.equal(network(x, uniform), authors(x, uniform))
    assert network.size == 512


def test_edsr_for_another_range_of_pixels_is_refused() -> None:
    """The weights have the right shapes and would enlarge noise."""
    with pytest.raises(UsageError, match="'sub_mean'"):
        EDSR.from_published({"weights": with_mean_shifts(dict(EDSR().state_dict()), value_range=1.0)})


@pytest.mark.parametrize(("kind", "network"), [("cae", CAE(size=20, width=8)), ("edsr", EDSR(size=24, width=4))])
def test_saved_and_loaded(tmp_path: Path, kind: str, network: frozen.PreparedNetwork) -> None:
    frozen.save(tmp_path / "network.pt", kind, network, {})
    loaded = frozen.load(tmp_path / "network.pt", kind)
    assert (type(loaded), loaded.settings) == (type(network), network.settings)
    assert all(torch.equal(value, loaded.state_dict()[key]) for key, value in network.state_dict().items())


# --- files of prepared networks ---------------------------------------------------------------------------------------

HARMS: dict[str, dict[str, Any]] = {
    "no settings": {"settings": None},
    "another setting": {"settings": {"size": 16, "width": 8, "depth": 3}},
    "an impossible width": {"settings": {"size": 16, "width": -3}},
    "state of another kind": {"state": [torch.zeros(1)]},
    "state of another network": {"state": {"x": torch.zeros(1)}},
}


@pytest.mark.parametrize("harm", HARMS.values(), ids=HARMS.keys())
def test_a_file_of_anything_else_is_one_line(harm: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "edsr.pt"
    frozen.save(path, "edsr", EDSR(size=16, width=8), {})
    torch.save({**torch.load(path, weights_only=True), **harm}, path)
    with pytest.raises(Failure, match="prepare it again") as caught:
        frozen.load(path, "edsr")
    assert len(str(caught.value).splitlines()) == 1


def test_the_fingerprint_of_a_network_is_that_of_its_numbers(tmp_path: Path) -> None:
    network = EDSR(size=16, width=8)
    for name in ("one", "other"):
        frozen.save(tmp_path / name, "edsr", network, {"from": name})
    assert frozen.fingerprint(tmp_path / "one") == frozen.fingerprint(tmp_path / "other")
    with torch.no_grad():
        next(network.parameters()).add_(1)
    frozen.save(tmp_path / "other", "edsr", network, {})
    assert frozen.fingerprint(tmp_path / "one") != frozen.fingerprint(tmp_path / "other")
