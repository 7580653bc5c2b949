"""Scores of a model on images of one label each: checks of logits, log-probabilities, division into halves."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from biasbed.errors import UsageError
from biasbed.evaluation.calibration import are_probabilities

FEWEST = 2  # images, so that each half has one
FEWEST_VALUES = 20  # so that logits are never all positive by chance
CONSTANT = 0.1  # standard deviation of the sums of rows, by the one that independent values would have


@dataclass(frozen=True, eq=False)
class ScoredImages:
    """Scores on N images of a set with K classes, of D features."""

    log_probabilities: np.ndarray  # [N,K] float64, of the set's classes
    labels: np.ndarray  # [N] int
    energy: np.ndarray  # [N] logarithm of the summed exponentials of all outputs: the negative energy
    max_softmax: np.ndarray  # [N] largest probability among all outputs
    images: np.ndarray  # [N] names
    features: np.ndarray | None = None  # [N,D]
    groups: np.ndarray | None = None  # [N] names of groups
    is_named: bool = True  # False: the names are numbers of rows, which tell nothing of other images
    is_labelled: bool = True  # False: the labels are unknown, and zero; such images can only be detected

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def probabilities(self) -> np.ndarray:
        """[N,K] probabilities of the set's classes."""
        result: np.ndarray = np.exp(self.log_probabilities)
        return result

    @property
    def confidence(self) -> np.ndarray:
        """[N] probability of the decision."""
        result: np.ndarray = self.probabilities.max(axis=1)
        return result

    @property
    def right(self) -> np.ndarray:
        """[N] True if the decision, the first of the most probable classes, is the label."""
        result: np.ndarray = self.log_probabilities.argmax(axis=1) == self.labels
        return result

    def select(self, rows: np.ndarray) -> ScoredImages:
        """Return the images of these rows, an array of numbers or of bool."""
        columns = ("log_probabilities", "labels", "energy", "max_softmax", "images", "features", "groups")
        chosen: dict[str, Any] = {}
        for name in columns:
            column = getattr(self, name)
            chosen[name] = None if column is None else column[rows]
        return replace(self, **chosen)


def from_logits(
    logits: Any,
    labels: Any = None,
    images: Sequence[str] | None = None,
    features: Any = None,
    groups: Sequence[str] | None = None,
    where: str = "logits",
) -> ScoredImages:
    """Return the scores of logits [N,K] and labels [N], numbers of classes. where: name of the logits in messages.

    labels: None if they are unknown, as on images of other classes.

    Raises UsageError for NaN, infinite or too few values, probabilities, labels that are no class, or other lengths.
    """
    matrix = check_logits(logits, where)
    numbers = np.zeros(len(matrix), dtype=np.int64)
    if labels is not None:
        numbers = check_labels(labels, matrix.shape, where)
    names = np.arange(len(matrix)).astype(str) if images is None else np.asarray(images, dtype=str)
    _refuse_other_length(names, matrix, f"images of {where}")
    feature_matrix, group_names = None, None
    if features is not None:
        feature_matrix = np.asarray(features, dtype=np.float64)
        _refuse_other_length(feature_matrix, matrix, f"features of {where}")
        if feature_matrix.ndim != 2 or not np.isfinite(feature_matrix).all():
            raise UsageError(f"features of {where}: give finite numbers [N,D]")
    if groups is not None:
        group_names = np.asarray(groups, dtype=str)
        _refuse_other_length(group_names, matrix, f"groups of {where}")
    largest = matrix.max(axis=1, keepdims=True)
    centred = matrix - largest  # first: matrix - energy would round by the size of the logits, which breaks ties
    # Sorted, so that images with the same logits in another order tie.
    log_sum = np.log(np.exp(np.sort(centred, axis=1)).sum(axis=1, keepdims=True))
    log_probabilities = centred - log_sum
    energy = (largest + log_sum)[:, 0]
    max_softmax = np.exp(-log_sum[:, 0])
    columns = log_probabilities, numbers, energy, max_softmax, names, feature_matrix, group_names
    return ScoredImages(*columns, is_named=images is not None, is_labelled=labels is not None)


def check_logits(logits: Any, where: str = "logits") -> np.ndarray:
    """Return logits [N,K] as float64. Raises UsageError if they are not finite, too few, or probabilities."""
    matrix = np.asarray(logits, dtype=np.float64)
    if matrix.ndim != 2 or not len(matrix) or matrix.shape[1] < 2:
        raise UsageError(
            f"{where}: give numbers [images,classes] of 1 image and 2 classes at least, not {matrix.shape}"
        )
    bad = ~np.isfinite(matrix).all(axis=1)
    if bad.any():
        raise UsageError(
            f"{where}: NaN or infinite in {int(bad.sum())} of {len(matrix)} images, first in {bad.argmax()}"
        )
    if look_like_probabilities(matrix):
        values = f"no value is negative, from {matrix.min():g} to {matrix.max():g}"
        raise UsageError(
            f"{where}: these are probabilities or percentages ({values}): give logits, which come before the softmax, "
            "or the logarithm of probabilities that are not rounded"
        )
    return matrix


def look_like_probabilities(values: np.ndarray) -> bool:
    """Return True for values [N,K] that are no logits: probabilities, also rounded or scaled, sigmoids or percentages.

    They are never negative, and lie between 0 and 1 or have the same sum for each image. Logits do not: the gradient
    of the softmax's loss has the sum 0 over classes, so training moves some logits below 0 as it moves others above.
    Fewer than 20 values may be positive by chance, and are judged by `are_probabilities` alone.
    """
    if values.size < FEWEST_VALUES or values.min() < 0:
        return are_probabilities(values)
    independent = np.sqrt(values.shape[1]) * values.std()
    return bool(values.max() <= 1 or values.sum(axis=1).std() <= CONSTANT * independent)


def check_labels(labels: Any, shape: Sequence[int], where: str) -> np.ndarray:
    """Return labels [N] as integers. Raises UsageError unless each is the number of one of the K classes."""
    numbers = np.asarray(labels)
    if numbers.shape != (shape[0],):
        raise UsageError(f"labels of {where}: {list(numbers.shape)} labels for {shape[0]} images")
    is_class = np.isin(numbers, np.arange(shape[1]))
    if not is_class.all():
        raise UsageError(
            f"labels of {where}: {numbers[~is_class][0]} is no class: give numbers from 0 to {shape[1] - 1}"
        )
    return numbers.astype(np.int64)


def _refuse_other_length(column: np.ndarray, matrix: np.ndarray, name: str) -> None:
    if len(column) != len(matrix):
        raise UsageError(f"{name}: {len(column)} for {len(matrix)} images")


def is_calibrating(images: np.ndarray) -> np.ndarray:
    """Return [N] True for the half of the images that calibrates, False for the half that is measured.

    Images are ranked by the SHA-256 of their names, and every second one calibrates. So the halves depend neither on
    the order of the images nor on the model.
    """
    digests = [hashlib.sha256(str(name).encode()).digest() for name in images]
    order = sorted(range(len(images)), key=digests.__getitem__)
    half = np.zeros(len(images), dtype=bool)
    half[order[::2]] = True
    return half
