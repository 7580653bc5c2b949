"""InfoDrop against the authors' module: weights of the draws, and masks of given draws."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from biasbed.algorithms.infodrop import drop_probability, drop_weights, mark
from biasbed.networks.surgery import Site, Window
from replays import Case


def offsets_of(case: Case) -> list[tuple[int, int]]:
    return list(zip(case["offset_i"].tolist(), case["offset_j"].tolist(), strict=True))


def site_of(case: Case) -> Site:
    window = Window(int(case["kernel_size"]), int(case["stride"]), int(case["padding"]))
    return Site(nn.Identity(), nn.Identity(), window, Window(3, 2, 1) if case["kind"] == "stem" else None)


def weights_of(case: Case) -> Tensor:
    site = site_of(case)
    return drop_weights(
        torch.from_numpy(case["x_old"]),
        offsets_of(case),
        site.window,
        site.pool,
        temperature=float(case["temperature"]),
        band_width=float(case["band_width"]),
    )


def replay(case: Case) -> None:
    weights = weights_of(case)
    # rtol: the exponent 33 amplifies rounding; atol only for what underflowed to 0 in the reference, which does not
    # work in logarithms
    np.testing.assert_allclose(weights.numpy(), case["prob"], rtol=2e-4, atol=1e-15)
    count = int(float(case["drop_rate"]) * weights[0].numel())
    assert count == case["sampling_num"]
    probability = drop_probability(weights.flatten(1) + 1e-8, count)
    expected = case["derived_drop_probability"].reshape(probability.shape)
    np.testing.assert_allclose(probability.numpy(), expected, rtol=3e-4)

    x = torch.from_numpy(case["x"]).requires_grad_()
    choice = torch.from_numpy(case["choice"]).view(*x.shape[:2], -1)
    dropped = mark(choice, weights[0].numel()).view(x.shape)
    y = x.masked_fill(dropped, 0)
    np.testing.assert_array_equal(y.detach().numpy(), case["y"])
    upstream = torch.randn(x.shape, generator=torch.Generator().manual_seed(0))
    y.backward(upstream)
    np.testing.assert_array_equal(x.grad, upstream * torch.from_numpy(case["y"] == case["x"]))


REPLAYS = {"infodrop_*": replay}
UNCOMPARED = {
    "infodrop_*": {
        "x_old": "its scale cancels: distances are divided by their mean",
        "drop_rate": "draws are whole numbers, and may be as many at 1.01 times the rate; they are compared exactly",
    }
}
