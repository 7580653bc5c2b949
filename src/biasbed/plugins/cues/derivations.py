"""Derived values that tell which cue a model uses: gaps between two sets, shape preference, errors by factor.

No torch: recorded decisions have them, too.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from biasbed.measures import FRACTION, Measure
from biasbed.record import Derived, MetricName
from biasbed.suites.derived import gap

FULL, MRR = "accuracy_full", "mrr"
PURE_CUES = ("refined_bias_shape", "refined_bias_texture")
FACTOR_SET = "imagenet_x"
NO_FACTOR = "none"  # group of images without a factor: they count among all images alone
MEASURES = {
    "background_gap": Measure("accuracy on ImageNet-9's Mixed-Same less that on its Mixed-Rand", FRACTION, False),
    "watermark_gap": Measure("accuracy on ImageNet less that on the same images with a watermark", FRACTION, False),
    "shape_preference": Measure("mean reciprocal rank on images of shapes / (the same + that on images of textures)"),
}


def derive(groups: Mapping[str, Collection[str]]) -> Iterator[Derived]:
    """Yield the values that follow from these sets. groups: set -> names of its groups of images."""
    # Xiao et al. 2021, section 3
    yield from gap("background_gap", FULL, ("imagenet_9_mixed_same", "imagenet_9_mixed_rand"), groups)
    # Li et al. 2023, section 3.2, with the other sign
    yield from gap("watermark_gap", "accuracy", ("imagenet", "imagenet_w"), groups)
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
