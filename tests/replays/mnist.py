"""DomainBed's digits: coloured ones with injected draws, rotated ones."""

from __future__ import annotations

import numpy as np

from biasbed.datasets import mnist
from replays import Case


def replay_colors(case: Case) -> None:
    for domain, disagreement in enumerate(mnist.DISAGREEMENT):
        rows, of = mnist.deal(case["perm"], 3)[domain], f"env{domain}."
        flips, colours = case[f"{of}draw.label_flip"], case[f"{of}draw.color_flip"]
        x, y = mnist.color_digits(case["images"][rows], case["labels"][rows], flips, colours, disagreement)
        assert x.dtype == np.uint8
        np.testing.assert_array_equal(x, case[f"{of}x_uint8"])
        np.testing.assert_array_equal(y, case[f"{of}y"])


def replay_rotations(case: Case) -> None:
    for domain, angle in enumerate(mnist.ANGLES):
        rows, of = mnist.deal(case["perm"], 6)[domain], f"env{domain}."
        np.testing.assert_array_equal(mnist.rotate(case["images"][rows], angle), case[f"{of}x_uint8"])
        np.testing.assert_array_equal(case["labels"][rows], case[f"{of}y"])


REPLAYS = {"domainbed/colored_mnist": replay_colors, "domainbed/rotated_mnist": replay_rotations}
DRAWS = "a draw, which decides by whether it is below a bound"
UNCOMPARED = {
    "domainbed/colored_mnist": {
        **{f"env{n}.draw.{what}": DRAWS for n in range(3) for what in ("label_flip", "color_flip")},
        "perm": "which image stands where: another one is none",
        "env0.x0_float32": "the first image once more, divided by 255",
    }
}
