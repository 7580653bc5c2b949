"""How well confidence tells right decisions from wrong ones, in bins of equally many images.

Hendrycks, Zhao, Basart, Steinhardt and Song, Natural Adversarial Examples, CVPR 2021, section 4: RMS calibration error
and the area under the response rate accuracy curve. Of N decisions: confidence [N], whether each is right [N], both in
an order that breaks ties between equal confidences.
"""

from __future__ import annotations

import numpy as np

from biasbed.measures import RMS_BIN  # images, sorted by confidence; the last bin has the rest, too


def rms(confidence: np.ndarray, right: np.ndarray) -> float:
    """RMS calibration error: root of the mean over images of their bin's squared gap."""
    return _rms(confidence, right, skip_last=False)


def rms_reference(confidence: np.ndarray, right: np.ndarray) -> float:
    """The same as in its authors' program, whose loop ends before the last bin, that of the most confident images.

    The others keep their weights of all images, so that of 100 to 199 images it is zero. ValueError for fewer.
    """
    if len(confidence) < RMS_BIN:
        raise ValueError(f"the reference's RMS calibration error takes {RMS_BIN} images, not {len(confidence)}")
    return _rms(confidence, right, skip_last=True)


def _rms(confidence: np.ndarray, right: np.ndarray, skip_last: bool) -> float:
    order = np.argsort(confidence, kind="stable")
    starts = np.arange(max(1, len(order) // RMS_BIN)) * RMS_BIN
    counts = np.diff([*starts, len(order)])
    sure, correct = (np.add.reduceat(of[order].astype(np.float64), starts) for of in (confidence, right))
    squares = ((sure - correct) / counts) ** 2 * counts
    return float(np.sqrt((squares[:-1] if skip_last else squares).sum() / len(order)))


def aurra(confidence: np.ndarray, right: np.ndarray) -> float:
    """Mean over k = 1 .. N of the accuracy among the k most confident decisions."""
    found = right[np.argsort(-confidence.astype(np.float64), kind="stable")].astype(np.float64)
    return float((np.cumsum(found) / np.arange(1, len(found) + 1)).mean())
