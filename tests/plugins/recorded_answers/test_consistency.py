"""Error consistency: which images two observers have in common, and how often both are right."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from biasbed.errors import UsageError
from biasbed.evaluation.decisions import Decisions
from biasbed.plugins.recorded_answers.consistency import consistency


def answers(observer: str, images: Sequence[str], right: Sequence[bool], condition: str | None = None) -> Decisions:
    label = np.array(["dog"] * len(images), dtype=object)
    decision = np.where(right, label, "cat").astype(object)
    conditions = None if condition is None else [condition] * len(images)
    return Decisions(observer, "edge", images, label, decision, ("cat", "dog"), condition=conditions)


def test_consistency_is_over_the_images_that_both_have_seen() -> None:
    a = answers("a", ["dog/dog1.png", "dog/dog2.png", "dog/dog3.png"], [True, False, True])
    b = answers(
        "b", ["0001_e_d_0_dog_00_dog3.png", "0002_e_d_0_dog_00_dog2.png", "0003_e_d_0_dog_00_dog9.png"], [True] * 3
    )
    (pair,) = consistency([a, b])
    assert (pair.images, pair.both_right, pair.only_a, pair.only_b, pair.both_wrong) == (2, 1, 0, 1, 0)
    assert consistency([a, answers("c", ["x.png"], [True])]) == []


def test_different_labels_are_different_images() -> None:
    other = answers("b", ["dog1.png"], [True])
    with pytest.raises(UsageError, match=r"dog1\.png is a dog for a and cat for b"):
        consistency([answers("a", ["dog1.png"], [True]), Decisions(**{**vars(other), "label": np.array(["cat"])})])
