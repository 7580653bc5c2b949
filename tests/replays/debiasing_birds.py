"""Waterbirds' composition: a place as it is fitted to a bird, and the bird put before it."""

from __future__ import annotations

import numpy as np

from biasbed.plugins.waterbirds.maker import blend, cover
from replays import Case


def replay_composition(case: Case) -> None:
    height, width = case["bird"].shape[:2]
    background = cover(case["place"], width, height)
    # Pillow's result to 1, as the vectors' README has it for other versions; exact from there on.
    assert np.abs(background.astype(int) - case["place_fitted"]).max() <= 1
    picture = blend(case["bird"], case["segmentation_uint8"], case["place_fitted"])
    assert np.array_equal(picture, case["combined"])


REPLAYS = {"debiasing/waterbirds_composition*": replay_composition}
UNCOMPARED: dict[str, dict[str, str]] = {}
