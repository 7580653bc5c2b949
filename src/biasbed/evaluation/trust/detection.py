"""Detection of images that are not from the training distribution: scores, AUROC, false positives at 95 %.

Outlier scores are larger for images that look less like those of training. Images of the other set are the positives
that are to be detected, as in pytorch-ood; many papers take the images of the training distribution as positives, which
leaves AUROC the same but not the rate of false positives.
"""

from __future__ import annotations

from dataclasses import dataclass

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


def auroc(inside: np.ndarray, outside: np.ndarray) -> float:
    """Return the probability that an outside image has the larger outlier score, ties counting half."""
    return float(Detection.rank(inside, outside).auroc(np.ones((1, len(inside))), np.ones((1, len(outside))))[0])


def false_positives(inside: np.ndarray, outside: np.ndarray) -> float:
    """Return the share of inside images that are flagged at the first threshold that detects 95 % of the outside."""
    detection = Detection.rank(inside, outside)
    return float(detection.false_positives(np.ones((1, len(inside))), np.ones((1, len(outside))))[0])


@dataclass(frozen=True, eq=False)
class Detection:
    """Outlier scores of inside [N] and outside [M] images by rank, so that resamples need no sorting."""

    inside: np.ndarray  # [N] number of each image's score among the U different scores, 0 for the largest
    outside: np.ndarray  # [M] the same
    count: int  # U

    @classmethod
    def rank(cls, inside: np.ndarray, outside: np.ndarray) -> Detection:
        """Rank scores. Raises UsageError for NaN, or if either side has no image."""
        if not len(inside) or not len(outside):
            raise UsageError("detection needs images of both kinds")
        scores = np.concatenate([inside, outside])
        if np.isnan(scores).any():
            raise UsageError("outlier scores are NaN")
        values, numbers = np.unique(-scores, return_inverse=True)
        return cls(numbers[: len(inside)], numbers[len(inside) :], len(values))

    def _flagged(self, ranks: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """Return the share [R,U+1] of images with one of the first 0, 1, ..., U scores. weights: [R,N]."""
        shares = np.zeros((len(weights), self.count + 1))
        for row, drawn in zip(shares, weights, strict=True):
            row[1:] = np.cumsum(np.bincount(ranks, drawn, minlength=self.count))
        return shares / shares[:, -1:]

    def auroc(self, inside_weights: np.ndarray, outside_weights: np.ndarray) -> np.ndarray:
        """Return the area [R] under the receiver operating characteristic of resamples, by trapezoids."""
        x, y = self._flagged(self.inside, inside_weights), self._flagged(self.outside, outside_weights)
        area: np.ndarray = (np.diff(x, axis=1) * (y[:, 1:] + y[:, :-1])).sum(axis=1) / 2
        return area

    def false_positives(self, inside_weights: np.ndarray, outside_weights: np.ndarray) -> np.ndarray:
        """Return the false positive rate [R] of resamples at the first threshold with 95 % true positives."""
        x, y = self._flagged(self.inside, inside_weights), self._flagged(self.outside, outside_weights)
        first = (y >= TPR).argmax(axis=1)
        rates: np.ndarray = x[np.arange(len(x)), first]
        return rates
