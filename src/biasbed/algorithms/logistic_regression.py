"""Multinomial logistic regression with an L2 penalty on features, and the search for its strength (Radford 2021).

Works on NumPy arrays of features and labels. The solver is scikit-learn's L-BFGS.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence

import numpy as np

from biasbed.algorithms.last_layer import LastLayer, by_class

ITERATIONS = 1000  # largest number of iterations of a fit (Radford 2021, appendix A.3)
TOLERANCE = 1e-6  # of the gradient: at scikit-learn's 1e-4, rounding of the features moves weights by a thousandth


def fit(x: np.ndarray, y: np.ndarray, strength: float) -> LastLayer:
    """Return the last layer fitted to features x [N,D] and labels y, with C = strength. Equal inputs give equal fits.

    All labels from 0 to the largest must occur. A fit that does not converge in `ITERATIONS` is used as it is.
    """
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        fitted = LogisticRegression(C=strength, max_iter=ITERATIONS, tol=TOLERANCE).fit(x, y)
    return LastLayer(*by_class(fitted.coef_, fitted.intercept_), strength)


def accuracy(layer: LastLayer, x: np.ndarray, y: np.ndarray) -> float:
    """Return the part of the features x [N,D] that a layer decides as labelled."""
    scores = x @ layer.weights.T + layer.intercepts
    return float((scores.argmax(axis=1) == y).mean())


def search(score: Callable[[float], float], strengths: Sequence[float], halvings: int) -> float:
    """Return the value of C with the best score; of equal ones the smallest (parametric binary search, appendix A.3).

    strengths: rising values to begin with. Each halving tries the geometric means of the best value and its neighbours.
    """
    scores = {strength: score(strength) for strength in strengths}
    for _ in range(halvings):
        tried = sorted(scores)
        number = tried.index(choose(scores))
        for neighbour in tried[max(0, number - 1) : number] + tried[number + 1 : number + 2]:
            middle = math.sqrt(tried[number] * neighbour)
            scores[middle] = score(middle)
    return choose(scores)


def choose(scores: dict[float, float]) -> float:
    """Return the key with the largest value; of equal ones the smallest key."""
    return min(scores, key=lambda key: (-scores[key], key))
