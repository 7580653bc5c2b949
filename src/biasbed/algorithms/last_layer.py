"""Last layer refitted on balanced groups by logistic regression with an L1 penalty (Kirichenko 2023).

Works on NumPy arrays of features and labels.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from sklearn.multiclass import OneVsRestClassifier
    from sklearn.preprocessing import StandardScaler

TRIES = 1000  # largest number of iterations of a fit


class Linear(NamedTuple):
    """Linear classifiers, F of them: weights [F,D] and intercepts [F]."""

    weights: np.ndarray
    intercepts: np.ndarray


class LastLayer(NamedTuple):
    """Last layer for unscaled features: weights [K,D] and intercepts [K], also for two classes, and the chosen C."""

    weights: np.ndarray
    intercepts: np.ndarray
    strength: float


def refit(
    x: np.ndarray,
    y: np.ndarray,
    group: np.ndarray,
    train_features: np.ndarray,
    strengths: Sequence[float],
    draws: int,
    generator: np.random.Generator,
) -> LastLayer:
    """Return the last layer for features x [N,D] with labels y and groups [N] of at least two images each.

    C is the first of `strengths` with the best worst-group accuracy on one half of each group, after a fit on the other
    half. Weights and intercepts are then means over `draws` fits, each on a random subset with as many images of each
    group as the smallest one has. train_features: [M,D], whose means and deviations standardise these fits.
    """
    from sklearn.preprocessing import StandardScaler

    fit_half, test_half = halve_groups(group, generator)
    rows = fit_half[draw_balanced(group[fit_half], generator)]
    scaler = StandardScaler().fit(x[rows])
    accuracies = []
    for candidate in strengths:
        classifier = fit(scaler.transform(x[rows]), y[rows], candidate)
        predictions = classifier.predict(scaler.transform(x[test_half]))
        accuracies.append(worst_group_accuracy(predictions, y[test_half], group[test_half]))
    strength = strengths[int(np.argmax(accuracies))]
    scaler = StandardScaler().fit(train_features)
    fits = []
    for _ in range(draws):
        rows = draw_balanced(group, generator)
        fits.append(coefficients(fit(scaler.transform(x[rows]), y[rows], strength)))
    weights, intercepts = (np.mean(parts, axis=0) for parts in zip(*fits, strict=True))
    return LastLayer(*unscale(weights, intercepts, scaler), strength)


def draw_balanced(group: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """Return rows with as many images of each group as the smallest one has, drawn without replacement."""
    least = np.unique(group, return_counts=True)[1].min()
    return np.concatenate([rows[:least] for rows in _shuffled_groups(group, generator)])


def halve_groups(group: np.ndarray, generator: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows of a random half of every group, and the other rows.

    The first half of an odd number is larger by one.
    """
    first = np.concatenate([rows[: -(-len(rows) // 2)] for rows in _shuffled_groups(group, generator)])
    return first, np.setdiff1d(np.arange(len(group)), first)


def _shuffled_groups(group: np.ndarray, generator: np.random.Generator) -> list[np.ndarray]:
    """Return the rows of each group in random order."""
    return [generator.permutation(np.flatnonzero(group == number)) for number in np.unique(group)]


def fit(x: np.ndarray, y: np.ndarray, strength: float) -> OneVsRestClassifier:
    """Return one-against-the-rest classifiers; a single one for two classes. Equal inputs give equal fits."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.multiclass import OneVsRestClassifier

    regression = LogisticRegression(C=strength, l1_ratio=1, solver="liblinear", max_iter=TRIES, random_state=0)
    return OneVsRestClassifier(regression).fit(x, y)


def worst_group_accuracy(predictions: np.ndarray, y: np.ndarray, group: np.ndarray) -> float:
    """Return the smallest of the groups' accuracies."""
    return min(float((predictions == y)[group == number].mean()) for number in np.unique(group))


def coefficients(fitted: OneVsRestClassifier) -> Linear:
    """Return the classifiers that were fitted: one for two classes, else one for each of K."""
    classifiers = fitted.estimators_
    weights = np.stack([classifier.coef_[0] for classifier in classifiers])
    return Linear(weights, np.array([classifier.intercept_[0] for classifier in classifiers]))


def unscale(weights: np.ndarray, intercepts: np.ndarray, scaler: StandardScaler) -> Linear:
    """Return the classifiers of all K classes for features as they are, from those for standardised features."""
    weights = weights / scaler.scale_
    return by_class(weights, intercepts - weights @ scaler.mean_)


def by_class(weights: np.ndarray, intercepts: np.ndarray) -> Linear:
    """Return the classifiers of all K classes, also from the single one that two classes have.

    Its score z becomes -z/2 and z/2, whose softmax is the sigmoid of z.
    """
    if len(weights) > 1:
        return Linear(weights, intercepts)
    return Linear(*(np.concatenate([-values / 2, values / 2]) for values in (weights, intercepts)))
