"""InfoDrop against the authors' module: offsets, weights of the draws, and masks of given draws."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor, nn

from biasbed.algorithms import infodrop
from biasbed.algorithms.draws import with_draws
from biasbed.algorithms.infodrop import InfoDrop, Mask, Offset
from biasbed.batch import Batch
from biasbed.networks import build
from biasbed.networks.surgery import Site, Window
from helpers.scripted import Script, whole
from replays import Case, setup


def site_of(case: Case) -> Site:
    window = Window(int(case["kernel_size"]), int(case["stride"]), int(case["padding"]))
    return Site(nn.Identity(), nn.Identity(), window, Window(3, 2, 1) if case["kind"] == "stem" else None)


def hparams_of(case: Case) -> InfoDrop.HParams:
    values = {key: float(case[key]) for key in ("drop_rate", "temperature", "band_width")}
    return InfoDrop.HParams(
        **values,
        radius=int(case["radius"]),
        num_offsets=int(case["patch_sampling_num"]),
    )


@functools.cache
def method(hparams: InfoDrop.HParams) -> InfoDrop:
    """Return the method on some network with one mask."""
    return InfoDrop(hparams, setup(5, lambda: build("timm:test_resnet", 5)))


def drawn(case: Case) -> infodrop.MaskDraw:
    """Return the draw of a training step in which the offsets come out as the vector's, -radius .. radius each."""
    algorithm, radius = method(hparams_of(case)), int(case["radius"])
    offsets = np.stack([case["offset_i"], case["offset_j"]], axis=-1)
    with Script(whole(offsets[None], low=-radius, high=radius + 1)):
        (draw,) = algorithm.train().draw(Batch(torch.from_numpy(case["x"])))
    assert draw is not None
    return draw


def offsets_of(case: Case) -> Sequence[Offset]:
    return drawn(case).offsets


@dataclass(frozen=True)
class Chosen(infodrop.MaskDraw):
    """A draw whose positions, [N,all draws of an image], are given; an alias is never taken."""

    choice: Tensor = field(default_factory=lambda: torch.zeros(0))

    def uniform(self, num_images: int, first: int, last: int, length: int, device: torch.device) -> Sequence[Tensor]:
        positions = self.choice[:, first:last]
        assert positions.shape == (num_images, last - first), "more draws than the authors'"
        return [positions, torch.full(positions.shape, -1.0)]


def masked(case: Case, draw: infodrop.MaskDraw, x: Tensor) -> tuple[Tensor, Tensor]:
    """Return the map that a training step passes on, and the weights of its draws."""
    mask = Mask(site_of(case), hparams_of(case))
    with with_draws([mask], [draw]):
        mask.observe(torch.from_numpy(case["x_old"]))
        assert mask.weights is not None
        return mask.change(x), mask.weights


def replay(case: Case) -> None:
    draw, x = drawn(case), torch.from_numpy(case["x"]).requires_grad_()
    choice = torch.from_numpy(case["choice"])
    assert choice.shape == (x.shape[0] * x.shape[1], case["sampling_num"])
    y, weights = masked(case, Chosen(draw.offsets, draw.generator, choice=choice.reshape(len(x), -1)), x)
    # rtol: the exponent 33 amplifies rounding; atol only for what underflowed to 0 in the reference, which does not
    # work in logarithms
    np.testing.assert_allclose(weights.numpy(), case["prob"], rtol=2e-4, atol=1e-15)
    np.testing.assert_array_equal(y.detach().numpy(), case["y"])
    upstream = torch.randn(x.shape, generator=torch.Generator().manual_seed(0))
    y.backward(upstream)
    np.testing.assert_array_equal(x.grad, upstream * torch.from_numpy(case["y"] == case["x"]))


REPLAYS = {"infodrop_*": replay}
UNCOMPARED = {
    "infodrop_*": {
        "x_old": "its scale cancels: distances are divided by their mean",
        "derived_drop_probability": "no mask computes it: algorithms/test_infodrop.py compares how often draws hit",
        "drop_rate": "draws are whole numbers, and may be as many at 1.01 times the rate; they are compared exactly",
    }
}
