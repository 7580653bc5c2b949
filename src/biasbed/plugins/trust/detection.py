"""Detection of images that are not from the training distribution: scores, AUROC, false positives at 95 %.

Outlier scores are larger for images that look less like those of training. Images of the other set are the positives
that are to be detected, as in pytorch-ood; many papers take the images of the training distribution as positives, which
leaves AUROC the same but not the rate of false positives.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from biasbed.errors import UsageError

TPR = 0.95  # share of the other set that is detected
RIDGE = 1e-6  # added to the diagonal of the scatter matrix, as in pytorch-ood


def max_softmax(probability: np.ndarray) -> np.ndarray:
    """Return outlier scores [N] of the largest probabilities [N] (Hendrycks and Gimpel 2017)."""
    return -probability


def energy(log_sum: np.ndarray) -> np.ndarray:
    """Return the energy [N] at temperature 1 from log sum exp [N] of all outputs (Liu et al. 2020, equation 3)."""
    return -log_sum


@dataclass(frozen=True, eq=False)
class FeatureGaussians:
    """A Gaussian for each class in the space of features, with one covariance (Lee et al. 2018, equation 1)."""

    means: np.ndarray  # [C,D]
    precision: np.ndarray  # [D,D] inverse of the scatter about the means, with a ridge

    @classmethod
    def fit(cls, features: np.ndarray, labels: np.ndarray) -> FeatureGaussians:
        """Estimate means and covariance of features [N,D]. Classes without an image have no Gaussian."""
        classes, numbers = np.unique(labels, return_inverse=True)
        if len(features) <= len(classes):
            raise UsageError(
                f"{len(features)} images of {len(classes)} classes don't tell how features vary within a class: "
                "calibrate with more images"
            )
        sums = np.zeros((len(classes), features.shape[1]))
        np.add.at(sums, numbers, features)
        means = sums / np.bincount(numbers)[:, None]
        centred = features - means[numbers]
        scatter = centred.T @ centred + RIDGE * np.eye(features.shape[1])
        return cls(means, np.linalg.inv(scatter))

    def outlier_scores(self, features: np.ndarray) -> np.ndarray:
        """Return half the squared distance [N] to the nearest class mean (Lee et al. 2018, equation 2)."""
        nearest = np.full(len(features), np.inf)
        for mean in self.means:
            centred = features - mean
            distance = 0.5 * ((centred @ self.precision) * centred).sum(axis=1)
            nearest = np.minimum(nearest, distance)
        return nearest


class DetectionRates(NamedTuple):
    """Detection of the outside images among the inside images, for each resample [R]."""

    auroc: np.ndarray  # area under the receiver operating characteristic
    false_positives: np.ndarray  # share of inside images flagged at the first threshold with 95 % true positives


def auroc(inside: np.ndarray, outside: np.ndarray) -> float:
    """Return the probability that an outside image has the larger outlier score, ties counting half."""
    return float(Detection.rank(inside, outside).rates(_once(inside), _once(outside)).auroc[0])


def false_positives(inside: np.ndarray, outside: np.ndarray) -> float:
    """Return the share of inside images that are flagged at the first threshold that detects 95 % of the outside."""
    return float(Detection.rank(inside, outside).rates(_once(inside), _once(outside)).false_positives[0])


def _once(scores: np.ndarray) -> np.ndarray:
    return np.ones((1, len(scores)))


@dataclass(frozen=True, eq=False)
class Detection:
    """Outlier scores of inside [N] and outside [M] images by rank, so that resamples need no sorting."""

    inside: np.ndarray  # [N] number of each image's score among the U different scores, 0 for the largest
    outside: np.ndarray  # [M] the same
    count: int  # U

    @classmethod
    def rank(cls, inside: np.ndarray, outside: np.ndarray) -> Detection:
        """Return the ranks of outlier scores [N] and [M]. Raises UsageError for NaN, or if either is empty."""
        if not len(inside) or not len(outside):
            raise UsageError("detection needs images of both kinds")
        scores = np.concatenate([inside, outside])
        if np.isnan(scores).any():
            raise UsageError("outlier scores are NaN")
        values, numbers = np.unique(-scores, return_inverse=True)
        return cls(numbers[: len(inside)], numbers[len(inside) :], len(values))

    def rates(self, inside_weights: np.ndarray, outside_weights: np.ndarray) -> DetectionRates:
        """Return the rates of resamples. Weights, how often each image was drawn: [R,N] and [R,M]."""
        area, flagged = np.empty(len(inside_weights)), np.empty(len(inside_weights))
        for number, weights in enumerate(zip(inside_weights, outside_weights, strict=True)):
            x, y = self._flagged(self.inside, weights[0]), self._flagged(self.outside, weights[1])
            area[number] = np.trapezoid(y, x)
            flagged[number] = x[(y >= TPR).argmax()]
        return DetectionRates(area, flagged)

    def _flagged(self, ranks: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """Return the share [U+1] of images that have one of the first 0, 1, ..., U scores."""
        counts = np.bincount(ranks, weights, minlength=self.count)
        shares = np.concatenate([[0.0], np.cumsum(counts)])
        return shares / shares[-1]
