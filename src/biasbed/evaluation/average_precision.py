"""Average precision of images with several labels.

Arguments are which of K labels each image has, [N,K] bool, and the scores of the labels, [N,K].
"""

from __future__ import annotations

import math

import numpy as np

NAN = math.nan


def averages(targets: np.ndarray, scores: np.ndarray) -> list[float]:
    """Compute the average precision of each label, the area in steps; NaN for a label that no image has."""
    from sklearn.metrics import average_precision_score

    values = []
    for target, score in zip(targets.T, scores.T, strict=True):
        values.append(float(average_precision_score(target, score)) if target.any() else NAN)
    return values


def mean(targets: np.ndarray, scores: np.ndarray) -> float:
    """Compute the mean over the labels that some image has; NaN if there are none."""
    values = [value for value in averages(targets, scores) if not math.isnan(value)]
    if not values:
        return NAN
    return math.fsum(values) / len(values)


def mean_by_trapezoids(targets: np.ndarray, scores: np.ndarray) -> float:
    """Compute the mean area below the line through each label's points, weighted by its share of all positives.

    NaN if no image has any label. The program of The Many Faces of Robustness (Hendrycks et al. 2021) does so for
    DeepFashion Remixed: lines between points promise more than a classifier gives (Davis and Goadrich, ICML 2006), and
    rare labels hardly count.
    """
    from sklearn.metrics import auc, precision_recall_curve

    if not targets.any():
        return NAN
    present = np.flatnonzero(targets.any(axis=0))
    areas = []
    for label in present:
        precision, recall, _ = precision_recall_curve(targets[:, label], scores[:, label])
        areas.append(float(auc(recall, precision)))
    return float(np.average(areas, weights=targets[:, present].sum(axis=0)))
