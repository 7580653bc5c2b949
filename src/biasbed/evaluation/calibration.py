"""Calibration of decisions: expected and RMS calibration error, area under the response rate accuracy curve.

Guo, Pleiss, Sun and Weinberger, ICML 2017, equation 3; Hendrycks, Zhao, Basart, Steinhardt and Song, Natural
Adversarial Examples, CVPR 2021, section 4. Arguments are the confidence [N] of N decisions and whether each is right
[N]. Their order breaks ties between equal confidences.
"""

from __future__ import annotations

import numpy as np

from biasbed import measures
from biasbed.measures import RMS_BIN  # images, sorted by confidence; the last bin has the rest, too

ROUNDING = 1e-3  # by which sums of rounded probabilities may differ from 1


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


def rms(confidence: np.ndarray, right: np.ndarray) -> float:
    """Return the RMS calibration error: root of the mean over images of their bin's squared gap."""
    return _rms(confidence, right, skip_last=False)


def rms_reference(confidence: np.ndarray, right: np.ndarray) -> float:
    """Return the RMS calibration error as its authors' program computes it: without the bin of the most confident.

    That program's loop ends before the last bin. The other bins keep their share of all images, so that the error of
    100 to 199 images is zero. Raises ValueError for fewer than `RMS_BIN` images.
    """
    if len(confidence) < RMS_BIN:
        raise ValueError(f"the reference's RMS calibration error takes {RMS_BIN} images, not {len(confidence)}")
    return _rms(confidence, right, skip_last=True)


def _rms(confidence: np.ndarray, right: np.ndarray, skip_last: bool) -> float:
    order = np.argsort(confidence, kind="stable")
    starts = np.arange(max(1, len(order) // RMS_BIN)) * RMS_BIN
    counts = np.diff([*starts, len(order)])
    expected = np.add.reduceat(confidence[order].astype(np.float64), starts)
    correct = np.add.reduceat(right[order].astype(np.float64), starts)
    squares = ((expected - correct) / counts) ** 2 * counts
    return float(np.sqrt((squares[:-1] if skip_last else squares).sum() / len(order)))


def aurra(confidence: np.ndarray, right: np.ndarray) -> float:
    """Return the mean over k = 1 .. N of the accuracy among the k most confident decisions."""
    ranked = right[np.argsort(-confidence.astype(np.float64), kind="stable")].astype(np.float64)
    return float((np.cumsum(ranked) / np.arange(1, len(ranked) + 1)).mean())


def are_probabilities(values: np.ndarray) -> bool:
    """Return True for values [N,K] that are probabilities of a softmax: from 0 to 1, with the sum 1 for each image.

    Rows of 0 and a single 1 are taken for decisions that somebody encoded as logits.
    """
    if values.shape[1] < 2 or values.min() < 0 or values.max() > 1 or np.isin(values, (0, 1)).all():
        return False
    return bool((np.abs(values.sum(axis=1) - 1) < ROUNDING).all())
