"""Split conformal prediction sets: LAC and APS, overall or with a threshold for each group (Mondrian).

A set holds every class whose p-value is above alpha (Vovk, Gammerman and Shafer 2005, section 2.2). With n calibration
images the p-value of a class is (1 + number of those whose label has at least its nonconformity) / (1 + n). So a set
holds the classes up to the ceil((1 - alpha) (1 + n))-th smallest nonconformity of calibration labels. On images that
are exchangeable with the calibration images the label is in the set with probability 1 - alpha at least.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

DIGITS = 12  # after the point, of sums of probabilities
ROUNDING = 1e-12  # by which a p-value that is alpha may come out above it


def lac(probabilities: np.ndarray) -> np.ndarray:
    """Return the nonconformity [N,K] of each class, 1 - p (Sadinle, Lei and Wasserman 2019)."""
    return 1 - probabilities


def aps(probabilities: np.ndarray) -> np.ndarray:
    """Return the nonconformity [N,K] of each class: the sum of all probabilities down to its own.

    Romano, Sesia and Candes 2020, equation 5, without its random part, which makes sets a little larger. Equal
    probabilities are in the order of the classes.
    """
    order = np.argsort(-probabilities, axis=1, kind="stable")
    # Rounded, as the last class's sum is 1 for every image, and ties count.
    sums = np.cumsum(np.take_along_axis(probabilities, order, axis=1), axis=1).round(DIGITS)
    result = np.empty_like(sums)
    np.put_along_axis(result, order, sums, axis=1)
    return result


SCORES = {"lac": lac, "aps": aps}


@dataclass(frozen=True, eq=False)
class Conformal:
    """Nonconformity of the labels of calibration images, sorted, for all of them or for each group."""

    all_images: np.ndarray  # [n]
    by_group: Mapping[str, np.ndarray]  # group -> [n of the group]

    @classmethod
    def fit(cls, nonconformity: np.ndarray, labels: np.ndarray, groups: np.ndarray | None = None) -> Conformal:
        """Return the sorted nonconformity of the labels. nonconformity: [n,K]; groups: [n] names, if there are any."""
        of_label = nonconformity[np.arange(len(labels)), labels]
        by_group = {}
        if groups is not None:
            for name in np.unique(groups).tolist():
                by_group[name] = np.sort(of_label[groups == name])
        return cls(np.sort(of_label), by_group)

    def p_values(self, nonconformity: np.ndarray) -> np.ndarray:
        """Return the p-value [N,K] of each class, from all calibration images."""
        return _p_values(self.all_images, nonconformity)

    def group_p_values(self, nonconformity: np.ndarray, groups: np.ndarray) -> np.ndarray:
        """Return the p-value [N,K] of each class, from calibration images of the same group alone.

        Without such images every p-value is 1: the set holds all classes.
        """
        p = np.ones(nonconformity.shape)
        for name in np.unique(groups).tolist():
            rows = groups == name
            p[rows] = _p_values(self.by_group.get(name, np.empty(0)), nonconformity[rows])
        return p


def _p_values(calibration: np.ndarray, nonconformity: np.ndarray) -> np.ndarray:
    at_least = len(calibration) - np.searchsorted(calibration, nonconformity, side="left")
    p: np.ndarray = (at_least + 1) / (len(calibration) + 1)
    return p


def prediction_sets(p_values: np.ndarray, alpha: float) -> np.ndarray:
    """Return which classes are in each image's prediction set, bool [N,K]."""
    sets: np.ndarray = p_values > alpha + ROUNDING
    return sets
