"""Colored MNIST's images: the authors' own from the same digits, colours and noise."""

from __future__ import annotations

import numpy as np

from biasbed.datasets.biased import COLOUR_NOISE
from biasbed.datasets.colored_mnist import MEANS, color_digits
from replays import Case, close


def replay_colored_mnist(case: Case) -> None:
    close(MEANS, case["mean_colour"], rtol=1e-6, atol=0)
    assert float(case["std"]) == COLOUR_NOISE
    picture = color_digits(case["digit_image"], case["colour_label"], COLOUR_NOISE * case["normal_draw"])
    assert np.array_equal(picture.transpose(0, 2, 3, 1), case["image_uint8"])


REPLAYS = {"debiasing/colored_mnist": replay_colored_mnist}
UNCOMPARED = {
    "debiasing/colored_mnist": {
        "conflict_ratio": "of their rule in file order, which is not ours",
        "image_float": "before it is cut to whole numbers, which are compared",
    }
}
