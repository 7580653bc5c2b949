"""Precision by recall, of images with several labels: which of them each has [N,K] bool, and scores [N,K]."""

from __future__ import annotations

import math

import numpy as np

NAN = math.nan


def averages(targets: np.ndarray, scores: np.ndarray) -> list[float]:
    """Average precision of each label, the area in steps; NaN for one that no image has."""
    from sklearn.metrics import average_precision_score

    pairs = zip(targets.T, scores.T, strict=True)
    return [float(average_precision_score(has, score)) if has.any() else NAN for has, score in pairs]


def mean(targets: np.ndarray, scores: np.ndarray) -> float:
    """Of the labels that some image has; NaN where none has."""
    known = [value for value in averages(targets, scores) if not math.isnan(value)]
    return math.fsum(known) / len(known) if known else NAN


def mean_by_trapezoids(targets: np.ndarray, scores: np.ndarray) -> float:
    """Of each label the area below the line through its points, weighted by its share of all positives.

    NaN where no image has any label.
    As the program of The Many Faces of Robustness (Hendrycks et al. 2021) has it for DeepFashion Remixed: lines between
    points promise more than a classifier gives (Davis and Goadrich, ICML 2006), and rare labels hardly count.
    """
    from sklearn.metrics import auc, precision_recall_curve

    if not targets.any():
        return NAN
    present = np.flatnonzero(targets.any(axis=0))
    curves = [precision_recall_curve(targets[:, k], scores[:, k]) for k in present]
    areas = [float(auc(recall, precision)) for precision, recall, _ in curves]
    return float(np.average(areas, weights=targets[:, present].sum(axis=0)))
