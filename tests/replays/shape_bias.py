"""Shape bias from responses to single images, as Geirhos et al. count them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from biasbed.datasets.classes import CATEGORIES_16, cue_classes
from biasbed.evaluation.decisions import Answers
from biasbed.evaluation.evaluator import MEASURES, Decisions
from replays import Case


def replay(case: Case) -> None:
    """By the measures of a model that is tested here, and by those of recorded decisions."""
    shape = numbers_of(case["category"].tolist())
    texture = numbers_of(textures(case))
    decision = numbers_of(case["object_response"].tolist())
    source: Any = SimpleNamespace(y=shape, bias=texture)
    nothing, ranks = np.zeros((len(shape), 1)), np.ones(len(shape), int)
    decisions = Decisions(np.arange(len(shape)), decision, nothing[:, 0], nothing, nothing, ranks, ranks)
    counts = answers(case).cue_counts()
    assert counts is not None

    for found in (MEASURES["shape_bias"](decisions, source), counts.shape_bias):
        assert np.isclose(found, case["shape_bias"], rtol=1e-12)
    conflicts = np.mean(shape != texture)  # theirs are fractions of all images, ours of the conflicts
    for cue in ("shape", "texture"):
        for found in (MEASURES[f"{cue}_accuracy"](decisions, source), getattr(counts, f"{cue}_accuracy")):
            assert np.isclose(found * conflicts, case[f"fraction_correct_{cue}"], rtol=1e-12), cue


def answers(case: Case) -> Answers:
    """The responses as somebody's recorded decisions."""
    return Answers(
        observer="somebody",
        set="cue_conflict",
        images=case["imagename"].tolist(),
        label=case["category"],
        decision=case["object_response"],
        classes=CATEGORIES_16,
        texture=np.array(textures(case)),
    )


def textures(case: Case) -> list[str]:
    """`0001_s5n_dnn_0_clock_00_clock2-truck2.png` -> truck."""
    found = [cue_classes(name) for name in case["imagename"].tolist()]
    return [cue[1] for cue in found if cue is not None]


def numbers_of(categories: list[str]) -> np.ndarray:
    """Their indices; a response that is no category (`na`) counts for neither cue."""
    return np.array([CATEGORIES_16.index(name) if name in CATEGORIES_16 else -1 for name in categories])


REPLAYS = {"shape_bias_*": replay}
UNCOMPARED: dict[str, dict[str, str]] = {}
