"""Negative log-likelihood, Brier score and expected calibration error of log-probabilities."""

from __future__ import annotations

import numpy as np

from biasbed import measures

ROUNDING = 1e-3  # by which sums of rounded probabilities may differ from 1


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


def confidence_bins(confidence: np.ndarray) -> np.ndarray:
    """Return the bin [N] of each confidence: (0, 1/15], (1/15, 2/15], ... are 0, 1, ..."""
    number = measures.CALIBRATION_BINS
    bins: np.ndarray = np.clip(np.ceil(confidence * number).astype(np.int8) - 1, 0, number - 1)
    return bins


def ece(confidence: np.ndarray, right: np.ndarray) -> float:
    """Return the expected calibration error of N decisions (Guo et al. 2017, equation 3)."""
    confidence = confidence.astype(np.float64)
    bins = confidence_bins(confidence)
    counts = (np.bincount(bins, weights).tolist() for weights in (None, right, confidence))
    images, correct, sums = counts
    return measures.expected_calibration_error(images, correct, sums)


def resampled_ece(confidence: np.ndarray, right: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return the expected calibration error [R] of resamples. weights: [R,N], how often each image was drawn."""
    gaps = right - confidence.astype(np.float64)
    by_bin = np.zeros((len(gaps), measures.CALIBRATION_BINS))
    by_bin[np.arange(len(gaps)), confidence_bins(confidence)] = gaps
    result: np.ndarray = np.abs(weights @ by_bin).sum(axis=1) / weights.sum(axis=1)
    return result


def are_probabilities(values: np.ndarray) -> bool:
    """Return True for values [N,K] that are probabilities of a softmax: from 0 to 1, with the sum 1 for each image.

    Rows of 0 and a single 1 are taken for decisions that somebody encoded as logits.
    """
    if values.shape[1] < 2 or values.min() < 0 or values.max() > 1 or np.isin(values, (0, 1)).all():
        return False
    return bool((np.abs(values.sum(axis=1) - 1) < ROUNDING).all())
