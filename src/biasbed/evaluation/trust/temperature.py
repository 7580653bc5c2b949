"""Temperature scaling (Guo, Pleiss, Sun and Weinberger, On Calibration of Modern Neural Networks, ICML 2017)."""

from __future__ import annotations

import numpy as np
from scipy.optimize import brentq
from scipy.special import log_softmax

LIMITS = (0.01, 100.0)  # of the temperature, where the likelihood has no maximum between them


def fit_temperature(log_probabilities: np.ndarray, labels: np.ndarray) -> float:
    """Return the temperature T that minimises the mean negative log-likelihood of softmax(log p / T).

    The likelihood is concave in b = 1 / T, so its slope, mean(log p of the label - expectation of log p), has one zero
    at most, which Brent's method brackets. Logits give the same T as their log-probabilities. Where there is no zero
    within `LIMITS` the nearer limit is returned: the lower one if all labels are decided rightly, as the sharpest
    probabilities are best then; the upper one if the scores say nothing about the labels.
    """
    centred = log_probabilities - log_probabilities.max(axis=1, keepdims=True)
    at_label = centred[np.arange(len(labels)), labels]

    def slope(log_inverse: float) -> float:
        inverse = np.exp(log_inverse)
        probabilities = np.exp(log_softmax(centred * inverse, axis=1))
        return float((at_label - (probabilities * centred).sum(axis=1)).mean())

    lowest, highest = LIMITS
    start, end = -np.log(highest), -np.log(lowest)
    if slope(start) <= 0:
        return highest
    if slope(end) >= 0:
        return lowest
    return float(np.exp(-brentq(slope, start, end, xtol=1e-12, rtol=1e-14)))


def scale(log_probabilities: np.ndarray, temperature: float) -> np.ndarray:
    """Return the log-probabilities [N,K] at a temperature. Decisions stay the same."""
    result: np.ndarray = log_softmax(log_probabilities / temperature, axis=1)
    return result
