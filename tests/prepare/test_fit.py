"""Training of the networks that makers need: what a batch holds, and that cut trainings go on bit-equal."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from biasbed.data.source import MemorySource
from biasbed.errors import Failure
from biasbed.plugins.deepaug.cae_network import CAETraining, train_cae
from biasbed.plugins.deepaug.edsr_network import EDSRTraining, shrink_to_quarter, train_edsr
from biasbed.prepare.fit import fit, patches, rate_factor, shuffle_rows


def plain_images(count: int, height: int, width: int) -> MemorySource:
    """Image i is of the value i."""
    values = np.arange(count, dtype=np.uint8)[:, None, None, None]
    images = np.broadcast_to(values, (count, 3, height, width)).copy()
    return source_of(images)


def source_of(images: np.ndarray) -> MemorySource:
    y = np.zeros(len(images), dtype=np.int64)
    return MemorySource(name="t", classes=("c",), y=y, ids=[str(i) for i in range(len(y))], images=images)


def noise(count: int = 6, side: int = 16) -> MemorySource:
    return source_of(np.random.default_rng(0).integers(0, 256, (count, 3, side, side), dtype=np.uint8))


def test_every_image_once_in_a_pass_in_a_new_order() -> None:
    rows = list(itertools.islice(shuffle_rows(10, seed=3), 30))
    passes = [rows[start : start + 10] for start in (0, 10, 20)]
    assert all(sorted(p) == list(range(10)) for p in passes)
    assert passes[0] != passes[1] != passes[2]
    assert rows[13:25] == list(itertools.islice(shuffle_rows(10, seed=3, start=13), 12))
    assert rows != list(itertools.islice(shuffle_rows(10, seed=4), 30))


def test_patches_go_on_from_any_batch() -> None:
    source = noise(7, 20)
    batches = list(itertools.islice(patches(source, 16, 3, seed=1), 6))
    again = next(patches(source, 16, 3, seed=1, start=5))
    assert batches[5].shape == (3, 3, 16, 16)
    assert torch.equal(batches[5], again)
    assert batches[0].min() >= 0
    assert batches[0].max() <= 1


@pytest.mark.parametrize(("height", "width", "side"), [(30, 50, 16), (16, 20, 16), (10, 14, 10)])
def test_patches_are_as_large_as_asked_or_as_the_short_side(height: int, width: int, side: int) -> None:
    batch = next(patches(plain_images(5, height, width), 16, 5, seed=0))
    assert batch.shape == (5, 3, side, side)
    assert sorted((255 * batch[:, 0, 0, 0]).round().tolist()) == [0, 1, 2, 3, 4]


def test_larger_images_are_resized_before_they_are_cropped() -> None:
    """A white left half is in every crop of a square image's resized copy, which has no room to move."""
    image = np.zeros((1, 3, 64, 64), np.uint8)
    image[..., :32] = 255
    patch = next(patches(source_of(image), 16, 1, seed=0))[0, 0]
    assert patch[:, :7].min() == 1
    assert patch[:, 9:].max() == 0


class Cut(Exception):
    pass


def trained(train: Any, options: Any, resume: Path | None = None, cut: int = 10**9) -> tuple[dict[str, Tensor], int]:
    """(weights, steps told of), with an interruption after `cut` steps."""
    told = 0

    def tick(count: int) -> None:
        nonlocal told
        told += count
        if told >= cut:
            raise Cut

    return train(noise(), options, "cpu", tick, resume).state_dict(), told


KINDS = {
    "cae": (train_cae, CAETraining(size=16, steps=6, batch_size=2, width=4, seed=5)),
    "edsr": (train_edsr, EDSRTraining(size=16, steps=6, batch_size=2, width=4, seed=5)),
}


def same(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    return all(torch.equal(value, b[key]) for key, value in a.items())


@pytest.mark.parametrize("kind", KINDS)
def test_seeded_and_without_trace_in_the_global_generator(kind: str) -> None:
    train, options = KINDS[kind]
    before = torch.get_rng_state()
    weights, told = trained(train, options)
    assert told == 6
    assert torch.equal(torch.get_rng_state(), before)
    torch.rand(3)
    assert same(weights, trained(train, options)[0])
    assert not same(weights, trained(train, replace(options, seed=6))[0])


@pytest.mark.parametrize("kind", KINDS)
def test_a_cut_training_goes_on_bit_equal(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    train, options = KINDS[kind]
    monkeypatch.setattr(fit, "__kwdefaults__", fit.__kwdefaults__ | {"every": 2})
    whole, _ = trained(train, options)
    with pytest.raises(Cut):
        trained(train, options, tmp_path / "state", cut=5)
    steps = torch.load(tmp_path / "state", weights_only=True)["step"]
    weights, told = trained(train, options, tmp_path / "state")
    assert (steps, told) == (4, 6)
    assert same(whole, weights)


@pytest.mark.parametrize(
    "harm",
    [{"key": 3}, {"key": None}, {"step": "x"}, {"network": [1]}, {"network": {"x": 1}}, {"optimizer": {"x": 1}}],
    ids=str,
)
def test_a_state_of_anything_else_is_one_line(harm: dict[str, Any], tmp_path: Path) -> None:
    train, options = KINDS["edsr"]
    path = tmp_path / "state"
    trained(train, options, path)
    torch.save({**torch.load(path, weights_only=True), **harm}, path)
    with pytest.raises(Failure, match="remove it") as caught:
        trained(train, options, path)
    assert len(str(caught.value).splitlines()) == 1


def test_the_rate_rises_and_falls() -> None:
    rates = [rate_factor(step, 100) for step in range(100)]
    assert rates[:5] == [0.2, 0.4, 0.6, 0.8, 1.0]
    assert rates[4:] == sorted(rates[4:], reverse=True)
    assert 0 < rates[-1] < 0.01
    assert rate_factor(0, 1) == 1


@pytest.mark.parametrize("kind", KINDS)
def test_networks_learn(kind: str) -> None:
    """On plain images, whose level is all there is to learn."""
    train, options = KINDS[kind]
    source = source_of(np.linspace(0, 255, 8).astype(np.uint8)[:, None, None, None] * np.ones((8, 3, 16, 16), np.uint8))
    network = train(source, replace(options, steps=80, width=8, lr=3e-3))
    assert not network.training
    assert not any(parameter.requires_grad for parameter in network.parameters())
    images = next(patches(source, 16, 8, seed=0))
    with torch.no_grad():
        if kind == "cae":
            uniform = torch.rand(8, network.latent_channels, 4, 4, generator=torch.Generator().manual_seed(0))
            made = network(images, uniform)
        else:
            made = network(shrink_to_quarter(255 * images)) / 255
    assert (made - images).square().mean() < 0.4 * images.var()
