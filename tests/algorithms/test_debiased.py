"""Debiased: which half meets which norms, whose labels, at which size, and what is trained and saved."""

from __future__ import annotations

import copy
import functools
import pickle
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from biasbed.algorithms.base import Progress, Setup
from biasbed.algorithms.debiased import Debiased
from biasbed.batch import Batch
from biasbed.compute.distributed import Group
from biasbed.compute.precision import Precision
from biasbed.networks import build, surgery
from biasbed.networks.style import StyleTransfer
from biasbed.settings import build as build_settings
from biasbed.tasks import MultiClass, Task


def make(hparams: dict[str, Any] | None = None, backbone: str = "resnet10", task: Task | None = None) -> Debiased:
    torch.manual_seed(0)
    group = Group()
    group.seed(0)
    style = StyleTransfer(width=4, size=32).eval().requires_grad_(False)
    for layer in style.modules():  # torch's own weights would give all images one look
        if isinstance(layer, nn.Conv2d):
            nn.init.kaiming_normal_(layer.weight)
    setup = Setup(
        num_classes=5,
        task=task or MultiClass(),
        network=lambda: build(backbone, 5),
        optimizer=functools.partial(torch.optim.SGD, lr=0.01, momentum=0.9),
        group=group,
        precision=Precision(),
        prepared=lambda kind: {"style": style}[kind],
    )
    algorithm = Debiased(build_settings(Debiased.HParams, hparams or {}), setup)
    algorithm.start()
    algorithm.train()
    return algorithm


def state_of(norms: list[nn.Module]) -> list[Tensor]:
    return [value.clone() for norm in norms for name, value in norm.state_dict().items() if "running" in name]


def spied(algorithm: Debiased, monkeypatch: pytest.MonkeyPatch) -> list[tuple[Tensor, Tensor]]:
    """(images, permutation) that `stylise` is given."""
    seen: list[tuple[Tensor, Tensor]] = []
    stylise = algorithm.stylise

    def watch(x: Tensor, permutation: Tensor) -> Tensor:
        seen.append((x, permutation))
        return stylise(x, permutation)

    monkeypatch.setattr(algorithm, "stylise", watch)
    return seen


# --- the norms --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("backbone", "count"), [("resnet10", 12), ("timm:test_resnet", None)])
def test_every_norm_has_a_twin_like_it(backbone: str, count: int | None) -> None:
    resnet = build(backbone, 5).backbone
    keys = list(resnet.state_dict())
    with torch.no_grad():
        for value in resnet.state_dict().values():
            value.add_(1)
    norms = [module for module in resnet.modules() if isinstance(module, nn.BatchNorm2d)]
    twins, places = surgery.split_norms(resnet)
    assert len(norms) == len(twins) == len(places) == (count or len(norms))
    assert list(resnet.state_dict()) == keys
    for norm, twin in zip(norms, twins, strict=True):
        assert type(norm) is type(twin)
        assert all(torch.equal(value, twin.state_dict()[name]) for name, value in norm.state_dict().items())


@pytest.mark.parametrize("backbone", ["resnet10", "timm:test_resnet"])
def test_halves_do_not_see_each_other(backbone: str) -> None:
    """The output and statistics of a half are those of a network that is given this half alone."""
    resnet = build(backbone, 5).backbone.train()
    alone = copy.deepcopy(resnet)
    twins, places = surgery.split_norms(resnet)
    x = torch.rand(7, 3, 32, 32)
    for point in places:
        point.draw = 3
    both = resnet(x)
    torch.testing.assert_close(both[:3], copy.deepcopy(alone)(x[:3]))
    torch.testing.assert_close(both[3:], alone(x[3:]))
    twins_alone = [module for module in alone.modules() if isinstance(module, nn.BatchNorm2d)]
    for ours, theirs in zip(state_of(list(twins)), state_of(twins_alone), strict=True):
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("draw", [None, 0])
def test_a_whole_batch_moves_only_the_statistics_it_meets(draw: int | None) -> None:
    resnet = build("resnet10", 5).backbone.train()
    norms = [module for module in resnet.modules() if isinstance(module, nn.BatchNorm2d)]
    twins, places = surgery.split_norms(resnet)
    before = state_of(norms), state_of(list(twins))
    counters = [int(norm.num_batches_tracked) for norm in norms]
    for point in places:
        point.draw = draw
    resnet(torch.rand(4, 3, 32, 32))
    after = state_of(norms), state_of(list(twins))
    changed = [
        any(not torch.equal(a, b) for a, b in zip(x, y, strict=True)) for x, y in zip(before, after, strict=True)
    ]
    assert changed == [draw is None, draw == 0]
    assert ([int(norm.num_batches_tracked) for norm in norms] == counters) == (draw == 0)


