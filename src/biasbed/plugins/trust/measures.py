"""Measures of trust: calibration, conformal sets and detection. All but the temperature are logged."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from biasbed.measures import OF_TWO, Measure

_CALIBRATED: Mapping[str, Measure] = {
    "loss_scaled": Measure("mean loss per image after temperature scaling", "nats", False),
    "brier_scaled": Measure("Brier score after temperature scaling", OF_TWO, False),
    "ece_scaled": Measure("expected calibration error after temperature scaling", higher_is_better=False),
    "lac_coverage": Measure("fraction of images whose label is in the conformal set by 1 - p", has_direction=False),
    "lac_size": Measure("mean number of classes in the conformal set by 1 - p", "classes", False),
    "aps_coverage": Measure(
        "fraction of images whose label is in the conformal set by summed probabilities", has_direction=False
    ),
    "aps_size": Measure("mean number of classes in the conformal set by summed probabilities", "classes", False),
    "auroc_msp": Measure(
        "detection against the training distribution by maximum softmax: area under the curve", has_direction=False
    ),
    "fpr95_msp": Measure("the same: false positives where 95 % of the set are detected", has_direction=False),
    "auroc_energy": Measure(
        "detection against the training distribution by energy: area under the curve", has_direction=False
    ),
    "fpr95_energy": Measure("the same: false positives where 95 % of the set are detected", has_direction=False),
    "auroc_mahalanobis": Measure(
        "detection against the training distribution by Mahalanobis distance: area", has_direction=False
    ),
    "fpr95_mahalanobis": Measure("the same: false positives where 95 % of the set are detected", has_direction=False),
}
_BRIER = Measure("squared distance from probabilities to label, summed over classes", OF_TWO, False, of_scores=True)
_LOGGED: Mapping[str, Measure] = {
    "brier": _BRIER,
    **{name: replace(measure, of_scores=True, is_calibrated=True) for name, measure in _CALIBRATED.items()},
}
OF_SCORES = tuple(_LOGGED)
MEASURES: Mapping[str, Measure] = {
    **_LOGGED,
    "temperature": Measure(
        "temperature that minimises the loss on calibration images: above 1 where too sure",
        "ratio",
        has_direction=False,
    ),
}
