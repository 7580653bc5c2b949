"""Shape bias from responses to single images, as Geirhos et al. count them."""

from __future__ import annotations

import numpy as np

from biasbed.datasets.classes import CATEGORIES_16, parse_cue_classes
from biasbed.evaluation.decisions import MEASURES, Decisions
from replays import Case


def replay(case: Case) -> None:
    """By the measures that every decision is scored with."""
    decisions = answers(case)
    assert np.isclose(MEASURES["shape_bias"](decisions), case["shape_bias"], rtol=1e-12)
    conflicts = np.mean(decisions.label != decisions.bias)  # theirs are fractions of all images, ours of the conflicts
    for cue in ("shape", "texture"):
        accuracy = MEASURES[f"{cue}_accuracy"](decisions)
        assert np.isclose(accuracy * conflicts, case[f"fraction_correct_{cue}"], rtol=1e-12), cue


def answers(case: Case) -> Decisions:
    """Return the responses as somebody's recorded decisions."""
    return Decisions(
        observer="somebody",
        set="cue_conflict",
        images=case["imagename"].tolist(),
        label=case["category"],
        decision=case["object_response"],
        classes=CATEGORIES_16,
        bias=np.array(textures(case)),
    )


def textures(case: Case) -> list[str]:
    """`0001_s5n_dnn_0_clock_00_clock2-truck2.png` -> truck."""
    cues = [parse_cue_classes(name) for name in case["imagename"].tolist()]
    return [cue[1] for cue in cues if cue is not None]


REPLAYS = {"shape_bias_*": replay}
UNCOMPARED: dict[str, dict[str, str]] = {}
