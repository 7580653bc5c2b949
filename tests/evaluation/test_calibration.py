"""RMS calibration error and AURRA: against reference outputs, on cases that are known, with ties."""

from __future__ import annotations

import numpy as np
import pytest

from biasbed.evaluation.calibration import aurra, rms, rms_reference
from biasbed.evaluation.decisions import MEASURES, Decisions
from helpers.commands import ROOT

VECTORS = ROOT.parent / "shared" / "vectors" / "robustness" / "calibration.npz"


@pytest.mark.skipif(not VECTORS.exists(), reason="the reference outputs are not in ../shared")
@pytest.mark.parametrize("case", range(4))
def test_values_are_the_reference_s(case: int) -> None:
    """The last case has tied confidences, whose order in the reference is arbitrary."""
    known = np.load(VECTORS)
    given = known[f"{case}.confidence"], known[f"{case}.correct"] > 0
    within = {"rms": 1e-9, "aurra": 1e-9} if case < 3 else {"rms": 1e-2, "aurra": 5e-3}
    assert rms(*given) == pytest.approx(float(known[f"{case}.rms_all_bins"]), abs=within["rms"])
    assert rms_reference(*given) == pytest.approx(float(known[f"{case}.rms_reference"]), abs=within["rms"])
    assert aurra(*given) == pytest.approx(float(known[f"{case}.aurra"]), abs=within["aurra"])


def test_the_reference_leaves_out_the_most_confident() -> None:
    confidence = np.repeat([0.2, 0.6, 0.9], 100)
    right = np.concatenate([np.arange(100) < 20, np.arange(100) < 50, np.zeros(100)]) > 0
    assert rms(confidence, right) == pytest.approx(np.sqrt((0.1**2 + 0.9**2) / 3))
    assert rms_reference(confidence, right) == pytest.approx(np.sqrt(0.1**2 / 3))
    assert rms(confidence[:50], right[:50]) == pytest.approx(abs(0.2 - 20 / 50))
    with pytest.raises(ValueError, match="takes 100 images, not 99"):
        rms_reference(confidence[:99], right[:99])


def test_aurra_rewards_being_sure_of_what_is_right() -> None:
    right = np.array([True, True, False, False])
    assert aurra(np.array([0.9, 0.8, 0.2, 0.1]), right) == pytest.approx((1 + 1 + 2 / 3 + 1 / 2) / 4)
    assert aurra(np.array([0.1, 0.2, 0.8, 0.9]), right) == pytest.approx((0 + 0 + 1 / 3 + 1 / 2) / 4)


def test_ties_are_in_the_order_of_ids_whatever_the_order_of_images() -> None:
    generator = np.random.default_rng(0)
    ids = [f"{number:04}" for number in range(300)]
    label = ["a" if right else "b" for right in generator.random(300) < 0.5]
    confidence = np.round(generator.random(300), 1)

    def measured(order: np.ndarray) -> list[float]:
        names = {"images": [ids[at] for at in order], "label": [label[at] for at in order], "decision": ["a"] * 300}
        one = Decisions("m", "s", classes=("a", "b"), confidence=confidence[order], **names)  # type: ignore[arg-type]
        return [MEASURES[name](one) for name in ("rms", "rms_reference", "aurra")]

    assert measured(np.arange(300)) == measured(generator.permutation(300))