def test_copies_use_their_own_twins() -> None:
    resnet = build("resnet10", 5).backbone.eval()
    twins, places = surgery.split_norms(resnet)
    twins.eval()
    x = torch.rand(4, 3, 32, 32)
    for point in places:
        point.draw = 2
    before = resnet(x)
    for twin in (copy.deepcopy(resnet), pickle.loads(pickle.dumps(resnet))):
        with torch.no_grad():
            for parameter in [*resnet.parameters(), *twins.parameters()]:
                parameter.add_(1)
        assert torch.equal(twin(x), before)
        with torch.no_grad():
            for parameter in [*resnet.parameters(), *twins.parameters()]:
                parameter.sub_(1)


# --- labels and sizes -------------------------------------------------------------------------------------------------


# --- training ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("multi_grid", [False, True])
def test_clean_images_alone_move_the_main_statistics(multi_grid: bool, batch: Batch) -> None:
    algorithm = make({"multi_grid": multi_grid})
    plain = copy.deepcopy(algorithm.network)
    algorithm.losses(batch)
    plain(batch.x)
    for name, value in plain.state_dict().items():
        torch.testing.assert_close(algorithm.network.state_dict()[name], value)


def test_accuracy_counts_clean_images_only(batch: Batch) -> None:
    algorithm = make()
    plain = copy.deepcopy(algorithm.network)
    algorithm.losses(batch)
    assert algorithm.take_correct() == (plain(batch.x).argmax(1) == batch.y).sum()


def test_predicting_needs_no_style_network(batch: Batch) -> None:
    algorithm = make()
    object.__setattr__(algorithm.setup, "prepared", lambda kind: pytest.fail("fetched"))
    plain = algorithm.network.eval()
    assert torch.equal(algorithm.eval().predict(batch.x), plain(batch.x))


class Darker(nn.Module):
    """A style network that remembers what it is given and makes images that are recognised."""

    def permute(self, x: Tensor, permutation: Tensor, alpha: float) -> Tensor:
        self.seen, self.strength = x, alpha
        return x[permutation] / 2


def seen_by_network(algorithm: Debiased, batch: Batch) -> Tensor:
    seen: list[Tensor] = []
    hook = algorithm.network.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]))
    algorithm.losses(batch)
    hook.remove()
    return torch.cat([*seen])


def test_the_style_network_is_given_images_as_they_are(batch: Batch, monkeypatch: pytest.MonkeyPatch) -> None:
    """In [0,1], never normalised; the network gets what comes back, behind the images themselves."""
    algorithm, style = make({"alpha": 0.3}), Darker()
    calls = spied(algorithm, monkeypatch)
    algorithm._style[:] = [style]
    seen = seen_by_network(algorithm, batch)
    assert torch.equal(style.seen, batch.x)
    assert style.strength == 0.3
    assert torch.equal(seen, torch.cat([batch.x, batch.x[calls[0][1]] / 2]))


def test_multi_grid_takes_the_nearest_pixel(batch: Batch) -> None:
    """Every second of 40 pixels is left unchanged, nothing between."""
    algorithm, style = make({"multi_grid": True, "min_size": 9}), Darker()
    algorithm._style[:] = [style]
    algorithm.progress = Progress(epochs=10)
    algorithm.losses(batch)
    assert torch.equal(style.seen, batch.x[..., ::2, ::2])
