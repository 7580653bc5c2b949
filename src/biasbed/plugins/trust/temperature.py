"""Temperature scaling (Guo, Pleiss, Sun and Weinberger, On Calibration of Modern Neural Networks, ICML 2017)."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

LIMITS = (0.01, 100.0)  # lowest and highest temperature
STEPS, WITHIN = 100, 1e-13  # most steps of Newton's method, and the relative change at which it ends
SMALLEST = 1e-300  # variance, so that none is zero
CACHED = 2**16  # scores that are computed together


def fit_temperature(log_probabilities: np.ndarray, labels: np.ndarray) -> float:
    """Return the temperature T that minimises the mean negative log-likelihood of softmax(log p / T).

    The likelihood is concave in b = 1 / T, so its slope has one zero at most, which Newton's method finds within a
    bracket. Logits give the same T as their log-probabilities. Where there is no zero within `LIMITS` the nearer limit
    is returned: the lower one if all labels are decided rightly, as the sharpest probabilities are best then; the upper
    one if the scores say nothing about the labels.
    """
    centred = log_probabilities - log_probabilities.max(axis=1, keepdims=True)
    at_label = float(centred[np.arange(len(labels)), labels].mean())
    least, most = 1 / LIMITS[1], 1 / LIMITS[0]
    if _expect(centred, least).mean >= at_label:
        return LIMITS[1]
    if _expect(centred, most).mean <= at_label:
        return LIMITS[0]
    inverse = 1.0
    for _ in range(STEPS):
        expected = _expect(centred, inverse)
        if expected.mean > at_label:
            most = inverse
        else:
            least = inverse
        following = inverse + (at_label - expected.mean) / max(expected.variance, SMALLEST)
        if not least < following < most:
            following = math.sqrt(least * most)
        if abs(following - inverse) <= WITHIN * inverse:
            break
        inverse = following
    return 1 / inverse


class _Expected(NamedTuple):
    """Mean over images of the expectation and of the variance of an image's scores, by its own probabilities."""

    mean: float
    variance: float


def _expect(centred: np.ndarray, inverse: float) -> _Expected:
    """Return expectation and variance of the scores [N,K] under softmax(inverse * scores)."""
    means, variances = np.empty(len(centred)), np.empty(len(centred))
    step = max(1, CACHED // centred.shape[1])
    for start in range(0, len(centred), step):
        scores = centred[start : start + step]
        weighted = np.exp(scores * inverse)  # changed in place: weights, weights * scores, weights * scores**2
        sums = weighted.sum(axis=1)
        weighted *= scores
        mean = weighted.sum(axis=1) / sums
        weighted *= scores
        means[start : start + step] = mean
        variances[start : start + step] = weighted.sum(axis=1) / sums - mean**2
    return _Expected(float(means.mean()), float(variances.mean()))


def scale(log_probabilities: np.ndarray, temperature: float) -> np.ndarray:
    """Return the log-probabilities [N,K] at a temperature. Decisions stay the same."""
    from scipy.special import log_softmax  # late: few analyses have scores of classes

    result: np.ndarray = log_softmax(log_probabilities / temperature, axis=1)
    return result
