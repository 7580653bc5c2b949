"""Negative log-likelihood and Brier score of log-probabilities, and calibration errors of resamples."""

from __future__ import annotations

import numpy as np

from biasbed import measures
from biasbed.evaluation.calibration import confidence_bins


def nll(log_probabilities: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Return the negative log-likelihood [N] of the labels, in nats (Good 1952)."""
    result: np.ndarray = -log_probabilities[np.arange(len(labels)), labels]
    return result


def brier(log_probabilities: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Return the Brier score [N]: squared distance from the probabilities to the label, from 0 to 2 (Brier 1950)."""
    probabilities = np.exp(log_probabilities)
    at_label = probabilities[np.arange(len(labels)), labels]
    result: np.ndarray = (probabilities**2).sum(axis=1) - 2 * at_label + 1
    return result


def resampled_ece(confidence: np.ndarray, right: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return the expected calibration error [R] of resamples. weights: [R,N], how often each image was drawn."""
    gaps = right - confidence.astype(np.float64)
    by_bin = np.zeros((len(gaps), measures.CALIBRATION_BINS))
    by_bin[np.arange(len(gaps)), confidence_bins(confidence)] = gaps
    result: np.ndarray = np.abs(weights @ by_bin).sum(axis=1) / weights.sum(axis=1)
    return result
