"""Confidence interval of the ratio of two errors.

Answers: How is the interval of an error ratio computed?
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from biasbed.evaluation.decisions import IMAGE_VALUES, NAN, CountedValues, Decisions
from biasbed.evaluation.intervals import Interval, share_interval


def error_ratio_interval(decisions: Decisions, part: np.ndarray) -> Interval:
    """Return the interval over images of the error on the trials [N] in `part`, divided by the error on all trials.

    It is MOVER's for a ratio of two independent errors, that of the part and that of the rest, each with the interval
    of its share. It is open at few images and at errors of 0 and 1, where resamples of the part do not differ. With a
    fraction f of the trials in the part, the ratio q of both errors gives 1 / (f + (1 - f) / q), which rises with q.
    NaN if the part is empty or has all trials.
    """
    if part.all() or not part.any():
        return NAN, NAN
    accuracies = IMAGE_VALUES["accuracy"].take(decisions)
    fraction = float(part.mean())
    ratios = mover_ratio(_error(decisions, accuracies.select(part)), _error(decisions, accuracies.select(~part)))
    low, high = [1 / (fraction + (1 - fraction) / ratio) if ratio else 0.0 for ratio in ratios]
    return low, high


class IntervalEstimate(NamedTuple):
    """Value with its interval."""

    value: float
    low: float
    high: float


def _error(decisions: Decisions, accuracies: CountedValues) -> IntervalEstimate:
    """Return the fraction of wrong decisions among the trials that count."""
    low, high = share_interval(decisions, accuracies)
    return IntervalEstimate(1 - accuracies.mean, 1 - high, 1 - low)


def mover_ratio(numerator: IntervalEstimate, divisor: IntervalEstimate) -> Interval:
    """Return MOVER's interval of the ratio of two independent estimates, none of which is negative.

    The upper limit is infinite if the divisor's interval begins at 0.

    Source: Donner and Zou 2012 (Statistical Methods in Medical Research 21). The lower limit is written without
    a difference in the denominator, which may be 0.
    """
    product = numerator.value * divisor.value
    below = numerator.low * (2 * numerator.value - numerator.low)
    above = divisor.high * (2 * divisor.value - divisor.high)
    low = below / (product + math.sqrt(product**2 - below * above)) if below else 0.0
    above = numerator.high * (2 * numerator.value - numerator.high)
    below = divisor.low * (2 * divisor.value - divisor.low)
    high = (product + math.sqrt(product**2 - above * below)) / below if below else math.inf
    return low, high
