"""Table of trust measures with intervals: rows of `trust.csv`, and the text that `evaluate` prints."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np

from biasbed import measures
from biasbed.evaluation.intervals import LEVEL, RESAMPLES
from biasbed.plugins.trust.assessment import DETECTORS, Assessment, ResampledValue
from biasbed.plugins.trust.temperature import LIMITS
from biasbed.system.terminal import aligned

PROBABILITIES = {
    "loss": "NLL",
    "loss_scaled": "scaled",
    "brier": "Brier",
    "brier_scaled": "scaled",
    "ece": "ECE",
    "ece_scaled": "scaled",
    "lac_coverage": "coverage",
    "lac_size": "size",
    "aps_coverage": "coverage (APS)",
    "aps_size": "size (APS)",
}

# Remarks on a temperature at which the search ended without a maximum of the likelihood.
AT_LIMIT = {
    LIMITS[0]: ", the lowest that is tried: almost all calibrating images are decided rightly",
    LIMITS[1]: ", the highest that is tried: the scores say next to nothing about the calibrating labels",
}


class TrustRow(NamedTuple):
    """One line of `trust.csv`."""

    set: str
    group: str  # empty: of all images
    measure: str
    value: float
    low: float  # of the interval over images; NaN for a group
    high: float
    images: int


COLUMNS = TrustRow._fields


def percentile_interval(estimate: ResampledValue, level: float = LEVEL) -> tuple[float, float]:
    """Return the percentile interval of the resamples."""
    low, high = np.quantile(estimate.resampled, [(1 - level) / 2, (1 + level) / 2]).tolist()
    return low, high


def trust_rows(assessments: Mapping[str, Assessment], number: int = RESAMPLES) -> Iterable[TrustRow]:
    """Yield the rows of every set: all images first, with intervals, then each group."""
    for name, assessment in assessments.items():
        for measure, estimate in assessment.estimates(number).items():
            yield TrustRow(name, "", measure, estimate.value, *percentile_interval(estimate), len(assessment.images))
        for group, values in assessment.values_by_group().items():
            images = int(values["images"])
            for measure, value in values.items():
                if measure != "images":
                    yield TrustRow(name, group, measure, value, math.nan, math.nan, images)


def trust_text(assessments: Mapping[str, Assessment], temperature: float) -> list[str]:
    """Return the printed tables: probabilities and conformal sets, then detection."""
    values = {name: assessment.values() for name, assessment in assessments.items()}
    table = [["trust", "images", *PROBABILITIES.values()]]
    for name, of_set in values.items():
        if "loss" not in of_set:  # its images have no labels
            continue
        images = str(len(assessments[name].images))
        table.append([name, images, *(_shown_value(of_set, measure) for measure in PROBABILITIES)])
    remark = AT_LIMIT.get(temperature, "")
    lines = ["", *aligned(table, left=(0,)), f"  scaled: at the temperature {temperature:.4f}{remark}"]
    detected = {name: of_set for name, of_set in values.items() if "auroc_msp" in of_set}
    if not detected:
        return lines
    columns = []
    for detector in DETECTORS:
        if any(f"auroc_{detector}" in of_set for of_set in detected.values()):
            columns += [(f"AUROC, {detector}", f"auroc_{detector}"), (f"FPR, {detector}", f"fpr95_{detector}")]
    detection = [["detection", *(head for head, _ in columns)]]
    for name, of_set in detected.items():
        detection.append([name, *(_shown_value(of_set, measure) for _, measure in columns)])
    return [*lines, "", *aligned(detection, left=(0,))]


def _shown_value(values: Mapping[str, float], measure: str) -> str:
    """Return a value as it is printed; empty if there is none."""
    if measure not in values:
        return ""
    unit = measures.find_measure(measure).unit
    text = measures.shown(values[measure], unit)
    return f"{text} %" if unit == measures.FRACTION else text
