"""ReBias beyond its vectors: networks with their last ReLU replaced, widths of kernels, independence."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional

from biasbed.algorithms.base import Progress
from biasbed.algorithms.rebias import hsic, median_width
from biasbed.batch import Batch
from biasbed.networks import build, surgery
from helpers.dependence import independence
from helpers.dependence import median_width as median_distance
from helpers.making import batch_for, images, make, steps
from replays.debiasing_coupled import Given, batch_of, start


@pytest.mark.parametrize("backbone", ["mlp", "resnet10", "timm:test_resnet"])
def test_the_last_relu_of_a_network_is_replaced(backbone: str) -> None:
    network = build(backbone, 3, image_size=32).eval()
    assert network.features(images(4)).min() >= 0
    surgery.replace_last_activation(network.backbone, torch.nn.Tanh())
    assert network.features(images(4)).min() < 0


def test_rebias_sets_its_widths_once_an_epoch() -> None:
    algorithm: Any = make("rebias", {}, backbone="timm:test_resnet")
    batch, seen = batch_for(algorithm), []
    for step in range(6):
        steps(algorithm, batch, step, step + 1)
        seen.append(tuple(algorithm.widths.tolist()))
    assert len(set(seen)) == 2
    assert seen[0] == seen[2] != seen[3] == seen[5]
    fixed: Any = make("rebias", {"width": 3.0}, backbone="timm:test_resnet")
    fixed.progress = Progress()
    fixed.update(batch)
    assert fixed.widths.tolist() == [3, 3]


def rebias_of_given(width: float | None) -> tuple[Any, Batch, Tensor, Tensor]:
    """A ReBias of tables that its optimizers step at a rate of 2, a batch, and both networks' features before it."""
    random = np.random.RandomState(5)
    f, g = random.standard_normal((10, 5)), 4 * random.standard_normal((10, 3))
    networks_left = iter([Given(f, random.standard_normal((10, 4))), Given(g, random.standard_normal((10, 4)))])
    hparams = {"weight": 3.0, "biased_weight": 5.0, "width": width}
    algorithm: Any = start("rebias", hparams, lambda *name: next(networks_left), 4, 0)
    for name in ("main", "biased"):
        algorithm.optimizer(name).param_groups[0]["lr"] = 2.0
    algorithm.progress = Progress()
    return algorithm, batch_of(np.arange(10) % 4), torch.tensor(f), torch.tensor(g)


def test_rebias_gives_each_network_the_width_of_its_own_features() -> None:
    algorithm, batch, f, g = rebias_of_given(None)
    width_f, width_g = median_distance(f), median_distance(g)
    assert width_g > 2 * width_f
    terms = algorithm.biased_loss(batch, f)["biased"]
    assert algorithm.widths.tolist() == pytest.approx([width_f, width_g], rel=1e-12)
    classification = functional.cross_entropy(algorithm.biased.logits, batch.y)
    torch.testing.assert_close(terms[0], classification - 5 * independence(f, g, width_f, width_g))
    algorithm.network_loss(batch, f)
    torch.testing.assert_close(algorithm.take_notes()["dependence"], independence(f, g, width_f, width_g))


def test_rebias_s_network_is_to_be_independent_of_the_biased_one_after_its_step() -> None:
    """And the biased one has followed the network as it was before the step."""
    algorithm, batch, f, g = rebias_of_given(2.0)
    terms, notes = algorithm.update(batch), algorithm.take_notes()
    moved = algorithm.biased.table.detach()
    before, after = independence(f, g, 2.0, 2.0), independence(f, moved, 2.0, 2.0)
    assert abs(after - before) > 1e-3 * abs(before)
    torch.testing.assert_close(notes["dependence"], after)

    table, seen = f.clone().requires_grad_(), g.clone().requires_grad_()
    (slope,) = torch.autograd.grad(-5 * independence(f, seen, 2.0, 2.0), seen)
    torch.testing.assert_close(moved, g - 2 * slope)
    (slope,) = torch.autograd.grad(3 * independence(table, moved, 2.0, 2.0), table)
    torch.testing.assert_close(algorithm.network.table.detach(), f - 2 * slope)
    assert set(terms) == {"network", "biased"}


def test_independence_at_its_edges() -> None:
    """Fewer than four images, and images that are all the same."""
    x = torch.randn(3, 5, generator=torch.Generator().manual_seed(0), requires_grad=True)
    assert hsic(x, x, 1.0, 1.0) == 0
    still = torch.ones(6, 5, requires_grad=True)
    width = median_width([still])
    dependence = hsic(still, still, width, width)
    (slope,) = torch.autograd.grad(dependence, still)
    assert dependence == 0
    assert not slope.any()
    assert median_width([torch.zeros(4, 2)]) == 1
