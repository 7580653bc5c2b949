"""Detection of images that are not from the training distribution: AUROC and false positives at 95 %.

Outlier scores are larger for images that look less like those of training. Images of the other set are the positives
that are to be detected, as in pytorch-ood; many papers take the images of the training distribution as positives, which
leaves AUROC the same but not the rate of false positives.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

TPR = 0.95  # share of the other set that is detected
RIDGE = 1e-6  # added to the diagonal of the scatter matrix, as in pytorch-ood


@dataclass(frozen=True, eq=False)
class FeatureGaussians:
    """A Gaussian for each class in the space of features, with one covariance (Lee et al. 2018, equation 1)."""

    means: np.ndarray  # [C,D]
    precision: np.ndarray  # [D,D] inverse of the scatter about the means, with a ridge

    @classmethod
    def fit(cls, features: np.ndarray, labels: np.ndarray) -> FeatureGaussians:
        """Estimate means and covariance of features [N,D] of more images than classes.

        Classes without an image have no Gaussian.
        """
        classes, numbers = np.unique(labels, return_inverse=True)
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


@dataclass(frozen=True, eq=False)
class Detection:
    """Outlier scores of inside [N] and outside [M] images by rank, so that resamples need no sorting."""

    inside: np.ndarray  # [N] number of each image's score among the U different scores, 0 for the largest
    outside: np.ndarray  # [M] the same
    count: int  # U

    @classmethod
    def rank(cls, inside: np.ndarray, outside: np.ndarray) -> Detection:
        """Return the ranks of outlier scores [N] and [M]."""
        values, numbers = np.unique(-np.concatenate([inside, outside]), return_inverse=True)
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
