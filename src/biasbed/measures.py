"""Measures as pure functions of counts, used by evaluation and analysis alike. Standard library only."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist

CALIBRATION_BINS = 15  # Guo et al. 2017, section 4


def accuracy(correct: int, images: int) -> float:
    """Fraction of images decided rightly; ValueError without images."""
    if images <= 0:
        raise ValueError("accuracy of no images")
    return correct / images


def wilson(correct: int, images: int, level: float = 0.95) -> tuple[float, float]:
    """Interval of a fraction of `images` independent images (Wilson 1927, equation 4); ValueError without images.

    It stays within [0, 1] and is not empty where all or no images are right, as the normal approximation's is.
    """
    share = accuracy(correct, images)
    z = NormalDist().inv_cdf((1 + level) / 2)
    shrink = 1 + z**2 / images
    centre = (share + z**2 / (2 * images)) / shrink
    half = z / shrink * math.sqrt(share * (1 - share) / images + z**2 / (4 * images**2))
    return min(share, max(0.0, centre - half)), max(share, min(1.0, centre + half))


def shape_bias(shape: int, texture: int) -> float:
    """Shape decisions / (shape + texture decisions) on cue conflicts (Geirhos et al. 2019, section 3).

    Decisions for any other class count for neither. NaN where no decision was for either cue.
    """
    if shape + texture == 0:
        return float("nan")
    return shape / (shape + texture)


def expected_calibration_error(counts: Sequence[int], corrects: Sequence[int], confidences: Sequence[float]) -> float:
    """Mean gap between confidence and accuracy (Guo et al. 2017, equation 3); ValueError without images.

    Per bin of confidence: how many images it has, how many of them are decided rightly, the sum of their confidences.
    """
    images = sum(counts)
    if images <= 0:
        raise ValueError("calibration of no images")
    return sum(abs(right - sure) for right, sure in zip(corrects, confidences, strict=True)) / images


def error_consistency(both_right: int, only_a: int, only_b: int, both_wrong: int) -> float:
    """Cohen's kappa of being right on the same images (Geirhos, Meding and Wichmann 2020, equations 1 to 3).

    0: two observers agree as often as independent ones of their accuracies would; 1: always. NaN where chance alone
    makes them agree always, as for two observers that are never wrong. ValueError without images.
    """
    images = both_right + only_a + only_b + both_wrong
    if images <= 0:
        raise ValueError("error consistency on no images")
    a, b = (both_right + only_a) / images, (both_right + only_b) / images
    expected = a * b + (1 - a) * (1 - b)
    observed = (both_right + both_wrong) / images
    return float("nan") if expected == 1 else (observed - expected) / (1 - expected)


NOT_FRACTIONS = ("loss",)  # every other measure is a fraction and is shown in percent


def scale(measure: str) -> float:
    """What turns a stored value into the one that is shown: fractions into percent."""
    return 1.0 if measure in NOT_FRACTIONS else 100.0


def unit(measure: str) -> str:
    """The unit of a shown value."""
    return "nats" if measure in NOT_FRACTIONS else "%"
