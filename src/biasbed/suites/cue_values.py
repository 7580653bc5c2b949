"""Derived values that tell which cue a model uses: gaps between two sets, shape preference, errors by factor.

No torch: recorded decisions have them, too.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from biasbed.datasets.known_sets import NO_FACTOR
from biasbed.record import Derived, MetricName

FULL, MRR = "accuracy_full", "mrr"
# Differences of two accuracies, each a value of the second set: measure -> (measure of the accuracies, sets).
GAPS: Mapping[str, tuple[str, tuple[str, str]]] = {
    "gap_r": ("accuracy", ("imagenet_200", "imagenet_r")),
    "background_gap": (FULL, ("imagenet_9_mixed_same", "imagenet_9_mixed_rand")),  # Xiao et al. 2021, section 3
    "watermark_gap": ("accuracy", ("imagenet", "imagenet_w")),  # Li et al. 2023, section 3.2, with the other sign
}
PURE_CUES = ("refined_bias_shape", "refined_bias_texture")
FACTOR_SET = "imagenet_x"


def underivable(sets: Collection[str]) -> Iterator[str]:
    """Yield a line for each gap to one of these sets that lacks the set that it is measured from."""
    for gap, (_, (reference, shifted)) in GAPS.items():
        if shifted in sets and reference not in sets:
            yield f"no {gap} of {shifted}: it needs {reference}, too"


def derivations(groups: Mapping[str, Collection[str]]) -> Iterator[Derived]:
    """Yield the values that follow from these sets. groups: set -> names of its groups of images."""
    for gap, (measure, pair) in GAPS.items():
        if set(pair) <= set(groups):
            inputs = tuple(str(MetricName("test", measure, name)) for name in pair)
            yield Derived("test", gap, pair[1], "difference", inputs, higher_is_better=False)
    if set(PURE_CUES) <= set(groups):  # Kim et al. 2026, arXiv 2603.10834: shape preference
        inputs = tuple(str(MetricName("test", MRR, name)) for name in PURE_CUES)
        yield Derived("test", "shape_preference", PURE_CUES[0], "share", inputs)
    overall = str(MetricName("test", "accuracy", FACTOR_SET))
    for factor in groups.get(FACTOR_SET, ()):  # Idrissi et al. 2023, section 3: error ratio
        if factor != NO_FACTOR:
            accuracy = str(MetricName("test", "accuracy", FACTOR_SET, factor))
            yield Derived(
                phase="test",
                measure=f"error_ratio_{factor}",
                name=FACTOR_SET,
                function="error_quotient",
                inputs=(accuracy, overall),
                unit="ratio",
                higher_is_better=False,
            )
