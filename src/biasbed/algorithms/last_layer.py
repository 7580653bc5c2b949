"""A linear classifier refitted on groups in equal parts, by logistic regression with an L1 penalty (Kirichenko 2023).

Numbers in, numbers out: features and labels as arrays, of which the groups are drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from sklearn.multiclass import OneVsRestClassifier
    from sklearn.preprocessing import StandardScaler

TRIES = 1000  # iterations that a fit may take


class LastLayer(NamedTuple):
    """weights [K,D] and intercepts [K] for features as they are, of two classes too; the strength C that was chosen."""

    weights: np.ndarray
    intercepts: np.ndarray
    strength: float


def refit(
    x: np.ndarray,
    y: np.ndarray,
    group: np.ndarray,
    usual: np.ndarray,
    strengths: Sequence[float],
    draws: int,
    generator: np.random.Generator,
) -> LastLayer:
    """The last layer of features x [N,D] with labels y and groups [N], of which each has two images at least.

    C is the first of `strengths` with the best accuracy in the worst group, on one half of each group, of a fit on the
    other. Weights and intercepts are then means over `draws` fits to as many images of each group as the smallest has.
    usual: features [M,D] by whose means and deviations these fits are standardised.
    """
    from sklearn.preprocessing import StandardScaler

    one, other = halves(group, generator)
    rows = one[balanced(group[one], generator)]
    scaler = StandardScaler().fit(x[rows])
    tried = [fit(scaler.transform(x[rows]), y[rows], strength) for strength in strengths]
    worst = [worst_group(own.predict(scaler.transform(x[other])), y[other], group[other]) for own in tried]
    strength = strengths[int(np.argmax(worst))]
    scaler = StandardScaler().fit(usual)
    fits = []
    for _ in range(draws):
        rows = balanced(group, generator)
        fits.append(linear(fit(scaler.transform(x[rows]), y[rows], strength)))
    weights, intercepts = (np.mean(parts, axis=0) for parts in zip(*fits, strict=True))
    return LastLayer(*for_features(weights, intercepts, scaler), strength)


def balanced(group: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """Rows with as many images of each group as the smallest has, drawn without replacement."""
    least = np.unique(group, return_counts=True)[1].min()
    return _of_each(group, generator, lambda number: slice(least))


def halves(group: np.ndarray, generator: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Rows of two halves of every group; of an odd number, the first one gets one more."""
    first = _of_each(group, generator, lambda number: slice(-(-number // 2)))
    return first, np.setdiff1d(np.arange(len(group)), first)


def _of_each(group: np.ndarray, generator: np.random.Generator, part: Callable[[int], slice]) -> np.ndarray:
    """Part of each group's rows in random order. part: of a number of rows."""
    members = [generator.permutation(np.flatnonzero(group == number)) for number in np.unique(group)]
    return np.concatenate([rows[part(len(rows))] for rows in members])


def fit(x: np.ndarray, y: np.ndarray, strength: float) -> OneVsRestClassifier:
    """One class against the rest each; of two classes one fit. Equal for equal numbers."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.multiclass import OneVsRestClassifier

    regression = LogisticRegression(C=strength, l1_ratio=1, solver="liblinear", max_iter=TRIES, random_state=0)
    return OneVsRestClassifier(regression).fit(x, y)


def worst_group(decided: np.ndarray, y: np.ndarray, group: np.ndarray) -> float:
    """The smallest of the groups' accuracies."""
    return min(float((decided == y)[group == number].mean()) for number in np.unique(group))


def linear(fitted: OneVsRestClassifier) -> tuple[np.ndarray, np.ndarray]:
    """Weights [F,D] and intercepts [F] of the fits: one of two classes, else K."""
    each = fitted.estimators_
    return np.stack([own.coef_[0] for own in each]), np.array([own.intercept_[0] for own in each])


def for_features(weights: np.ndarray, intercepts: np.ndarray, scaler: StandardScaler) -> tuple[np.ndarray, np.ndarray]:
    """The same for features that are not standardised, of every class.

    A single fit's score z becomes -z/2 and z/2, of which the softmax is its sigmoid.
    """
    weights = weights / scaler.scale_
    intercepts = intercepts - weights @ scaler.mean_
    if len(weights) > 1:
        return weights, intercepts
    return np.concatenate([-weights / 2, weights / 2]), np.concatenate([-intercepts / 2, intercepts / 2])
