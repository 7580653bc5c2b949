"""Training of a style network: it learns, it is seeded, it goes on where it was cut."""

from __future__ import annotations

import functools
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from biasbed.data.source import MemorySource
from biasbed.networks.style import StyleTransfer
from biasbed.prepare import style
from biasbed.prepare.fit import fit, patches
from biasbed.prepare.style import StyleTraining, losses, train_style

OPTIONS = StyleTraining(size=16, width=8, encoder_steps=6, steps=4, batch_size=2, seed=5)


def source(count: int = 6, side: int = 16, classes: int = 2, seed: int = 0) -> MemorySource:
    """Smooth coloured images."""
    coarse = np.random.default_rng(seed).integers(0, 256, (count, 3, 2, 2), dtype=np.uint8)
    images = coarse.repeat(side // 2, axis=2).repeat(side // 2, axis=3)
    y = np.arange(count) % max(1, classes)
    names = tuple(f"c{i}" for i in range(classes))
    return MemorySource(name="t", classes=names, y=y, ids=[str(i) for i in range(count)], images=images)


def same(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    return all(torch.equal(value, b[key]) for key, value in a.items())


class Cut(Exception):
    pass


def trained(options: StyleTraining, resume: Path | None = None, cut: int = 10**9, **more: Any) -> tuple[Any, int]:
    told = 0

    def tick(count: int) -> None:
        nonlocal told
        told += count
        if told >= cut:
            raise Cut

    arguments = {"content": source(), "styles": None, **more}
    return train_style(options=options, tick=tick, resume=resume, **arguments).state_dict(), told


def test_seeded_and_without_trace_in_the_global_generator() -> None:
    before = torch.get_rng_state()
    weights, told = trained(OPTIONS)
    assert told == OPTIONS.encoder_steps + OPTIONS.steps
    assert torch.equal(torch.get_rng_state(), before)
    torch.rand(3)
    assert same(weights, trained(OPTIONS)[0])
    assert not same(weights, trained(replace(OPTIONS, seed=6))[0])


@pytest.mark.parametrize(("cut", "stage"), [(5, "state-encoder"), (9, "state")])
def test_a_cut_training_goes_on_bit_equal(
    cut: int, stage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cut while the encoder, or the decoder, is trained."""
    monkeypatch.setattr(fit, "__kwdefaults__", fit.__kwdefaults__ | {"every": 2})
    with pytest.raises(Cut):
        trained(OPTIONS, tmp_path / "state", cut)
    assert (tmp_path / stage).exists()
    weights, told = trained(OPTIONS, tmp_path / "state")
    assert told == OPTIONS.encoder_steps + OPTIONS.steps
    assert same(weights, trained(OPTIONS)[0])
    assert [path.name for path in tmp_path.iterdir()] == ["state"]


def test_the_decoder_learns_and_the_encoder_stays() -> None:
    options = replace(OPTIONS, steps=60, encoder_steps=40, batch_size=4)
    short, _ = trained(replace(options, steps=1))
    long, _ = trained(options)
    for name, value in short.items():
        assert torch.equal(value, long[name]) == name.startswith("encoder."), name
    totals = []
    for state in (short, long):
        network = StyleTransfer(width=8, size=16)
        network.load_state_dict(state)
        with torch.no_grad():
            content, style_loss, reconstruction = losses(network, next(patches(source(), 16, 6, seed=0)))
        totals.append(float(content + 2 * style_loss + 200 * reconstruction))
    assert totals[1] < 0.8 * totals[0]


def test_styles_of_other_images() -> None:
    own, _ = trained(OPTIONS)
    other, _ = trained(OPTIONS, styles=source(seed=9))
    assert same({k: v for k, v in own.items() if "encoder" in k}, other)
    assert not torch.equal(own["decoder.28.weight"], other["decoder.28.weight"])


def test_the_encoder_learns_the_labels() -> None:
    weights, _ = trained(OPTIONS)
    other = MemorySource(**{**vars(source()), "y": np.array([0, 0, 0, 1, 1, 1])})
    assert not torch.equal(weights["encoder.29.weight"], trained(OPTIONS, content=other)[0]["encoder.29.weight"])


def test_a_given_encoder_is_kept() -> None:
    encoder = StyleTransfer(width=8).encoder.state_dict()
    weights, told = trained(OPTIONS, encoder=encoder)
    assert told == OPTIONS.steps
    assert all(torch.equal(weights[f"encoder.{name}"], value) for name, value in encoder.items())


def network_of(width: int) -> StyleTransfer:
    torch.manual_seed(0)
    network = StyleTransfer(width=width)
    style.initialise(network)
    return network


def test_normalised_layers_have_mean_one_and_decode_the_same() -> None:
    network, images = network_of(8), next(patches(source(), 16, 6, seed=0))
    with torch.no_grad():
        network.encoder[2].weight *= 7
        before = network.decode(network.encode(images))
    style.normalise(network, images)
    means: list[float] = []
    for layer in network.encoder:
        if isinstance(layer, nn.ReLU):
            layer.register_forward_hook(lambda module, inputs, output: means.append(output.mean().item()))
    torch.testing.assert_close(network.decode(network.encode(images)), before, rtol=1e-3, atol=1e-3)
    assert means == pytest.approx([1.0] * 9, rel=1e-3)


def test_colours_pass_through_fresh_networks() -> None:
    network = network_of(8)
    images = torch.rand(5, 3, 1, 1, generator=torch.Generator().manual_seed(0)).expand(5, 3, 16, 16)
    with torch.no_grad():
        decoded = network.decode(network.encode(images))
    error = (decoded - images).square().mean()
    assert error < 0.3 * images.var()


def test_losses_against_their_definition() -> None:
    """No style: each image takes that of its neighbour. Equal images have nothing to transfer."""
    network = network_of(8)
    x = next(patches(source(), 16, 4, seed=0))
    by_neighbour = losses(network, x)
    for ours, theirs in zip(by_neighbour, losses(network, x, x.roll(1, 0)), strict=True):
        torch.testing.assert_close(ours, theirs)
    decoded = network.decode(network.encode(x))
    torch.testing.assert_close(by_neighbour[2], (decoded - x).square().mean())
    means = functools.partial(torch.mean, dim=(2, 3))
    found, wanted = network.features(decoded), network.features(x)
    error = torch.stack([(means(a) - means(b)).square().mean() for a, b in zip(found, wanted, strict=True)]).sum()
    assert losses(network, x, x)[1] >= error
    assert losses(network, x, x)[1] < by_neighbour[1]
