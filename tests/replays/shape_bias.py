"""Shape bias from responses to single images, as Geirhos et al. count them."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import numpy as np

from biasbed.evaluate import MEASURES, Decisions
from biasbed.label_maps import CATEGORIES_16
from replays import Case


def replay(case: Case) -> None:
    shape = numbers_of(case["category"].tolist())
    texture = numbers_of([texture_of(name) for name in case["imagename"].tolist()])
    decision = numbers_of(case["object_response"].tolist())
    source: Any = SimpleNamespace(y=shape, bias=texture)
    nothing = np.zeros((len(shape), 1))
    decisions = Decisions(np.arange(len(shape)), decision, nothing[:, 0], nothing, nothing)

    assert np.isclose(MEASURES["shape_bias"](decisions, source), case["shape_bias"], rtol=1e-12)
    conflicts = np.mean(shape != texture)  # theirs are fractions of all images, ours of the conflicts
    for cue in ("shape", "texture"):
        ours = MEASURES[f"{cue}_accuracy"](decisions, source) * conflicts
        assert np.isclose(ours, case[f"fraction_correct_{cue}"], rtol=1e-12), cue


def texture_of(image: str) -> str:
    """`0001_s5n_dnn_0_clock_00_clock2-truck2.png` -> truck."""
    found = re.search(r"-([a-z]+)\d+\.png$", image)
    assert found is not None, image
    return found[1]


def numbers_of(categories: list[str]) -> np.ndarray:
    """Their indices; a response that is no category (`na`) counts for neither cue."""
    return np.array([CATEGORIES_16.index(name) if name in CATEGORIES_16 else -1 for name in categories])


REPLAYS = {"shape_bias_*": replay}
UNCOMPARED: dict[str, dict[str, str]] = {}
